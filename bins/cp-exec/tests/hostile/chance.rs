//! Chance that can be had again: each test has its seed, and `CP_SEED` gives it another.

/// A generator of numbers (splitmix64): the same seed gives the same numbers anywhere.
pub(crate) struct Chance(u64);

impl Chance {
    /// The generator of one test, from `CP_SEED` if that is set.
    pub(crate) fn of_this_test(seed: u64) -> Self {
        let given = std::env::var("CP_SEED").ok().and_then(|text| text.parse().ok());
        Self(given.unwrap_or(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most as u64).unwrap()
    }

    /// True with a probability of one in `most`.
    pub(crate) fn one_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }

    /// One of a list.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

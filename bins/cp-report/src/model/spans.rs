//! What happened when, and how much of it: kept in so many pieces at most, however long it took.

/// What a span is drawn in.
pub(crate) const LANES: [&str; 4] = ["model", "tools", "commands", "people"];

/// The most spans that are kept of a lane.
const MOST: usize = 400;

/// Something that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) lane: usize,
    /// 0 fine, 1 failed, 2 refused, 3 only waiting.
    pub(crate) tone: u8,
    /// Milliseconds since 1970.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The ledger and the line that end it.
    pub(crate) place: (usize, u64),
    /// How many it stands for.
    pub(crate) count: u64,
}

/// Keeps a lane at its most: neighbours of the same tone become one.
pub(crate) fn thin(spans: &mut Vec<Span>) {
    while spans.len() > MOST {
        let mut kept: Vec<Span> = Vec::with_capacity(spans.len() / 2 + 1);
        let mut is_joined = false;
        for span in spans.drain(..) {
            match kept.last_mut() {
                Some(last) if !is_joined => {
                    last.end = last.end.max(span.end);
                    last.count += span.count;
                    // What went wrong stays visible among what did not.
                    if last.tone == 0 {
                        (last.tone, last.place) = (span.tone, span.place);
                    }
                    is_joined = true;
                }
                _ => {
                    kept.push(span);
                    is_joined = false;
                }
            }
        }
        *spans = kept;
    }
}

/// Values in order, of which several become one step when there are too many.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    /// How many values a step has.
    pub(crate) width: u64,
    /// The number of values.
    pub(crate) count: u64,
    /// The sum of each step, of two kinds.
    pub(crate) sums: Vec<[u64; 2]>,
}

impl Default for Steps {
    fn default() -> Self {
        Self { width: 1, count: 0, sums: Vec::new() }
    }
}

impl Steps {
    pub(crate) fn push(&mut self, value: [u64; 2]) {
        if self.count.is_multiple_of(self.width) {
            if self.sums.len() == MOST / 2 {
                self.sums =
                    self.sums.chunks(2).map(|two| two.iter().fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]])).collect();
                self.width *= 2;
            }
            self.sums.push([0; 2]);
        }
        self.count += 1;
        if let Some(last) = self.sums.last_mut() {
            *last = [last[0].saturating_add(value[0]), last[1].saturating_add(value[1])];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_kept_as_few_and_nothing_is_lost() {
        let mut steps = Steps::default();
        let mut spans = Vec::new();
        for at in 0..10_000 {
            steps.push([1, 2]);
            let tone = u8::from(at == 4321);
            spans.push(Span { lane: 0, tone, start: at, end: at + 1, place: (0, at.unsigned_abs()), count: 1 });
            if spans.len() > 2 * MOST {
                thin(&mut spans);
            }
        }
        thin(&mut spans);
        assert!(spans.len() <= MOST && steps.sums.len() <= MOST / 2, "{} {}", spans.len(), steps.sums.len());
        assert_eq!(spans.iter().map(|span| span.count).sum::<u64>(), 10_000);
        assert!(spans.iter().any(|span| span.tone == 1 && span.place.1 == 4321));
        assert_eq!(steps.sums.iter().fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]), [10_000, 20_000]);
        let after_doubling = steps.sums.iter().rev().skip(1).all(|sum| sum[0] == steps.width);
        assert!(after_doubling, "{steps:?}");
    }
}

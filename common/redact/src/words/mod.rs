//! Recognition of names, values and random text.

pub(crate) mod line;
pub(crate) mod name;
pub(crate) mod random;
pub(crate) mod scan;
pub(crate) mod value;

/// Lists of words, from `tables/words.txt`.
pub(crate) mod tables {
    include!(concat!(env!("OUT_DIR"), "/words.rs"));
}

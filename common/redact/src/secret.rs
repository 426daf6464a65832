//! What is looked for.

use std::ops::Range;

/// A secret that was found: where, and by which rule.
pub(crate) struct Secret {
    pub(crate) at: Range<usize>,
    pub(crate) rule: &'static str,
}

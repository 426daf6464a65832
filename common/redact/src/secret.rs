//! The result of a rule.

use std::ops::Range;

/// A secret in a text: its range, and the rule that matched.
pub(crate) struct Secret {
    pub(crate) at: Range<usize>,
    pub(crate) rule: &'static str,
}

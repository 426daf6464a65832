//! The verdict of several comparisons between entries: the first that fails.

use std::fmt::Debug;

use serde_json::Value;

use super::claim::{Entry, Verdict};

/// Comparisons so far.
#[derive(Debug)]
pub(super) struct Check {
    broken: Option<String>,
    unknown: Option<String>,
    is_unapproved: bool,
    /// True if a secret was taken out of one of the entries, so that its texts may differ.
    is_redacted: bool,
}

impl Check {
    /// Comparisons of texts, of which some may be redacted.
    pub(super) const fn new(is_redacted: bool) -> Self {
        Self { broken: None, unknown: None, is_unapproved: false, is_redacted }
    }

    /// Comparisons of an entry.
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        Self::new(entry.is_redacted())
    }

    /// Fails for this reason unless the condition holds.
    pub(super) fn that(&mut self, holds: bool, why: impl FnOnce() -> String) -> &mut Self {
        if !holds && self.broken.is_none() {
            self.broken = Some(why());
        }
        self
    }

    /// Fails for this reason if a call without its approval took effect.
    pub(super) fn approved(&mut self, is_approved: bool, why: impl FnOnce() -> String) -> &mut Self {
        self.is_unapproved |= !is_approved && self.broken.is_none();
        self.that(is_approved, why)
    }

    /// Compares two values that no redaction changes.
    #[expect(clippy::needless_pass_by_value, reason = "callers compare options of references")]
    pub(super) fn same<T: PartialEq<U> + Debug, U: Debug>(&mut self, name: &str, found: T, expected: U) -> &mut Self {
        self.that(found == expected, || format!("{name} is {}, not {}", shown(&found), shown(&expected)))
    }

    /// Compares two texts, or values with texts. A difference cannot be judged if a secret was taken out.
    pub(super) fn text<T: PartialEq<U> + Debug, U: Debug>(&mut self, name: &str, found: T, expected: U) -> &mut Self {
        if found != expected && self.is_redacted {
            self.unknown.get_or_insert_with(|| format!("a secret was taken out of {name}"));
            return self;
        }
        self.same(name, found, expected)
    }

    /// Cannot be judged, for this reason.
    pub(super) fn unknown(&mut self, why: impl Into<String>) -> &mut Self {
        self.unknown.get_or_insert_with(|| why.into());
        self
    }

    /// Adds comparisons of other entries.
    pub(super) fn join(&mut self, other: Self) {
        self.is_unapproved |= other.is_unapproved && self.broken.is_none();
        self.broken = self.broken.take().or(other.broken);
        self.unknown = self.unknown.take().or(other.unknown);
    }

    pub(super) fn verdict(self) -> Verdict {
        match (self.broken, self.unknown) {
            (Some(why), _) if self.is_unapproved => Verdict::Unapproved(why),
            (Some(why), _) => Verdict::Broken(why),
            (None, Some(why)) => Verdict::Unknown(why),
            (None, None) => Verdict::Holds,
        }
    }
}

/// A value in a message, in the form of JSON and cut.
fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let text = ["Some(", "String(", "Number("]
        .iter()
        .fold(text.as_str(), |text, name| text.strip_prefix(name).unwrap_or(text));
    let text = if text == "None" { "null" } else { text.trim_end_matches(')') };
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A member of a value, below these names.
pub(super) fn at<'a>(value: &'a Value, names: &[&str]) -> &'a Value {
    names.iter().fold(value, |value, name| value.get(name).unwrap_or(&Value::Null))
}

//! Why some bytes are not JSON, and where.

use std::fmt;

/// Why some bytes are not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The offset of the first byte that is wrong.
    pub offset: usize,
    /// The description of the fault.
    pub reason: Reason,
}

/// A kind of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The input ends inside a value.
    End,
    /// No value starts here.
    Value,
    /// A value is followed by something that does not belong there.
    Follow,
    /// An object's member does not start with a string.
    Name,
    /// A member name is not followed by a colon.
    Colon,
    /// A number that JSON does not know, such as `01` or `1.`.
    Number,
    /// A backslash before a character that needs none.
    Escape,
    /// A control character inside a string.
    Control,
    /// Not UTF-8.
    Utf8,
    /// A member name that the object already has.
    Duplicate,
    /// Nested too deep.
    Depth,
    /// JSON, but not in normal form. Only [`crate::is_normal`] sees it.
    Spelling,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "ends inside a value",
            Self::Value => "expected a value",
            Self::Follow => "unexpected bytes after a value",
            Self::Name => "expected a member name in quotes",
            Self::Colon => "expected a colon after the member name",
            Self::Number => "not a JSON number",
            Self::Escape => "unknown escape",
            Self::Control => "control character in a string",
            Self::Utf8 => "not UTF-8",
            Self::Duplicate => "duplicate member name",
            Self::Depth => "nested too deep",
            Self::Spelling => "not in normal form",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for Fault {}

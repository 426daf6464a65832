//! A server: its name, its command and its table of the policy.

use crate::policy::Table;

/// The longest tool name that every provider accepts.
pub const LONGEST_NAME: usize = 64;

/// A server.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// Its table of the policy.
    pub table: Table,
}

/// True if a server or tool can have this name, which every provider accepts, and which is not a path.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_in_names)
}

/// True if a byte can be in a name.
pub fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn name_is_letters_digits_underscores_and_hyphens() {
        for good in ["a", "word_count", "mcp-files_read", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "../x", "a.b", "a b", "ä", "a/b", "a\n", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}

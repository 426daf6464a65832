//! A server, as the command line or a file names it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::Result;
use serde::{Deserialize, Serialize};

use crate::config;

/// The longest name of a tool that every provider takes.
pub const LONGEST_NAME: usize = 64;

/// A server, as the command line or a file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// What it is called here.
    pub name: String,
    /// What starts it.
    pub argv: Vec<String>,
    /// The variables that its file gives it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The file that it is from. In the command and variables of such a one other variables stand by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

/// Whether a server or tool can have this name: every provider takes it, and it cannot be taken for a path.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_in_names)
}

/// Whether a byte can be in a name.
pub fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

impl Spec {
    /// This one, with the values of the variables that it names.
    pub(crate) fn expanded(&self) -> Result<Self> {
        if self.config.is_none() {
            return Ok(self.clone());
        }
        let argv = self.argv.iter().map(|word| config::expanded(word)).collect::<Result<_>>()?;
        let env = self.env.iter().map(|(name, value)| Ok((name.clone(), config::expanded(value)?)));
        Ok(Self { argv, env: env.collect::<Result<_>>()?, ..self.clone() })
    }
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

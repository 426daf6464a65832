//! A server on the command line or in a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::Result;
use serde::{Deserialize, Serialize};

use crate::config;

/// The longest tool name that every provider accepts.
pub const LONGEST_NAME: usize = 64;

/// A server on the command line or in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// The variables in its file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its file, if it is from one. Variables in its command and environment are not expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

/// True if a server or tool can have this name, which every provider accepts, and which is not a path.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_in_names)
}

/// True if a byte can be in a name.
pub fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

impl Spec {
    /// This server, with its variables expanded.
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

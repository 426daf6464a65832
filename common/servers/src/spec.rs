//! A server: its name, its command and its variables.

use std::collections::BTreeMap;

use cp_common::{Code, Error, Result};

use crate::policy::is_key_of_model;

/// The longest tool name that every provider accepts.
pub const LONGEST_NAME: usize = 64;

/// A server on the command line or in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// The variables in its file.
    pub env: BTreeMap<String, String>,
    /// True if it is from a file. Variables in its command and environment are not expanded.
    pub is_of_file: bool,
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
        if !self.is_of_file {
            return Ok(self.clone());
        }
        let argv = self.argv.iter().map(|word| expanded(word)).collect::<Result<_>>()?;
        let env = self.env.iter().map(|(name, value)| Ok((name.clone(), expanded(value)?)));
        Ok(Self { argv, env: env.collect::<Result<_>>()?, ..self.clone() })
    }
}

/// Expands variables in a text: `${NAME}`, `${env:NAME}`, or `${NAME:-default}`.
pub(crate) fn expanded(text: &str) -> Result<String> {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((named, behind)) = after.split_once('}') else { break };
        let named = named.strip_prefix("env:").unwrap_or(named);
        let (name, otherwise) = named.split_once(":-").map_or((named, None), |(name, text)| (name, Some(text)));
        if is_key_of_model(name) {
            return Err(refused(name));
        }
        done.push_str(before);
        match (std::env::var(name).ok().filter(|value| !value.is_empty()), otherwise) {
            (Some(value), _) => done.push_str(&value),
            (None, Some(otherwise)) => done.push_str(otherwise),
            (None, None) => {
                return Err(Error::config(format!("the variable {name} is not set"))
                    .hint(format!("set it, or write ${{{name}:-VALUE}}")));
            }
        }
        rest = behind;
    }
    Ok(done + rest)
}

pub(crate) fn refused(variable: &str) -> Error {
    Error::new(Code::Forbidden, format!("{variable} is not given: servers must not get the keys of model providers"))
        .hint("give the server a key of its own under another name")
}

#[cfg(test)]
mod tests {
    use super::{is_name, *};

    #[test]
    fn name_is_letters_digits_underscores_and_hyphens() {
        for good in ["a", "word_count", "mcp-files_read", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "../x", "a.b", "a b", "ä", "a/b", "a\n", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn variables_are_expanded_and_model_keys_refused() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(expanded("a${PATH}b${NOT_SET_HERE:-c}$PATH${").unwrap(), format!("a{path}bc$PATH${{"));
        assert_eq!(expanded("${env:PATH}").unwrap(), path);
        assert!(expanded("${NOT_SET_HERE}").unwrap_err().message().contains("NOT_SET_HERE is not set"));
        assert_eq!(expanded("x ${OPENAI_API_KEY:-y}").unwrap_err().code(), Code::Forbidden);
    }
}

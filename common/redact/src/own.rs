//! The secrets of this process, which are searched for in the JSON spelling of each string.

use cp_json as json;
use memchr::memmem::Finder;

use crate::Secret;
use crate::mark::is_marked;

/// Minimum length of a secret, because shorter values would redact ordinary words.
const SHORTEST: usize = 12;
pub(crate) const RULE: &str = "own_secret";

/// The spellings of the secrets in a JSON string, and in JSON that is itself the content of a string.
#[derive(Debug, Default)]
pub(crate) struct Own(Vec<Finder<'static>>);

impl Own {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let secrets = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST);
        let mut spellings: Vec<String> = secrets.map(|secret| spelt(&secret)).flat_map(|it| [spelt(&it), it]).collect();
        spellings.sort();
        spellings.dedup();
        Self(spellings.iter().map(|spelling| Finder::new(spelling).into_owned()).collect())
    }

    /// Returns the secrets in a text, which may overlap.
    pub(crate) fn find(&self, text: &[u8]) -> Vec<Secret> {
        let mut found = Vec::new();
        for needle in &self.0 {
            let mut from = 0;
            while let Some(offset) = needle.find(&text[from..]) {
                let at = from + offset..from + offset + needle.needle().len();
                // After an odd number of backslashes the first byte is the letter of an escape.
                let slashes = text[..at.start].iter().rev().take_while(|byte| **byte == b'\\').count();
                let is_secret = slashes % 2 == 0 && !is_marked(text, &at);
                from = if is_secret { at.end } else { at.start + 1 };
                found.extend(is_secret.then_some(Secret { at, rule: RULE }));
            }
        }
        found
    }
}

fn spelt(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    json::string(text, &mut quoted);
    String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned()
}

//! The secrets of this process, which are searched for in the JSON spelling of each string.

use cp_json as json;
use memchr::memmem::Finder;

use crate::Secret;
use crate::mark::{OWN, is_marked};

/// Minimum length of a secret, because shorter values would redact ordinary words.
const SHORTEST: usize = 12;

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
                let is_secret = !is_in_escape(text, at.start) && !is_marked(text, &at);
                from = if is_secret { at.end } else { at.start + 1 };
                found.extend(is_secret.then_some(Secret { at, rule: OWN }));
            }
        }
        found
    }
}

/// True if an escape begins before this offset and ends after it.
fn is_in_escape(text: &[u8], at: usize) -> bool {
    let near = at.saturating_sub(5);
    let Some(slash) = memchr::memrchr(b'\\', &text[near..at]).map(|slash| near + slash) else { return false };
    let slashes = text[..=slash].iter().rev().take_while(|byte| **byte == b'\\').count();
    slashes % 2 == 1 && at < slash + if text[slash + 1] == b'u' { 6 } else { 2 }
}

fn spelt(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    json::string(text, &mut quoted);
    String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned()
}

//! Governed prompts: a prompt names the registered text that its system text begins with, and that is verified.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cp_common::Result;
use cp_common::home::Home;
use cp_policy::prompts::Prompts;

/// The registered prompts of a home. The registry is read with the first prompt that must be governed, and each text once.
pub(super) struct Governed {
    home: Home,
    read: Mutex<Option<Read>>,
}

struct Read {
    prompts: Prompts,
    texts: HashMap<String, String>,
}

impl Governed {
    /// The prompts of this home.
    pub(super) fn of(home: &Home) -> Self {
        Self { home: home.clone(), read: Mutex::default() }
    }

    /// Whether a system text begins with the prompt of this id, its variables filled in. Fails when the prompt is not registered, not
    /// active, or not what was registered.
    pub(super) fn begins(&self, id: &str, system: &str) -> Result<bool> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Read { prompts, texts } = match &mut *read {
            Some(read) => read,
            unread => unread.insert(Read { prompts: Prompts::load(&self.home)?, texts: HashMap::new() }),
        };
        if !texts.contains_key(id) {
            texts.insert(id.to_owned(), prompts.text(id)?);
        }
        Ok(texts.get(id).is_some_and(|text| starts_as(system, text.trim_end())))
    }
}

/// Whether a text starts as another one that has `{variables}` in it, each of which stands for any text.
fn starts_as(text: &str, template: &str) -> bool {
    let mut pieces = literals(template).into_iter();
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut has_variables = false;
    for piece in pieces {
        has_variables = true;
        // The first match is as good as any: it leaves the most text for what follows.
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    // Without variables the end is known: another part follows after a blank line, or nothing does.
    has_variables || rest.is_empty() || rest.starts_with("\n\n")
}

/// What stands between the variables.
fn literals(template: &str) -> Vec<&str> {
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(open) = template[at..].find('{').map(|open| at + open) {
        let length = template[open + 1..].find('}').filter(|length| is_variable(&template[open + 1..][..*length]));
        at = open + 1;
        if let Some(length) = length {
            pieces.push(&template[from..open]);
            at = open + length + 2;
            from = at;
        }
    }
    pieces.push(&template[from..]);
    pieces
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_text_starts_as_its_prompt_with_any_words_for_the_variables() {
        for (text, template, expected) in [
            ("Speak softly.\n\nAnd more.", "Speak {tone}.", true),
            ("Speak softly", "Speak {tone}.", false),
            ("Please speak softly.", "Speak {tone}.", false),
            ("Be brief.", "Be brief.", true),
            ("Be brief.\n\nx", "Be brief.", true),
            ("Be brief. Or not.", "Be brief.", false),
            ("{\"a\":{}} b", "{\"a\":{}} {x}", true),
            ("anything", "", false),
            ("a b", "{x} b", true),
        ] {
            assert_eq!(starts_as(text, template), expected, "{text:?} {template:?}");
        }
    }
}

//! Governed prompts, as this program meets them: a prompt says which one its system text begins with, and that is looked into.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cp_common::home::Home;
use cp_common::{Code, Error, Result};
use cp_ledger::format::line::Hash;

/// The registered prompts of a home. Each is read once.
pub(crate) struct Register {
    registry: PathBuf,
    texts: PathBuf,
    known: Mutex<HashMap<String, String>>,
}

impl Register {
    /// The prompts of this home.
    pub(crate) fn of(home: &Home) -> Self {
        Self {
            registry: home.path("registries/prompts_registry.csv"),
            texts: home.path("governed_prompts"),
            known: Mutex::default(),
        }
    }

    /// Whether a system text begins with the prompt of this id, its variables filled in. Fails when the prompt is not registered, not
    /// active, or not what was registered.
    pub(crate) fn begins(&self, id: &str, system: &str) -> Result<bool> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(id) {
            known.insert(id.to_owned(), self.text(id)?);
        }
        Ok(known.get(id).is_some_and(|text| starts_as(system, text.trim_end())))
    }

    fn text(&self, id: &str) -> Result<String> {
        let rows = read(&self.registry)?;
        let row = rows.lines().skip(1).map(columns).find(|row| row.first().is_some_and(|name| name == id));
        let is_name = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let Some(row) = row.filter(|_| is_name) else {
            return Err(Error::not_found(format!("no governed prompt `{id}` is registered"))
                .with("prompt_id", id)
                .hint(format!("register it in {}", self.registry.display())));
        };
        let column = |at: usize| row.get(at).map(String::as_str).unwrap_or_default();
        if column(2) != "active" {
            return Err(Error::new(Code::Forbidden, format!("the prompt `{id}` is {}, not active", column(2)))
                .with("status", column(2)));
        }
        let file = self.texts.join(format!("{id}.md"));
        let text = read(&file)?;
        let found = Hash::of(text.as_bytes()).to_string();
        if Hash::parse(column(3)).is_none_or(|registered| registered.to_string() != found) {
            return Err(Error::new(Code::Integrity, "its bytes are not those that were registered")
                .in_file(&file)
                .with("registered", column(3))
                .with("found", found)
                .hint("register the new hash, or restore the file"));
        }
        Ok(text)
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| crate::options::unreadable(e, file))
}

/// Whether a text starts as another one that has `{variables}` in it, each of which stands for any words.
fn starts_as(text: &str, template: &str) -> bool {
    let mut pieces = literals(template).into_iter();
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut has_variables = false;
    for piece in pieces {
        has_variables = true;
        // The first place is as good as any: what follows has the more left to be found in.
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

/// The columns of a row of comma-separated values.
fn columns(row: &str) -> Vec<String> {
    let (mut columns, mut quoted, mut characters) = (vec![String::new()], false, row.trim_end().chars().peekable());
    while let Some(character) = characters.next() {
        let last = columns.len() - 1;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                columns[last].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            _ => columns[last].push(character),
        }
    }
    columns
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

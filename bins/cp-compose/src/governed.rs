//! Governed prompts: registered texts whose bytes are what the registry says. Anything else is a failure, never a fallback.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::home::Home;
use cp_common::spelling::nearest;
use cp_common::{Code, Error, Result};
use cp_ledger::format::line::Hash;

use crate::files;

/// A governed prompt, checked.
#[derive(Debug)]
pub(crate) struct Governed {
    /// Its id.
    pub(crate) id: String,
    /// Its file.
    pub(crate) file: String,
    /// Its text, with its variables filled in.
    pub(crate) text: String,
    /// Its text as it is registered.
    pub(crate) registered: String,
}

impl Governed {
    /// Reads a registered prompt, checks its status and its hash, and fills its `{variables}` in.
    pub(crate) fn load(id: &str, variables: &BTreeMap<String, String>, home: &Home) -> Result<Self> {
        let registry = Registry::load(home)?;
        let Some(row) = registry.rows.iter().find(|row| row.id == id) else {
            let error = Error::not_found(format!("no governed prompt `{id}` is registered")).with("prompt_id", id);
            return Err(match nearest(id, registry.rows.iter().map(|row| row.id.as_str())) {
                Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
                None => error.hint(format!("register it in {}", registry.file.display())),
            });
        };
        let is_name = id.starts_with("PRM-") && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !is_name {
            return Err(Error::validation(format!("`{id}` is not the id of a prompt: PRM-<DOMAIN>-<SEQ>")));
        }
        if !row.is_active() {
            return Err(Error::new(Code::Forbidden, format!("the prompt `{id}` is {}, not active", row.status))
                .with("status", row.status.as_str()));
        }
        let file = home.path("governed_prompts").join(format!("{id}.md"));
        let text = files::text(&file)?;
        if !row.is_of(&text) {
            return Err(Error::new(Code::Integrity, "its bytes are not those that were registered")
                .in_file(&file)
                .with("registered", row.hash.as_str())
                .with("found", Hash::of(text.as_bytes()).to_string())
                .hint("register the new hash, or restore the file"));
        }
        let filled = filled(&text, variables).map_err(|e| e.in_file(&file))?;
        Ok(Self { id: id.to_owned(), file: file.display().to_string(), text: filled, registered: text })
    }
}

/// The registered prompts of a home.
pub(crate) struct Registry {
    file: PathBuf,
    rows: Vec<Row>,
}

struct Row {
    id: String,
    status: String,
    hash: String,
}

impl Registry {
    /// Reads the registry.
    pub(crate) fn load(home: &Home) -> Result<Self> {
        let file = home.path("registries/prompts_registry.csv");
        let row = |line: &str| {
            let mut columns = columns(line).into_iter();
            let (id, _title) = (columns.next().unwrap_or_default(), columns.next());
            Row { id, status: columns.next().unwrap_or_default(), hash: columns.next().unwrap_or_default() }
        };
        let rows = files::text(&file)?.lines().skip(1).map(row).collect();
        Ok(Self { file, rows })
    }

    /// Whether these are the bytes of a prompt that is active.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.rows.iter().any(|row| row.is_active() && row.is_of(text))
    }
}

impl Row {
    fn is_active(&self) -> bool {
        self.status == "active"
    }

    fn is_of(&self, text: &str) -> bool {
        Hash::parse(&self.hash).is_some_and(|hash| hash == Hash::of(text.as_bytes()))
    }
}

/// The columns of a row of comma-separated values.
fn columns(row: &str) -> Vec<String> {
    let (mut columns, mut quoted, mut characters) = (vec![String::new()], false, row.trim_end().chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                push(&mut columns, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            _ => push(&mut columns, character),
        }
    }
    columns
}

fn push(columns: &mut [String], character: char) {
    if let Some(last) = columns.last_mut() {
        last.push(character);
    }
}

/// The text with each `{name}` replaced. A name that nobody gave is an error with its line; other braces stay.
fn filled(text: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        out.push_str(&rest[..open]);
        let name = after.find('}').map(|close| &after[..close]).filter(|name| is_variable(name));
        let Some(name) = name else {
            out.push('{');
            rest = after;
            continue;
        };
        let Some(value) = variables.get(name) else {
            let line = text[..text.len() - after.len()].matches('\n').count() as u64 + 1;
            return Err(Error::validation(format!("the variable `{name}` is not given"))
                .at_line(line)
                .with("variable", name)
                .hint(format!("add --var {name}=VALUE")));
        };
        out.push_str(value);
        rest = &after[name.len() + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_other_braces_stay() {
        let variables = BTreeMap::from([("name".to_owned(), "{x}".to_owned())]);
        assert_eq!(filled("a {name} {\"k\":{}} {", &variables).unwrap(), "a {x} {\"k\":{}} {");
        let e = filled("a\nb {other}", &variables).unwrap_err();
        assert!(e.message().contains("line 2") && e.message().contains("other"));
    }

    #[test]
    fn quoted_columns_hold_commas() {
        assert_eq!(columns("a,\"b, \"\"c\"\"\",,d\r"), ["a", "b, \"c\"", "", "d"]);
    }
}

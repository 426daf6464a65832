//! What is missing in a policy, added to its text: the rest stays as its owner wrote it.

use std::collections::BTreeMap;

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use toml::{Spanned, Table, Value};

use crate::policy;

/// Something that is added to a list or a table of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Addition {
    /// The section and the key.
    pub(super) key: String,
    /// The name of a pin or a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    value: String,
    /// Why; its comment in the policy.
    pub(super) reason: String,
}

impl Addition {
    pub(super) fn named(key: &str, name: &str, value: &str, reason: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::listed(key, value, reason) }
    }

    pub(super) fn listed(key: &str, value: &str, reason: &str) -> Self {
        Self { key: key.to_owned(), name: None, value: value.to_owned(), reason: reason.to_owned() }
    }

    /// As it stands in the policy. A string of JSON is one of TOML too.
    pub(super) fn text(&self) -> String {
        let value = serde_json::Value::from(self.value.as_str()).to_string();
        self.name.as_ref().map_or_else(|| value.clone(), |name| format!("{name} = {value}"))
    }

    fn parts(&self) -> (&str, &str) {
        self.key.split_once('.').unwrap_or_default()
    }

    /// Does it to a policy that was read; false where it has it, or has something else by that name.
    fn apply(&self, policy: &mut Table) -> bool {
        let (section, key) = self.parts();
        let Some(section) = policy.entry(section).or_insert_with(|| Table::new().into()).as_table_mut() else {
            return false;
        };
        let value = Value::from(self.value.as_str());
        match (&self.name, section.entry(key).or_insert_with(|| self.absent())) {
            (Some(name), Value::Table(table)) if !table.contains_key(name) => {
                table.insert(name.clone(), value).is_none()
            }
            (None, Value::Array(list)) if !list.contains(&value) => {
                list.insert(0, value);
                true
            }
            _ => false,
        }
    }

    /// What a key that is not given stands for.
    fn absent(&self) -> Value {
        match (&self.name, self.key.as_str()) {
            (Some(_), _) => Value::Table(Table::new()),
            (None, "paths.read") => vec!["."].into(),
            (None, _) => Value::Array(Vec::new()),
        }
    }
}

/// A text with additions, each with its reason as a comment. They must all be missing there.
pub(super) fn added(text: &str, additions: &[Addition]) -> Result<String> {
    let (mut new, mut expected) = (text.to_owned(), read(text)?);
    for one in additions.iter().rev() {
        one.apply(&mut expected);
    }
    let mut keys: Vec<&str> = additions.iter().map(|one| one.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let of_key: Vec<&Addition> = additions.iter().filter(|one| one.key == key).collect();
        // From the end, so that what comes before keeps its place.
        for (at, piece) in edits(&new, &of_key).into_iter().rev() {
            new.insert_str(at, &piece);
        }
    }
    // Whatever the text looked like: what it says now is what it said, and the additions.
    if policy::parse(&new).is_ok() && read(&new).is_ok_and(|read| read == expected) {
        return Ok(new);
    }
    let lines: Vec<String> = additions.iter().map(|one| format!("{}: {}", one.key, one.text())).collect();
    Err(Error::config("the policy is written in a way that cannot be added to automatically")
        .with("lines", lines)
        .hint("add what details.lines has by hand, then check it with `cp-exec policy test`"))
}

/// Those of some additions that a text does not have, each once; and those for which it has something else.
pub(super) fn missing(text: &str, additions: Vec<Addition>) -> Result<(Vec<Addition>, Vec<Addition>)> {
    let mut policy = read(text)?;
    let (missing, known): (Vec<_>, Vec<_>) = additions.into_iter().partition(|addition| addition.apply(&mut policy));
    let differs = |one: &Addition| {
        let ((section, key), name) = (one.parts(), one.name.as_ref());
        name.is_some_and(|name| policy[section][key].get(name).and_then(Value::as_str) != Some(&one.value))
    };
    Ok((missing, known.into_iter().filter(differs).collect()))
}

fn read(text: &str) -> Result<Table> {
    toml::from_str(text).map_err(|e| Error::config(e.message()))
}

/// What is to be inserted where, in the order of the places, so that a key has more.
fn edits(text: &str, additions: &[&Addition]) -> Vec<(usize, String)> {
    let Some(first) = additions.first() else { return Vec::new() };
    let (section, key) = first.parts();
    let lines = |before: &str, end: &str| {
        additions.iter().fold(String::new(), |text, one| text + before + &one.text() + end + " # " + &one.reason + "\n")
    };
    let items = format!("\n{}  ", lines("  ", ","));
    let places: BTreeMap<String, BTreeMap<String, Spanned<Value>>> = toml::from_str(text).unwrap_or_default();
    let value = places.get(section).and_then(|section| Some(section.get(key)?.span().start));
    let is_table = first.name.is_some();
    match (value, value.and_then(|at| text[at..].chars().next())) {
        (Some(at), Some('[')) if !is_table => vec![(at + 1, items)],
        (Some(at), Some('{')) => {
            // In braces there is no place for comments, nor for a comma at the end.
            let comments = additions.iter().fold(String::new(), |text, one| {
                text + "# " + one.name.as_deref().unwrap_or_default() + ": " + &one.reason + "\n"
            });
            let has_none = text[at + 1..].trim_start().starts_with('}');
            let pairs = additions.iter().map(|one| one.text()).collect::<Vec<_>>().join(", ");
            let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
            vec![(line, comments), (at + 1, if has_none { format!(" {pairs} ") } else { format!(" {pairs},") })]
        }
        _ => {
            let kept = if first.key == "paths.read" { "\".\"" } else { "" };
            let (header, whole) = if is_table {
                (format!("[{section}.{key}]"), lines("", ""))
            } else {
                (format!("[{section}]"), format!("{key} = [{items}{kept}]\n"))
            };
            match after_line(text, &header) {
                Some(at) => vec![(at, whole)],
                None => vec![(text.len(), format!("\n{header}\n{whole}"))],
            }
        }
    }
}

/// The place behind the line that begins so.
fn after_line(text: &str, header: &str) -> Option<usize> {
    let mut at = 0;
    text.split_inclusive('\n').find_map(|line| {
        at += line.len();
        (line.trim_start().starts_with(header) && line.ends_with('\n')).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Addition> {
        vec![
            Addition::listed("exec.allowed_commands", "go", "a"),
            Addition::listed("exec.allowed_commands", "just", "b"),
            Addition::named("exec.pin", "go", "/usr/local/go/bin/go", "c"),
            Addition::named("exec.env_set", "GOPROXY", "off", "d"),
            Addition::listed("paths.read", "~/go/pkg/mod/**", "e"),
            Addition::listed("paths.execute", ".", "f"),
            Addition::listed("paths.pristine", ".venv", "g"),
        ]
    }

    #[test]
    fn however_a_policy_is_written_it_keeps_what_it_has_and_gets_what_is_missing() {
        for text in [
            "",
            "# mine\n[exec]\n[paths]\n",
            "[exec]\nallowed_commands = [\"git\"]\npin = { git = \"/usr/bin/git\" }\nenv_set = {}\n[paths]\nread = [\n  \".\", # here\n]\nexecute = []\npristine=['a']",
            "[exec]\nallowed_commands = []\n[exec.pin]\na = \"/b\"\n[[exec.rule]]\ncommand = \"git\"\ndecision = \"deny\"\n[exec.env_set] # own\nA = \"]\"\n[paths]\nwrite = [\".\"]\n",
        ] {
            let new = added(text, &all()).unwrap_or_else(|e| panic!("{text}\n{e}"));
            let (missing, other) = missing(&new, all()).unwrap();
            assert_eq!((missing, other), (Vec::new(), Vec::new()), "{new}");
            for comment in ["# mine", "# here", "# own"].into_iter().filter(|comment| text.contains(comment)) {
                assert!(new.contains(comment), "{new}");
            }
            assert!(
                ["a", "b", "c", "d", "e", "f", "g"].iter().all(|reason| new.contains(&format!(" {reason}\n"))),
                "{new}"
            );
        }
    }

    #[test]
    fn what_cannot_be_added_to_is_left_as_it_is_and_the_lines_are_named() {
        let refused = added("exec = { timeout = 3 }\n", &all()).unwrap_err();
        assert_eq!(refused.code(), cp_common::Code::Config);
        assert_eq!(refused.details()["lines"][0], "exec.allowed_commands: \"go\"");
    }

    #[test]
    fn another_value_by_the_same_name_is_kept_and_named() {
        let twice = all().into_iter().chain(all()).collect();
        let (missing, other) = missing("[exec]\npin = { go = \"/opt/go\" }\n", twice).unwrap();
        assert_eq!(missing.len(), all().len() - 1);
        assert!(other.iter().all(|addition| addition.key == "exec.pin") && !other.is_empty());
    }
}

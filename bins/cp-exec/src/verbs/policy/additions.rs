//! What is missing in a policy, added to its text: the rest stays as its owner wrote it.

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::policy::{self, Settings};

/// Where something is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum Key {
    #[serde(rename = "exec.allowed_commands")]
    Allowed,
    #[serde(rename = "exec.pin")]
    Pin,
    #[serde(rename = "exec.env_set")]
    Set,
    #[serde(rename = "paths.read")]
    Read,
    #[serde(rename = "paths.execute")]
    Execute,
    #[serde(rename = "paths.pristine")]
    Pristine,
}

/// Something that is added to a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Addition {
    /// The key of the policy.
    pub(super) key: Key,
    /// The name of a pin or a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) value: String,
    /// Why; its comment in the policy.
    pub(super) reason: String,
}

impl Key {
    const ALL: [Self; 6] = [Self::Allowed, Self::Pin, Self::Set, Self::Read, Self::Execute, Self::Pristine];

    /// Its section and its name there.
    const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Allowed => ("exec", "allowed_commands"),
            Self::Pin => ("exec", "pin"),
            Self::Set => ("exec", "env_set"),
            Self::Read => ("paths", "read"),
            Self::Execute => ("paths", "execute"),
            Self::Pristine => ("paths", "pristine"),
        }
    }

    pub(super) fn name(self) -> String {
        let (section, key) = self.parts();
        format!("{section}.{key}")
    }
}

impl Addition {
    pub(super) fn new(key: Key, name: &str, value: &str, reason: &str) -> Self {
        Self { key, name: Some(name.to_owned()), value: value.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn listed(key: Key, value: &str, reason: &str) -> Self {
        Self { key, name: None, value: value.to_owned(), reason: reason.to_owned() }
    }

    /// As it stands in the policy.
    pub(super) fn text(&self) -> String {
        let value = quoted(&self.value);
        self.name.as_ref().map_or_else(|| value.clone(), |name| format!("{name} = {value}"))
    }

    /// Does it to a policy that was read; false where it has it, or has something else by that name.
    fn apply(&self, policy: &mut Settings) -> bool {
        let list = match (self.key, &self.name) {
            (Key::Pin | Key::Set, name) => {
                let table = if self.key == Key::Pin { &mut policy.exec.pin } else { &mut policy.exec.env_set };
                let name = name.clone().unwrap_or_default();
                let absent = !table.contains_key(&name);
                table.entry(name).or_insert_with(|| self.value.clone());
                return absent;
            }
            (Key::Allowed, _) => &mut policy.exec.allowed_commands,
            (Key::Read, _) => &mut policy.paths.read,
            (Key::Execute, _) => &mut policy.paths.execute,
            (Key::Pristine, _) => &mut policy.paths.pristine,
        };
        let absent = !list.contains(&self.value);
        if absent {
            list.push(self.value.clone());
        }
        absent
    }
}

/// A text with additions, each with its reason as a comment. They must all be missing there.
pub(super) fn added(text: &str, additions: &[Addition]) -> Result<String> {
    let before = policy::parse(text)?;
    let (mut new, mut expected) = (text.to_owned(), before.clone());
    for key in Key::ALL {
        let of_key: Vec<&Addition> = additions.iter().filter(|addition| addition.key == key).collect();
        if of_key.is_empty() {
            continue;
        }
        let Ok(places) = toml::from_str::<Places>(&new) else { break };
        // From the end, so that what comes before keeps its place.
        for (at, piece) in edits(&new, key, &of_key, places.of(key), &before).into_iter().rev() {
            new.insert_str(at, &piece);
        }
    }
    for addition in additions {
        addition.apply(&mut expected);
    }
    match policy::parse(&new) {
        Ok(settings) if same(&settings, &expected) => Ok(new),
        _ => {
            let lines: Vec<String> =
                additions.iter().map(|one| format!("{}: {}", one.key.name(), one.text())).collect();
            Err(Error::config("the policy is written in a way that cannot be added to automatically")
                .with("lines", lines)
                .hint("add what details.lines has by hand, then check it with `cp-exec policy test`"))
        }
    }
}

/// Those of some additions that a policy does not have, each once; and those for which it has something else.
pub(super) fn missing(
    policy: &Settings,
    additions: impl IntoIterator<Item = Addition>,
) -> (Vec<Addition>, Vec<Addition>) {
    let mut policy = policy.clone();
    let (missing, known): (Vec<_>, Vec<_>) = additions.into_iter().partition(|addition| addition.apply(&mut policy));
    let other = |addition: &Addition| {
        let name = addition.name.as_deref().unwrap_or_default();
        let has = |table: &std::collections::BTreeMap<String, String>| table.get(name) != Some(&addition.value);
        match addition.key {
            Key::Pin => has(&policy.exec.pin),
            Key::Set => has(&policy.exec.env_set),
            Key::Allowed | Key::Read | Key::Execute | Key::Pristine => false,
        }
    };
    (missing, known.into_iter().filter(other).collect())
}

/// Where a text has the values of the keys.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Places {
    exec: ExecPlaces,
    paths: PathsPlaces,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExecPlaces {
    allowed_commands: Option<Spanned<toml::Value>>,
    pin: Option<Spanned<toml::Table>>,
    env_set: Option<Spanned<toml::Table>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PathsPlaces {
    read: Option<Spanned<toml::Value>>,
    execute: Option<Spanned<toml::Value>>,
    pristine: Option<Spanned<toml::Value>>,
}

impl Places {
    /// Where the value of a key begins.
    fn of(&self, key: Key) -> Option<usize> {
        let list = |value: &Option<Spanned<toml::Value>>| value.as_ref().map(|value| value.span().start);
        let table = |value: &Option<Spanned<toml::Table>>| value.as_ref().map(|value| value.span().start);
        match key {
            Key::Allowed => list(&self.exec.allowed_commands),
            Key::Pin => table(&self.exec.pin),
            Key::Set => table(&self.exec.env_set),
            Key::Read => list(&self.paths.read),
            Key::Execute => list(&self.paths.execute),
            Key::Pristine => list(&self.paths.pristine),
        }
    }
}

/// What is to be inserted where, in the order of the places, so that a key has more.
fn edits(
    text: &str,
    key: Key,
    additions: &[&Addition],
    value: Option<usize>,
    before: &Settings,
) -> Vec<(usize, String)> {
    let (section, name) = key.parts();
    let lines = |before: &str, end: &str| {
        additions.iter().fold(String::new(), |text, one| text + before + &one.text() + end + " # " + &one.reason + "\n")
    };
    let items = || format!("\n{}  ", lines("  ", ","));
    match (value, value.and_then(|at| text[at..].chars().next())) {
        (Some(at), Some('[')) if matches!(key, Key::Allowed | Key::Read | Key::Execute | Key::Pristine) => {
            vec![(at + 1, items())]
        }
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
        _ if matches!(key, Key::Pin | Key::Set) => match after_header(text, &format!("[{section}.{name}]")) {
            Some(at) => vec![(at, lines("", ""))],
            None => vec![(text.len(), format!("\n[{section}.{name}]\n{}", lines("", "")))],
        },
        _ => {
            // What is not given has a value all the same, which stays.
            let kept = match key {
                Key::Read => &before.paths.read[..],
                _ => &[],
            };
            let kept = kept.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(", ");
            let whole = format!("{name} = [{}{kept}]\n", items());
            match after_header(text, &format!("[{section}]")) {
                Some(at) => vec![(at, whole)],
                None => vec![(text.len(), format!("\n[{section}]\n{whole}"))],
            }
        }
    }
}

/// The place behind the line of a table's header.
fn after_header(text: &str, header: &str) -> Option<usize> {
    let mut at = 0;
    text.split_inclusive('\n').find_map(|line| {
        at += line.len();
        (line.trim_start().starts_with(header) && line.ends_with('\n')).then_some(at)
    })
}

/// A string of JSON is one of TOML too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether two policies say the same; the order in lists means nothing.
fn same(one: &Settings, other: &Settings) -> bool {
    let sorted = |policy: &Settings| {
        let mut policy = policy.clone();
        let paths = &mut policy.paths;
        for list in [&mut policy.exec.allowed_commands, &mut paths.read, &mut paths.execute, &mut paths.pristine] {
            list.sort();
        }
        serde_json::to_value(policy).ok()
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Addition> {
        vec![
            Addition::listed(Key::Allowed, "go", "a"),
            Addition::listed(Key::Allowed, "just", "b"),
            Addition::new(Key::Pin, "go", "/usr/local/go/bin/go", "c"),
            Addition::new(Key::Set, "GOPROXY", "off", "d"),
            Addition::listed(Key::Read, "~/go/pkg/mod/**", "e"),
            Addition::listed(Key::Execute, ".", "f"),
            Addition::listed(Key::Pristine, ".venv", "g"),
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
            let (missing, other) = missing(&policy::parse(&new).unwrap(), all());
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
        let policy = policy::parse("[exec]\npin = { go = \"/opt/go\" }\n").unwrap();
        let (missing, other) = missing(&policy, all().into_iter().chain(all()));
        assert_eq!(missing.len(), all().len() - 1);
        assert!(other.iter().all(|addition| addition.key == Key::Pin) && !other.is_empty());
    }
}

//! Additions to the text of a policy. All other bytes stay unchanged.

use std::collections::BTreeMap;

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike, Value};

use crate::tools::executable::BY_DEFAULT;

/// The longest line to which values are appended.
const LINE: usize = 110;

/// One value that is added to a list or a table of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Addition {
    /// The section and the key.
    pub(super) key: String,
    /// The name of a pin or a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    value: String,
    /// The reason, which becomes a comment in the policy.
    pub(super) reason: String,
}

impl Addition {
    pub(super) fn named(key: &str, name: &str, value: &str, reason: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::listed(key, value, reason) }
    }

    pub(super) fn listed(key: &str, value: &str, reason: &str) -> Self {
        Self { key: key.to_owned(), name: None, value: value.to_owned(), reason: reason.to_owned() }
    }

    /// The value as TOML, after its name if it has one.
    pub(super) fn text(&self) -> String {
        let value = Value::from(&self.value).to_string();
        self.name.as_ref().map_or_else(|| value.clone(), |name| format!("{name} = {value}"))
    }

    /// A rule that lets a command, or one of its subcommands, connect to the value.
    fn rule(&self, about: &str) -> Table {
        let (command, subcommand) = about.split_once(' ').map_or((about, None), |(name, word)| (name, Some(word)));
        let mut rule = Table::new();
        rule.insert("command", toml_edit::value(command));
        if let Some(subcommand) = subcommand {
            rule.insert("subcommands", toml_edit::value(Array::from_iter([subcommand])));
        }
        rule.insert("decision", toml_edit::value("allow"));
        rule.insert("network", toml_edit::value(Array::from_iter([self.value.as_str()])));
        rule.insert("reason", toml_edit::value(&self.reason));
        rule
    }

    /// The value of the key in a policy without it.
    fn absent(&self) -> Item {
        match (&self.name, self.key.as_str()) {
            (Some(_), "exec.rule") => Item::ArrayOfTables(ArrayOfTables::new()),
            (Some(_), _) => Item::Table(Table::new()),
            (None, "tools.allow") => Item::Value(Array::from_iter([BY_DEFAULT]).into()),
            (None, "paths.read" | "paths.write") => Item::Value(Array::from_iter(["."]).into()),
            (None, _) => Item::Value(Array::new().into()),
        }
    }
}

/// A policy with its additions.
pub(super) struct Extended {
    pub(super) text: String,
    /// The additions that were missing.
    pub(super) added: Vec<Addition>,
    /// The additions whose name has another value in the policy.
    pub(super) differing: Vec<Addition>,
}

/// The last addition to a key.
#[derive(Default)]
struct Cursor {
    /// The index of the next value of a list.
    index: usize,
    /// The length of the line so far.
    column: usize,
    reason: String,
}

/// Adds missing values, each with its reason as a comment.
pub(super) fn extend(text: &str, additions: Vec<Addition>) -> Result<Extended> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| Error::config(e.message()))?;
    let (mut added, mut differing) = (Vec::new(), Vec::new());
    let mut cursors: BTreeMap<String, Cursor> = BTreeMap::new();
    for addition in additions {
        let (section, key) = addition.key.split_once('.').unwrap_or_default();
        let no_table = |name: &str| Error::config(format!("`{name}` has a value of another type"));
        let section_item = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
        let section_table = section_item.as_table_like_mut().ok_or_else(|| no_table(section))?;
        let item = section_table.entry(key).or_insert_with(|| addition.absent());
        let cursor = cursors.entry(addition.key.clone()).or_default();
        match (&addition.name, item) {
            (None, Item::Value(Value::Array(list))) => {
                let has = |value: &str| list.iter().any(|present| present.as_str() == Some(value));
                if has(&addition.value) || addition.key == "exec.allowed_commands" && has("*") {
                    continue;
                }
                insert(list, &addition, cursor);
            }
            (Some(about), Item::ArrayOfTables(rules)) if addition.key == "exec.rule" => {
                let rule = addition.rule(about);
                if rules.iter().any(|present| present.to_string() == rule.to_string()) {
                    continue;
                }
                rules.push(rule);
            }
            (Some(name), item) => {
                let is_table = item.is_table();
                let table = item.as_table_like_mut().ok_or_else(|| no_table(key))?;
                if let Some(present) = table.get(name) {
                    if present.as_str() != Some(&addition.value) {
                        differing.push(addition);
                    }
                    continue;
                }
                table.insert(name, toml_edit::value(&addition.value));
                if cursor.reason != addition.reason {
                    if is_table {
                        comment(table, name, &addition.reason);
                    } else {
                        comment(section_table, key, &format!("{name}: {}", addition.reason));
                    }
                }
            }
            (None, _) => return Err(no_table(key)),
        }
        cursor.reason.clone_from(&addition.reason);
        added.push(addition);
    }
    Ok(Extended { text: document.to_string(), added, differing })
}

/// Inserts a value before the existing ones, after earlier additions.
fn insert(list: &mut Array, addition: &Addition, cursor: &mut Cursor) {
    let mut value = Value::from(&addition.value);
    let length = value.to_string().len() + 2;
    let goes_on = cursor.reason == addition.reason && cursor.column + length <= LINE;
    let prefix = match goes_on {
        true => " ".to_owned(),
        false if cursor.reason == addition.reason => "\n    ".to_owned(),
        false => format!("\n    # {}\n    ", addition.reason),
    };
    cursor.column = if goes_on { cursor.column } else { 4 } + length;
    value.decor_mut().set_prefix(prefix);
    if cursor.index == 0 && !list.to_string().contains('\n') {
        if let Some(first) = list.get_mut(0) {
            first.decor_mut().set_prefix("\n    ");
        }
        list.set_trailing("\n");
        list.set_trailing_comma(true);
    }
    list.insert_formatted(cursor.index, value);
    cursor.index += 1;
}

/// Adds a comment above a key.
fn comment(table: &mut dyn TableLike, key: &str, reason: &str) {
    if let Some(mut key) = table.key_mut(key) {
        let decor = key.leaf_decor_mut();
        let before = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().to_owned();
        decor.set_prefix(format!("{before}# {reason}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy;

    fn all() -> Vec<Addition> {
        vec![
            Addition::listed("exec.allowed_commands", "go", "a"),
            Addition::listed("exec.allowed_commands", "just", "b"),
            Addition::named("exec.pin", "go", "/usr/local/go/bin/go", "c"),
            Addition::named("exec.env_set", "GOPROXY", "off", "d"),
            Addition::listed("paths.read", "~/go/pkg/mod/**", "e"),
            Addition::listed("paths.execute", ".", "f"),
            Addition::listed("paths.pristine", "\"\\'\u{7f}\n[x] #", "g"),
        ]
    }

    #[test]
    fn extend_keeps_values_and_comments_and_adds_missing() {
        for text in [
            "",
            "# mine\n[exec]\n[paths]\n",
            "exec = { timeout = 3 }\n",
            "exec.timeout = 3\npaths.write = [\".\"]\n",
            "[exec]\nallowed_commands = [\"git\"] # own\npin = { git = \"/usr/bin/git\" }\nenv_set = {}\n[paths]\nread = [\n  \".\", # here\n]\nexecute = []\npristine=['a']",
            "[exec]\nallowed_commands = []\n[exec.pin]\na = \"/b\"\n[[exec.rule]]\ncommand = \"git\"\ndecision = \"deny\"\n[exec.env_set] # own\nA = \"]\"\n[paths]\nwrite = [\".\"]\n",
        ] {
            let before = policy::parse(text).unwrap();
            let extended = extend(text, all()).unwrap();
            assert_eq!(extended.added, all(), "{text}");
            let after = policy::parse(&extended.text).unwrap_or_else(|e| panic!("{e}\n{}", extended.text));
            assert!(before.exec.allowed_commands.iter().all(|name| after.exec.allowed_commands.contains(name)));
            assert!(before.exec.pin.iter().all(|(name, file)| after.exec.pin.get(name) == Some(file)));
            assert_eq!(after.exec.allowed_commands[..2], ["go", "just"]);
            assert_eq!((after.exec.timeout, &after.paths.write), (before.exec.timeout, &before.paths.write));
            assert!(after.paths.read.contains(&".".to_owned()), "{}", extended.text);
            for comment in ["# mine\n", "# here\n", "# own\n"].into_iter().filter(|comment| text.contains(comment)) {
                assert!(extended.text.contains(comment), "{}", extended.text);
            }
            for reason in ["a", "b", "c", "d", "e", "f", "g"] {
                assert!(extended.text.contains(&format!(" {reason}\n")), "{reason}: {}", extended.text);
            }
            let again = extend(&extended.text, all()).unwrap();
            assert_eq!((again.added, again.text), (Vec::new(), extended.text));
        }
    }

    #[test]
    fn extend_adds_destinations_of_every_command_or_of_one() {
        let additions = || {
            vec![
                Addition::listed("exec.network", "pypi.org", "a"),
                Addition::named("exec.rule", "npm install", "registry.npmjs.org", "b"),
                Addition::named("exec.rule", "curl", "example.org", "c"),
            ]
        };
        let rule = "[[exec.rule]]\ncommand = \"git\"\ndecision = \"deny\"\n";
        for text in [
            "",
            "[exec]\nnetwork = [\"a.test\"] # own\n[paths]\nread = []\n",
            &format!("# own\n{rule}[paths]\nread = []\n"),
        ] {
            let extended = extend(text, additions()).unwrap();
            assert_eq!(extended.text.contains("# own"), text.contains("# own"), "{}", extended.text);
            let exec = policy::parse(&extended.text).unwrap_or_else(|e| panic!("{e}\n{}", extended.text)).exec;
            let names = |line: &str| {
                let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
                let network = exec.network_of(&argv);
                network
                    .destinations()
                    .iter()
                    .map(ToString::to_string)
                    .filter(|name| name != "a.test")
                    .collect::<Vec<_>>()
            };
            assert_eq!(names("make"), ["pypi.org"], "{}", extended.text);
            assert_eq!(names("npm install x"), ["pypi.org", "registry.npmjs.org"], "{}", extended.text);
            assert_eq!(names("npm publish"), ["pypi.org"], "{}", extended.text);
            assert_eq!(names("curl x"), ["pypi.org", "example.org"], "{}", extended.text);
            assert_eq!(exec.rule.len(), 2 + usize::from(text.contains("exec.rule")));
            assert_eq!(extend(&extended.text, additions()).unwrap().added, []);
        }
    }

    #[test]
    fn extend_values_with_one_reason_share_comment_and_lines() {
        let names = (0..40).map(|at| Addition::listed("exec.allowed_commands", &format!("program-{at}"), "why"));
        let text = extend("[exec]\nallowed_commands = [\"old\"]\n", names.collect()).unwrap().text;
        assert_eq!(text.matches("# why").count(), 1, "{text}");
        assert!(text.lines().all(|line| line.len() <= LINE) && text.lines().count() < 12, "{text}");
    }

    #[test]
    fn extend_keeps_and_reports_differing_value() {
        let twice = all().into_iter().chain(all()).collect();
        let extended = extend("[exec]\npin = { go = \"/opt/go\" }\n", twice).unwrap();
        assert_eq!(extended.added.len(), all().len() - 1);
        assert!(extended.differing.iter().all(|one| one.key == "exec.pin") && !extended.differing.is_empty());
        assert!(extended.text.contains("/opt/go"), "{}", extended.text);
    }
}

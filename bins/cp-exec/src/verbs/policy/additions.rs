//! Additions to the text of a policy. All other bytes stay unchanged.

use std::collections::BTreeMap;

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// The longest line to which values are appended.
const LINE: usize = 110;

/// One value that is added to a list or a table of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Addition {
    /// The section and the key.
    pub(crate) key: String,
    /// The name of a pin or a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    value: String,
    /// The reason, which becomes a comment in the policy; empty for what a person typed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// True if it is about one project.
    #[serde(skip)]
    pub(crate) of_project: bool,
}

impl Addition {
    /// The same for the table of a project.
    pub(crate) fn of_project(self) -> Self {
        Self { of_project: true, ..self }
    }

    pub(crate) fn named(key: &str, name: &str, value: &str, reason: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::listed(key, value, reason) }
    }

    pub(crate) fn listed(key: &str, value: &str, reason: &str) -> Self {
        Self { key: key.to_owned(), name: None, value: value.to_owned(), reason: reason.to_owned(), of_project: false }
    }

    /// The value as TOML, after its name if it has one.
    pub(crate) fn text(&self) -> String {
        let value = Value::from(&self.value).to_string();
        self.name.as_ref().map_or_else(|| value.clone(), |name| format!("{name} = {value}"))
    }

    /// The line of the policy, for a project or for every project.
    pub(crate) fn line(&self, project: Option<&str>) -> String {
        let (section, key) = self.key.split_once('.').unwrap_or_default();
        let section = project.map_or_else(|| section.to_owned(), |project| format!("project.{}", Value::from(project)));
        match &self.name {
            Some(_) => format!("[{section}] {key} = {{ {} }}", self.text()),
            None => format!("[{section}] {key} = [{}]", self.text()),
        }
    }

    /// The value of the key in a policy without it.
    fn absent(&self, is_project: bool) -> Item {
        match (&self.name, self.key.as_str()) {
            (Some(_), _) if is_project => Item::Value(InlineTable::new().into()),
            (Some(_), _) => Item::Table(Table::new()),
            (None, "paths.read" | "paths.write") if !is_project => Item::Value(Array::from_iter(["."]).into()),
            (None, _) => Item::Value(Array::new().into()),
        }
    }
}

/// A policy with its additions.
pub(crate) struct Extended {
    pub(crate) text: String,
    /// The additions that were missing.
    pub(crate) added: Vec<Addition>,
    /// The additions whose name has another value in the policy.
    pub(crate) differing: Vec<Addition>,
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

/// Adds missing values to the table of a project, or for every project, each with its reason as a comment.
pub(crate) fn extend(text: &str, project: Option<&str>, additions: Vec<Addition>) -> Result<Extended> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| Error::config(e.message()))?;
    let (mut added, mut differing) = (Vec::new(), Vec::new());
    let mut cursors: BTreeMap<String, Cursor> = BTreeMap::new();
    for addition in additions {
        let (section, key) = addition.key.split_once('.').unwrap_or_default();
        let no_table = |name: &str| Error::config(format!("`{name}` has a value of another type"));
        let section_table = match project {
            None => table_in(document.as_table_mut(), section, false)?,
            Some(project) => table_in(table_in(document.as_table_mut(), "project", true)?, project, false)?,
        };
        let item = section_table.entry(key).or_insert_with(|| addition.absent(project.is_some()));
        let cursor = cursors.entry(addition.key.clone()).or_default();
        match (&addition.name, item) {
            (None, Item::Value(Value::Array(list))) => {
                let has = |value: &str| list.iter().any(|present| present.as_str() == Some(value));
                if has(&addition.value) || addition.key == "exec.allowed_commands" && has("*") {
                    continue;
                }
                insert(list, &addition, cursor);
            }
            (Some(name), item) => {
                let is_table = item.is_table();
                let table = item.as_table_like_mut().ok_or_else(|| no_table(key))?;
                if let Some(present) = table.get(name) {
                    let is_same = present.as_str() == Some(&addition.value);
                    if !is_same && addition.reason.is_empty() {
                        table.insert(name, toml_edit::value(&addition.value));
                        added.push(addition);
                    } else if !is_same {
                        differing.push(addition);
                    }
                    continue;
                }
                table.insert(name, toml_edit::value(&addition.value));
                if cursor.reason != addition.reason && !addition.reason.is_empty() {
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

/// The table with a name, which is created if it is not there. One without a line of its own is implicit.
fn table_in<'a>(above: &'a mut dyn TableLike, name: &str, is_implicit: bool) -> Result<&'a mut dyn TableLike> {
    let mut table = Table::new();
    table.set_implicit(is_implicit);
    let item = above.entry(name).or_insert(Item::Table(table));
    item.as_table_like_mut().ok_or_else(|| Error::config(format!("`{name}` has a value of another type")))
}

/// Inserts a value before the existing ones, after earlier additions.
fn insert(list: &mut Array, addition: &Addition, cursor: &mut Cursor) {
    let mut value = Value::from(&addition.value);
    if addition.reason.is_empty() && !list.to_string().contains('\n') {
        list.push(value);
        return;
    }
    let length = value.to_string().len() + 2;
    let goes_on = cursor.reason == addition.reason && cursor.column + length <= LINE;
    let prefix = match goes_on {
        true => " ".to_owned(),
        false if cursor.reason == addition.reason || addition.reason.is_empty() => "\n    ".to_owned(),
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
            let extended = extend(text, None, all()).unwrap();
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
            let again = extend(&extended.text, None, all()).unwrap();
            assert_eq!((again.added, again.text), (Vec::new(), extended.text));
        }
    }

    #[test]
    fn extend_of_project_changes_its_table_only() {
        let project = "~/a \"b\" \u{e9}";
        let plain = |one: Addition| Addition { reason: String::new(), ..one };
        for text in ["", "# own\n[exec]\nallowed_commands = [\"a\"] # own\n", "[project.\"/other\"]\nread = [\"/x\"]\n"]
        {
            let additions = || {
                vec![
                    plain(Addition::listed("exec.network", "pypi.org", "")),
                    plain(Addition::listed("paths.read", "/data", "")),
                    plain(Addition::named("exec.pin", "uv", "~/.local/bin/uv", "")),
                    plain(Addition::listed("exec.network", "a.test", "")),
                ]
            };
            let extended = extend(text, Some(project), additions()).unwrap();
            assert!(extended.text.starts_with(text), "{}", extended.text);
            let after = policy::parse(&extended.text).unwrap_or_else(|e| panic!("{e}\n{}", extended.text));
            let names: Vec<String> = after.project[project].network.iter().map(ToString::to_string).collect();
            assert_eq!(
                (names.as_slice(), after.exec.network),
                (&["pypi.org".to_owned(), "a.test".to_owned()][..], cp_egress::Network::default())
            );
            assert_eq!(
                (&after.project[project].read[..], &after.paths.read[..]),
                (&["/data".to_owned()][..], &[".".to_owned()][..])
            );
            assert_eq!(extend(&extended.text, Some(project), additions()).unwrap().added, []);
        }
    }

    #[test]
    fn extend_values_with_one_reason_share_comment_and_lines() {
        let names = (0..40).map(|at| Addition::listed("exec.allowed_commands", &format!("program-{at}"), "why"));
        let text = extend("[exec]\nallowed_commands = [\"old\"]\n", None, names.collect()).unwrap().text;
        assert_eq!(text.matches("# why").count(), 1, "{text}");
        assert!(text.lines().all(|line| line.len() <= LINE) && text.lines().count() < 12, "{text}");
    }

    #[test]
    fn extend_keeps_and_reports_differing_value() {
        let twice = all().into_iter().chain(all()).collect();
        let extended = extend("[exec]\npin = { go = \"/opt/go\" }\n", None, twice).unwrap();
        assert_eq!(extended.added.len(), all().len() - 1);
        assert!(extended.differing.iter().all(|one| one.key == "exec.pin") && !extended.differing.is_empty());
        assert!(extended.text.contains("/opt/go"), "{}", extended.text);
    }
}

//! Additions to the text of a policy. All other bytes stay unchanged.

use std::path::{Path, PathBuf};

use cp_common::home::write_whole;
use cp_common::program::confirm::{Change, Plan};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::json;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value};

use crate::digest::sha256;
use crate::policy;

/// The longest list to which values are appended in its line.
const LINE: usize = 100;

/// One value that is added to a list or a table of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Addition {
    /// The section and the key.
    key: String,
    /// The name of a pin or a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    value: String,
}

impl Addition {
    pub(crate) fn named(key: &str, name: &str, value: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::listed(key, value) }
    }

    pub(crate) fn listed(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), name: None, value: value.to_owned() }
    }

    /// True if a list or a table has the value.
    fn is_in(&self, item: &Item) -> bool {
        let is_it = |present: &str| present == self.value || self.key == "exec.allowed_commands" && present == "*";
        match &self.name {
            Some(name) => item.get(name).and_then(Item::as_str) == Some(&self.value),
            None => item.as_array().is_some_and(|list| list.iter().filter_map(Value::as_str).any(is_it)),
        }
    }

    /// Adds the value to a policy, or to the table of a project if the rest of the policy lacks it. True if it was
    /// missing. A pin or a variable with another value stays, unless this one `replaces` it.
    fn add_to(&self, policy: &mut Table, project: Option<&str>, replaces: bool) -> Result<bool> {
        let (section, key) = self.key.split_once('.').unwrap_or_default();
        let of_all = policy.get(section).and_then(|section| section.get(key));
        if of_all.is_some_and(|item| self.is_in(item)) {
            return Ok(false);
        }
        let table = match project {
            None => table_in(policy, section, false)?,
            Some(project) => table_in(table_in(policy, "project", true)?, project, false)?,
        };
        let item = table.entry(key).or_insert_with(|| match &self.name {
            Some(_) => Item::Value(InlineTable::new().into()),
            // A policy without these keys has the base.
            None if project.is_none() && ["read", "write"].contains(&key) => {
                Item::Value(Array::from_iter(["."]).into())
            }
            None => Item::Value(Array::new().into()),
        });
        if self.is_in(item) {
            return Ok(false);
        }
        let Some(name) = &self.name else {
            append(item.as_array_mut().ok_or_else(|| other_type(key))?, &self.value);
            return Ok(true);
        };
        let values = item.as_table_like_mut().ok_or_else(|| other_type(key))?;
        let is_missing = replaces || !values.contains_key(name);
        if is_missing {
            values.insert(name, toml_edit::value(&self.value));
        }
        Ok(is_missing)
    }
}

/// The table with a name, which is created if it is not there. One without a line of its own is implicit.
fn table_in<'a>(above: &'a mut dyn TableLike, name: &str, is_implicit: bool) -> Result<&'a mut dyn TableLike> {
    let mut table = Table::new();
    table.set_implicit(is_implicit);
    above.entry(name).or_insert(Item::Table(table)).as_table_like_mut().ok_or_else(|| other_type(name))
}

fn other_type(name: &str) -> Error {
    Error::config(format!("`{name}` has a value of another type"))
}

/// Appends a value, on a line of its own if the list has several or would be long. Comments stay with their values.
fn append(list: &mut Array, value: &str) {
    let (text, mut value) = (list.to_string(), Value::from(value));
    if !text.contains('\n') && text.len() + value.to_string().len() <= LINE {
        list.push(value);
        return;
    }
    let before = list.trailing().as_str().unwrap_or_default().trim_end().to_owned();
    value.decor_mut().set_prefix(format!("{before}\n    "));
    list.push_formatted(value);
    list.set_trailing("\n");
    list.set_trailing_comma(true);
}

/// A kind of project, with its evidence.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Found {
    /// The kind of work: python, node, pnpm, cargo, go, java, ruby, c, make, just or git.
    pub(super) kind: String,
    /// The files that indicate this kind.
    pub(super) evidence: Vec<String>,
    /// The additions to the policy.
    #[serde(skip)]
    pub(super) adds: Vec<Addition>,
    /// Names from which its programs download packages, for `cp-exec allow network`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) registries: Vec<String>,
    /// Programs that are not installed or cannot be trusted.
    pub(super) missing: Vec<String>,
}

impl Found {
    fn lines(&self) -> impl Iterator<Item = String> {
        let registries = self.registries.join(" ");
        let line = format!("  to download packages: cp-exec allow network {registries}");
        let head = format!("{} ({})", self.kind, self.evidence.join(", "));
        let missing = self.missing.iter().map(|name| format!("  missing: {name}"));
        [head].into_iter().chain((!registries.is_empty()).then_some(line)).chain(missing)
    }
}

/// A new policy, or one with additions.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy_changed"))]
pub(crate) struct Extended {
    /// The file of the policy.
    file: String,
    /// True if it was written now.
    written: bool,
    /// The directory of the project, if it is about one.
    project: Option<String>,
    /// The values that were missing.
    pub(crate) adds: Vec<Addition>,
    /// The kinds of projects that were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) found: Vec<Found>,
    /// The text of the policy.
    pub(super) text: String,
    /// The path of the file, which may not be UTF-8.
    #[serde(skip)]
    path: PathBuf,
    /// The hash of the text before.
    #[serde(skip)]
    before: String,
}

impl Reply for Extended {
    fn text(&self) -> String {
        let found = self.found.iter().flat_map(Found::lines);
        let last = match (self.written, self.adds.is_empty()) {
            (true, _) => format!("wrote {}", self.file),
            (false, true) => format!("{} has it already", self.file),
            (false, false) => self.text.trim_end().to_owned(),
        };
        found.chain(self.adds.iter().map(|one| self.line(one))).chain([last]).collect::<Vec<_>>().join("\n")
    }

    fn raw(&self) -> Vec<u8> {
        self.text.clone().into_bytes()
    }
}

impl Extended {
    /// Adds missing values to a text for every project, or to the table of a project.
    pub(crate) fn of(
        file: &Path,
        text: &str,
        project: Option<String>,
        mut adds: Vec<Addition>,
        replaces: bool,
    ) -> Result<Self> {
        let failed = |error: TomlError| Error::config(error.message()).in_file(file);
        let mut document: DocumentMut = text.parse().map_err(failed)?;
        let mut added = Ok(());
        adds.retain(|one| {
            let is_added = one.add_to(document.as_table_mut(), project.as_deref(), replaces);
            is_added.map_err(|error| added = Err(error.in_file(file))).is_ok_and(|is_added| is_added)
        });
        added?;
        let (path, before, text) = (file.to_owned(), sha256(text.as_bytes()), document.to_string());
        policy::parse(&text)?;
        let file = file.display().to_string();
        Ok(Self { file, written: false, project, adds, found: Vec::new(), text, path, before })
    }

    /// The line of the policy with an addition.
    fn line(&self, one: &Addition) -> String {
        let (section, key) = one.key.split_once('.').unwrap_or_default();
        let own = self.project.as_ref().map(|own| format!("project.{}", Value::from(own)));
        let section = own.as_deref().unwrap_or(section);
        let value = Value::from(&one.value);
        match &one.name {
            Some(name) => format!("[{section}] {key} = {{ {name} = {value} }}"),
            None => format!("[{section}] {key} = [{value}]"),
        }
    }

    /// The plan to add what is missing.
    pub(crate) fn plan(self, event: &'static str) -> Result<Plan<'static, Self>> {
        if self.adds.is_empty() {
            return Plan::nothing(self);
        }
        let change = |one: &Addition| Change {
            after: json!({ "sha256": sha256(self.text.as_bytes()) }),
            ..Change::new("add", &one.key, self.line(one), json!({ "sha256": self.before }))
        };
        let changes: Vec<Change> = self.adds.iter().map(change).collect();
        Plan::changes(changes, move |context| self.store(event, context))
    }

    /// Writes the policy, and records its hash in an entry.
    pub(crate) fn store(self, event: &'static str, context: &Context) -> Result<Self> {
        write_whole(&self.path, self.text.as_bytes())?;
        let entry = Entry::new(event).with("project", &self.project).with("additions", &self.adds);
        let entry = entry.with("file", &self.file).with("sha256", &sha256(self.text.as_bytes()));
        let mut ledger = effect_ledger(context, "cp-exec.jsonl")?;
        ledger.append(entry)?;
        ledger.sync()?;
        Ok(Self { written: true, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extend(text: &str, project: Option<&str>, adds: Vec<Addition>) -> Extended {
        Extended::of(Path::new("policy.toml"), text, project.map(str::to_owned), adds, false).unwrap()
    }

    fn all() -> Vec<Addition> {
        vec![
            Addition::listed("exec.allowed_commands", "go"),
            Addition::listed("exec.allowed_commands", "just"),
            Addition::named("exec.pin", "go", "/usr/local/go/bin/go"),
            Addition::named("exec.env_set", "GOPROXY", "off"),
            Addition::listed("paths.read", "~/go/pkg/mod/**"),
            Addition::listed("paths.execute", "."),
            Addition::listed("paths.pristine", "\"\\'\u{7f}\n[x] #"),
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
            "[exec]\nallowed_commands = [\"a\" # here\n]\n[exec.pin]\na = \"/b\"\n[[exec.rule]]\ncommand = \"git\"\ndecision = \"deny\"\n[exec.env_set] # own\nA = \"]\"\n[paths]\nwrite = [\".\"]\n",
        ] {
            let before = policy::parse(text).unwrap();
            let extended = extend(text, None, all());
            assert_eq!(extended.adds.len(), all().len(), "{text}");
            let after = policy::parse(&extended.text).unwrap_or_else(|e| panic!("{e}\n{}", extended.text));
            let allowed = [before.exec.allowed_commands, vec!["go".to_owned(), "just".to_owned()]].concat();
            assert_eq!(after.exec.allowed_commands, allowed, "{}", extended.text);
            assert!(before.exec.pin.iter().all(|(name, file)| after.exec.pin.get(name) == Some(file)));
            assert_eq!((after.exec.timeout, &after.paths.write), (before.exec.timeout, &before.paths.write));
            assert_eq!(after.paths.read, [".", "~/go/pkg/mod/**"], "{}", extended.text);
            for kept in ["# mine\n", "# here\n", "# own\n"].into_iter().filter(|kept| text.contains(kept)) {
                assert!(extended.text.contains(kept), "{}", extended.text);
            }
            assert!(!extended.text.contains("# here\n]"), "the comment is about the value before: {}", extended.text);
            let again = extend(&extended.text, None, all());
            assert_eq!((again.adds, again.text), (Vec::new(), extended.text));
        }
    }

    #[test]
    fn extend_of_project_changes_its_table_only() {
        let project = "~/a \"b\" \u{e9}";
        for text in ["", "# own\n[exec]\nallowed_commands = [\"a\"] # own\n", "[project.\"/other\"]\nread = [\"/x\"]\n"]
        {
            let additions = || {
                vec![
                    Addition::listed("exec.network", "pypi.org"),
                    Addition::listed("paths.read", "/data"),
                    Addition::named("exec.pin", "uv", "~/.local/bin/uv"),
                    Addition::listed("exec.network", "a.test"),
                ]
            };
            let extended = extend(text, Some(project), additions());
            assert!(extended.text.starts_with(text), "{}", extended.text);
            let after = policy::parse(&extended.text).unwrap_or_else(|e| panic!("{e}\n{}", extended.text));
            let names: Vec<String> = after.project[project].network.iter().map(ToString::to_string).collect();
            assert_eq!(
                (names.concat(), after.exec.network),
                ("pypi.orga.test".to_owned(), cp_egress::Network::default())
            );
            assert_eq!((after.project[project].read.concat(), after.paths.read.concat()), ("/data".into(), ".".into()));
            assert_eq!(extend(&extended.text, Some(project), additions()).adds, []);
            let everywhere = extend(text, None, additions());
            assert_eq!(extend(&everywhere.text, Some(project), additions()).adds, [], "the policy has it already");
        }
    }

    #[test]
    fn extend_breaks_long_lists_and_replaces_only_if_asked() {
        let names = (0..40).map(|at| Addition::listed("exec.allowed_commands", &format!("program-{at}")));
        let text = extend("[exec]\nallowed_commands = [\"old\"]\n", None, names.collect()).text;
        assert!(text.lines().all(|line| line.len() <= LINE + 30) && text.lines().count() > 20, "{text}");
        let (policy, go) = ("[exec]\npin = { go = \"/opt/go\" }\n", || vec![all().remove(2)]);
        assert_eq!((extend(policy, None, go()).adds, extend(policy, None, go()).text), (Vec::new(), policy.to_owned()));
        let replaced = Extended::of(Path::new("p"), policy, None, go(), true).unwrap();
        assert_eq!(replaced.text, policy.replace("/opt/go", "/usr/local/go/bin/go"));
    }
}

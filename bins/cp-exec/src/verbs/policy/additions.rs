//! Additions to the text of a policy. All other bytes stay unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::home::write_whole;
use cp_common::program::confirm::{Change, Plan};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value};

use crate::digest::sha256;
use crate::policy;

/// The longest list to which values are appended in its line.
const LINE: usize = 100;

/// Adds the values that a table lacks, and returns them. One with another value stays, unless the new one `replaces` it.
fn merge(table: &mut dyn TableLike, adds: &Json, replaces: bool) -> Result<Option<Json>> {
    let mut missing = serde_json::Map::new();
    for (key, value) in adds.as_object().into_iter().flatten() {
        let other_type = || Error::config(format!("`{key}` has a value of another type"));
        let lack = match value {
            Json::Object(below) => {
                let mut new = Table::new();
                // Without a line of its own if it has only tables.
                new.set_implicit(true);
                let is_inline = below.values().all(Json::is_string);
                let new = if is_inline { toml_edit::value(InlineTable::new()) } else { Item::Table(new) };
                let table = table.entry(key).or_insert(new).as_table_like_mut().ok_or_else(other_type)?;
                merge(table, value, replaces)?
            }
            Json::Array(values) => {
                let list = table.entry(key).or_insert_with(|| toml_edit::value(Array::new()));
                let list = list.as_array_mut().ok_or_else(other_type)?;
                let is_any = |known: &Value| key == "allowed_commands" && known.as_str() == Some("*");
                let is_in = |value: &Json| list.iter().any(|known| known.as_str() == value.as_str() || is_any(known));
                let lack: Vec<Json> = values.iter().filter(|value| !is_in(value)).cloned().collect();
                lack.iter().filter_map(Json::as_str).for_each(|value| append(list, value));
                (!lack.is_empty()).then_some(Json::Array(lack))
            }
            _ => {
                let known = table.get(key).map(Item::as_str);
                let is_missing = known.is_none_or(|known| replaces && known != value.as_str());
                is_missing.then(|| table.insert(key, toml_edit::value(value.as_str().unwrap_or_default())));
                is_missing.then(|| value.clone())
            }
        };
        missing.extend(lack.map(|lack| (key.clone(), lack)));
    }
    Ok((!missing.is_empty()).then_some(Json::Object(missing)))
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
    /// The values that were missing, as TOML.
    pub(crate) adds: String,
    /// The kinds of projects that were found, each with the files that indicate it, and what they lack, in lines.
    pub(super) found: Vec<String>,
    /// The text of the policy.
    pub(super) text: String,
    /// The hash of the text before.
    #[serde(skip)]
    before: String,
}

impl Reply for Extended {
    fn text(&self) -> String {
        let lines = self.found.iter().map(String::as_str).chain(self.adds.lines());
        let last = match (self.written, self.adds.is_empty()) {
            (true, _) => format!("wrote {}", self.file),
            (false, true) => format!("{} has it already", self.file),
            (false, false) => self.text.trim_end().to_owned(),
        };
        lines.chain([last.as_str()]).collect::<Vec<_>>().join("\n")
    }

    fn raw(&self) -> Vec<u8> {
        self.text.clone().into_bytes()
    }
}

impl Extended {
    /// Adds missing values, by section and key, to a text for every project or to the table of a project.
    pub(crate) fn of(
        file: &Path,
        text: &str,
        project: Option<String>,
        adds: Vec<Json>,
        replaces: bool,
    ) -> Result<Self> {
        let failed = |error: TomlError| Error::config(error.message()).in_file(file);
        let mut document: DocumentMut = text.parse().map_err(failed)?;
        // A policy without these keys has the base.
        let paths = document.get("paths");
        let is_unset = |key: &str| paths.and_then(|paths| paths.get(key)).is_none();
        let is_based = |key: &&str| is_unset(key) && adds.iter().any(|one| one["paths"][*key].is_array());
        let base = ["read", "write"].into_iter().filter(|key| project.is_none() && is_based(key));
        let base: Vec<Json> = base.map(|key| json!({ "paths": { key: ["."] } })).collect();
        let mut missing = DocumentMut::new();
        for mut one in base.into_iter().chain(adds) {
            if let Some(project) = &project {
                let of_all = merge(&mut *document.clone(), &one, true)?;
                let own = of_all.iter().filter_map(Json::as_object).flat_map(|lack| lack.values());
                let own: BTreeMap<_, _> = own.filter_map(Json::as_object).flatten().collect();
                one = json!({ "project": { project: own } });
            }
            if let Some(lack) = merge(&mut *document, &one, replaces).map_err(|error| error.in_file(file))? {
                merge(&mut *missing, &lack, true)?;
            }
        }
        let (before, text) = (sha256(text.as_bytes()), document.to_string());
        policy::parse(&text)?;
        let (file, adds) = (file.display().to_string(), missing.to_string());
        Ok(Self { file, written: false, project, adds, found: Vec::new(), text, before })
    }

    /// The plan to add what is missing.
    pub(crate) fn plan(self, event: &'static str) -> Result<Plan<'static, Self>> {
        if self.adds.is_empty() {
            return Plan::nothing(self);
        }
        let change = Change {
            after: json!({ "sha256": sha256(self.text.as_bytes()), "difference": self.adds }),
            ..Change::new("add", "policy", &self.file, json!({ "sha256": self.before }))
        };
        Plan::changes(vec![change], move |context| self.store(event, context))
    }

    /// Writes the policy, and records its hash in an entry.
    pub(crate) fn store(self, event: &'static str, context: &Context) -> Result<Self> {
        write_whole(&context.home.policy_file(), self.text.as_bytes())?;
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

    fn extend(text: &str, project: Option<&str>, adds: Vec<Json>) -> Extended {
        Extended::of(Path::new("policy.toml"), text, project.map(str::to_owned), adds, false).unwrap()
    }

    fn all() -> Vec<Json> {
        vec![
            json!({ "exec": { "allowed_commands": ["go", "just"] } }),
            json!({ "exec": { "env_set": { "GOPROXY": "off" }, "pin": { "go": "/usr/local/go/bin/go" } } }),
            json!({ "paths": { "read": ["~/go/pkg/mod/**"], "execute": ["."] } }),
            json!({ "paths": { "pristine": ["\"\\'\u{7f}\n[x] #"] } }),
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
            let adds = policy::parse(&extended.adds).unwrap();
            assert_eq!((adds.exec.allowed_commands.len(), adds.paths.pristine.len()), (2, 1), "{}", extended.adds);
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
            assert_eq!((again.adds, again.text), (String::new(), extended.text));
        }
    }

    #[test]
    fn extend_of_project_changes_its_table_only() {
        let project = "~/a \"b\" \u{e9}";
        for text in ["", "# own\n[exec]\nallowed_commands = [\"a\"] # own\n", "[project.\"/other\"]\nread = [\"/x\"]\n"]
        {
            let additions = || {
                vec![
                    json!({ "exec": { "network": ["pypi.org"], "pin": { "uv": "~/.local/bin/uv" } } }),
                    json!({ "paths": { "read": ["/data"] }, "exec": { "network": ["a.test"] } }),
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
            assert_eq!(extend(&extended.text, Some(project), additions()).adds, "");
            let everywhere = extend(text, None, additions());
            assert_eq!(extend(&everywhere.text, Some(project), additions()).adds, "", "the policy has it already");
        }
    }

    #[test]
    fn extend_breaks_long_lists_and_replaces_only_if_asked() {
        let names = (0..40).map(|at| json!({ "exec": { "allowed_commands": [format!("program-{at}")] } }));
        let text = extend("[exec]\nallowed_commands = [\"old\"]\n", None, names.collect()).text;
        assert!(text.lines().all(|line| line.len() <= LINE + 30) && text.lines().count() > 20, "{text}");
        let (policy, go) = ("[exec]\npin = { go = \"/opt/go\" }\n", || {
            vec![json!({ "exec": { "pin": { "go": "/usr/local/go/bin/go" } } })]
        });
        assert_eq!(
            (extend(policy, None, go()).adds, extend(policy, None, go()).text),
            (String::new(), policy.to_owned())
        );
        let replaced = Extended::of(Path::new("p"), policy, None, go(), true).unwrap();
        assert_eq!(replaced.text, policy.replace("/opt/go", "/usr/local/go/bin/go"));
    }
}

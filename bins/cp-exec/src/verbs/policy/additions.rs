//! Grants that are added to the text of a policy. All its other bytes stay unchanged.

use std::path::Path;

use cp_common::home::resolved;
use cp_common::{Error, Result};
use cp_ledger::Entry;
use serde_json::{Value as Json, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value};

use crate::policy;
use crate::verbs::edit::{self, Edit};

/// The longest list to which values are appended in its line.
const LINE: usize = 100;

/// The keys of grants that are in `[paths]`; the others are in `[exec]`.
const PATHS: [&str; 3] = ["read", "write", "execute"];

/// The edit of a policy, or of a new one, by its text.
pub(in crate::verbs) fn edit_policy(
    event: &'static str,
    file: &Path,
    project: Option<String>,
    made: impl FnOnce(Option<&str>) -> Result<String>,
) -> Result<Edit> {
    let file = edit::of_text(&resolved(file), Some(0o600), |text| made(text).map(Some))?;
    let mut edit = Edit::of(Entry::new(event).with("project", &project), Vec::new(), file);
    edit.entry = edit.entry.with("difference", &edit.answer.difference);
    edit.answer.project = project;
    Ok(edit)
}

/// Adds the grants that a policy lacks, by their keys, for every project or to the table of a project. A name keeps its
/// value, unless the new one `replaces` it.
pub(crate) fn extended(text: &str, project: Option<&str>, grants: &[Json], replaces: bool) -> Result<String> {
    let mut settings = policy::parse(text)?;
    let own = project.and_then(|project| settings.project.remove(project));
    settings.grant(own.unwrap_or_default());
    let mut known = json!({ "exec": settings.exec, "paths": settings.paths });
    let mut document: DocumentMut = text.parse().map_err(|error: TomlError| Error::config(error.message()))?;
    for (key, name, value) in grants.iter().flat_map(values_of) {
        let section = if PATHS.contains(&key) { "paths" } else { "exec" };
        let known = &mut known[section][key];
        let is_known = match (name, known.as_array()) {
            (Some(name), _) => known.get(name).is_some_and(|own| !replaces || own == value),
            (None, Some(all)) => all.contains(value) || key == "allowed_commands" && all.contains(&json!("*")),
            (None, None) => false,
        };
        if is_known {
            continue;
        }
        let other_type = || Error::config(format!("`{key}` has a value of another type"));
        let table = match project {
            Some(project) => table(table(document.as_table_mut(), "project")?, project)?,
            None => table(document.as_table_mut(), section)?,
        };
        let text = value.as_str().unwrap_or_default();
        if let Some(name) = name {
            let names = table.entry(key).or_insert(toml_edit::value(InlineTable::new()));
            names.as_table_like_mut().ok_or_else(other_type)?.insert(name, toml_edit::value(text));
            known[name] = value.clone();
        } else {
            let all = known.as_array_mut().ok_or_else(other_type)?;
            // A policy without the key has the built-in list.
            let base = all.iter().filter_map(Json::as_str).filter(|_| project.is_none());
            let list = table.entry(key).or_insert_with(|| toml_edit::value(base.collect::<Array>()));
            append(list.as_array_mut().ok_or_else(other_type)?, text);
            all.push(value.clone());
        }
    }
    let text = document.to_string();
    policy::parse(&text).map(|_| text)
}

/// The values of grants: each with its key, and with its name if the key has names.
fn values_of(grants: &Json) -> impl Iterator<Item = (&str, Option<&str>, &Json)> {
    let all = grants.as_object().into_iter().flatten();
    all.flat_map(|(key, value)| {
        let listed = value.as_array().into_iter().flatten().map(|value| (None, value));
        let named = value.as_object().into_iter().flatten().map(|(name, value)| (Some(name.as_str()), value));
        listed.chain(named).map(|(name, value)| (key.as_str(), name, value))
    })
}

/// The table of this name, or a new one, which gets a line of its own with its first value.
fn table<'t>(above: &'t mut dyn TableLike, name: &str) -> Result<&'t mut dyn TableLike> {
    let mut new = Table::new();
    new.set_implicit(true);
    let table = above.entry(name).or_insert(Item::Table(new)).as_table_like_mut();
    table.ok_or_else(|| Error::config(format!("`{name}` is not a table")))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn extend(text: &str, project: Option<&str>, grants: &[Json]) -> String {
        extended(text, project, grants, false).unwrap()
    }

    fn all() -> [Json; 4] {
        [
            json!({ "allowed_commands": ["go", "just"] }),
            json!({ "env_set": { "GOPROXY": "off" }, "pin": { "go": "/usr/local/go/bin/go" } }),
            json!({ "read": ["~/go/pkg/mod/**"], "execute": ["."] }),
            json!({ "execute": ["\"\\'\u{7f}\n[x] #"] }),
        ]
    }

    #[test]
    fn extended_keeps_values_and_comments_and_adds_missing() {
        for text in [
            "",
            "# mine\n[exec]\n[paths]\n",
            "exec = { timeout = 3 }\n",
            "exec.timeout = 3\npaths.write = [\".\"]\n",
            "[exec]\nallowed_commands = [\"git\"] # own\npin = { git = \"/usr/bin/git\" }\nenv_set = {}\n[paths]\nread = [\n  \".\", # here\n]\nexecute = []\npristine=['a']",
            "[exec]\nallowed_commands = [\"a\" # here\n]\n[exec.pin]\na = \"/b\"\n[[exec.rule]]\ncommand = \"git\"\ndecision = \"deny\"\n[exec.env_set] # own\nA = \"]\"\n[paths]\nwrite = [\".\"]\n",
        ] {
            let before = policy::parse(text).unwrap();
            let extended = extend(text, None, &all());
            let after = policy::parse(&extended).unwrap_or_else(|e| panic!("{e}\n{extended}"));
            let allowed = [before.exec.allowed_commands, vec!["go".to_owned(), "just".to_owned()]].concat();
            assert_eq!((after.exec.allowed_commands, after.paths.execute.len()), (allowed, 2), "{extended}");
            assert!(before.exec.pin.iter().all(|(name, file)| after.exec.pin.get(name) == Some(file)));
            assert_eq!((after.exec.timeout, &after.paths.write), (before.exec.timeout, &before.paths.write));
            assert_eq!(after.paths.read, [".", "~/go/pkg/mod/**"], "{extended}");
            for kept in ["# mine\n", "# here\n", "# own\n"].into_iter().filter(|kept| text.contains(kept)) {
                assert!(extended.contains(kept), "{extended}");
            }
            assert!(!extended.contains("# here\n]"), "the comment is about the value before: {extended}");
            assert_eq!(extend(&extended, None, &all()), extended);
        }
    }

    #[test]
    fn extended_table_of_project_has_only_what_the_policy_lacks() {
        let project = "~/a \"b\" \u{e9}";
        for text in ["", "# own\n[exec]\nallowed_commands = [\"a\"] # own\n", "[project.\"/other\"]\nread = [\"/x\"]\n"]
        {
            let grants = [
                json!({ "network": ["pypi.org"], "pin": { "uv": "~/.local/bin/uv" } }),
                json!({ "read": ["/data"], "network": ["a.test"] }),
            ];
            let extended = extend(text, Some(project), &grants);
            assert!(extended.starts_with(text), "{extended}");
            let after = policy::parse(&extended).unwrap_or_else(|e| panic!("{e}\n{extended}"));
            let names: Vec<String> = after.project[project].network.iter().map(ToString::to_string).collect();
            assert_eq!(
                (names.concat(), after.exec.network),
                ("pypi.orga.test".to_owned(), cp_egress::Network::default())
            );
            assert_eq!((after.project[project].read.concat(), after.paths.read.concat()), ("/data".into(), ".".into()));
            assert_eq!(extend(&extended, Some(project), &grants), extended);
            let everywhere = extend(text, None, &grants);
            assert_eq!(extend(&everywhere, Some(project), &grants), everywhere, "the policy has it already");
        }
    }

    #[test]
    fn extended_breaks_long_lists_and_replaces_only_if_asked() {
        let names: Vec<Json> = (0..40).map(|at| json!({ "allowed_commands": [format!("program-{at}")] })).collect();
        let text = extend("[exec]\nallowed_commands = [\"old\"]\n", None, &names);
        assert!(text.lines().all(|line| line.len() <= LINE + 30) && text.lines().count() > 20, "{text}");
        let policy = "[exec]\npin = { go = \"/opt/go\" }\n";
        let go = [json!({ "pin": { "go": "/usr/local/go/bin/go" } })];
        assert_eq!(extend(policy, None, &go), policy);
        assert_eq!(extended(policy, None, &go, true).unwrap(), policy.replace("/opt/go", "/usr/local/go/bin/go"));
    }
}

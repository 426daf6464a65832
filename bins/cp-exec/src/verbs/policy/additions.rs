//! Additions to the text of a policy. All other bytes stay unchanged.

use std::path::{Path, PathBuf};

use cp_common::home::write_whole;
use cp_common::program::confirm::Change;
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::json;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value};

use crate::digest::sha256;
use crate::policy;

/// The longest line to which values are appended.
const LINE: usize = 110;

/// One value that is added to a list or a table of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Addition {
    /// True if it is about one project.
    #[serde(skip)]
    pub(crate) of_project: bool,
    /// The section and the key.
    pub(crate) key: String,
    /// The reason, which becomes a comment in the policy; empty for what a person typed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    /// The name of a pin or a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    value: String,
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
        Self { key: key.to_owned(), value: value.to_owned(), reason: reason.to_owned(), ..Self::default() }
    }

    /// Additions with the same place share the line of a list, and a comment.
    fn place(&self) -> (bool, &str, &str) {
        (self.of_project, &self.key, &self.reason)
    }

    /// The value as TOML, after its name if it has one.
    fn text(&self) -> String {
        let value = Value::from(&self.value).to_string();
        self.name.as_ref().map_or_else(|| value.clone(), |name| format!("{name} = {value}"))
    }

    /// The value of the key in a policy without it.
    fn absent(&self) -> Item {
        match (&self.name, self.key.as_str()) {
            (Some(_), _) if self.of_project => Item::Value(InlineTable::new().into()),
            (Some(_), _) => Item::Table(Table::new()),
            (None, "paths.read" | "paths.write") if !self.of_project => Item::Value(Array::from_iter(["."]).into()),
            (None, _) => Item::Value(Array::new().into()),
        }
    }
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
    /// What stays because the policy has another value.
    kept: Vec<String>,
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
        let kept = self.kept.iter().map(|kept| format!("stays: {kept}"));
        let last = match (self.written, self.adds.is_empty()) {
            (true, _) => format!("wrote {}", self.file),
            (false, true) => format!("{} has it already", self.file),
            (false, false) => self.text.trim_end().to_owned(),
        };
        let adds = self.places().map(|adds| self.line(adds));
        found.chain(adds).chain(kept).chain([last]).collect::<Vec<_>>().join("\n")
    }

    fn raw(&self) -> Vec<u8> {
        self.text.clone().into_bytes()
    }
}

impl Extended {
    /// Adds missing values to a text for every project, or to the table of a project, each with its reason as a
    /// comment.
    pub(crate) fn of(file: &Path, text: &str, project: Option<String>, mut adds: Vec<Addition>) -> Result<Self> {
        let failed = |error: TomlError| Error::config(error.message()).in_file(file);
        let mut document: DocumentMut = text.parse().map_err(failed)?;
        adds.sort();
        adds.dedup();
        let (mut added, mut kept) = (Vec::new(), Vec::new());
        // Each place comes before those that are there, so that comments stay with their values.
        for adds in adds.chunk_by(|one, next| one.place() == next.place()).rev() {
            let own = project.as_deref().filter(|_| adds[0].of_project);
            extend(&mut document, own, adds, &mut added, &mut kept).map_err(|error| error.in_file(file))?;
        }
        added.sort();
        let (path, before, text) = (file.to_owned(), sha256(text.as_bytes()), document.to_string());
        let file = file.display().to_string();
        policy::parse(&text)?;
        Ok(Self { file, written: false, project, adds: added, kept, found: Vec::new(), text, path, before })
    }

    fn places(&self) -> impl Iterator<Item = &[Addition]> {
        self.adds.chunk_by(|one, next| one.place() == next.place())
    }

    /// The line of the policy with additions to one place.
    fn line(&self, adds: &[Addition]) -> String {
        let (section, key) = adds[0].key.split_once('.').unwrap_or_default();
        let own = self.project.as_ref().filter(|_| adds[0].of_project);
        let section = own.map_or_else(|| section.to_owned(), |own| format!("project.{}", Value::from(own)));
        let values = adds.iter().map(Addition::text).collect::<Vec<_>>().join(", ");
        let [open, close] = if adds[0].name.is_some() { ["{ ", " }"] } else { ["[", "]"] };
        format!("[{section}] {key} = {open}{values}{close}")
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        let change = |adds: &[Addition]| Change {
            after: json!({ "sha256": sha256(self.text.as_bytes()), "reason": adds[0].reason }),
            ..Change::new("add", &adds[0].key, self.line(adds), json!({ "sha256": self.before }))
        };
        self.places().map(change).collect()
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

/// Adds the missing values of one place.
fn extend(
    document: &mut DocumentMut,
    project: Option<&str>,
    adds: &[Addition],
    added: &mut Vec<Addition>,
    kept: &mut Vec<String>,
) -> Result<()> {
    let (section, key) = adds[0].key.split_once('.').unwrap_or_default();
    let table = match project {
        None => table_in(document.as_table_mut(), section, false)?,
        Some(project) => table_in(table_in(document.as_table_mut(), "project", true)?, project, false)?,
    };
    let item = table.entry(key).or_insert_with(|| adds[0].absent());
    if let Item::Value(Value::Array(list)) = item {
        let is_missing = |one: &Addition| {
            let has = |value: &str| list.iter().any(|present| present.as_str() == Some(value));
            !(has(&one.value) || one.key == "exec.allowed_commands" && has("*"))
        };
        let missing: Vec<Addition> = adds.iter().filter(|one| is_missing(one)).cloned().collect();
        insert(list, &missing);
        added.extend(missing);
        return Ok(());
    }
    let (is_table, mut is_commented) = (item.is_table(), adds[0].reason.is_empty());
    for one in adds {
        let Addition { name: Some(name), reason, value, .. } = one else { return Err(other_type(key)) };
        let values = table.get_mut(key).and_then(Item::as_table_like_mut).ok_or_else(|| other_type(key))?;
        match values.get(name).map(|present| present.as_str() == Some(value)) {
            Some(true) => continue,
            Some(false) if !reason.is_empty() => {
                kept.push(format!("{}: {}, where the policy has another value", one.key, one.text()));
                continue;
            }
            _ => values.insert(name, toml_edit::value(value)),
        };
        added.push(one.clone());
        if !std::mem::replace(&mut is_commented, true) {
            let whole = format!("{name}: {reason}");
            if is_table { comment(values, name, reason) } else { comment(table, key, &whole) }
        }
    }
    Ok(())
}

fn other_type(name: &str) -> Error {
    Error::config(format!("`{name}` has a value of another type"))
}

/// The table with a name, which is created if it is not there. One without a line of its own is implicit.
fn table_in<'a>(above: &'a mut dyn TableLike, name: &str, is_implicit: bool) -> Result<&'a mut dyn TableLike> {
    let mut table = Table::new();
    table.set_implicit(is_implicit);
    above.entry(name).or_insert(Item::Table(table)).as_table_like_mut().ok_or_else(|| other_type(name))
}

/// Inserts values with one reason before the existing ones. Values without a reason are appended to a single line.
fn insert(list: &mut Array, adds: &[Addition]) {
    let is_single_line = !list.to_string().contains('\n');
    let Some(Addition { reason, .. }) = adds.first() else { return };
    if reason.is_empty() && is_single_line {
        list.extend(adds.iter().map(|one| &one.value));
        return;
    }
    if is_single_line {
        if let Some(first) = list.get_mut(0) {
            first.decor_mut().set_prefix("\n    ");
        }
        list.set_trailing("\n");
        list.set_trailing_comma(true);
    }
    let mut column = LINE;
    for (index, one) in adds.iter().enumerate() {
        let mut value = Value::from(&one.value);
        let length = value.to_string().len() + 2;
        let prefix = match index {
            0 if !reason.is_empty() => format!("\n    # {reason}\n    "),
            _ if column + length > LINE => "\n    ".to_owned(),
            _ => " ".to_owned(),
        };
        column = if prefix == " " { column + length } else { 4 + length };
        value.decor_mut().set_prefix(prefix);
        list.insert_formatted(index, value);
    }
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

    fn extend(text: &str, project: Option<&str>, adds: Vec<Addition>) -> Extended {
        let adds = adds.into_iter().map(|one| Addition { of_project: project.is_some(), ..one }).collect();
        Extended::of(Path::new("policy.toml"), text, project.map(str::to_owned), adds).unwrap()
    }

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
            let extended = extend(text, None, all());
            assert_eq!(extended.adds.len(), all().len(), "{text}");
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
                    Addition::listed("exec.network", "pypi.org", ""),
                    Addition::listed("paths.read", "/data", ""),
                    Addition::named("exec.pin", "uv", "~/.local/bin/uv", ""),
                    Addition::listed("exec.network", "a.test", ""),
                ]
            };
            let extended = extend(text, Some(project), additions());
            assert!(extended.text.starts_with(text), "{}", extended.text);
            let after = policy::parse(&extended.text).unwrap_or_else(|e| panic!("{e}\n{}", extended.text));
            let names: Vec<String> = after.project[project].network.iter().map(ToString::to_string).collect();
            assert_eq!(
                (names.as_slice(), after.exec.network),
                (&["a.test".to_owned(), "pypi.org".to_owned()][..], cp_egress::Network::default())
            );
            assert_eq!(
                (&after.project[project].read[..], &after.paths.read[..]),
                (&["/data".to_owned()][..], &[".".to_owned()][..])
            );
            assert_eq!(extend(&extended.text, Some(project), additions()).adds, []);
        }
    }

    #[test]
    fn extend_values_with_one_reason_share_comment_and_lines() {
        let names = (0..40).map(|at| Addition::listed("exec.allowed_commands", &format!("program-{at}"), "why"));
        let text = extend("[exec]\nallowed_commands = [\"old\"]\n", None, names.collect()).text;
        assert_eq!(text.matches("# why").count(), 1, "{text}");
        assert!(text.lines().all(|line| line.len() <= LINE) && text.lines().count() < 12, "{text}");
    }

    #[test]
    fn extend_keeps_and_reports_differing_value() {
        let twice = all().into_iter().chain(all()).collect();
        let extended = extend("[exec]\npin = { go = \"/opt/go\" }\n", None, twice);
        assert_eq!(extended.adds.len(), all().len() - 1);
        assert!(extended.kept.iter().all(|one| one.starts_with("exec.pin")) && !extended.kept.is_empty());
        assert!(extended.text.contains("/opt/go"), "{}", extended.text);
    }
}

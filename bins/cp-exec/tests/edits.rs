//! Edits in the forms that models write: each form times each variation of the file, compared with the intended file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

use crate::exec::{Exec, Who, everyone};

/// The file of the table, with text that occurs in both functions.
const BEFORE: &str = "import os\n\n\ndef first(x):\n    # it's a \"sum\"\n    total = x + 1\n    note = \"one - 'two'\"\n    return total\n\n\ndef second(x):\n    # it's a \"sum\"\n    total = x + 2\n    return total\n\n\nprint(first(1))\n";
/// The intended file: one line replaced, one added beside a line that has quotes, one removed further down.
const AFTER: &str = "import os\n\n\ndef first(x):\n    # it's a \"sum\"\n    total = x + 10\n    more = total\n    note = \"one - 'two'\"\n    return total\n\n\ndef second(x):\n    # it's a \"sum\"\n    total = x + 2\n    return total\n\n\n";

/// The part of the file that an edit of text replaces.
fn changed(file: &str) -> &str {
    &file[file.find("    total").unwrap()..]
}

/// A form of an edit, by its name.
type Form = (&'static str, fn() -> Value);

/// The unified difference without its first two lines, with this many unchanged lines around a change.
fn hunks(context: usize) -> String {
    TextDiff::from_lines(BEFORE, AFTER).unified_diff().context_radius(context).to_string()
}

/// The difference with each header changed.
fn headed(context: usize, header: impl Fn(&str) -> String) -> String {
    let line = |line: &str| if line.starts_with("@@") { header(line) } else { line.to_owned() };
    hunks(context).lines().map(|text| line(text) + "\n").collect()
}

fn sections(hunks: &str) -> String {
    format!("*** Begin Patch\n*** Update File: a.py\n{hunks}*** End Patch\n")
}

const FORMS: [Form; 6] = [
    ("old and new", || json!({"path": "a.py", "old": changed(BEFORE), "new": changed(AFTER)})),
    (
        "blank lines without blank",
        || json!({"patch": sections(&hunks(3).replace("\n \n", "\n\n").replace("\n \n", "\n\n"))}),
    ),
    ("apply_patch", || json!({"patch": sections(&headed(3, |_| "@@".to_owned()))})),
    (
        "apply_patch with anchors",
        || json!({"patch": sections(&headed(1, |header| (if header.contains("-5") { "@@ def first(x):" } else { "@@" }).to_owned()))}),
    ),
    ("apply_patch in a fence, with numbers", || json!({"patch": format!("```\n{}```\n", sections(&hunks(3)))})),
    ("apply_patch with path", || json!({"path": "a.py", "patch": sections(&headed(3, |_| "@@ ... @@".to_owned()))})),
];

/// A variation of the file, which the request does not have.
type Variation = (&'static str, fn(&str) -> String);

const VARIATIONS: [Variation; 5] = [
    ("as it is", str::to_owned),
    ("CRLF", |text| text.replace('\n', "\r\n")),
    ("no newline at the end", |text| text.trim_end().to_owned()),
    ("byte order mark", |text| format!("\u{feff}{text}")),
    ("blanks at line ends", |text| {
        text.replace(":\n", ": \n").replace("x + 1\n", "x + 1  \n").replace("'two'\"\n", "'two'\"\t\n")
    }),
];

fn edit(exec: &Exec, run: &str, arguments: &Value) -> Value {
    let mut input = arguments.clone();
    input["operation"] = "edit_file".into();
    exec.call(&["--run", run], "filesystem", &input)["data"].clone()
}

#[test]
fn edit_in_each_form_makes_intended_file() {
    let exec = Exec::new(Who::Me);
    let (mut wrong, mut count) = (String::new(), 0);
    for (form, arguments) in FORMS {
        for (variation, varied) in VARIATIONS {
            count += 1;
            exec.write("a.py", &varied(BEFORE));
            let answer = edit(&exec, &format!("RUN-{count}"), &arguments());
            // The removed last lines take the end of a file without a newline with them.
            let intended = varied(AFTER);
            let made = exec.work.read("a.py");
            let is_same = made == intended || variation.starts_with("no newline") && made.trim_end() == intended;
            if !is_same {
                let _ = writeln!(wrong, "{form}, {variation}: {}\n{made:?}", answer["content"]);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 30, "{count} forms");
}

/// Edits of several files, and edits that create, remove and move. A case with `!` is refused, because the
/// content is ambiguous, or because the request does not say what it means.
#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    before: BTreeMap<String, String>,
    arguments: Value,
    after: BTreeMap<String, String>,
}

const CASES: &str = include_str!("data/edits.jsonl");

/// All files of the project with their contents.
fn files(exec: &Exec) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut directories = vec![exec.work.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                directories.push(entry);
            } else {
                let name = entry.strip_prefix(&*exec.work).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&entry).unwrap());
            }
        }
    }
    found
}

#[test]
fn edit_of_files_is_made_whole_or_refused_with_next_step() {
    let exec = Exec::new(Who::Me);
    let (mut wrong, mut refused) = (String::new(), 0);
    for (number, line) in CASES.lines().enumerate() {
        let Case { name, before, arguments, after } = serde_json::from_str(line).unwrap();
        for entry in fs::read_dir(&*exec.work).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { fs::remove_dir_all(entry) } else { fs::remove_file(entry) }.unwrap();
        }
        for (file, text) in &before {
            exec.write(file, text);
        }
        let answer = edit(&exec, &format!("RUN-{number}"), &arguments);
        let is_refusal = name.starts_with('!');
        refused += usize::from(is_refusal);
        let content = answer["content"].as_str().unwrap_or_default();
        let answered = answer["is_error"] == is_refusal && is_refusal == content.contains("\nHint: ");
        if files(&exec) != after || !answered {
            let _ = writeln!(wrong, "{name}: {content}\n{:?}", files(&exec));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(refused >= 15, "{refused} refusals");
}

#[test]
fn failed_patch_takes_its_changes_back() {
    for who in everyone() {
        let exec = Exec::new(who);
        for (name, text) in [("a", "1\n"), ("gone", "g\n"), ("d/b", "2\n")] {
            exec.write(name, text);
        }
        let before = files(&exec);
        fs::set_permissions(exec.work.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
        let patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+x\n*** Add File: n/new\n+x\n\
             *** Update File: d/b\n@@\n-2\n+x\n*** Delete File: gone\n*** End Patch\n";
        edit(&exec, "RUN-1", &json!({"patch": patch}));
        if exec.work.read("d/b") == "x\n" {
            // Root may write everywhere.
            continue;
        }
        assert_eq!(files(&exec), before, "{who:?}");
        assert!(!exec.work.join("n").exists(), "{who:?}");
        // The run knows the files as they are.
        edit(&exec, "RUN-1", &json!({"path": "a", "old": "1", "new": "2"}));
        assert_eq!(exec.work.read("a"), "2\n", "{who:?}");
    }
}

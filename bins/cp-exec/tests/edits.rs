//! Edits in the forms that models write: each form times each variation of the file, compared with the intended file.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::exec::{Exec, Who};

/// The file of the table, with text that occurs in both functions.
const BEFORE: &str = "import os\n\n\ndef first(x):\n    # it's a \"sum\"\n    total = x + 1\n    note = \"one - 'two'\"\n    return total\n\n\ndef second(x):\n    # it's a \"sum\"\n    total = x + 2\n    return total\n\n\nprint(first(1))\n";
/// The intended file: one line replaced, one added beside a line that has quotes, one removed further down.
const AFTER: &str = "import os\n\n\ndef first(x):\n    # it's a \"sum\"\n    total = x + 10\n    more = total\n    note = \"one - 'two'\"\n    return total\n\n\ndef second(x):\n    # it's a \"sum\"\n    total = x + 2\n    return total\n\n\n";

/// A replacement of the file that a text edit makes.
const OLD: [&str; 2] = ["    total = x + 1\n    note = \"one - 'two'\"\n", "\n\nprint(first(1))\n"];
const NEW: [&str; 2] = ["    total = x + 10\n    more = total\n    note = \"one - 'two'\"\n", "\n\n"];

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

const FORMS: [Form; 8] = [
    ("edits", || json!({"path": "a.py", "edits": [{"old": OLD[0], "new": NEW[0]}, {"old": OLD[1], "new": NEW[1]}]})),
    ("edits of Claude Code", || {
        let one = |at: usize| json!({"old_string": OLD[at], "new_string": NEW[at], "replace_all": false});
        json!({"file_path": "a.py", "edits": [one(0), one(1)]})
    }),
    (
        "edits with their own paths",
        || json!({"edits": [{"path": "a.py", "old": OLD[0], "new": NEW[0]}, {"path": "a.py", "old": OLD[1], "new": NEW[1]}]}),
    ),
    (
        "blank lines without blank",
        || json!({"patch": sections(&hunks(3).replace("\n \n", "\n\n").replace("\n \n", "\n\n"))}),
    ),
    ("apply_patch", || json!({"patch": sections(&headed(3, |_| "@@".to_owned()))})),
    (
        "apply_patch with anchors",
        || json!({"input": sections(&headed(1, |header| (if header.contains("-5") { "@@ def first(x):" } else { "@@" }).to_owned()))}),
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
    let input = json!({"operation": "edit_file", "arguments": arguments});
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
    assert!(count >= 40, "{count} forms");
}

/// A request about several files or none, the files before it, and the files after it.
type Case = (&'static str, Value, &'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const THREE: &[(&str, &str)] = &[("a", "1\n2\n3\n"), ("d/b", "x\ny\n"), ("gone", "g\n")];
const CHANGED: &[(&str, &str)] = &[("a", "1\ntwo\n3\n"), ("e/new", "n\n"), ("d/c", "x\nz\n")];

/// A patch of the file `a`.
fn one_file(hunks: &str) -> String {
    format!("*** Begin Patch\n*** Update File: a\n{hunks}*** End Patch")
}

/// Edits of several files, and edits that create, insert, remove and move.
#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let one: &[(&str, &str)] = &[("a", "1\n2\n3\n")];
    let sections = "*** Begin Patch\n*** Update File: a\n@@\n 1\n-2\n+two\n*** Add File: e/new\n+n\n*** Delete File: gone\n*** Update File: d/b\n*** Move to: d/c\n@@\n x\n-y\n+z\n*** End Patch";
    vec![
        ("sections", json!({"patch": sections}), THREE, CHANGED),
        (
            "sections in a shell line",
            json!({"patch": format!("apply_patch <<'EOF'\n{sections}\nEOF\n")}),
            THREE,
            CHANGED,
        ),
        ("sections with directory", json!({"path": ".", "patch": sections}), THREE, CHANGED),
        ("sections without first line", json!({"patch": sections.replace("*** Begin Patch\n", "")}), THREE, CHANGED),
        (
            "empty old",
            json!({"path": "deep/er/new", "old": "", "new": "text\n"}),
            one,
            &[("a", "1\n2\n3\n"), ("deep/er/new", "text\n")],
        ),
        (
            "empty old_string of an empty file",
            json!({"file_path": "a", "old_string": "", "new_string": "t"}),
            &[("a", "")],
            &[("a", "t")],
        ),
        (
            "two edits of two files",
            json!({"edits": [{"path": "a", "old": "2", "new": "two"}, {"path": "b", "old": "y", "new": "z"}]}),
            &[("a", "2\n"), ("b", "y")],
            &[("a", "two\n"), ("b", "z")],
        ),
        (
            "edits after each other",
            json!({"path": "a", "edits": [{"old": "2", "new": "two"}, {"old": "two\n3", "new": "end"}]}),
            one,
            &[("a", "1\nend\n")],
        ),
        ("insert at the beginning", json!({"path": "a", "insert_line": 0, "new": "0"}), one, &[("a", "0\n1\n2\n3\n")]),
        (
            "insert in the middle",
            json!({"path": "a", "insert_line": 1, "insert_text": "x\n"}),
            one,
            &[("a", "1\nx\n2\n3\n")],
        ),
        ("insert at the end", json!({"path": "a", "insert_line": 3, "new": "4\n"}), one, &[("a", "1\n2\n3\n4\n")]),
        (
            "insert after a line without newline",
            json!({"path": "a", "insert_line": 1, "new": "2"}),
            &[("a", "1")],
            &[("a", "1\n2")],
        ),
        (
            "insert into CRLF",
            json!({"path": "a", "insert_line": 1, "new": "x"}),
            &[("a", "1\r\n2\r\n")],
            &[("a", "1\r\nx\r\n2\r\n")],
        ),
        ("all", json!({"path": "a", "old": "x", "new": "y", "all": true}), &[("a", "x x\nx")], &[("a", "y y\ny")]),
        (
            "all lines in CRLF",
            json!({"path": "a", "old": "x\ny", "new": "z\nz", "replace_all": true}),
            &[("a", "x\r\ny\r\nx\r\ny")],
            &[("a", "z\r\nz\r\nz\r\nz")],
        ),
        (
            "new lines in CRLF",
            json!({"path": "a", "old": "1", "new": "0\n1"}),
            &[("a", "1\r\n2\r\n")],
            &[("a", "0\r\n1\r\n2\r\n")],
        ),
        (
            "only added lines after an anchor",
            json!({"patch": "*** Begin Patch\n*** Update File: a\n@@ 2\n+x\n*** End Patch"}),
            one,
            &[("a", "1\n2\nx\n3\n")],
        ),
        (
            "only added lines at the end",
            json!({"patch": "*** Begin Patch\n*** Update File: a\n@@\n+x\n*** End of File\n*** End Patch"}),
            one,
            &[("a", "1\n2\n3\nx\n")],
        ),
        (
            "same lines twice, anchor",
            json!({"patch": one_file("@@ b\n-x\n+y\n")}),
            &[("a", "a\nx\nb\nx\n")],
            &[("a", "a\nx\nb\ny\n")],
        ),
        (
            "same lines twice, end of the file",
            json!({"patch": "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End of File\n*** End Patch"}),
            &[("a", "x\n\nx\n")],
            &[("a", "x\n\ny\n")],
        ),
        // Refused: the content is ambiguous, or the request does not say what it means.
        ("! twice", json!({"path": "a", "old": "x", "new": "y"}), &[("a", "x\nx\n")], &[("a", "x\nx\n")]),
        (
            "! twice in CRLF",
            json!({"path": "a", "old": "x\ny", "new": "y"}),
            &[("a", "x\r\ny\r\nx\r\ny\r\n")],
            &[("a", "x\r\ny\r\nx\r\ny\r\n")],
        ),
        ("! hunk twice", json!({"patch": one_file("@@\n-x\n+y\n")}), &[("a", "x\n\nx\n")], &[("a", "x\n\nx\n")]),
        (
            "! anchor twice",
            json!({"patch": one_file("@@ b\n-x\n+y\n")}),
            &[("a", "b\nx\nb\nx\n")],
            &[("a", "b\nx\nb\nx\n")],
        ),
        ("! no place", json!({"patch": one_file("@@\n+y\n")}), one, one),
        (
            "! other indentation",
            json!({"path": "a", "old": "  x\n  y", "new": "z"}),
            &[("a", "\tx\n\ty\n")],
            &[("a", "\tx\n\ty\n")],
        ),
        ("! exists", json!({"path": "a", "old": "", "new": "z"}), one, one),
        (
            "! one of two files does not match",
            json!({"patch": "*** Begin Patch\n*** Update File: a\n@@\n-2\n+two\n*** Update File: b\n@@\n-no\n+yes\n*** End Patch"}),
            &[("a", "2\n"), ("b", "y\n")],
            &[("a", "2\n"), ("b", "y\n")],
        ),
        (
            "! move onto a file",
            json!({"patch": "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End Patch"}),
            &[("a", "2\n"), ("b", "y\n")],
            &[("a", "2\n"), ("b", "y\n")],
        ),
        ("! overlapping hunks", json!({"patch": one_file("@@\n 1\n-2\n+x\n@@\n-2\n+y\n 3\n")}), one, one),
        ("! nothing changes", json!({"patch": one_file("@@\n-1\n+1\n")}), one, one),
        ("! prose", json!({"path": "a", "patch": "Replace 2 by two."}), one, one),
        ("! no section", json!({"path": "a", "patch": "*** Begin Patch\n@@\n-1\n+x\n*** End Patch"}), one, one),
        ("! other forms", json!({"path": "a", "patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+x\n"}), one, one),
        ("! no file", json!({"old": "2", "new": "two"}), one, one),
        ("! beyond the end", json!({"path": "a", "insert_line": 9, "new": "x"}), one, one),
        ("! incomplete sections", json!({"patch": "*** Begin Patch\n*** Update File: a\n@@\n-2\n"}), one, one),
        (
            "! lines after the end of the file",
            json!({"patch": "*** Begin Patch\n*** Update File: a\n@@\n-3\n+x\n*** End of File\n+y\n*** End Patch"}),
            one,
            one,
        ),
        ("! two ways", json!({"path": "a", "old": "2", "new": "two", "patch": "@@"}), one, one),
    ]
}

/// All files of the project with their contents.
fn files(exec: &Exec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut directories = vec![exec.work.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                directories.push(entry);
            } else {
                let name = entry.strip_prefix(&*exec.work).unwrap().display().to_string();
                found.push((name, fs::read_to_string(&entry).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn edit_of_files_is_made_whole_or_refused_with_next_step() {
    let exec = Exec::new(Who::Me);
    let (mut wrong, mut refused) = (String::new(), 0);
    for (number, (case, arguments, before, after)) in cases().into_iter().enumerate() {
        for entry in fs::read_dir(&*exec.work).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { fs::remove_dir_all(entry) } else { fs::remove_file(entry) }.unwrap();
        }
        for (name, text) in before {
            exec.write(name, text);
        }
        let answer = edit(&exec, &format!("RUN-{number}"), &arguments);
        let mut intended: Vec<_> = after.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        intended.sort();
        let is_refusal = case.starts_with('!');
        refused += usize::from(is_refusal);
        let content = answer["content"].as_str().unwrap_or_default();
        let answered = answer["is_error"] == is_refusal && is_refusal == content.contains("\nHint: ");
        if files(&exec) != intended || !answered {
            let _ = writeln!(wrong, "{case}: {content}\n{:?}", files(&exec));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(refused >= 15, "{refused} refusals");
}

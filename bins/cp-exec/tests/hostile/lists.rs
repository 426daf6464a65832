//! Lists, pipelines, redirections and patterns against bash, for real: the same output, the same status and the same files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::chance::{Chance, times};
use crate::exec::{Exec, Who};

const POLICY: &str = r#"
[exec]
allowed_commands = ["echo", "cat", "grep", "sort", "head", "wc", "true", "false", "mkdir", "touch", "test", "printf", "ls", "cp"]
intent = "off"
[paths]
write = ["."]
"#;

/// Commands that tell, change and fail.
const COMMANDS: [&str; 34] = [
    "echo one two",
    "echo *",
    "echo a*.t?t",
    "echo sub/*",
    "echo [ab]*",
    "echo .*",
    "echo 'it''s' \"a  b\"",
    "echo $?",
    "cat a.txt",
    "cat b.txt missing",
    "cat",
    "cat sub/c.txt",
    "grep -n a",
    "grep -h x *.txt",
    "sort",
    "sort -r a.txt",
    "head -n 1",
    "wc -l",
    "true",
    "false",
    "mkdir new",
    "mkdir -p new/deep",
    "touch made",
    "touch new/x",
    "test -e made",
    "test -d sub",
    "test $? = 1",
    "printf '%s|' *.txt",
    "ls sub",
    "ls nothing",
    "cp a.txt copy",
    "cd sub",
    "cd nowhere",
    "cd ..",
];

const REDIRECTS: [&str; 17] = [
    "",
    "",
    "",
    "",
    "",
    "",
    " > out",
    " >> out",
    " 2>/dev/null",
    " 2>&1",
    " < a.txt",
    " < missing",
    " > new/out",
    " <<< word",
    " &> both",
    " 2> err",
    " >&2",
];

const JOINS: [&str; 9] = [" | ", " | ", " && ", " && ", " || ", "; ", "; ", "\n", " |& "];

/// What of them changes files. Parts of one pipeline do that in no certain order.
fn changes(text: &str) -> bool {
    ["mkdir", "touch", "cp", "cd", " > ", " >> ", "&>", "2> "].iter().any(|word| text.contains(word))
}

fn line(chance: &mut Chance) -> String {
    let (mut line, mut before) = (String::new(), "");
    let count = 1 + chance.below(5);
    for at in 1..=count {
        let after = if at == count { "" } else { *chance.one_of(&JOINS) };
        let piped = before.contains('|') && before != " || " || after.contains('|') && after != " || ";
        let mut pick = |all: &[&'static str]| loop {
            let text = *chance.one_of(all);
            if !(piped && changes(text)) {
                break text;
            }
        };
        let command = pick(&COMMANDS);
        let redirect = if command.starts_with("cd ") { "" } else { pick(&REDIRECTS) };
        let (open, close) = match chance.below(12) {
            0 if !piped => ("(", ")"),
            1 if !piped => ("! ", ""),
            _ => ("", ""),
        };
        line.extend([open, command, redirect, close, after]);
        before = after;
    }
    line
}

/// The same files for both.
fn furnish(directory: &Path) {
    fs::create_dir_all(directory.join("sub")).unwrap();
    for (name, text) in [("a.txt", "b a\na\nx\n"), ("b.txt", "x y\n"), ("sub/c.txt", "c\n"), (".hidden", "h\n")] {
        fs::write(directory.join(name), text).unwrap();
    }
}

/// What a directory holds.
fn files(directory: &Path) -> BTreeMap<String, Option<String>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            if path.is_dir() {
                left.push(path);
                found.insert(name, None);
            } else {
                found.insert(name, Some(fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn what_runs_does_what_bash_does() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let mut chance = Chance::of_this_test(19);
    let lines: Vec<String> = (0..times(200, 5000)).map(|_| line(&mut chance)).collect();
    let place = |root: &str, at: usize| exec.work.join(root).join(at.to_string());
    let mut script = String::from("exec </dev/null\n");
    for (at, text) in lines.iter().enumerate() {
        furnish(&place("ours", at));
        furnish(&place("theirs", at));
        fs::write(exec.root.join(format!("line-{at}")), text).unwrap();
        let (there, root) = (place("theirs", at), exec.root.display());
        let line = format!("eval \"$(cat {root}/line-{at})\" >{root}/out-{at} 2>/dev/null");
        writeln!(script, "(cd {} && {line}); echo $?", there.display()).unwrap();
    }
    let request = |(at, text): (usize, &String)| {
        json!({"tool": "shell", "arguments": {"command": text, "cwd": format!("ours/{at}")}}).to_string()
    };
    let (answers, _) =
        exec.answers(&["--jobs", "4"], &lines.iter().enumerate().map(request).collect::<Vec<_>>().join("\n"));
    let script = exec.root.write("lines.sh", script);
    let bash = exec.program("bash").args(["--norc", "--noprofile"]).arg(script).env("LC_ALL", "C.UTF-8").run();
    let statuses: Vec<i64> = bash.stdout.lines().map(|status| status.parse().unwrap()).collect();
    assert_eq!(statuses.len(), lines.len(), "{}", bash.stderr);
    let mut ran = 0;
    for (at, text) in lines.iter().enumerate() {
        let answer = &answers[at];
        let result = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
        let Some(status) = result["return_code"].as_i64() else { continue };
        let told = fs::read_to_string(exec.root.join(format!("out-{at}"))).unwrap();
        assert_eq!((result["stdout"].as_str(), status), (Some(told.as_str()), statuses[at]), "{text:?}: {answer}");
        assert_eq!(files(&place("ours", at)), files(&place("theirs", at)), "{text:?}: {answer}");
        ran += 1;
    }
    // What is left was refused: most of it would write over a file.
    assert!(ran > lines.len() * 6 / 10, "{ran} of {} ran", lines.len());
}

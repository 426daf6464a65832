//! The tokenizer of command strings compared with bash: both produce the same words for every accepted string.

use std::fmt::Write as _;

use serde_json::{Value, json};

use cp_testkit::times;

use super::chance::Chance;
use crate::exec::{Exec, everyone};

/// Pieces near the border between words and syntax.
const PIECES: [&str; 77] = [
    " ", " ", " ", "\t", "'", "\"", "\\", "$", "`", ";", "&", "|", "<", ">", "(", ")", "\n", "\\\n", "#", "~", "~/",
    "=", ":", "+", "[", "]", "{", "}", "{a,b}", "*", "?", "!", "^", "%", "-", "--", "@", ",", ".", "a", "b1", "_x",
    "A=", "a[1]=", "é", "日", "'x y'", "\"x y\"", "\\ ", "\\$", "\u{a0}", "\u{2028}", "time", "in", "coproc", "if",
    "[[", "x", "xy", "x-y", "'a'", "\"b\"", "\\\\", "\\'", "\"'\"", "'\"'", "$'", "$\"", "a=b", "-n", "--k=v", "0",
    "1>", "a~b", "..", "''", "\"\"",
];

/// Runs each line where only a handler is called: no builtin, no program, so that nothing but the words of the command
/// comes of it.
const BASH: &str = include_str!("../data/hostile/words.sh");

fn lines(chance: &mut Chance, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        // Most lines begin as a command would, since otherwise few are taken at all.
        let start = if chance.one_in(3) { "" } else { "zz " };
        let pieces = (0..=chance.below(9)).map(|_| *chance.one_of(&PIECES)).collect::<String>();
        lines.push(format!("{start}{pieces}"));
    }
    lines
}

#[test]
fn tokenizer_words_equal_those_of_bash() {
    let exec = Exec::with_policy(everyone()[0], "[exec]\nallowed_commands = [\"zz\"]\n");
    let lines = lines(&mut Chance::of_this_test(7), times(4000, 100_000));
    let request = |line: &String| {
        json!({"tool": "shell", "operation": "execute_command", "arguments": {"command": line}}).to_string()
    };
    let (home, _) = exec.answers(&["check"], &request(&"zz ~".to_owned()));
    let home = home[0]["data"]["argv"][1].as_str().unwrap().to_owned();
    let (answers, _) = exec.answers(&["check"], &lines.iter().map(request).collect::<Vec<_>>().join("\n"));
    let argv = |answer: &Value| -> Option<Vec<String>> { serde_json::from_value(answer["data"]["argv"].clone()).ok() };
    let taken: Vec<(&String, Vec<String>)> = lines
        .iter()
        .zip(&answers)
        .filter_map(|(line, answer)| Some((line, argv(answer)?)))
        // A name with a slash is not looked up, and an empty one not handled.
        .filter(|(_, argv)| argv.first().is_some_and(|name| !name.is_empty() && !name.contains('/')))
        .collect();
    assert!(taken.len() > lines.len() / 8, "{} of {} lines are taken", taken.len(), lines.len());
    assert!(taken.len() < lines.len() * 7 / 8, "{} of {} lines are taken", taken.len(), lines.len());

    let mut script = BASH.to_owned();
    for (line, _) in &taken {
        writeln!(script, "{line}\nend").unwrap();
    }
    let path = exec.root.write("lines.sh", script);
    let ran = exec.program("bash").args(["--norc", "--noprofile"]).arg(path).env("HOME", home).run();
    let mut built: Vec<Vec<&str>> =
        ran.stdout.split("\u{1}\0").map(|words| words.split_terminator('\0').collect()).collect();
    built.pop();
    let wrong = taken.iter().zip(&built).find(|((_, argv), built)| argv != *built);
    assert!(wrong.is_none(), "{wrong:?}\n{}", ran.stderr);
    assert!(taken.len() == built.len(), "bash stopped at {:?}\n{}", taken.get(built.len()), ran.stderr);
}

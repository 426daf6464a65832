//! Command lines in every spelling that a program's own parser knows: abbreviated, clustered, attached, separate, behind `--`. Each is
//! run as it is, outside; where that does what a rule is against, the program must not have taken the line for a harmless one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cp_testkit::counterpart;
use serde_json::{Value, json};

use super::chance::{Chance, times};
use crate::exec::{Exec, everyone};

/// A program, and what its lines are made of.
struct Family {
    program: &'static str,
    /// Words that come first, such as the command within a program.
    first: &'static [&'static str],
    /// Letters without a value, and letters with one.
    flags: &'static str,
    valued: &'static [(char, &'static str)],
    /// The same of long names, without their dashes.
    long_flags: &'static [&'static str],
    long_valued: &'static [(&'static str, &'static str)],
    /// Options by which it does what a rule is against: a letter, a long name, or both, and the value.
    evil: &'static [(Option<char>, Option<&'static str>, &'static str)],
    /// What else is on the line.
    operands: &'static [&'static str],
    /// Whether what is against the rule is the operands: the program runs them.
    wraps: bool,
}

const PLAIN: Family = Family {
    program: "",
    first: &[],
    flags: "",
    valued: &[],
    long_flags: &[],
    long_valued: &[],
    evil: &[],
    operands: &["f"],
    wraps: false,
};

const FAMILIES: [Family; 17] = [
    Family {
        program: "sort",
        flags: "bdfginrsu",
        valued: &[('k', "1"), ('t', ":"), ('S', "1M"), ('T', "."), ('k', "-o"), ('t', "-")],
        long_flags: &["reverse", "unique", "stable", "ignore-case", "merge"],
        long_valued: &[("key", "1"), ("parallel", "1"), ("buffer-size", "1M")],
        evil: &[(Some('o'), Some("output"), "canary")],
        ..PLAIN
    },
    Family {
        program: "sed",
        flags: "nEsuz",
        valued: &[('l', "5"), ('e', "p")],
        long_flags: &["quiet", "regexp-extended", "separate", "posix"],
        long_valued: &[("line-length", "5"), ("expression", "p")],
        evil: &[(Some('e'), Some("expression"), "w canary"), (Some('e'), Some("expression"), "1e cp evil canary")],
        ..PLAIN
    },
    Family {
        program: "tar",
        first: &["-c"],
        flags: "vhpSl",
        valued: &[('C', "."), ('b', "20"), ('X', "names")],
        long_flags: &["verbose", "dereference", "totals", "sparse"],
        long_valued: &[
            ("exclude", "x"),
            ("directory", "."),
            ("blocking-factor", "20"),
            ("file", "a.tar"),
            ("mode", "644"),
        ],
        evil: &[
            (Some('I'), Some("use-compress-program"), "./evil"),
            (None, Some("checkpoint-action"), "exec=./evil"),
            (Some('F'), Some("info-script"), "./evil"),
        ],
        operands: &["--checkpoint=1", "-fa.tar", "f"],
        ..PLAIN
    },
    Family {
        program: "split",
        flags: "deu",
        valued: &[('a', "3"), ('l', "1"), ('t', ":")],
        long_flags: &["elide-empty-files", "unbuffered", "verbose"],
        long_valued: &[("suffix-length", "3"), ("lines", "1"), ("additional-suffix", "x")],
        evil: &[(None, Some("filter"), "./evil")],
        ..PLAIN
    },
    Family {
        program: "find",
        first: &["f"],
        long_flags: &[],
        evil: &[],
        operands: &["-name", "f", "-exec", "./evil", ";"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "install",
        flags: "bDpv",
        valued: &[('m', "755"), ('S', "x")],
        long_flags: &["compare", "verbose"],
        long_valued: &[("mode", "755"), ("suffix", "x")],
        evil: &[(None, Some("strip-program"), "./evil")],
        operands: &["-s", "evil", "other"],
        ..PLAIN
    },
    Family {
        program: "git",
        first: &["grep"],
        flags: "niwvEF",
        valued: &[('m', "1"), ('A', "1"), ('e', "old")],
        long_flags: &["ignore-case", "count", "full-name", "quiet", "no-index"],
        long_valued: &[("max-depth", "1"), ("max-count", "1"), ("context", "1")],
        evil: &[(Some('O'), Some("open-files-in-pager"), "./evil")],
        operands: &["old", "f"],
        ..PLAIN
    },
    Family {
        program: "git",
        first: &["diff"],
        flags: "bwRaz",
        valued: &[('U', "1"), ('S', "x"), ('O', "names")],
        long_flags: &["stat", "raw", "quiet", "text", "no-color"],
        long_valued: &[("unified", "1"), ("diff-filter", "M"), ("src-prefix", "x"), ("stat-width", "10")],
        evil: &[(None, Some("output"), "canary")],
        operands: &["HEAD"],
        ..PLAIN
    },
    Family {
        program: "git",
        first: &["archive"],
        flags: "v",
        valued: &[],
        long_flags: &["verbose"],
        long_valued: &[("prefix", "x/"), ("format", "tar")],
        evil: &[(Some('o'), Some("output"), "canary")],
        operands: &["HEAD"],
        ..PLAIN
    },
    Family {
        program: "git",
        first: &["ls-remote"],
        flags: "q",
        valued: &[('o', "x")],
        long_flags: &["quiet", "heads", "tags", "refs", "exit-code"],
        long_valued: &[("sort", "refname"), ("server-option", "x")],
        evil: &[(None, Some("upload-pack"), "./evil"), (None, Some("exec"), "./evil")],
        operands: &["."],
        ..PLAIN
    },
    Family {
        program: "env",
        flags: "iv0",
        valued: &[('u', "A"), ('u', "-S")],
        long_flags: &["ignore-environment", "debug"],
        long_valued: &[("unset", "A")],
        evil: &[(Some('S'), Some("split-string"), "cp evil canary")],
        operands: &["cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "xargs",
        flags: "rtx",
        valued: &[('n', "1"), ('P', "1"), ('s', "4000"), ('L', "1"), ('E', "x"), ('a', "/dev/null"), ('d', "n")],
        long_flags: &["no-run-if-empty", "verbose", "exit"],
        long_valued: &[
            ("max-args", "1"),
            ("max-procs", "1"),
            ("process-slot-var", "A"),
            ("arg-file", "/dev/null"),
            ("eof", "x"),
        ],
        operands: &["cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "timeout",
        flags: "v",
        valued: &[('k', "1"), ('s', "TERM")],
        long_flags: &["foreground", "preserve-status", "verbose"],
        long_valued: &[("kill-after", "1"), ("signal", "TERM")],
        operands: &["5", "cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "nice",
        valued: &[('n', "1")],
        long_valued: &[("adjustment", "1")],
        operands: &["cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "stdbuf",
        valued: &[('o', "L"), ('e', "0"), ('i', "0")],
        long_valued: &[("output", "L"), ("error", "0"), ("input", "0")],
        operands: &["cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "flock",
        flags: "sxnuo",
        valued: &[('w', "5"), ('E', "9")],
        long_flags: &["shared", "exclusive", "nonblock", "close", "verbose"],
        long_valued: &[("timeout", "5"), ("wait", "5"), ("conflict-exit-code", "9")],
        operands: &["lock", "cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
    Family {
        program: "setsid",
        flags: "wf",
        long_flags: &["wait", "fork"],
        operands: &["cp", "evil", "canary"],
        wraps: true,
        ..PLAIN
    },
];

/// An option in one of its spellings: the words that it is.
fn spelled(
    letter: Option<char>,
    long: Option<&str>,
    value: Option<&str>,
    flags: &str,
    chance: &mut Chance,
) -> Vec<String> {
    let long = long.filter(|_| letter.is_none() || chance.one_in(2));
    let Some(long) = long else {
        let Some(letter) = letter else { return Vec::new() };
        // Behind some letters that take no value, in one word.
        let letters: Vec<char> = flags.chars().collect();
        let most = if letters.is_empty() { 1 } else { 3 };
        let before: String = (0..chance.below(most)).map(|_| *chance.one_of(&letters)).collect();
        return match value {
            None => vec![format!("-{before}{letter}")],
            Some(value) if chance.one_in(2) => vec![format!("-{before}{letter}{value}")],
            Some(value) => vec![format!("-{before}{letter}"), value.to_owned()],
        };
    };
    let length = if chance.one_in(2) { long.len() } else { 1 + chance.below(long.len()) };
    let name = &long[..length];
    match value {
        None => vec![format!("--{name}")],
        Some(value) if chance.one_in(2) => vec![format!("--{name}={value}")],
        Some(value) => vec![format!("--{name}"), value.to_owned()],
    }
}

fn line(family: &Family, chance: &mut Chance) -> Vec<String> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for _ in 0..chance.below(4) {
        let value = |pair: &(char, &'static str)| (Some(pair.0), None, Some(pair.1));
        let (letter, long, value): (Option<char>, Option<&str>, Option<&str>) = match chance.below(4) {
            0 if !family.flags.is_empty() => (family.flags.chars().nth(chance.below(family.flags.len())), None, None),
            1 if !family.valued.is_empty() => value(chance.one_of(family.valued)),
            2 if !family.long_flags.is_empty() => (None, Some(*chance.one_of(family.long_flags)), None),
            _ if !family.long_valued.is_empty() => {
                let (name, value) = *chance.one_of(family.long_valued);
                (None, Some(name), Some(value))
            }
            _ => continue,
        };
        groups.push(spelled(letter, long, value, family.flags, chance));
    }
    if !family.evil.is_empty() && !chance.one_in(4) {
        let (letter, long, value) = *chance.one_of(family.evil);
        let at = chance.below(groups.len() + 1);
        groups.insert(at, spelled(letter, long, Some(value), family.flags, chance));
    }
    if chance.one_in(6) {
        let at = chance.below(groups.len() + 1);
        groups.insert(at, vec!["--".to_owned()]);
    }
    let operands: Vec<String> = family.operands.iter().map(|word| (*word).to_owned()).collect();
    if family.wraps || !chance.one_in(3) {
        groups.push(operands);
    } else {
        groups.insert(0, operands);
    }
    let first = std::iter::once(family.program).chain(family.first.iter().copied());
    first.map(str::to_owned).chain(groups.into_iter().flatten()).collect()
}

const PROJECT: &str = r#"
set -e
git init -q -b main . && git config user.name x && git config user.email x@y
echo old > f && git add f && git commit -qm one && echo old new > f
printf '#!/bin/sh\n: > "%s/canary"\n' "$PWD" > evil && chmod 755 evil
echo evil > names
"#;

/// Runs a line where it may do what it does, and says whether that is what a rule is against.
fn does_it(at: &Path, words: &[String]) -> bool {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "5"]).args(words).current_dir(at).env("HOME", at).env("GIT_PAGER", "cat");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let canary = at.join("canary");
    if child.unwrap().wait().is_ok() && words[0] == "setsid" {
        // What it leaves in the background may still be on its way.
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = canary.exists();
    let _ = fs::remove_file(canary);
    done
}

#[test]
fn whatever_spelling_does_it_is_never_taken_for_a_harmless_one() {
    let mut chance = Chance::of_this_test(11);
    let exec = Exec::with_policy(everyone()[0], "");
    let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.program).collect();
    names.dedup();
    exec.policy(&format!("[exec]\nallowed_commands = {names:?}\nintent = \"off\"\n"));
    let outside = tempfile::tempdir().unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for place in [outside.path(), &*exec.work] {
        let made = Command::new("bash").args(["-c", PROJECT]).current_dir(place).env("HOME", place).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let mut lines: Vec<(usize, Vec<String>)> = Vec::new();
    for (index, family) in FAMILIES.iter().enumerate() {
        if counterpart(family.program).is_some() {
            lines.extend((0..times(60, 2000)).map(|_| (index, line(family, &mut chance))));
        }
    }
    let request =
        |(_, words): &(usize, Vec<String>)| json!({"tool": "shell", "arguments": {"argv": words}}).to_string();
    let (answers, _) = exec.answers(&["check"], &lines.iter().map(request).collect::<Vec<_>>().join("\n"));
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for ((index, words), answer) in lines.iter().zip(&answers) {
        let allowed: &Value = &answer["data"]["decision"];
        assert!(allowed.is_string(), "{words:?}: {answer}");
        let (done, harmless) = counts.entry(*index).or_default();
        if does_it(outside.path(), words) {
            *done += 1;
            if allowed == "allow" {
                wrong.push(words.join(" "));
            }
        } else {
            *harmless += usize::from(allowed == "allow");
        }
    }
    assert!(wrong.is_empty(), "taken for harmless:\n{}", wrong.join("\n"));
    for (index, (done, _)) in &counts {
        let family = &FAMILIES[*index];
        assert!(*done >= 4, "{} {:?}: {done} lines do anything at all", family.program, family.first);
    }
    // The control of the other side: lines that do nothing are allowed, so that not everything is refused.
    let harmless: usize = counts.values().map(|(_, harmless)| harmless).sum();
    assert!(harmless > 60, "{harmless} lines are allowed: {counts:?}");
}

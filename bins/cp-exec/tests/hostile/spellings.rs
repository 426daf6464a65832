//! Command lines in every spelling that a program's own parser knows: abbreviated, clustered, attached, separate,
//! behind `--`. Each is run as it is, outside; where it destroys a file or a reference, cp-exec must not have allowed
//! it without a question.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cp_testkit::times;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chance::Chance;
use crate::exec::{Exec, everyone};

/// A program, and what its lines are made of.
#[derive(Deserialize)]
struct Family {
    program: String,
    /// Words that come first, such as the command within a program.
    first: Vec<String>,
    /// Letters without a value, and letters with one.
    flags: String,
    #[serde(default)]
    valued: Vec<(char, String)>,
    /// The same of long names, without their dashes.
    long_flags: Vec<String>,
    #[serde(default)]
    long_valued: Vec<(String, String)>,
    /// Options by which it destroys: a letter, a long name, or both.
    letter: Option<char>,
    long: Option<String>,
    /// Other words of the line.
    operands: Vec<String>,
}

#[derive(Deserialize)]
struct Families {
    family: Vec<Family>,
}

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
        let (letter, long, value): (Option<char>, Option<&str>, Option<&str>) = match chance.below(4) {
            0 => (family.flags.chars().nth(chance.below(family.flags.len())), None, None),
            1 if !family.valued.is_empty() => {
                let (letter, value) = chance.one_of(&family.valued);
                (Some(*letter), None, Some(value))
            }
            2 => (None, Some(chance.one_of::<String>(&family.long_flags)), None),
            _ if !family.long_valued.is_empty() => {
                let (name, value) = chance.one_of(&family.long_valued);
                (None, Some(name), Some(value))
            }
            _ => continue,
        };
        groups.push(spelled(letter, long, value, &family.flags, chance));
    }
    if !chance.one_in(4) {
        let at = chance.below(groups.len() + 1);
        groups.insert(at, spelled(family.letter, family.long.as_deref(), None, &family.flags, chance));
    }
    if chance.one_in(6) {
        let at = chance.below(groups.len() + 1);
        groups.insert(at, vec!["--".to_owned()]);
    }
    let at = if chance.one_in(3) { 0 } else { groups.len() };
    groups.insert(at, family.operands.clone());
    let first = std::iter::once(&family.program).chain(&family.first).cloned();
    first.chain(groups.into_iter().flatten()).collect()
}

const PROJECT: &str = include_str!("../data/hostile/branches.sh");

/// Files, and references, whose loss is destruction.
const KEPT: [&str; 5] = ["f", "canary", "other", ".git/refs/heads/x", ".git/refs/tags/v"];

/// Runs a line in a copy of the project, and answers whether it destroys something.
fn destroys(project: &Path, copy: &Path, words: &[String]) -> bool {
    let kept = || KEPT.map(|name| fs::read(copy.join(name)).ok());
    let before = kept();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "5"]).args(words).current_dir(copy).env("HOME", copy).env("GIT_PAGER", "cat");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    // A file that is moved away is still there under its new name.
    let lost = kept().iter().zip(&before).any(|(now, before)| now != before && !kept().contains(before));
    // Other programs change nothing but the kept files.
    if !lost && words[0] != "git" {
        return false;
    }
    fs::remove_dir_all(copy).unwrap();
    assert!(Command::new("cp").arg("-a").args([project, copy]).status().unwrap().success());
    lost
}

#[test]
fn destructive_line_always_needs_confirmation() {
    let mut chance = Chance::of_this_test(11);
    let exec = Exec::with_policy(everyone()[0], "");
    let Families { family: families } = toml::from_str(include_str!("../data/hostile/families.toml")).unwrap();
    let names: BTreeSet<&String> = families.iter().map(|family| &family.program).collect();
    exec.policy(&format!(
        "[exec]\nallowed_commands = {:?}\nintent = \"off\"\n[paths]\nwrite = [\".\"]\n",
        Vec::from_iter(names)
    ));
    let outside = tempfile::tempdir().unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (project, copy) = (outside.path().join("project"), outside.path().join("copy"));
    for place in [&project, &copy, &*exec.work] {
        fs::create_dir_all(place).unwrap();
        let made = Command::new("bash").args(["-c", PROJECT]).current_dir(place).env("HOME", place).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let mut lines: Vec<(usize, Vec<String>)> = Vec::new();
    for (index, family) in families.iter().enumerate() {
        lines.extend((0..times(12, 2000)).map(|_| (index, line(family, &mut chance))));
    }
    let request = |(_, words): &(usize, Vec<String>)| {
        json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": words}}).to_string()
    };
    let (answers, _) = exec.answers(&["check"], &lines.iter().map(request).collect::<Vec<_>>().join("\n"));
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for ((index, words), answer) in lines.iter().zip(&answers) {
        let allowed: &Value = &answer["data"]["decision"];
        assert!(allowed.is_string(), "{words:?}: {answer}");
        let (done, harmless) = counts.entry(*index).or_default();
        if destroys(&project, &copy, words) {
            *done += 1;
            if allowed == "allow" {
                wrong.push(words.join(" "));
            }
        } else {
            *harmless += usize::from(allowed == "allow");
        }
    }
    assert!(wrong.is_empty(), "allowed without a question:\n{}", wrong.join("\n"));
    for (index, (done, _)) in &counts {
        let family = &families[*index];
        assert!(*done >= 2, "{} {:?}: {done} lines do anything at all", family.program, family.first);
    }
    // The control of the other side: lines that do nothing are allowed, so that not everything is refused.
    let harmless: usize = counts.values().map(|(_, harmless)| harmless).sum();
    assert!(harmless > 12, "{harmless} lines are allowed: {counts:?}");
}

//! The tables of options against what the programs say of themselves.

use std::process::Command;

use cp_testkit::counterpart;

use crate::exec::{Exec, Who};

/// A wrapper, and the operands before its command.
const WRAPPERS: [(&str, &str); 11] = [
    ("env", ""),
    ("nice", ""),
    ("timeout", "5"),
    ("xargs", ""),
    ("stdbuf", ""),
    ("setsid", ""),
    ("ionice", ""),
    ("flock", "lock"),
    ("taskset", "1"),
    ("choom", ""),
    ("chrt", "0"),
];

/// Options by which the command is not what follows, or nothing runs; and one whose value is optional, whatever the help says.
const OTHERWISE: [&str; 20] = [
    "--help",
    "--version",
    "--split-string",
    "--chdir",
    "--argv0",
    "--command",
    "--pid",
    "--pgid",
    "--uid",
    "--max",
    "-h",
    "-V",
    "-p",
    "-P",
    "-u",
    "-m",
    "--max-lines",
    "-C",
    "-S",
    "-c",
];

/// The options of a program's `--help`: each name, and whether a value follows it.
fn options(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.trim_start().starts_with('-') && line.starts_with(' ')) {
        let shown = line.trim_start().split("  ").next().unwrap_or_default();
        // `-E END`, but not `-l[N]`, `--eof[=END]`.
        let named = shown.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_uppercase()));
        let takes = named || shown.contains('<') || shown.contains('=') && !shown.contains("[=");
        for part in shown.split(", ") {
            let name = part.split(['=', ' ', '[']).next().unwrap_or_default();
            if name.len() > 1 {
                found.push((name.to_owned(), takes && !name.starts_with("-l")));
            }
        }
    }
    found
}

#[test]
fn the_table_of_every_wrapper_has_what_its_help_lists_and_finds_the_command_behind_it() {
    let names: Vec<String> = WRAPPERS.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let exec = Exec::with_policy(Who::Me, &format!("[exec]\nallowed_commands = [{}]\n", names.join(", ")));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, before) in WRAPPERS {
        let Some(program) = counterpart(name) else { continue };
        let help = Command::new(program).arg("--help").env("LC_ALL", "C").output().unwrap();
        for (option, takes) in options(&String::from_utf8_lossy(&help.stdout)) {
            if OTHERWISE.contains(&option.as_str()) {
                continue;
            }
            count += 1;
            let value = if takes { "7" } else { "" };
            let words = [name, &option, value, before, "unknown-program", "x"];
            let argv: Vec<&str> = ["check", "--"].into_iter().chain(words).filter(|word| !word.is_empty()).collect();
            let (answer, _) = exec.ask(&argv);
            let reason = answer["data"]["reason"].as_str().unwrap_or_default();
            if !reason.contains("`unknown-program`") {
                wrong.push(format!("{}: {reason}", argv[2..].join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 60, "{count} options");
}

#[test]
fn the_table_of_sed_has_what_its_help_lists() {
    let Some(program) = counterpart("sed") else { return };
    let help = Command::new(program).arg("--help").env("LC_ALL", "C").output().unwrap();
    let exec = Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"sed\"]\n");
    let found = options(&String::from_utf8_lossy(&help.stdout));
    assert!(found.len() >= 15, "{found:?}");
    for (option, _) in found {
        let (answer, _) = exec.ask(&["check", "--", "sed", &option, "1", "p"]);
        assert_ne!(answer["data"]["rule"], "arguments", "{option}");
    }
}

#[test]
fn an_option_that_no_table_has_is_refused_with_its_name() {
    let exec =
        Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"env\", \"sed\", \"touch\"]\nintent = \"off\"\n");
    let rule = |argv: &[&str]| {
        let (answer, _) = exec.ask(&[&["check", "--"], argv].concat());
        assert!(answer["data"]["decision"] == "allow" || answer["data"]["reason"].as_str().unwrap().contains("--evil"));
        answer["data"]["rule"].clone()
    };
    assert_eq!(rule(&["env", "--evil", "touch", "x"]), "wrapper.options");
    assert_eq!(rule(&["sed", "--evil", "p", "x"]), "arguments");
    assert_eq!(rule(&["env", "touch", "--evil"]), "allowed_commands");
    assert_eq!(rule(&["sed", "p", "--", "--evil"]), "allowed_commands");
}

//! The options of programs in the data of the rules against what the programs list themselves.

use std::process::Command;

use crate::exec::{Exec, Who};

/// Programs, with arguments by which each writes over `f`.
const PROGRAMS: [(&str, &[&str]); 7] = [
    ("cp", &["x", "f"]),
    ("mv", &["x", "f"]),
    ("install", &["x", "f"]),
    ("uniq", &["x", "f"]),
    ("sort", &["-o", "f", "x"]),
    ("shuf", &["-o", "f", "x"]),
    ("tee", &["f"]),
];

/// Options that keep the file, or name another target.
const OTHERWISE: [&str; 8] = ["-n", "--no-clobber", "-t", "--target-directory", "-d", "--directory", "-a", "--append"];

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
fn overwrite_is_found_after_every_listed_option() {
    let names = PROGRAMS.map(|(name, _)| name);
    let policy = format!("[exec]\nallowed_commands = {names:?}\n[paths]\nwrite = [\".\"]\n");
    let exec = Exec::with_policy(Who::Me, &policy);
    exec.write("f", "");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, arguments) in PROGRAMS {
        let help = Command::new(name).arg("--help").env("LC_ALL", "C").output().unwrap();
        for (option, takes) in options(&String::from_utf8_lossy(&help.stdout)) {
            // The same letters have another meaning in other programs.
            if OTHERWISE.contains(&option.as_str()) && !["sort", "shuf", "uniq"].contains(&name) {
                continue;
            }
            count += 1;
            let words = [&[name, option.as_str()][..], if takes { &["7"] } else { &[] }, arguments].concat();
            let (answer, _) = exec.ask(&[&["check", "--"], words.as_slice()].concat());
            if answer["data"]["rule"] != "overwrite" {
                wrong.push(format!("{}: {}", words.join(" "), answer["data"]["rule"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 60, "{count} options");
}

//! Commands that bash has itself and that are left to their programs: both say the same, for whatever is accepted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use super::super::flow::parts;
use super::super::{Environment, lower};
use super::lines::Dice;

const ARGUMENTS: [&str; 44] = [
    "-n",
    "-e",
    "-E",
    "-ne",
    "--",
    "--help",
    "a",
    "b c",
    "",
    "%s",
    "%s\\n",
    "%d",
    "%5d|",
    "%-4s|",
    "%%",
    "%x",
    "%.2s",
    "\\n",
    "\\t",
    "\\101",
    "\\x41",
    "\\e",
    "\\\\",
    "\\c",
    "é",
    "1",
    "-7",
    "08",
    "=",
    "==",
    "!=",
    "-eq",
    "-lt",
    "!",
    "-z",
    "-f",
    "-d",
    "/",
    "/etc/passwd",
    "-nt",
    "-s",
    "-e\\n",
    "100%",
    "3",
];

#[test]
fn programs_say_what_the_builtins_say() {
    let environment = Environment { home: "/h", directory: "/", variables: &BTreeMap::new() };
    let (mut script, mut accepted) = (String::new(), 0);
    for seed in 0..1600 {
        let mut dice = Dice::new(seed + 3);
        let name = dice.of(&["echo", "printf", "test", "[", "true", "false"]);
        let mut line = name.to_owned();
        for _ in 0..dice.below(5) {
            write!(line, " '{}'", dice.of(&ARGUMENTS)).unwrap();
        }
        if name == "[" {
            line += " ]";
        }
        let Ok(lowered) = lower(&line, &environment) else { continue };
        assert_eq!(parts(&lowered.steps)[0].argv[0].text(), Some(name));
        accepted += 1;
        // A text that ends without a new line keeps its end through the mark.
        writeln!(script, "a=$(builtin {line} 2>/dev/null; echo .$?); b=$(/usr/bin/{line} 2>/dev/null; echo .$?)")
            .unwrap();
        writeln!(script, "[[ $a == \"$b\" ]] || printf '%s: %q %q\\n' {seed} \"$a\" \"$b\"").unwrap();
    }
    assert!(accepted > 400, "few are accepted: {accepted}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(script.as_bytes()).unwrap();
    let output = Command::new("bash").arg("--norc").arg(file.path()).env("LC_ALL", "C.UTF-8").output().unwrap();
    let different = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(different.is_empty(), "of {accepted}, by seed: {different}");
}

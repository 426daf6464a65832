//! What programs expect of a system: a line does the same inside as outside, run by a plain shell of the same user.

use cp_testkit::counterpart;

use crate::exec::{Exec, everyone};

/// A policy that allows every program, with a network that lists no name.
const POLICY: &str = r#"
[exec]
allowed_commands = ["*"]
network = []
intent = "off"
"#;

/// What a program expects, the program that shows it, and a line that does so. Each line prints what must be the same.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("a terminal for script", "script", "script -qec 'test -t 0 && tty' /dev/null </dev/null | sed 's/[0-9]*.$//'"),
    ("a terminal for Python", "python3", "python3 -c 'import pty; print(pty.spawn([\"true\"]))' </dev/null"),
    ("many terminals", "python3", "python3 -c 'import pty; print(len([pty.openpty() for _ in range(40)]))'"),
];

/// Runs a line inside and outside, and returns what both print, with their exit status.
fn both(exec: &Exec, line: &str) -> [(String, i32); 2] {
    let inside = exec.command(&["--format", "raw", "-c", line]).run();
    [inside, exec.outside(line).run()].map(|ran| (format!("{}{}", ran.stdout, ran.stderr), ran.status))
}

#[test]
fn programs_find_what_they_expect_of_a_system() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let mut different = Vec::new();
        for (what, program, line) in EXPECTED {
            if counterpart(program).is_none() {
                continue;
            }
            let [inside, outside] = both(&exec, line);
            assert_eq!(outside.1, 0, "{who:?}: the control fails: {what}: {line}: {outside:?}");
            if inside != outside {
                different.push(format!("{what}: {line}\n  inside {inside:?}\n  outside {outside:?}"));
            }
        }
        assert!(different.is_empty(), "{who:?}:\n{}", different.join("\n"));
    }
}

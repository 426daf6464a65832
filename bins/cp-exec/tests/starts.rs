//! Each start of a program is decided about and recorded, however its path is written and whoever executes it.

use std::fs;

use serde_json::{Value, json};

use crate::exec::{Exec, everyone};

const RESTRICTED: &str = "id";
const ALLOWED: &str = "seq";

const POLICY: &str = include_str!("data/policies/starts.toml");

/// Paths that lead to a program. The directories of [`PREPARE`] and descriptor 3 lead to it too.
fn spellings(name: &str) -> Vec<String> {
    let path = format!("usr/bin/{name}");
    let processes =
        ["self", "thread-self", "$$", "self/../self", "$$/task/$$", "self/root/proc/self", "self/fd/../../$$"];
    let plain = ["/".to_owned(), "/usr/.././/".to_owned(), "../".repeat(20)];
    let mut spellings: Vec<String> = plain.iter().map(|start| format!("{start}{path}")).collect();
    spellings.extend(processes.iter().map(|process| format!("/proc/{process}/root/{path}")));
    spellings.extend(["/dev/fd/3", "/proc/self/fd/3", "/proc/$$/fd/3", "/proc/thread-self/fd/3"].map(str::to_owned));
    spellings.extend(["target/near", "/proc/self/cwd/target/near", "target/far"].map(|at| format!("{at}/{name}")));
    if name == RESTRICTED {
        spellings.push("target/near/true".to_owned());
    }
    spellings
}

/// Links to a program, under its own and under an allowed name.
fn prepare(name: &str) -> String {
    format!(
        "mkdir target target/near target/far; ln -s /usr/bin/{name} target/near/{name}; exec 3</usr/bin/{name}\n\
         ln -s /usr/bin/{name} target/near/true; ln -s /proc/self/root/usr/bin/{name} target/far/{name}\n"
    )
}

/// Ways to execute a path with `--version`; each writes its own files.
const WAYS: [(&str, &str); 8] = [
    ("line", "\"PATH\" --version"),
    ("exec", "(exec \"PATH\" --version)"),
    ("env", "env \"PATH\" --version"),
    ("interpreter", "printf '#!%s --version\\n' \"PATH\" >target/AT; chmod +x target/AT; target/AT"),
    (
        "interpreter of an interpreter",
        "printf '#!%s --version\\n' \"PATH\" >target/AT; printf '#!target/AT x\\n' >target/AT.b; \
         chmod +x target/AT target/AT.b; target/AT.b",
    ),
    ("script", "printf '#!/bin/sh\\n\"%s\" --version\\n' \"PATH\" >target/AT; chmod +x target/AT; target/AT"),
    ("program", "perl -e 'exec {$ARGV[0]} @ARGV' \"PATH\" --version"),
    ("loader", "perl -e 'exec @ARGV' /lib64/ld-linux-x86-64.so.2 \"PATH\" --version"),
];

/// Ways in which the line itself starts the program.
const OF_LINE: usize = 5;

/// The output of each start, and the entries that name the program.
fn start_all(exec: &Exec, name: &str, door: &str) -> (Vec<(String, bool)>, Vec<Value>) {
    let mut script = prepare(name);
    let mut labels = Vec::new();
    for (way, command) in WAYS {
        for spelling in spellings(name) {
            let at = labels.len();
            let command = command.replace("PATH", &spelling).replace("AT", &format!("s{at}"));
            script.extend([format!("echo \"== {at}\"; {command} </dev/null\n")]);
            labels.push(format!("{way}: {spelling}"));
        }
    }
    script.push_str("echo '== end'");
    let before = exec.entries("exec.step").len();
    let out = match door {
        "line" => exec.command(&["--format", "text", "-c", &script]).run().stdout,
        "script" => {
            exec.write("all.sh", &script);
            exec.command(&["--format", "text", "-c", "sh all.sh"]).run().stdout
        }
        _ => exec.command(&["agent", "--", "sh", "-c", &script]).run().stdout,
    };
    assert!(out.contains("== end"), "{door}: {out}");
    let parts = out.split("== ").skip(1);
    let started = labels.into_iter().zip(parts.map(|part| part.contains(&format!("{name} ("))));
    let file = fs::canonicalize(format!("/usr/bin/{name}")).unwrap();
    let mut steps = exec.entries("exec.step").split_off(before);
    steps.retain(|step| step["data"]["exe"]["path"] == json!(file));
    (started.collect(), steps)
}

#[test]
fn every_start_is_decided_and_recorded() {
    for who in everyone() {
        for door in ["line", "script", "agent"] {
            for name in [RESTRICTED, ALLOWED] {
                let exec = Exec::with_policy(who, POLICY);
                let (starts, steps) = start_all(&exec, name, door);
                let started = starts.iter().filter(|(_, started)| *started).count();
                let allowed = steps.iter().filter(|step| step["data"]["decision"] == "allow").count();
                let context = format!("{who:?} {door} {name}: {starts:?}");
                assert_eq!((allowed, steps.len()), (started, starts.len()), "{context}");
                let of_line = &starts[..spellings(name).len() * OF_LINE];
                if name == ALLOWED {
                    assert_eq!(started, starts.len(), "{context}");
                } else if door == "line" {
                    assert!(of_line.iter().all(|(_, started)| !started), "{context}");
                }
            }
        }
    }
}

#[test]
fn loader_of_elf_file_is_decided() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let mut program = fs::read("/usr/bin/true").unwrap();
        let loader = b"/lib64/ld-linux-x86-64.so.2";
        let at = memchr::memmem::find(&program, loader).unwrap();
        exec.work.executable("target/true", &program);
        assert_eq!(exec.ask(&["-c", "target/true"]).1, 0, "{who:?}: the control");
        program[at..at + loader.len()].fill(0);
        program[at..at + 11].copy_from_slice(b"/usr/bin/id");
        exec.work.executable("target/true", &program);
        let (answer, _) = exec.ask(&["-c", "target/true"]);
        assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{who:?}: {answer}");
        let step = exec.entries("exec.step").pop().unwrap();
        assert_eq!((&step["data"]["exe"]["path"], &step["data"]["decision"]), (&json!("/usr/bin/id"), &json!("deny")));
    }
}

#[test]
fn interpreter_is_judged_by_rules_as_a_program() {
    for who in everyone() {
        let policy = POLICY
            .replace("intent = \"off\"", "intent = \"off\"\nnetwork = [\"example.org\"]")
            .replace("[\"sh\"", "[\"git\", \"sh\"");
        let exec = Exec::with_policy(who, &policy);
        for (first, code) in [
            ("#!/usr/bin/git push", "E_HUMAN_REQUIRED"),
            ("#!/usr/bin/env -S git push", "E_HUMAN_REQUIRED"),
            ("#!/usr/bin/mount -V", "E_FORBIDDEN"),
            ("#!/usr/bin/tac", "E_FORBIDDEN"),
        ] {
            exec.executable("target/origin", &format!("{first}\n"));
            let (answer, _) = exec.ask(&["-c", "target/origin"]);
            assert_eq!(answer["error"]["code"], code, "{who:?} {first}: {answer}");
        }
        for first in ["#!/bin/sh", "#!/bin/sh -e", "#! /usr/bin/env sh", "#!/usr/bin/env -S sh -e", "#!/usr/bin/perl"] {
            let text = if first.ends_with("perl") { "print \"ran\\n\"" } else { "echo ran" };
            exec.executable("target/origin", &format!("{first}\n{text}\n"));
            assert_eq!(exec.ask(&["-c", "target/origin"]).0["data"]["stdout"], "ran\n", "{who:?} {first}");
        }
    }
}

/// Executes a path in shared memory that another process changes meanwhile between two programs of equal length.
const RACER: &str = include_str!("data/python/racer.py");

/// Executes itself many times.
const AGAIN: &str = include_str!("data/python/again.py");

#[test]
fn program_that_changes_its_path_during_decision_ends_run() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("racer.py", RACER);
        exec.write("again.py", AGAIN);
        for line in ["python3 racer.py honest", "python3 again.py 60"] {
            let (answer, status) = exec.ask(&["-c", line]);
            assert_eq!((status, &answer["data"]["stdout"]), (0, &json!("to the end\n")), "{who:?} {line}: {answer}");
        }
        let (answer, _) = exec.ask(&["--timeout", "60", "-c", "python3 racer.py race"]);
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["details"]["rule"]),
            (&json!("E_FORBIDDEN"), &json!("evaded")),
            "{who:?} {answer}"
        );
        assert_eq!(error["details"]["stdout"], "", "{who:?}: the run went on: {answer}");
        // Each of the two can be the one that was decided about.
        let is_named = |name| error["message"].as_str().unwrap().contains(&format!("{name} was executed instead"));
        assert!(["tail", "true"].into_iter().any(is_named), "{who:?} {answer}");
        let step = exec.entries("exec.step").into_iter().find(|step| step["data"]["rule"] == "evaded");
        assert_eq!(step.unwrap()["data"]["decision"], "deny", "{who:?}");
    }
}

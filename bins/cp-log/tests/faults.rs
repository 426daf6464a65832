//! A disk that fails and a process that dies at any system call. Needs strace; without it these say so and pass.

use std::process::{Command, Output};

use crate::at::At;

/// Runs `cp-log` with faults injected into its system calls. `None` where that is not possible.
fn injected(at: &At, injection: &str, arguments: &[&str]) -> Option<Output> {
    let works =
        Command::new("strace").args(["-o", "/dev/null", "true"]).output().is_ok_and(|done| done.status.success());
    if !works {
        eprintln!("strace cannot run here, so no fault is injected");
        return None;
    }
    let mut command = Command::new("strace");
    command.current_dir(at.path("")).env_clear().env("CP_HOME", at.path("home")).env("PATH", "/usr/bin:/bin");
    command.args(["-qq", "-o", "/dev/null", "-e", &format!("inject={injection}")]);
    Some(command.arg(assert_cmd::cargo::cargo_bin("cp-log")).args(arguments).output().unwrap())
}

#[test]
fn a_sync_that_fails_is_told_and_not_tried_again() {
    let at = At::new();
    at.ledger("l.jsonl", 2);
    let Some(done) = injected(&at, "fdatasync:error=EIO:when=1", &["append", "-f", "l.jsonl", "m"]) else { return };
    assert_eq!(done.status.code(), Some(1));
    let closing = crate::at::parsed(&done.stdout).remove(0);
    assert_eq!(closing["error"]["code"], "E_IO");
    assert!(closing["error"]["message"].as_str().unwrap().contains("durability unknown"));
}

#[test]
fn a_write_that_fails_leaves_nothing() {
    let at = At::new();
    at.ledger("l.jsonl", 2);
    let before = std::fs::read(at.path("l.jsonl")).unwrap();
    for error in ["ENOSPC", "EIO"] {
        let injection = format!("write:error={error}:when=1");
        let Some(done) = injected(&at, &injection, &["append", "-f", "l.jsonl", "m"]) else { return };
        assert_eq!(done.status.code(), Some(1));
        assert_eq!(crate::at::parsed(&done.stdout)[0]["error"]["code"], "E_IO");
        assert_eq!(std::fs::read(at.path("l.jsonl")).unwrap(), before);
    }
    at.lines(&["append", "-f", "l.jsonl", "m"], "");
}

/// Kills a command at each system call of some kinds, the first, the second and so on, until it lives to its end. After each death the
/// next writer must find a ledger that goes on, with every line that was there.
fn killed_everywhere(arguments: &[&str], calls: &[&str], prepare: impl Fn(&At)) {
    for call in calls {
        for step in 1..40 {
            let at = At::new();
            at.ledger("l.jsonl", 5);
            prepare(&at);
            let Some(done) = injected(&at, &format!("{call}:signal=SIGKILL:when={step}"), arguments) else { return };
            at.lines(&["append", "-f", "l.jsonl", "after"], "");
            at.lines(&["verify", "--closed", "l.jsonl"], "");
            let ticks = at.lines(&["query", "l.jsonl", "--event", "tick"], "");
            assert_eq!(ticks.last().unwrap()["data"]["count"], 4, "{call} {step}");
            if done.status.success() {
                assert!(step > 1, "{call} is never called");
                break;
            }
        }
    }
}

#[test]
fn a_rotation_can_die_at_any_step() {
    killed_everywhere(
        &["rotate", "l.jsonl"],
        &["write", "fdatasync", "fsync", "link,linkat", "rename", "chmod", "flock"],
        |_| {},
    );
}

#[test]
fn an_append_can_die_at_any_step() {
    killed_everywhere(&["append", "-f", "l.jsonl", "m"], &["write", "fdatasync", "flock"], |_| {});
}

#[test]
fn a_recovery_can_die_at_any_step() {
    killed_everywhere(&["append", "-f", "l.jsonl", "m"], &["write", "fsync", "ftruncate", "flock"], |at| {
        let mut bytes = std::fs::read(at.path("l.jsonl")).unwrap();
        bytes.extend_from_slice(b"{\"seq\":5,\"ts\":\"2026");
        std::fs::write(at.path("l.jsonl"), bytes).unwrap();
    });
}

#[test]
fn a_creation_can_die_at_any_step() {
    for call in ["openat", "write", "fdatasync", "fsync", "flock", "mkdir"] {
        for step in 1..40 {
            let at = At::new();
            let injection = format!("{call}:signal=SIGKILL:when={step}");
            let Some(done) = injected(&at, &injection, &["append", "-f", "new/l.jsonl", "m"]) else { return };
            at.lines(&["append", "-f", "new/l.jsonl", "after"], "");
            at.lines(&["verify", "--closed", "new/l.jsonl"], "");
            if done.status.success() {
                break;
            }
        }
    }
}

/// Runs a script of the shell in a directory that is a file system of its own, of 64 KiB. `None` where that is not possible.
fn on_a_small_disk(at: &At, script: &str) -> Option<Output> {
    std::fs::create_dir_all(at.path("small")).unwrap();
    let mount = "mount -t tmpfs -o size=64k none small || exit 99\ncd small\n";
    let mut command = Command::new("unshare");
    command
        .current_dir(at.path(""))
        .env_clear()
        .env("CP_HOME", at.path("home"))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &format!("{mount}{script}"), "sh"]);
    let done = command.arg(assert_cmd::cargo::cargo_bin("cp-log")).output().ok()?;
    let refused = done.status.code() == Some(99) || String::from_utf8_lossy(&done.stderr).contains("unshare");
    if refused {
        eprintln!("no file system can be mounted here, so no disk is filled");
    }
    (!refused).then_some(done)
}

#[test]
fn a_full_disk_leaves_whole_lines_and_room_lets_it_go_on() {
    let at = At::new();
    let script = r#"
        "$1" append -f l.jsonl --sync none first >/dev/null || exit 1
        head -c 40000 /dev/zero >ballast
        head -c 30000 /dev/zero | tr '\0' x | "$1" append -f l.jsonl --sync none >refused
        echo "exit $?"
        "$1" verify --closed l.jsonl >/dev/null && echo verified
        rm ballast
        "$1" append -f l.jsonl --sync none last >/dev/null && "$1" verify --closed l.jsonl >/dev/null && echo again
        cat refused"#;
    let Some(done) = on_a_small_disk(&at, script) else { return };
    let out = String::from_utf8(done.stdout).unwrap();
    assert!(out.starts_with("exit 1\nverified\nagain\n"), "{out}{}", String::from_utf8_lossy(&done.stderr));
    assert!(out.contains("E_IO") && out.contains("nothing was appended"), "{out}");
}

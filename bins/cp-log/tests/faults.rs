//! A disk that fails and a process that dies at any system call, by strace and by a file system that is too small.

use cp_testkit::{Outcome, counterpart, required};

use crate::ledgers::Ledgers;

/// Runs `cp-log` with faults injected into its system calls. `None` where that is not possible.
fn injected(place: &Ledgers, injection: &str, arguments: &[&str]) -> Option<Outcome> {
    let strace = counterpart("strace")?;
    let can_trace = place.program(&strace).args(["-o", "/dev/null", "true"]).run().status == 0;
    if !required("the right to trace a process", can_trace) {
        return None;
    }
    let inject = format!("inject={injection}");
    Some(place.subject().args(arguments).under(strace, ["-qq", "-o", "/dev/null", "-e", &inject]).run())
}

#[test]
fn failed_sync_is_reported_and_not_retried() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 2);
    let Some(done) = injected(&place, "fdatasync:error=EIO:when=1", &["append", "-f", "l.jsonl", "m"]) else { return };
    assert_eq!(done.status, 1);
    let closing = done.records().remove(0);
    assert_eq!(closing["error"]["code"], "E_IO");
    assert!(closing["error"]["message"].as_str().unwrap().contains("durability unknown"));
}

#[test]
fn a_write_that_fails_leaves_nothing() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 2);
    let before = place.work.bytes("l.jsonl");
    for error in ["ENOSPC", "EIO"] {
        let injection = format!("write:error={error}:when=1");
        let Some(done) = injected(&place, &injection, &["append", "-f", "l.jsonl", "m"]) else { return };
        assert_eq!(done.status, 1);
        assert_eq!(done.records()[0]["error"]["code"], "E_IO");
        assert_eq!(place.work.bytes("l.jsonl"), before);
    }
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
}

/// Kills a command at each system call of some kinds, the first, the second and so on, until it completes. After each kill the
/// next writer must find a ledger that goes on, with every line that was there.
fn killed_everywhere(arguments: &[&str], calls: &[&str], prepare: impl Fn(&Ledgers), check: impl Fn(&Ledgers)) {
    for call in calls {
        for step in 1..40 {
            let place = Ledgers::new();
            place.ledger("l.jsonl", 5);
            prepare(&place);
            let Some(done) = injected(&place, &format!("{call}:signal=SIGKILL:when={step}"), arguments) else { return };
            place.lines(&["append", "-f", "l.jsonl", "after"], "");
            place.lines(&["verify", "--complete", "l.jsonl"], "");
            let ticks = place.lines(&["query", "l.jsonl", "--event", "tick"], "");
            assert_eq!(ticks.last().unwrap()["data"]["count"], 4, "{call} {step}");
            check(&place);
            if done.status == 0 {
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
        |place| {
            use std::os::unix::fs::PermissionsExt;
            if let Ok(segment) = std::fs::metadata(place.path("l.00000000000000000000.jsonl")) {
                assert_eq!(segment.permissions().mode() & 0o777, 0o400);
            }
        },
    );
}

#[test]
fn an_append_can_die_at_any_step() {
    killed_everywhere(&["append", "-f", "l.jsonl", "m"], &["write", "fdatasync", "flock"], |_| {}, |_| {});
}

#[test]
fn a_recovery_can_die_at_any_step() {
    let tear = |place: &Ledgers| {
        let mut bytes = place.work.bytes("l.jsonl");
        bytes.extend_from_slice(b"{\"seq\":5,\"ts\":\"2026");
        place.work.write("l.jsonl", bytes);
    };
    let is_told_once = |place: &Ledgers| {
        let told = place.stored("l.jsonl").into_iter().filter(|line| line["event"] == "ledger.recovered").count();
        assert_eq!(told, 1);
    };
    let calls = ["write", "fsync", "fdatasync", "ftruncate", "flock", "unlink"];
    killed_everywhere(&["append", "-f", "l.jsonl", "m"], &calls, tear, is_told_once);
}

#[test]
fn a_creation_can_die_at_any_step() {
    for call in ["openat", "write", "fdatasync", "fsync", "flock", "mkdir"] {
        for step in 1..40 {
            let place = Ledgers::new();
            let injection = format!("{call}:signal=SIGKILL:when={step}");
            let Some(done) = injected(&place, &injection, &["create", "new/l.jsonl"]) else { return };
            std::fs::create_dir_all(place.path("new")).unwrap();
            place.lines(&["append", "-f", "new/l.jsonl", "after"], "");
            place.lines(&["verify", "--complete", "new/l.jsonl"], "");
            if done.status == 0 {
                break;
            }
        }
    }
}

/// Runs a script of the shell in a directory that is a file system of its own, of 64 KiB. `None` where that is not possible.
fn on_a_small_disk(place: &Ledgers, script: &str) -> Option<Outcome> {
    place.work.directory("small");
    let mount = "mount -t tmpfs -o size=64k none small || exit 99\ncd small\n";
    let done = place
        .shell("sh", &format!("{mount}{script}"))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(["sh".into(), cp_testkit::program("cp-log")])
        .under("unshare", ["--user", "--map-root-user", "--mount"])
        .run();
    let is_mounted = done.status != 99 && !done.stderr.contains("unshare");
    required("the right to mount a file system", is_mounted).then_some(done)
}

#[test]
fn append_recovers_after_full_disk() {
    let place = Ledgers::new();
    let script = r#"
        "$1" append -f l.jsonl --sync none first >/dev/null || exit 1
        head -c 40000 /dev/zero >ballast
        head -c 30000 /dev/zero | tr '\0' x | "$1" append -f l.jsonl --sync none >refused
        echo "exit $?"
        "$1" verify --complete l.jsonl >/dev/null && echo verified
        rm ballast
        "$1" append -f l.jsonl --sync none last >/dev/null && "$1" verify --complete l.jsonl >/dev/null && echo again
        cat refused"#;
    let Some(done) = on_a_small_disk(&place, script) else { return };
    let out = &done.stdout;
    assert!(out.starts_with("exit 1\nverified\nagain\n"), "{done:?}");
    assert!(out.contains("E_IO") && out.contains("nothing was appended"), "{out}");
}

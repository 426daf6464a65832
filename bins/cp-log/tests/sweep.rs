//! Every verb that writes, with a fault at each of its system calls, and a disk that is too small: what was
//! acknowledged is there, and the next command completes.

use cp_testkit::{Sweep, counterpart, required};

use crate::ledgers::Ledgers;

/// A token that is not the one that was spent, as it would be in the same second. None if nothing is to be confirmed.
fn token(place: &Ledgers, arguments: &[&str], spent: &str) -> Option<String> {
    loop {
        let preview = place.run(&[arguments, &["--dry-run"]].concat()).success().data();
        let token = preview["confirm_token"].as_str()?.to_owned();
        if token != spent {
            return Some(token);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The next writer completes what was begun, and nothing is lost.
fn is_sound(place: &Ledgers, fault: &str) {
    let next = place.run(&["append", "-f", "l.jsonl", "--event", "after", "m"]);
    assert_eq!(next.status, 0, "{fault}: {next:?}");
    let verified = place.run(&["verify", "--complete", "l.jsonl"]);
    assert_eq!(verified.status, 0, "{fault}: {verified:?}");
    let ticks = place.run(&["query", "l.jsonl", "--event", "tick"]).success().closing();
    assert_eq!(ticks["data"]["count"], 3, "{fault}");
}

/// How many entries of the ledger have an event, and where the last is.
fn told(place: &Ledgers, event: &str) -> usize {
    let lines = place.run(&["query", "l.jsonl", "--event", event, "--format", "raw"]).stdout;
    lines.lines().filter(|line| line.contains(event)).count()
}

#[test]
fn appending() {
    let place = Ledgers::with(4);
    Sweep::new(&place, &["append", "-f", "l.jsonl", "--event", "new", "m"]).run(|done, fault| {
        is_sound(&place, fault);
        let there = told(&place, "new");
        assert!(there == 1 || there == 0 && done.status != 0, "{fault}: {done:?}");
    });
}

#[test]
fn rotating() {
    let place = Ledgers::with(4);
    Sweep::new(&place, &["rotate", "l.jsonl"]).run(|done, fault| {
        is_sound(&place, fault);
        let segment = place.path("l.00000000000000000000.jsonl");
        assert!(segment.exists() || done.status != 0, "{fault}: {done:?}");
        if segment.exists() {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(segment).unwrap().permissions().mode() & 0o777, 0o400, "{fault}");
        }
    });
}

#[test]
fn recovering() {
    let place = Ledgers::with(4);
    place.add("l.jsonl", b"{\"seq\":9,\"ts\":\"2026");
    Sweep::new(&place, &["append", "-f", "l.jsonl", "m"]).run(|_, fault| {
        is_sound(&place, fault);
        assert_eq!(told(&place, "ledger.recovered"), 1, "{fault}");
    });
}

#[test]
fn repairing() {
    let place = Ledgers::with(4);
    place.add("l.jsonl", b"damaged\n");
    let verb = ["repair", "--tail", "l.jsonl"];
    let confirmed = token(&place, &verb, "").unwrap();
    Sweep::new(&place, &[&verb[..], &["--confirm", &confirmed]].concat()).run(|_, fault| {
        if let Some(again) = token(&place, &verb, &confirmed) {
            place.run(&[&verb[..], &["--confirm", &again]].concat()).success();
        }
        is_sound(&place, fault);
        assert_eq!(told(&place, "ledger.recovered"), 1, "{fault}");
    });
}

#[test]
fn accepting_a_rollback() {
    let place = Ledgers::with(4);
    place.lines(&["keygen", "K"], "");
    let short = place.work.bytes("l.jsonl");
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    place.work.write("l.jsonl", short);
    assert_eq!(place.run(&["append", "-f", "l.jsonl", "m"]).error()["code"], "E_INTEGRITY");
    let verb = ["repair", "--accept-shorter", "l.jsonl"];
    let confirmed = token(&place, &verb, "").unwrap();
    Sweep::new(&place, &[&verb[..], &["--confirm", &confirmed]].concat()).run(|done, fault| {
        // Nothing goes on until the checkpoint was moved aside, which the record says before it is done.
        let is_done = !place.path("l.checkpoint").exists();
        assert!(is_done || done.status != 0, "{fault}: {done:?}");
        if !is_done {
            assert_eq!(place.run(&["append", "-f", "l.jsonl", "m"]).error()["code"], "E_INTEGRITY", "{fault}");
            let again = token(&place, &verb, &confirmed).unwrap_or(confirmed.clone());
            place.run(&[&verb[..], &["--confirm", &again]].concat()).success();
        }
        is_sound(&place, fault);
        let lines = place.stored("l.jsonl");
        let mut told = lines.iter().filter(|line| line["event"] == "ledger.rollback");
        let aside = told.next().unwrap()["data"]["checkpoint"].as_str().unwrap().to_owned();
        assert!(told.next().is_none() && place.path(&aside).exists(), "{fault}");
        assert!(!place.path("l.checkpoint").exists(), "{fault}");
    });
}

#[test]
fn signing() {
    let place = Ledgers::with(4);
    place.sign("l.jsonl");
    let before = place.work.read("l.checkpoint");
    Sweep::new(&place, &["checkpoint", "-f", "l.jsonl", "--sign-with", "K"]).run(|done, fault| {
        let after = place.work.read("l.checkpoint");
        assert!(after != before || done.status != 0, "{fault}: {done:?}");
        // What is signed is on the ledger, whatever came after.
        let root = after.lines().nth(2).unwrap().to_owned();
        assert!(place.stored("l.jsonl").iter().any(|line| line["data"]["root"] == root), "{fault}");
        place.run(&["verify", "--trust", "K.pub", "l.jsonl"]).success();
        is_sound(&place, fault);
        place.run(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"]).success();
    });
}

#[test]
fn creating() {
    let place = Ledgers::new();
    Sweep::new(&place, &["create", "new/l.jsonl"]).run(|_, fault| {
        place.work.directory("new");
        let next = place.run(&["append", "-f", "new/l.jsonl", "after"]);
        assert_eq!(next.status, 0, "{fault}: {next:?}");
        place.run(&["verify", "--complete", "new/l.jsonl"]).success();
    });
}

#[test]
fn failed_sync_is_reported_and_not_retried() {
    let place = Ledgers::with(2);
    let Some(strace) = counterpart("strace") else { return };
    let can_trace = place.program(&strace).args(["-o", "/dev/null", "true"]).run().status == 0;
    if required("the right to trace a process", can_trace) {
        let inject = ["-qq", "-o", "/dev/null", "-e", "inject=fdatasync:error=EIO:when=1"];
        let done = place.subject().args(["append", "-f", "l.jsonl", "m"]).under(strace, inject).run();
        let error = done.failed(1, "E_IO");
        assert!(error["message"].as_str().unwrap().contains("durability unknown"), "{error}");
    }
}

/// In a directory that is a file system of its own, of 64 KiB.
#[test]
fn append_recovers_after_full_disk() {
    let place = Ledgers::new();
    let script = r#"mount -t tmpfs -o size=64k none small || exit 99
        cd small
        "$1" append -f l.jsonl --sync none first >/dev/null || exit 1
        head -c 40000 /dev/zero >ballast
        head -c 30000 /dev/zero | tr '\0' x | "$1" append -f l.jsonl --sync none >refused
        echo "exit $?"
        "$1" verify --complete l.jsonl >/dev/null && echo verified
        rm ballast
        "$1" append -f l.jsonl --sync none last >/dev/null && "$1" verify --complete l.jsonl >/dev/null && echo again
        cat refused"#;
    place.work.directory("small");
    let script = place.shell("sh", script).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let script = script.args(["sh".into(), cp_testkit::program("cp-log")]);
    let done = script.under("unshare", ["--user", "--map-root-user", "--mount"]).run();
    let is_mounted = done.status != 99 && !done.stderr.contains("unshare");
    if !required("the right to mount a file system", is_mounted) {
        return;
    }
    let out = &done.stdout;
    assert!(out.starts_with("exit 1\nverified\nagain\n"), "{done:?}");
    assert!(out.contains("E_IO") && out.contains("this write added nothing"), "{out}");
}

//! Many writers at once, some of them killed: the chain holds, and what was acknowledged is there.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::at::At;

/// Appends `count` entries one after the other in one process, printing each receipt as it comes: what a program that uses the library does.
#[test]
fn writer() {
    let (Some(path), Some(count)) = (std::env::var_os("WRITER_LEDGER"), std::env::var("WRITER_COUNT").ok()) else {
        return;
    };
    let mut ledger = cp_ledger::Ledger::open(path.as_ref(), cp_ledger::Sync::None).unwrap();
    for n in 0..count.parse::<u64>().unwrap() {
        let entry = cp_ledger::Entry::new("tick").with("n", &n).message("x".repeat(usize::try_from(n % 7000).unwrap()));
        let receipt = ledger.append(entry).unwrap();
        println!("\nACK {} {}", receipt.seq, receipt.hash);
    }
}

fn start(at: &At, count: u64) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writers::writer", "--nocapture", "--test-threads", "1"]);
    command.env("WRITER_LEDGER", at.path("l.jsonl")).env("WRITER_COUNT", count.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn acknowledged(output: impl Read) -> Vec<(u64, String)> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let words = lines.filter_map(|line| line.strip_prefix("ACK ").map(str::to_owned));
    words
        .filter_map(|line| line.split_once(' ').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash.to_owned()))))
        .collect()
}

#[test]
fn sixteen_writers_some_of_them_killed() {
    let at = At::new();
    let mut children: Vec<_> = (0..16).map(|_| start(&at, 1000)).collect();
    let readers: Vec<_> = children
        .iter_mut()
        .map(|child| child.stdout.take().unwrap())
        .map(|output| std::thread::spawn(move || acknowledged(output)))
        .collect();
    for (n, child) in children.iter_mut().enumerate().take(6) {
        std::thread::sleep(Duration::from_millis(20 + 13 * n as u64));
        child.kill().unwrap();
        // A reader while writers run sees no fault.
        let closing = at.closing(&["verify", "l.jsonl"], "", 0);
        assert_eq!(closing["data"]["fault_count"], 0);
    }
    for child in &mut children {
        child.wait().unwrap();
    }
    let receipts: Vec<(u64, String)> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    // The next writer cleans up what the last kill may have left.
    at.closing(&["append", "-f", "l.jsonl", "last"], "", 0);
    at.closing(&["verify", "--closed", "l.jsonl"], "", 0);
    let stored: HashMap<u64, Value> =
        at.stored("l.jsonl").into_iter().map(|line| (line["seq"].as_u64().unwrap(), line)).collect();
    assert!(receipts.len() >= 10_000);
    for (seq, hash) in receipts {
        assert_eq!(stored[&seq]["hash"], hash);
    }
}

#[test]
fn one_shot_writers_started_together_take_all_places() {
    let at = At::new();
    let children: Vec<_> = (0..32)
        .map(|n| {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin("cp-log"));
            command.env("CP_HOME", at.path("home")).current_dir(at.path(""));
            command
                .args(["append", "-f", "l.jsonl", "--sync", "none"])
                .arg(n.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let stored = at.stored("l.jsonl");
    assert!(stored.iter().enumerate().all(|(n, line)| line["seq"] == n));
    assert_eq!(stored.len(), 33);
    at.closing(&["verify", "--closed", "l.jsonl"], "", 0);
}

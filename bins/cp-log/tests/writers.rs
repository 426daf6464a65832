//! Many writers at once, some of them killed: the chain holds, and what was acknowledged is there.

use std::collections::HashMap;
use std::time::Duration;

use crate::ledgers::Ledgers;
use cp_testkit::{Background, Outcome, Signal};
use serde_json::Value;

/// Appends `count` entries one after the other in one process, printing each receipt as it comes: what a program that
/// uses the library does.
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

fn start(place: &Ledgers, count: u64) -> Background {
    let writer = place.program(std::env::current_exe().unwrap());
    let writer = writer.args(["--exact", "writers::writer", "--nocapture", "--test-threads", "1"]);
    writer.env("WRITER_LEDGER", place.path("l.jsonl")).env("WRITER_COUNT", count.to_string()).start()
}

fn acknowledged(printed: &Outcome) -> Vec<(u64, String)> {
    let words = printed.stdout.lines().filter_map(|line| line.strip_prefix("ACK ")?.split_once(' '));
    words.filter_map(|(seq, hash)| Some((seq.parse().ok()?, hash.to_owned()))).collect()
}

#[test]
fn sixteen_writers_some_of_them_killed() {
    let place = Ledgers::new();
    let children: Vec<_> = (0..16).map(|_| start(&place, 1000)).collect();
    for (n, child) in children.iter().enumerate().take(6) {
        std::thread::sleep(Duration::from_millis(20 + 13 * n as u64));
        child.signal(Signal::KILL);
        // A reader while writers run sees no fault.
        let closing = place.closing(&["verify", "l.jsonl"], "", 0);
        assert_eq!(closing["data"]["fault_count"], 0);
    }
    let read = |child: Background| std::thread::spawn(move || acknowledged(&child.wait()));
    let readers: Vec<_> = children.into_iter().map(read).collect();
    let receipts: Vec<(u64, String)> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    // The next writer cleans up what the last kill may have left.
    place.closing(&["append", "-f", "l.jsonl", "last"], "", 0);
    place.closing(&["verify", "--complete", "l.jsonl"], "", 0);
    let stored: HashMap<u64, Value> =
        place.stored("l.jsonl").into_iter().map(|line| (line["seq"].as_u64().unwrap(), line)).collect();
    assert!(receipts.len() >= 10_000);
    for (seq, hash) in receipts {
        assert_eq!(stored[&seq]["hash"], hash);
    }
}

#[test]
fn held_lock_is_announced_after_one_second() {
    let place = Ledgers::with(2);
    let ledger = std::fs::File::open(place.path("l.jsonl")).unwrap();
    for (held, is_announced) in [(1600, true), (100, false)] {
        ledger.lock().unwrap();
        let child = place.subject().args(["append", "-f", "l.jsonl", "x"]).start();
        std::thread::sleep(std::time::Duration::from_millis(held));
        ledger.unlock().unwrap();
        let ran = child.wait().success();
        let message = format!("waiting for another process that has locked {}", place.path("l.jsonl").display());
        assert_eq!(ran.stderr.contains(&message), is_announced, "{ran:?}");
    }
}

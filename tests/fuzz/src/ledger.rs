//! Any bytes as a ledger: verified to an end, and after a repair that is possible or not, never a panic.
#![no_main]

use cp_ledger::proof::verifier::{Options, verify};
use cp_ledger::{Entry, Ledger, Sync};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("l.jsonl");
    std::fs::write(&path, bytes).expect("a file");
    for closed in [true, false] {
        let _ = verify(&path, None, &Options { json: true, closed }, &mut |_, _| {});
    }
    // What is no ledger stays as it is.
    if Ledger::open(&path, Sync::None).and_then(|mut ledger| ledger.append(Entry::new("e"))).is_err() {
        assert_eq!(std::fs::read(&path).expect("the file"), bytes);
    }
});

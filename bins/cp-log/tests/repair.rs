//! `cp-log repair` and `cp-log rotate`, as a shell user meets them.

use crate::at::At;

#[test]
fn damaged_last_lines_are_moved_aside_after_a_preview() {
    let at = At::new();
    at.ledger("l.jsonl", 5);
    let mut bytes = std::fs::read(at.path("l.jsonl")).unwrap();
    let keep = bytes.len();
    bytes.extend_from_slice(b"garbage\n{\"seq\":5\nmore");
    std::fs::write(at.path("l.jsonl"), &bytes).unwrap();
    at.closing(&["append", "-f", "l.jsonl", "m"], "", 1);
    at.closing(&["repair", "l.jsonl"], "", 5);
    let preview = at.closing(&["repair", "--tail", "--dry-run", "l.jsonl"], "", 0);
    assert_eq!(preview["data"]["preview"]["changes"][0]["before"]["offset"], keep);
    assert_eq!(std::fs::read(at.path("l.jsonl")).unwrap(), bytes);
    let token = preview["data"]["confirm_token"].as_str().unwrap().to_owned();
    let done = at.closing(&["repair", "--tail", "--confirm", &token, "l.jsonl"], "", 0);
    assert_eq!(done["data"]["receipt"]["seq"], 5);
    let told = at.stored("l.jsonl").remove(5);
    let aside = at.path(told["data"]["file"].as_str().unwrap());
    assert_eq!(std::fs::read(aside).unwrap(), &bytes[keep..]);
    at.lines(&["verify", "--closed", "l.jsonl"], "");
    at.closing(&["repair", "--tail", "--confirm", &token, "l.jsonl"], "", 0);
    at.lines(&["append", "-f", "l.jsonl", "m"], "");
}

#[test]
fn what_is_whole_is_left_alone_and_what_is_foreign_too() {
    let at = At::new();
    at.ledger("l.jsonl", 3);
    assert_eq!(at.closing(&["repair", "l.jsonl"], "", 0)["data"]["changed"], false);
    // Damage before an intact line is never repaired.
    let mut bytes = std::fs::read(at.path("l.jsonl")).unwrap();
    bytes[40] ^= 1;
    std::fs::write(at.path("l.jsonl"), &bytes).unwrap();
    assert_eq!(at.closing(&["repair", "l.jsonl"], "", 0)["data"]["changed"], false);
    std::fs::write(at.path("notes"), "a\nb\n").unwrap();
    at.closing(&["repair", "notes"], "", 2);
    at.closing(&["repair", "none"], "", 3);
}

//! `cp-log repair` and `cp-log rotate`, as a shell user meets them.

use crate::ledgers::Ledgers;

#[test]
fn damaged_last_lines_are_moved_aside_after_a_preview() {
    let place = Ledgers::with(5);
    let mut bytes = place.work.bytes("l.jsonl");
    let keep = bytes.len();
    bytes.extend_from_slice(b"garbage\n{\"seq\":5\nmore");
    place.work.write("l.jsonl", &bytes);
    place.closing(&["append", "-f", "l.jsonl", "m"], "", 1);
    place.closing(&["repair", "l.jsonl"], "", 5);
    let preview = place.closing(&["repair", "--tail", "--dry-run", "l.jsonl"], "", 0);
    assert_eq!(preview["data"]["preview"]["changes"][0]["before"]["offset"], keep);
    assert_eq!(place.work.bytes("l.jsonl"), bytes);
    let token = preview["data"]["confirm_token"].as_str().unwrap().to_owned();
    let done = place.closing(&["repair", "--tail", "--confirm", &token, "l.jsonl"], "", 0);
    assert_eq!(done["data"]["receipt"]["seq"], 5);
    let told = place.stored("l.jsonl").remove(5);
    let aside = place.path(told["data"]["file"].as_str().unwrap());
    assert_eq!(std::fs::read(aside).unwrap(), &bytes[keep..]);
    place.lines(&["verify", "--complete", "l.jsonl"], "");
    let again = place.closing(&["repair", "--tail", "--confirm", &token, "l.jsonl"], "", 6);
    assert_eq!(again["error"]["details"]["reason"], "replayed");
    place.closing(&["repair", "--tail", "l.jsonl"], "", 0);
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
}

#[test]
fn repair_leaves_intact_and_foreign_files_unchanged() {
    let place = Ledgers::with(3);
    assert_eq!(place.closing(&["repair", "l.jsonl"], "", 0)["data"]["changed"], false);
    // Damage before an intact line is never repaired.
    let mut bytes = place.work.bytes("l.jsonl");
    bytes[40] ^= 1;
    place.work.write("l.jsonl", &bytes);
    assert_eq!(place.closing(&["repair", "l.jsonl"], "", 0)["data"]["changed"], false);
    place.closing(&["repair", "none"], "", 3);
}

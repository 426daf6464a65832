//! `cp-log tip`, as a shell user meets it.

use crate::ledgers::Ledgers;

#[test]
fn the_tip_is_the_last_line() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 5);
    let data = place.closing(&["tip", "l.jsonl"], "", 0)["data"].take();
    let last = place.stored("l.jsonl").remove(4);
    assert_eq!((&data["seq"], &data["hash"], &data["ts"]), (&last["seq"], &last["hash"], &last["ts"]));
    assert_eq!(data["size"], std::fs::metadata(place.path("l.jsonl")).unwrap().len());
    let text = place.run(&["tip", "l.jsonl", "--format", "text"]).success();
    assert!(text.stdout.starts_with("4 sha256:"));
}

#[test]
fn tip_skips_torn_line_and_reports_damaged_line() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 3);
    let mut bytes = place.work.bytes("l.jsonl");
    bytes.extend_from_slice(b"{\"seq\"");
    place.work.write("l.jsonl", &bytes);
    let data = place.closing(&["tip", "l.jsonl"], "", 0)["data"].take();
    assert_eq!((data["seq"].as_u64(), data["tail"].as_str()), (Some(2), Some("in_flight")));
    let in_the_last_line = bytes.len() - 150;
    bytes[in_the_last_line] ^= 1;
    place.work.write("l.jsonl", &bytes);
    assert_eq!(place.closing(&["tip", "l.jsonl"], "", 1)["error"]["code"], "E_INTEGRITY");
    assert_eq!(place.closing(&["tip", "none"], "", 3)["error"]["code"], "E_NOT_FOUND");
}

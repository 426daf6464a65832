//! `cp-log tip`, as a shell user meets it.

use crate::at::At;

#[test]
fn the_tip_is_the_last_line() {
    let at = At::new();
    at.ledger("l.jsonl", 5);
    let data = at.closing(&["tip", "l.jsonl"], "", 0)["data"].take();
    let last = at.stored("l.jsonl").remove(4);
    assert_eq!((&data["seq"], &data["hash"], &data["ts"]), (&last["seq"], &last["hash"], &last["ts"]));
    assert_eq!(data["size"], std::fs::metadata(at.path("l.jsonl")).unwrap().len());
    let text = at.cp_log(&["tip", "l.jsonl", "--format", "text"]).assert().success();
    assert!(text.get_output().stdout.starts_with(b"4 sha256:"));
}

#[test]
fn a_torn_line_does_not_hide_it_and_a_damaged_one_is_told() {
    let at = At::new();
    at.ledger("l.jsonl", 3);
    let mut bytes = std::fs::read(at.path("l.jsonl")).unwrap();
    bytes.extend_from_slice(b"{\"seq\"");
    std::fs::write(at.path("l.jsonl"), &bytes).unwrap();
    let data = at.closing(&["tip", "l.jsonl"], "", 0)["data"].take();
    assert_eq!((data["seq"].as_u64(), data["tail"].as_str()), (Some(2), Some("in_flight")));
    let place = bytes.len() - 150;
    bytes[place] ^= 1;
    std::fs::write(at.path("l.jsonl"), &bytes).unwrap();
    assert_eq!(at.closing(&["tip", "l.jsonl"], "", 1)["error"]["code"], "E_INTEGRITY");
    assert_eq!(at.closing(&["tip", "none"], "", 3)["error"]["code"], "E_NOT_FOUND");
}

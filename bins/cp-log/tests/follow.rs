//! `cp-log follow`, as a shell user meets it.

use cp_testkit::{Background, Signal};

use crate::ledgers::Ledgers;

fn follow(place: &Ledgers, arguments: &[&str]) -> Background {
    place.subject().arg("follow").args(arguments).start()
}

#[test]
fn entries_come_at_once_and_across_a_rotation() {
    let place = Ledgers::with(3);
    let mut child = follow(&place, &["l.jsonl", "--last", "1", "--limit", "5", "--event", "tick", "--event", "e"]);
    assert_eq!(child.record()["data"]["seq"], 2);
    place.lines(&["append", "-f", "l.jsonl", "--event", "e", "one"], "");
    assert_eq!(child.record()["data"]["message"], "one");
    place.lines(&["append", "-f", "l.jsonl", "--event", "other", "x"], "");
    place.lines(&["append", "-f", "l.jsonl", "--event", "e", "two"], "");
    place.lines(&["rotate", "l.jsonl"], "");
    place.lines(&["append", "-f", "l.jsonl", "--event", "e", "three"], "");
    assert_eq!(child.record()["data"]["message"], "two");
    assert_eq!(child.record()["data"]["message"], "three");
    place.lines(&["append", "-f", "l.jsonl", "--event", "e", "four"], "");
    assert_eq!(child.record()["data"]["message"], "four");
    let closing = child.record();
    assert_eq!((closing["type"].as_str(), closing["data"]["count"].as_u64()), (Some("summary"), Some(5)));
    child.finish().success();
}

#[test]
fn a_signal_ends_it_with_a_closing_line() {
    let place = Ledgers::with(2);
    let mut child = follow(&place, &["l.jsonl", "--last", "1"]);
    child.record();
    child.signal(Signal::TERM);
    let closing = child.record();
    assert_eq!(closing["error"]["code"], "E_INTERRUPTED");
    child.finish().code(130);
    place.closing(&["follow", "none.jsonl"], "", 3);
}

#[test]
fn a_reader_that_leaves_ends_it_also_where_nothing_is_appended() {
    let place = Ledgers::with(4);
    let done = place.sh("{ cp-log follow l.jsonl -n 3; echo status $? >&2; } | head -n 1");
    assert_eq!((done.stdout.lines().count(), done.stderr.trim()), (1, "status 0"));
}

#[test]
fn follow_of_missing_session_fails() {
    let place = Ledgers::new();
    let error = place.closing(&["follow", "--session", "NOSUCH"], "", 3);
    assert_eq!(error["error"]["details"]["session"], "NOSUCH");
    // A session may be only a label of lines in a ledger that is named.
    place.closing(&["append", "-f", "l.jsonl", "--session", "S", "m"], "", 0);
    let shown = place.lines(&["follow", "l.jsonl", "--session", "S", "--last", "9", "--limit", "1"], "");
    assert_eq!(shown[0]["data"]["session"], "S");
}

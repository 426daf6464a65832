//! Absent closed segments: the remaining files are proved by their summaries of the lines before them.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::ledgers::Ledgers;

const CLOSED: [&str; 3] =
    ["l.00000000000000000000.jsonl", "l.00000000000000000005.jsonl", "l.00000000000000000010.jsonl"];

/// A ledger with three closed segments and, signed after that, an open one.
fn ledger() -> Ledgers {
    let place = Ledgers::new();
    place.lines(&["keygen", "K"], "");
    place.lines(&["create", "--trust", "K.pub", "l.jsonl"], "");
    for _ in 0..3 {
        place.lines(&["append", "-f", "l.jsonl", "--sync", "none"], "one\ntwo\nthree\n");
        place.lines(&["rotate", "l.jsonl"], "");
    }
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    std::fs::create_dir(place.path("cold")).unwrap();
    place
}

fn take_away(place: &Ledgers, names: &[&str]) {
    for name in names {
        std::fs::rename(place.path(name), place.path(&format!("cold/{name}"))).unwrap();
    }
}

fn put_back(place: &Ledgers, names: &[&str]) {
    for name in names {
        std::fs::rename(place.path(&format!("cold/{name}")), place.path(name)).unwrap();
    }
}

/// The absent segments of an intact ledger, and the properties that its last file proves.
#[track_caller]
fn verified(place: &Ledgers, more: &[&str]) -> (Value, Value) {
    let records = place.lines(&[&["verify", "l.jsonl"], more].concat(), "");
    let told: Vec<&Value> =
        records.iter().map(|record| &record["data"]).filter(|data| data["file"].is_string()).collect();
    let absent = told.iter().filter_map(|data| data["absent"].as_array()).flatten().cloned().collect();
    (absent, (*told.last().unwrap()).clone())
}

/// Writes a file again with other bodies of its lines, on a chain that holds.
fn rewrite(place: &Ledgers, name: &str, change: impl Fn(&str) -> String) {
    use cp_ledger::format::line::{Line, compose};
    let (text, mut out, mut prev) = (place.work.bytes(name), Vec::new(), None);
    for bytes in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = Line::parse(bytes).unwrap();
        let body = change(&format!(",{}", std::str::from_utf8(line.body()).unwrap().trim_start_matches(',')));
        prev = Some(compose(line.seq(), line.ts(), body.as_bytes(), &prev.unwrap_or(line.prev()), &mut out).unwrap());
    }
    std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o600)).unwrap();
    place.work.write(name, out);
}

/// Leaves nothing that was signed, and no entry that says so.
fn unsign(place: &Ledgers) {
    std::fs::remove_file(place.path("l.checkpoint")).unwrap();
    let text = place.work.read("l.jsonl");
    place.work.write("l.jsonl", text.split_inclusive('\n').next().unwrap());
}

#[test]
fn absent_segments_leave_the_rest_proved_up_to_the_signature() {
    let place = ledger();
    for away in 0_usize..8 {
        let names: Vec<&str> = (0..3).filter(|at| away & (1 << at) != 0).map(|at| CLOSED[at]).collect();
        take_away(&place, &names);
        let (absent, last) = verified(&place, &["--trust", "K.pub"]);
        assert_eq!((&last["proved"]["checkpoint"], &last["proved"]["signature"]), (&json!(16), &json!(2)), "{away}");
        // Of several that lie together the last is named, with the lines of all.
        let expected = match away {
            0 => json!([]),
            1 => json!([{"file": CLOSED[0], "first": 0, "last": 4}]),
            2 => json!([{"file": CLOSED[1], "first": 5, "last": 9}]),
            3 => json!([{"file": CLOSED[1], "first": 0, "last": 9}]),
            4 => json!([{"file": CLOSED[2], "first": 10, "last": 14}]),
            5 => json!([{"file": CLOSED[0], "first": 0, "last": 4}, {"file": CLOSED[2], "first": 10, "last": 14}]),
            6 => json!([{"file": CLOSED[2], "first": 5, "last": 14}]),
            _ => json!([{"file": CLOSED[2], "first": 0, "last": 14}]),
        };
        assert_eq!(absent, expected);
        put_back(&place, &names);
    }
    let (absent, last) = verified(&place, &["--trust", "K.pub"]);
    assert_eq!((absent, &last["not_proved"]), (json!([]), &json!([])));
}

#[test]
fn the_open_file_cannot_be_absent_and_what_is_left_must_be_whole() {
    let place = ledger();
    take_away(&place, &CLOSED[..2]);
    let open = place.work.bytes("l.jsonl");
    std::fs::remove_file(place.path("l.jsonl")).unwrap();
    assert_eq!(place.closing(&["verify", "."], "", 1)["error"]["code"], "E_INTEGRITY");
    // The line that says what was before is gone, or the segment it names comes later.
    let text = String::from_utf8(open).unwrap();
    place.work.write("l.jsonl", text.split_inclusive('\n').skip(1).collect::<String>());
    place.closing(&["verify", "l.jsonl"], "", 1);
    place.work.write("l.jsonl", &text);
    rewrite(&place, "l.jsonl", |body| body.replace(CLOSED[2], "l.00000000000000000099.jsonl"));
    take_away(&place, &CLOSED[2..]);
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 1)["error"]["details"]["kind"], "segment");
    place.work.write("l.jsonl", text);
    verified(&place, &[]);
}

#[test]
fn summary_of_earlier_lines_is_proved_by_them_or_by_the_signature() {
    let place = ledger();
    let good = place.work.bytes("l.jsonl");
    let is_found = |kind: &str| {
        let error = place.feed(&["verify", "l.jsonl"], "").code(1).first_error();
        error["details"]["faults"].as_array().unwrap().iter().any(|fault| fault["kind"] == kind)
    };
    // Positive control: the same bodies on the same chain are the same bytes.
    rewrite(&place, "l.jsonl", str::to_owned);
    assert_eq!(place.work.bytes("l.jsonl"), good);
    let opening = place.stored("l.jsonl")[0]["data"].clone();
    let node = opening["edge"][0].as_str().unwrap();
    let other = format!("{}{}", if node.starts_with('A') { "B" } else { "A" }, &node[1..]);
    let (node, other) = (node.to_owned(), other);
    let origin = opening["origin"].as_str().unwrap().to_owned();
    for (from, to, of_signature) in [
        (node.clone(), other.clone(), "fork"),
        (format!("[\"{node}\","), "[".to_owned(), "segment"),
        (origin, "example.com/other".to_owned(), "fork"),
    ] {
        rewrite(&place, "l.jsonl", |body| body.replace(&from, &to));
        assert_ne!(place.work.bytes("l.jsonl"), good);
        assert!(is_found("segment"), "by the lines before it");
        take_away(&place, &CLOSED);
        assert!(is_found(of_signature), "{of_signature}, by the signature");
        put_back(&place, &CLOSED);
        place.work.write("l.jsonl", &good);
    }
    // With a changed seal too, as its own segment shows.
    let seal = place.stored(CLOSED[0])[4]["data"]["edge"][0].as_str().unwrap().to_owned();
    rewrite(&place, CLOSED[0], |body| body.replace(&format!("[\"{seal}\""), &format!("[\"{other}\"")));
    let first = place.feed(&["verify", CLOSED[0]], "").code(1).first_error();
    assert_eq!(first["details"]["kind"], "seal");
    // Without lines and without a signature this cannot be known, which is reported.
    take_away(&place, &CLOSED);
    unsign(&place);
    rewrite(&place, "l.jsonl", |body| body.replace(&node, &other));
    let (_, last) = verified(&place, &[]);
    let open: Vec<&Value> = last["not_proved"].as_array().unwrap().iter().map(|open| &open["what"]).collect();
    assert_eq!(open, ["segments", "checkpoint"].map(Value::from).iter().collect::<Vec<_>>());
}

#[test]
fn ledgers_of_older_versions_miss_their_segments() {
    let place = ledger();
    let rest = |body: &str| match body.find(",\"edge\":") {
        Some(at) => format!("{}}}", &body[..at]),
        None => body.to_owned(),
    };
    unsign(&place);
    rewrite(&place, "l.jsonl", rest);
    assert!(!place.work.read("l.jsonl").contains("\"edge\""));
    verified(&place, &[]);
    take_away(&place, &CLOSED[2..]);
    let error = place.feed(&["verify", "l.jsonl"], "").code(1).first_error();
    assert!(error.to_string().contains(CLOSED[2]), "{error}");
    assert_eq!(place.closing(&["rotate", "l.jsonl"], "", 1)["error"]["code"], "E_INTEGRITY");
}

#[test]
fn a_ledger_goes_on_without_its_segments_and_a_proof_has_them_put_back() {
    let place = ledger();
    let told = place.lines(&["query", "l.jsonl", "--limit", "2"], "");
    let receipt = json!({"receipt": {"ledger": place.path("l.jsonl"), "seq": 1, "hash": told[1]["data"]["hash"]}});
    take_away(&place, &CLOSED);
    place.lines(&["append", "-f", "l.jsonl", "--event", "after", "--data", &receipt.to_string()], "");
    let audited = place.lines(&["audit", "l.jsonl"], "");
    let claim = audited.iter().find(|record| record["data"]["claim"] == "receipt").unwrap();
    assert_eq!(claim["data"]["holds"], Value::Null, "{claim}");
    place.lines(&["rotate", "l.jsonl"], "");
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    for more in [&["prove", "16", "-f", "l.jsonl"][..], &["bundle", "l.jsonl"]] {
        let refused = place.feed(more, "").code(3).closing();
        assert_eq!(refused["error"]["code"], "E_NOT_FOUND");
        assert!(refused["error"]["details"]["hint"].as_str().unwrap().contains("put it back"), "{refused}");
    }
    put_back(&place, &CLOSED);
    place.lines(&["prove", "16", "-f", "l.jsonl"], "");
    let (absent, last) = verified(&place, &["--trust", "K.pub"]);
    assert_eq!((absent, &last["proved"]["checkpoint"]), (json!([]), &json!(20)));
}

#[test]
fn checkpoint_in_absent_segment_is_unproved_and_fails_if_required() {
    let place = ledger();
    place.lines(&["rotate", "l.jsonl"], "");
    let fourth = "l.00000000000000000015.jsonl";
    take_away(&place, &CLOSED);
    take_away(&place, &[fourth]);
    let (_, last) = verified(&place, &[]);
    assert!(last["not_proved"].as_array().unwrap().iter().any(|open| open["what"] == "checkpoint"), "{last}");
    for more in [&["--trust", "K.pub"][..], &["--checkpoint", "l.checkpoint"]] {
        let refused = place.closing(&[&["verify", "l.jsonl"], more].concat(), "", 1);
        assert_eq!(refused["error"]["details"]["kind"], "segment", "{refused}");
    }
    place.feed(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "").failed(3, "E_NOT_FOUND");
    // With what was signed last here again, it can be signed, and go.
    put_back(&place, &[fourth]);
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    take_away(&place, &[fourth]);
    verified(&place, &["--trust", "K.pub"]);
}

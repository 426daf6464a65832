//! Another key for a ledger: the key before announces it, and those who trust the key before follow.

use std::path::Path;

use cp_ledger::format::line::{Hash, Line, compose};
use serde_json::{Value, json};

use crate::forgeries::Recorded;
use crate::ledgers::Ledgers;

/// A ledger whose key `A` announced `B`, and `B` announced `C`, with lines and checkpoints between. Line 0 names `A` if `named`.
fn rotated(named: bool) -> Ledgers {
    let place = Ledgers::new();
    for key in ["A", "B", "C", "E"] {
        place.lines(&["keygen", key], "");
    }
    if named {
        place.lines(&["create", "--trust", "A.pub", "l.jsonl"], "");
    }
    let append = || drop(place.lines(&["append", "-f", "l.jsonl", "--run", "RUN-1"], "one\ntwo\n"));
    append();
    sign(&place, "A", &[]);
    append();
    sign(&place, "A", &["--next", "B.pub"]);
    append();
    sign(&place, "B", &[]);
    append();
    sign(&place, "B", &["--next", "C.pub"]);
    append();
    sign(&place, "C", &[]);
    place
}

fn sign(place: &Ledgers, key: &str, more: &[&str]) {
    place.lines(&[&["checkpoint", "-f", "l.jsonl", "--sign-with", key], more].concat(), "");
}

/// The checkpoint entries of the ledger: their places and their lines.
fn checkpoints(place: &Ledgers) -> Vec<usize> {
    let lines = place.stored("l.jsonl");
    (0..lines.len()).filter(|at| lines[*at]["event"] == "ledger.checkpoint").collect()
}

/// Writes other lines, given as their bodies, with right numbers, hashes and chain.
fn write(path: &Path, bodies: &[Value]) {
    let first = std::fs::read(path).unwrap();
    let mut prev = Line::parse(first.split(|byte| *byte == b'\n').next().unwrap()).unwrap().prev();
    let mut out = Vec::new();
    for (seq, body) in bodies.iter().enumerate() {
        let mut body = body.clone();
        let ts = body["ts"].as_str().unwrap().to_owned();
        for name in ["seq", "ts", "prev", "hash"] {
            body.as_object_mut().unwrap().shift_remove(name);
        }
        let text = body.to_string();
        let members = [b",", &text.as_bytes()[1..text.len() - 1]].concat();
        prev = compose(seq as u64, &ts, &members, &prev, &mut out).unwrap();
    }
    std::fs::write(path, out).unwrap();
    let _: Hash = prev;
}

fn verify(place: &Ledgers, key: &str) -> Value {
    place.run(&["verify", "--trust", &format!("{key}.pub"), "l.jsonl"]).closing()
}

#[test]
fn announced_key_is_trusted_by_verify_audit_and_bundles() {
    for named in [true, false] {
        let place = rotated(named);
        for key in ["A", "B", "C"] {
            let verified = verify(&place, key);
            assert_eq!((&verified["ok"], &verified["data"]["proved"]["keys"]), (&json!(true), &json!(2)), "{verified}");
            // Of a whole ledger, and of a part without the announcements among the lines that were asked for.
            for (name, more) in [("whole", &[][..]), ("part", &["--run", "RUN-1"])] {
                place.lines(&[&["bundle", "-o", &format!("{key}-{name}"), "l.jsonl"], more].concat(), "");
                let checked =
                    place.closing(&["verify", "--trust", &format!("{key}.pub"), &format!("{key}-{name}")], "", 0);
                assert_eq!(checked["data"]["ledgers"][0]["signed_by"], json!(["C"]), "{checked}");
                place.closing(&["verify", "--trust", "E.pub", &format!("{key}-{name}")], "", 1);
            }
        }
        assert_eq!(verify(&place, "E")["error"]["code"], "E_INTEGRITY");
        assert_eq!(place.closing(&["audit", "l.jsonl"], "", 0)["data"]["broken"], 0);
        // Only the newest key signs.
        for old in ["A", "B"] {
            let refused = place.closing(&["checkpoint", "-f", "l.jsonl", "--sign-with", old], "", 4);
            assert_eq!(refused["error"]["code"], "E_FORBIDDEN");
        }
        place.closing(&["checkpoint", "-f", "l.jsonl", "--sign-with", "C", "--next", "C.pub"], "", 2);
    }
}

#[test]
fn forged_announcement_is_a_fault_at_its_line() {
    let place = rotated(true);
    let lines = place.stored("l.jsonl");
    let at = checkpoints(&place);
    let [announced, ..] = [at[1], at[3]];
    let other = rotated(true).stored("l.jsonl");
    let by_other = {
        let forger = Ledgers::new();
        for key in ["A", "B"] {
            forger.lines(&["keygen", key], "");
        }
        forger.lines(&["append", "-f", "l.jsonl", "m"], "");
        sign(&forger, "A", &["--next", "B.pub"]);
        forger.stored("l.jsonl").pop().unwrap()["data"].clone()
    };
    let edited = |change: &dyn Fn(&mut Value)| {
        let mut lines = lines.clone();
        change(&mut lines[announced]["data"]);
        lines
    };
    let mut removed = lines.clone();
    removed.remove(announced);
    let mut replayed = lines.clone();
    replayed.insert(at[4], lines[announced].clone());
    let cases = [
        ("signed by another key", edited(&|data| data["signature"] = by_other["signature"].clone()), announced),
        ("of another ledger", edited(&|data| *data = other[announced]["data"].clone()), announced),
        ("with another key", edited(&|data| data["next"] = by_other["next"].clone()), announced),
        (
            "without its signature",
            edited(&|data| drop(data.as_object_mut().unwrap().shift_remove("signature"))),
            announced,
        ),
        ("removed", removed, at[2] - 1),
        ("replayed", replayed, at[4]),
    ];
    for (name, forged, seq) in cases {
        write(&place.path("l.jsonl"), &forged);
        let failed = verify(&place, "A");
        assert_eq!(failed["error"]["code"], "E_INTEGRITY", "{name}: {failed}");
        let faults = failed["error"]["details"]["faults"].as_array().unwrap();
        assert!(
            faults.iter().any(|fault| fault["line"] == seq + 1 && fault["kind"] == "signature"),
            "{name}: {failed}"
        );
        let audited = place.run(&["audit", "l.jsonl"]).code(1);
        let is_named = |record: &Value| record["data"]["claim"] == "key" && record["data"]["holds"] == false;
        assert!(
            audited.records().iter().any(|record| is_named(record) && record["data"]["seq"] == seq),
            "{name}: {audited:?}"
        );
    }
    write(&place.path("l.jsonl"), &lines);
    assert_eq!(verify(&place, "A")["ok"], true);
}

#[test]
fn run_with_agent_is_signed_in_one_step() {
    let recorded = Recorded::new();
    let place = &recorded.place;
    let run = Path::new(&recorded.subject).file_stem().unwrap().to_str().unwrap().to_owned();
    place.run(&["keygen", "K"]).success();
    place.run(&["keygen", "E"]).success();
    place.run(&["--run", &run, "bundle", "-o", "unsigned"]).success();
    place.run(&["verify", "--trust", "K.pub", "unsigned"]).code(1);
    let preview = place.run(&["--run", &run, "checkpoint", "--sign-with", "K", "--dry-run"]).success().data();
    let signed = place.run(&["--run", &run, "checkpoint", "--sign-with", "K"]).success().data();
    let sizes = |answer: &Value| {
        answer["checkpoints"].as_array().unwrap().iter().map(|one| one["size"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((sizes(&preview), signed["run"].as_str()), (sizes(&signed), Some(run.as_str())));
    assert!(sizes(&signed).len() >= 2, "{signed}");
    place.run(&["--run", &run, "bundle", "-o", "signed"]).success();
    place.run(&["verify", "--trust", "K.pub", "signed"]).success();
    place.run(&["verify", "--trust", "E.pub", "signed"]).code(1);
    // None is signed if one of them cannot be.
    let agent = recorded.ledgers[0].0.display().to_string();
    place.run(&["checkpoint", "-f", &agent, "--sign-with", "K", "--next", "E.pub"]).success();
    let own = Path::new(&recorded.subject).with_extension("checkpoint");
    let before = std::fs::read_to_string(&own).unwrap();
    place.run(&["--run", &run, "checkpoint", "--sign-with", "K"]).code(4);
    assert_eq!(std::fs::read_to_string(&own).unwrap(), before);
    assert!(!recorded.is_found());
}

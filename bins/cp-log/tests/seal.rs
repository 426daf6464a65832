//! Sealed values: `append --seal`, `reveal` and `forget`, as a shell user meets them.

use crate::ledgers::Ledgers;
use serde_json::json;

#[test]
fn the_line_has_a_hash_and_the_value_can_be_revealed_until_it_is_forgotten() {
    use std::os::unix::fs::PermissionsExt;
    let place = Ledgers::new();
    let arguments = [
        "append",
        "-f",
        "l.jsonl",
        "--seal",
        "message",
        "--seal",
        "data.card",
        "--data",
        r#"{"card":{"n":1e2},"k":1}"#,
        "Bob",
    ];
    place.lines(&arguments, "");
    let text = place.work.read("l.jsonl");
    assert!(!text.contains("Bob") && !text.contains("\"n\":"), "{text}");
    let stored = place.stored("l.jsonl").remove(1);
    assert_eq!(stored["data"]["k"], 1);
    let (message, card) =
        (stored["message"]["$sealed"].as_str().unwrap(), stored["data"]["card"]["$sealed"].as_str().unwrap());
    assert_eq!(place.closing(&["reveal", "-f", "l.jsonl", message], "", 0)["data"]["value"], "Bob");
    let raw = place.run(&["reveal", "-f", "l.jsonl", card, "--format", "raw"]).success();
    assert_eq!(raw.stdout, "{\"n\":1e2}\n");
    assert_eq!(std::fs::metadata(place.path("l.jsonl.vault")).unwrap().permissions().mode() & 0o777, 0o600);

    place.closing(&["forget", "-f", "l.jsonl", message], "", 5);
    place.closing(&["forget", "-f", "l.jsonl", "--dangerous", message], "", 5);
    let preview = place.closing(&["forget", "-f", "l.jsonl", "--dangerous", "--dry-run", message], "", 0);
    let token = preview["data"]["confirm_token"].as_str().unwrap().to_owned();
    place.closing(&["forget", "-f", "l.jsonl", "--dangerous", "--confirm", &token, message], "", 0);
    assert_eq!(place.closing(&["reveal", "-f", "l.jsonl", message], "", 3)["error"]["code"], "E_NOT_FOUND");
    assert_eq!(place.closing(&["reveal", "-f", "l.jsonl", card], "", 0)["data"]["value"], json!({"n": 100.0}));
    place.lines(&["verify", "l.jsonl"], "");
    let events: Vec<_> = place.stored("l.jsonl").into_iter().map(|line| line["event"].clone()).collect();
    assert_eq!(events, ["ledger.open", "log", "ledger.forget", "ledger.forgotten"]);
}

#[test]
fn sealed_hash_is_salted_and_changed_value_is_refused() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message"], "same\nsame\n");
    let stored = place.stored("l.jsonl");
    assert_ne!(stored[1]["message"], stored[2]["message"]);
    let vault = place.path("l.jsonl.vault");
    let rows = std::fs::read_to_string(&vault).unwrap();
    assert!(!rows.contains("same"), "{rows}");
    // The second value in the first one's place.
    let first = rows.lines().next().unwrap();
    let changed = rows.replace("\"slot\":2", "\"slot\":3");
    assert_ne!(changed, rows, "{first}");
    std::fs::write(&vault, changed).unwrap();
    place.closing(&["reveal", "-f", "l.jsonl", stored[1]["message"]["$sealed"].as_str().unwrap()], "", 1);
    place.closing(&["append", "-f", "l.jsonl", "--seal", "event", "m"], "", 2);
    place.closing(&["reveal", "-f", "l.jsonl", "zz"], "", 2);
}

/// The hash that the last line of a ledger has for its message.
fn last_seal(place: &Ledgers) -> String {
    place.stored("l.jsonl").last().unwrap()["message"]["$sealed"].as_str().unwrap().to_owned()
}

#[test]
fn failed_seal_does_not_affect_later_values() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message", "one"], "");
    let full =
        place.sh(r#"ulimit -f 2; cp-log append -f l.jsonl --seal message "$(head -c 3000 /dev/zero | tr '\0' A)""#);
    assert_eq!(full.error()["code"], "E_IO");
    // Also where the partial row could not be taken back: a row that was torn by a crash.
    let mut torn = place.work.bytes("l.jsonl.vault");
    torn.extend_from_slice(b"{\"sealed\":\"sha256:00");
    place.work.write("l.jsonl.vault", torn);
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message", "two"], "");
    let two = last_seal(&place);
    assert_eq!(place.run(&["reveal", "-f", "l.jsonl", &two]).success().data()["value"], "two");
    forget(&place, &two).success();
    place.run(&["reveal", "-f", "l.jsonl", &two]).failed(3, "E_NOT_FOUND");
}

fn forget(place: &Ledgers, hash: &str) -> cp_testkit::Outcome {
    let verb = ["forget", "-f", "l.jsonl", "--dangerous", hash];
    let preview = place.run(&[&verb[..], &["--dry-run"]].concat()).data();
    place.run(&[&verb[..], &["--confirm", preview["confirm_token"].as_str().unwrap()]].concat())
}

#[test]
fn a_value_is_nowhere_in_clear_and_its_key_is_overwritten() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message", "a private value"], "");
    let keys = place.work.bytes("l.jsonl.vault.keys");
    assert_eq!(keys.len(), 96);
    assert_ne!(keys[64..], [0; 32]);
    let hash = last_seal(&place);
    forget(&place, &hash).success();
    assert_eq!(place.work.bytes("l.jsonl.vault.keys")[64..], [0; 32]);
    for name in place.work.names() {
        let bytes = place.work.bytes(&name);
        assert!(!bytes.windows(7).any(|window| window == b"private"), "{name}");
        // Nor is the key anywhere else.
        assert!(!bytes.windows(32).any(|window| window == &keys[64..96]), "{name}");
    }
}

#[test]
fn forget_during_concurrent_seals_loses_no_other_value() {
    let place = Ledgers::new();
    let count = cp_testkit::times(8, 60);
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message"], &"old\n".repeat(4 * count));
    let old: Vec<String> = place
        .stored("l.jsonl")
        .iter()
        .skip(1)
        .map(|line| line["message"]["$sealed"].as_str().unwrap().to_owned())
        .collect();
    std::thread::scope(|scope| {
        for mine in old.chunks(count) {
            scope.spawn(|| mine.iter().for_each(|hash| drop(forget(&place, hash).success())));
        }
        for sealer in 0..3 {
            let place = &place;
            scope.spawn(move || {
                for n in 0..2 * count {
                    place.lines(
                        &["append", "-f", "l.jsonl", "--event", "new", "--seal", "message", &format!("{sealer} {n}")],
                        "",
                    );
                }
            });
        }
    });
    let stored = place.stored("l.jsonl");
    let new: Vec<_> = stored.iter().filter(|line| line["event"] == "new").collect();
    assert_eq!(new.len(), 6 * count);
    for line in new {
        place.run(&["reveal", "-f", "l.jsonl", line["message"]["$sealed"].as_str().unwrap()]).success();
    }
    for hash in &old {
        place.run(&["reveal", "-f", "l.jsonl", hash]).failed(3, "E_NOT_FOUND");
    }
    assert_eq!(stored.iter().filter(|line| line["event"] == "ledger.forgotten").count(), old.len());
    place.lines(&["verify", "--complete", "l.jsonl"], "");
}

#[test]
fn failed_seal_is_not_in_the_error_record() {
    let place = Ledgers::new();
    place.work.write("foreign.txt", "not a ledger\n");
    let sealed =
        ["append", "-f", "foreign.txt", "--seal", "message", "--seal=data.pin", "--data={\"pin\":4711}", "Bob"];
    let ran = place.run(&sealed);
    assert_ne!(ran.status, 0, "{ran:?}");
    let open = ["append", "-f", "foreign.txt", "--data={\"pin\":4711}", "Bob"];
    assert_ne!(place.run(&open).status, 0);
    let entries: Vec<_> = place
        .lines(&["query"], "")
        .into_iter()
        .filter(|record| record["data"]["event"] == "error")
        .map(|record| record["data"]["data"]["argv"].to_string())
        .collect();
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert!(
        !entries[0].contains("Bob") && !entries[0].contains("4711") && entries[0].contains("--seal"),
        "{entries:?}"
    );
    assert!(entries[1].contains("Bob") && entries[1].contains("4711"), "nothing was to be sealed: {entries:?}");
}

#[test]
fn forget_fails_if_the_ledger_cannot_record_it() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message", "kept"], "");
    let hash = last_seal(&place);
    let good = place.work.bytes("l.jsonl");
    place.work.write("l.jsonl", [&good[..], b"damaged\n"].concat());
    assert_eq!(forget(&place, &hash).error()["code"], "E_INTEGRITY");
    assert_eq!(place.run(&["reveal", "-f", "l.jsonl", &hash]).success().data()["value"], "kept");
}

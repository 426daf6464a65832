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
    assert_eq!(place.stored("l.jsonl")[2]["event"], "ledger.forgotten");
}

#[test]
fn the_same_value_has_another_hash_each_time_and_a_changed_one_is_not_served() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message"], "same\nsame\n");
    let stored = place.stored("l.jsonl");
    assert_ne!(stored[1]["message"], stored[2]["message"]);
    let vault = place.path("l.jsonl.vault");
    let changed = std::fs::read_to_string(&vault).unwrap().replace("\"same\"", "\"other\"");
    std::fs::write(&vault, changed).unwrap();
    place.closing(&["reveal", "-f", "l.jsonl", stored[1]["message"]["$sealed"].as_str().unwrap()], "", 1);
    place.closing(&["append", "-f", "l.jsonl", "--seal", "event", "m"], "", 2);
    place.closing(&["reveal", "-f", "l.jsonl", "zz"], "", 2);
}

#[test]
fn what_could_not_be_sealed_is_not_in_the_record_of_the_failure() {
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

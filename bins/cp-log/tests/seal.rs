//! Sealed values: `append --seal`, `reveal` and `forget`, as a shell user meets them.

use serde_json::json;

use crate::at::At;

#[test]
fn the_line_has_a_hash_and_the_value_can_be_revealed_until_it_is_forgotten() {
    use std::os::unix::fs::PermissionsExt;
    let at = At::new();
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
    at.lines(&arguments, "");
    let text = std::fs::read_to_string(at.path("l.jsonl")).unwrap();
    assert!(!text.contains("Bob") && !text.contains("\"n\":"), "{text}");
    let stored = at.stored("l.jsonl").remove(1);
    assert_eq!(stored["data"]["k"], 1);
    let (message, card) =
        (stored["message"]["$sealed"].as_str().unwrap(), stored["data"]["card"]["$sealed"].as_str().unwrap());
    assert_eq!(at.closing(&["reveal", "-f", "l.jsonl", message], "", 0)["data"]["value"], "Bob");
    let raw = at.cp_log(&["reveal", "-f", "l.jsonl", card, "--format", "raw"]).assert().success();
    assert_eq!(raw.get_output().stdout, b"{\"n\":1e2}\n");
    assert_eq!(std::fs::metadata(at.path("l.jsonl.vault")).unwrap().permissions().mode() & 0o777, 0o600);

    at.closing(&["forget", "-f", "l.jsonl", message], "", 5);
    at.closing(&["forget", "-f", "l.jsonl", "--dangerous", message], "", 5);
    let preview = at.closing(&["forget", "-f", "l.jsonl", "--dangerous", "--dry-run", message], "", 0);
    let token = preview["data"]["confirm_token"].as_str().unwrap().to_owned();
    at.closing(&["forget", "-f", "l.jsonl", "--dangerous", "--confirm", &token, message], "", 0);
    assert_eq!(at.closing(&["reveal", "-f", "l.jsonl", message], "", 3)["error"]["code"], "E_NOT_FOUND");
    assert_eq!(at.closing(&["reveal", "-f", "l.jsonl", card], "", 0)["data"]["value"], json!({"n": 100.0}));
    at.lines(&["verify", "l.jsonl"], "");
    assert_eq!(at.stored("l.jsonl")[2]["event"], "ledger.forgotten");
}

#[test]
fn the_same_value_has_another_hash_each_time_and_a_changed_one_is_not_served() {
    let at = At::new();
    at.lines(&["append", "-f", "l.jsonl", "--seal", "message"], "same\nsame\n");
    let stored = at.stored("l.jsonl");
    assert_ne!(stored[1]["message"], stored[2]["message"]);
    let vault = at.path("l.jsonl.vault");
    let changed = std::fs::read_to_string(&vault).unwrap().replace("\"same\"", "\"other\"");
    std::fs::write(&vault, changed).unwrap();
    at.closing(&["reveal", "-f", "l.jsonl", stored[1]["message"]["$sealed"].as_str().unwrap()], "", 1);
    at.closing(&["append", "-f", "l.jsonl", "--seal", "event", "m"], "", 2);
    at.closing(&["reveal", "-f", "l.jsonl", "zz"], "", 2);
}

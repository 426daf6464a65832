//! Sets of requests: shown together, confirmed by one token, run with a result each.

use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who};

fn house() -> Exec {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    Exec::with_policy(Who::Me, &format!("{POLICY}{rule}"))
}

fn rows(requests: &[Value]) -> String {
    requests.iter().fold(String::new(), |rows, request| rows + &request.to_string() + "\n")
}

fn run(argv: &[&str]) -> Value {
    json!({"tool": "shell", "arguments": {"argv": argv}})
}

fn set() -> String {
    rows(&[
        run(&["echo", "a"]),
        run(&["sh", "-c", "exit 3"]),
        json!({"tool": "filesystem", "operation": "write_file", "arguments": {"path": "f", "content": "new", "mode": "overwrite"}}),
        run(&["rm", "x"]),
        json!({"tool": "shell", "arguments": {"pipeline": [["echo", "b"], ["cat"]]}}),
    ])
}

/// The preview of the set in [`set`], and its token.
fn shown(exec: &Exec) -> (Value, String) {
    let (answers, status) = exec.answers(&["--dry-run", "--dangerous"], &set());
    assert_eq!((status, answers.len()), (0, 1), "{answers:?}");
    let token = answers[0]["data"]["confirm_token"].as_str().unwrap().to_owned();
    (answers[0]["data"]["preview"]["changes"].clone(), token)
}

#[test]
fn one_token_confirms_the_whole_set_once_and_each_request_has_its_result() {
    let exec = house();
    exec.write("f", "old");
    let (changes, token) = shown(&exec);
    let told: Vec<(&str, &str)> = changes
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["action"].as_str().unwrap(), c["id"].as_str().unwrap()))
        .collect();
    let file = exec.work.join("f").canonicalize().unwrap().display().to_string();
    assert_eq!(
        told,
        [("run", "echo a"), ("run", "sh -c 'exit 3'"), ("overwrite", &file), ("refuse", "3"), ("run", "echo b | cat")]
    );
    assert_eq!(exec.entries("exec.intent").len(), 0, "a dry run ran something");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");

    let (answers, status) = exec.answers(&["--confirm", &token, "--dangerous"], &set());
    assert_eq!((status, answers.len()), (0, 6), "{answers:?}");
    assert_eq!(answers[0]["data"]["stdout"], "a\n");
    assert_eq!(answers[1]["error"]["details"]["return_code"], 3);
    assert_eq!(answers[2]["data"]["value"]["created"], false);
    assert_eq!(answers[3]["error"]["details"]["rule"], "restricted");
    assert_eq!(answers[4]["data"]["stdout"], "b\n");
    assert_eq!((&answers[5]["data"]["succeeded"], &answers[5]["data"]["failed"]), (&json!(3), &json!(2)));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    let confirmed = &exec.entries("exec.intent")[0]["data"]["confirmed"];
    assert!(confirmed.as_str().unwrap().starts_with("hmac-sha256:"), "{confirmed}");
    assert_eq!(&exec.entries("exec.operation")[0]["data"]["what"]["confirmed"], confirmed);

    // Spent, although some failed; and what it showed has changed besides.
    let (answers, status) = exec.answers(&["--confirm", &token, "--dangerous"], &set());
    assert_eq!((status, answers.len()), (6, 1), "{answers:?}");
    assert_eq!(answers[0]["error"]["details"]["reason"], "replayed");
    assert_eq!(exec.entries("exec.intent").len(), 4);
}

#[test]
fn a_token_is_for_the_set_that_was_shown_and_for_no_other() {
    let exec = house();
    exec.write("f", "old");
    let (_, token) = shown(&exec);
    let other = set().replace("\"a\"", "\"c\"");
    for (input, why) in [(other, "other words"), (rows(&[run(&["echo", "a"])]), "a part of it")] {
        let (answers, status) = exec.answers(&["--confirm", &token, "--dangerous"], &input);
        assert_eq!(status, 6, "{why}: {answers:?}");
    }
    exec.write("f", "changed");
    assert_eq!(exec.answers(&["--confirm", &token, "--dangerous"], &set()).1, 6);
    assert_eq!(exec.entries("exec.intent").len(), 0);
    // The control: as it was shown, it runs.
    exec.write("f", "old");
    assert_eq!(exec.answers(&["--confirm", &token, "--dangerous"], &set()).1, 0);
}

#[test]
fn a_set_that_destroys_needs_to_be_called_dangerous_before_anything_else() {
    let exec = house();
    exec.write("f", "old");
    let (_, token) = shown(&exec);
    for args in [vec!["--dry-run"], vec!["--confirm", &token], vec!["--confirm", "ct_wrong"]] {
        let (answers, status) = exec.answers(&args, &set());
        assert_eq!(status, 5, "{args:?}: {answers:?}");
        assert!(answers[0]["error"]["details"]["hint"].as_str().unwrap().contains("--dangerous"));
    }
    // It was not spent by that.
    assert_eq!(exec.answers(&["--confirm", &token, "--dangerous"], &set()).1, 0);
    // One that destroys nothing needs only its token.
    let harmless = rows(&[run(&["true"]), run(&["sh", "-c", "echo x"])]);
    let (answers, _) = exec.answers(&["--dry-run"], &harmless);
    let token = answers[0]["data"]["confirm_token"].as_str().unwrap();
    assert_eq!(exec.answers(&["--confirm", token], &harmless).1, 0);
}

#[test]
fn a_set_stops_at_its_first_failure_if_it_is_told_to() {
    let exec = house();
    exec.write("f", "old");
    let (_, token) = shown(&exec);
    let (answers, status) = exec.answers(&["--confirm", &token, "--dangerous", "--continue-on-error", "false"], &set());
    assert_eq!(status, 1, "{answers:?}");
    assert_eq!(answers[0]["data"]["stdout"], "a\n");
    assert_eq!(answers[1]["error"]["details"]["return_code"], 3);
    let last = answers.last().unwrap();
    assert_eq!(last["error"]["details"]["skipped"], 3, "{last}");
    assert_eq!(exec.entries("exec.intent").len(), 2);
    assert_eq!(std::fs::read_to_string(exec.work.join("f")).unwrap(), "old");
}

#[test]
fn a_set_of_nothing_but_refusals_has_no_token() {
    let exec = house();
    let (answers, status) = exec.answers(&["--dry-run"], &rows(&[run(&["rm", "x"]), run(&["mkfs"])]));
    assert_eq!((status, &answers[0]["error"]["details"]["rule"]), (4, &json!("restricted")), "{answers:?}");
}

#[test]
fn a_set_runs_several_at_once_too() {
    let exec = house();
    let input =
        rows(&[run(&["sh", "-c", "while ! test -e b; do sleep 0.01; done; echo a"]), run(&["sh", "-c", "echo > b"])]);
    let (answers, _) = exec.answers(&["--dry-run"], &input);
    let token = answers[0]["data"]["confirm_token"].as_str().unwrap();
    let (answers, status) = exec.answers(&["--confirm", token, "--jobs", "2", "--timeout", "20"], &input);
    assert_eq!((status, answers.len()), (6, 1), "another limit is another set: {answers:?}");
    let (answers, status) = exec.answers(&["--confirm", token, "--jobs", "2"], &input);
    assert_eq!((status, &answers[0]["data"]["stdout"]), (0, &json!("a\n")), "{answers:?}");
}

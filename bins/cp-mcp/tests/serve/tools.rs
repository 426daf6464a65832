//! Each tool, with what it may and what it may not.

use serde_json::json;

use super::client::{entries, ledger, place, start, text, with};
use crate::session::{ERAS, Era};

#[test]
fn files_are_read_written_and_edited_in_both_eras() {
    for era in ERAS {
        let place = place();
        place.work.write("a.txt", "one\ntwo\n");
        let mut client = start(&place, era, json!({}));
        let read = client.result("cp_read", json!({ "path": "a.txt", "line": 2 }));
        assert_eq!((text(&read).starts_with("two\n"), &read["isError"]), (true, &json!(false)), "{read}");
        assert!(text(&client.result("cp_read", json!({ "path": "." }))).contains("a.txt"));
        assert_eq!(client.result("cp_write", json!({ "path": "b.txt", "content": "new" }))["isError"], false);
        assert_eq!(place.work.read("b.txt"), "new");
        let edit = json!({ "path": "a.txt", "old": "one", "new": "1" });
        assert_eq!(client.result("cp_edit", edit)["isError"], false);
        assert_eq!(place.work.read("a.txt"), "1\ntwo\n");
        // Refused: outside, there already, and not there.
        let missing = text(&client.result("cp_read", json!({ "path": "none.txt" })));
        assert!(missing.contains("cp_read shows what is there; cp_write creates a file"), "{missing}");
        let outside = client.result("cp_read", json!({ "path": "/etc/shadow" }));
        assert_eq!((&outside["isError"], text(&outside).contains("/etc/shadow")), (&json!(true), true), "{outside}");
        let again = client.result("cp_write", json!({ "path": "b.txt", "content": "newer" }));
        assert!(again["isError"] == true && text(&again).contains("use cp_edit"), "{again}");
        assert_eq!(place.work.read("b.txt"), "new");
        let wrong = client.result("cp_read", json!({ "file": "a.txt" }));
        assert!(wrong["isError"] == true && wrong["structuredContent"]["error"]["code"] == "E_VALIDATION", "{wrong}");
        client.end();
    }
}

#[test]
fn commands_run_as_the_policy_allows_and_are_checked_alike() {
    let place = place();
    let mut client = start(&place, Era::Modern, json!({}));
    let ran = client.result("cp_run", json!({ "command": "echo one && echo two" }));
    assert_eq!((text(&ran).as_str(), &ran["structuredContent"]["exit_code"]), ("one\ntwo\n", &json!(0)));
    assert!(ran["_meta"]["cp/receipt"]["hash"].is_string() && ran["resultType"] == "complete", "{ran}");
    let ran = client.result("cp_run", json!({ "argv": ["printf", "%s", "a b"], "cwd": "." }));
    assert_eq!(text(&ran), "a b");
    let failed = client.result("cp_run", json!({ "argv": ["false"] }));
    assert_eq!((&failed["isError"], &failed["structuredContent"]["exit_code"]), (&json!(true), &json!(1)));
    let refused = client.result("cp_run", json!({ "command": "perl x" }));
    assert!(refused["isError"] == true && text(&refused).contains("perl"), "{refused}");
    let neither = client.result("cp_run", json!({}));
    assert!(neither["isError"] == true && text(&neither).contains("argv"), "{neither}");
    for (command, decision) in [("echo x", "allow"), ("rm x", "ask"), ("perl x", "deny")] {
        let checked = client.result("cp_check", json!({ "command": command }));
        assert_eq!((&checked["structuredContent"]["decision"], &checked["isError"]), (&json!(decision), &json!(false)));
        text(&checked);
    }
    client.end();
}

#[test]
fn every_call_is_on_the_ledger_of_a_session_that_names_the_client() {
    let place = place();
    let mut client = start(&place, Era::Handshake, json!({}));
    client.ask("tools/list", json!({}));
    assert!(!place.home.join("planes").is_dir(), "who only looks leaves no session");
    client.result("cp_run", json!({ "command": "echo x" }));
    client.result("cp_run", json!({ "command": "perl x" }));
    let found = client.result("cp_ledger_query", json!({ "event": "exec.step" }));
    let items = found["structuredContent"]["items"].as_array().unwrap();
    assert!(items.len() == 1 && items[0]["data"]["decision"] == "deny", "{found}");
    let verified = client.result("cp_verify", json!({}));
    let items = verified["structuredContent"]["items"].as_array().unwrap().clone();
    assert!(!items.is_empty() && items.iter().all(|item| item["intact"] == true), "{verified}");
    client.end();
    let session = &entries(&place, "mcp.session")[0];
    assert_eq!(session["data"]["client"], json!({ "name": "by-hand", "version": "7" }));
    let id = &session["session"];
    assert!(id.as_str().unwrap().starts_with("SES-"), "{session}");
    for event in ["exec.intent", "exec.result", "exec.step"] {
        let entry = &entries(&place, event)[0];
        assert_eq!((&entry["session"], &entry["data"]["host"]), (id, &json!("by-hand")), "{entry}");
    }
    let calls = entries(&place, "mcp.call");
    let tools: Vec<&str> = calls.iter().map(|call| call["data"]["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["cp_run", "cp_run", "cp_ledger_query", "cp_verify"]);
    let outcomes = entries(&place, "mcp.result");
    let failed: Vec<bool> = outcomes.iter().map(|end| end["data"]["is_error"].as_bool().unwrap()).collect();
    assert_eq!(failed, [false, true, false, false]);
    place.sh("cp-log verify $(find $CP_HOME -name '*.jsonl')").success();
    place.sh("cp-log audit").success();
}

#[test]
fn a_session_that_is_named_is_used_and_its_turns_are_found() {
    let place = place();
    let script =
        "S=$(cp-session start --format text); cp-session append --session $S -- 'a needle in it' >/dev/null; echo $S";
    let session = place.sh(script).success().stdout.trim().to_owned();
    let mut client = with(&place, Era::Modern, &["--session", &session]);
    let found = client.result("cp_session_search", json!({ "query": "NEEDLE" }));
    assert!(text(&found).contains("a needle in it"), "{found}");
    assert_eq!(
        client.result("cp_session_search", json!({ "query": "nothing" }))["structuredContent"]["items"],
        json!([])
    );
    client.end();
    assert!(entries(&place, "mcp.call").iter().all(|call| call["session"] == *session));
}

#[test]
fn another_model_is_asked_and_without_one_it_says_what_to_do() {
    let place = place();
    let mut client = start(&place, Era::Modern, json!({}));
    let none = client.result("cp_prompt", json!({ "prompt": "hi" }));
    assert!(none["isError"] == true && text(&none).contains("no backend is configured"), "{none}");
    assert!(text(&none).contains("Hint: cp-ask keys set "), "{none}");
    client.end();
    place.home.write("config/cp.toml", "backend = \"stub\"\n");
    let mut client = start(&place, Era::Modern, json!({}));
    let said = client.result("cp_prompt", json!({ "prompt": "hi", "system": "@x" }));
    assert_eq!(
        (text(&said).as_str(), &said["structuredContent"]["model"]),
        ("stub response 1", &json!("stub")),
        "{said}"
    );
    client.end();
    assert!(
        ledger(&place).iter().any(|entry| entry["event"] == "llm.request" || entry["event"] == "llm.response"),
        "it is on record"
    );
}

#[test]
fn the_root_is_where_commands_run_and_what_a_dot_means() {
    let place = place();
    place.work.write("below/in.txt", "in");
    place.work.write("out.txt", "out");
    let mut client = with(&place, Era::Handshake, &["--base", "below"]);
    assert_eq!(text(&client.result("cp_read", json!({ "path": "in.txt" }))), "in");
    assert_eq!(client.result("cp_read", json!({ "path": "../out.txt" }))["isError"], true);
    client.end();
}

#[test]
fn a_policy_that_changes_holds_for_the_next_call() {
    let place = place();
    let mut client = start(&place, Era::Modern, json!({}));
    let mut fails = |program: &str| client.result("cp_run", json!({ "argv": [program, "x"] }))["isError"].clone();
    assert_eq!(fails("echo"), false);
    place.policy("[exec]\nallowed_commands = [\"printf\"]\n");
    assert_eq!((fails("echo"), fails("printf")), (json!(true), json!(false)));
    client.end();
}

#[test]
fn the_data_of_each_answer_fits_the_schema_of_its_tool() {
    let place = place();
    place.work.write("a.txt", "x");
    let mut client = start(&place, Era::Modern, json!({}));
    let tools = client.ask("tools/list", json!({}))["result"]["tools"].clone();
    for (name, arguments) in [
        ("cp_check", json!({ "command": "echo x" })),
        ("cp_read", json!({ "path": "a.txt" })),
        ("cp_ledger_query", json!({})),
        ("cp_verify", json!({})),
        ("cp_session_search", json!({ "query": "x" })),
        ("cp_run", json!({ "command": "echo x" })),
        ("cp_write", json!({ "path": "b.txt", "content": "" })),
        ("cp_edit", json!({ "path": "a.txt", "old": "x", "new": "y" })),
        ("cp_prompt", json!({ "prompt": "x" })),
    ] {
        let schema = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        let result = client.result(name, arguments);
        let output = cp_schema::Schema::compile(schema["outputSchema"].clone()).unwrap();
        assert_eq!(output.faults(&result["structuredContent"], 1), [], "{name}: {result}");
        assert_eq!(result["isError"] == true, name == "cp_prompt", "{result}");
    }
    client.end();
}

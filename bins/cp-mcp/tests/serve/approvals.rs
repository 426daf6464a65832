//! Calls that need approval: asked in each era, shown where nobody can be asked, and left to the owner where the policy
//! says so.

use cp_testkit::Place;
use serde_json::{Value, json};

use super::client::{POLICY, command, entries, place, start, text};
use crate::session::{ERAS, Era};

fn asks() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn rm() -> Value {
    command("rm a.txt")
}

fn with_file() -> Place {
    let place = place();
    place.work.write("a.txt", "old\n");
    place
}

/// The retry of a call with the word of a client.
fn retry(mut call: Value, asked: &Value, action: &str) -> Value {
    call["requestState"] = asked["requestState"].clone();
    call["inputResponses"] = json!({ "approve": { "action": action } });
    call
}

#[test]
fn without_a_session_the_question_is_the_result_and_its_token_is_good_once() {
    let place = with_file();
    let mut client = start(&place, Era::Modern, asks());
    let asked = client.ask("tools/call", rm())["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let question = &asked["inputRequests"]["approve"];
    assert_eq!((&question["method"], &question["params"]["mode"]), (&json!("elicitation/create"), &json!("form")));
    assert!(question["params"]["message"].as_str().unwrap().contains("rm a.txt"), "{asked}");
    assert!(place.work.join("a.txt").exists());
    // Another call, or another file, is not what was asked about.
    let other = command("rm ./a.txt");
    let refused = client.ask("tools/call", retry(other, &asked, "accept"))["result"].clone();
    assert!(refused["isError"] == true && place.work.join("a.txt").exists(), "{refused}");
    let done = client.ask("tools/call", retry(rm(), &asked, "accept"))["result"].clone();
    assert_eq!((&done["isError"], &done["resultType"]), (&json!(false), &json!("complete")), "{done}");
    assert!(!place.work.join("a.txt").exists());
    place.work.write("a.txt", "again");
    let spent = client.ask("tools/call", retry(rm(), &asked, "accept"))["result"].clone();
    assert!(spent["isError"] == true && place.work.join("a.txt").exists(), "{spent}");
    client.end();
    let granted = &entries(&place, "approval.granted")[0]["data"];
    assert_eq!(
        (&granted["by"], &granted["through"], &granted["how"]),
        (&json!("host"), &json!("by-hand"), &json!("approver"))
    );
    assert_eq!((entries(&place, "approval.asked").is_empty(), entries(&place, "approval.spent").len()), (false, 1));
}

#[test]
fn line_starts_again_once_after_the_answer_and_not_after_a_refusal() {
    for (action, starts) in [("accept", 2), ("decline", 1)] {
        let place = with_file();
        let mut client = start(&place, Era::Modern, asks());
        let line = || command("echo x >>starts; rm a.txt");
        let asked = client.ask("tools/call", line())["result"].clone();
        let message = asked["inputRequests"]["approve"]["params"]["message"].as_str().unwrap();
        assert!(message.contains("starts again from its beginning"), "{asked}");
        let other = command("echo y >>starts; rm a.txt");
        let refused = client.ask("tools/call", retry(other, &asked, action))["result"].clone();
        assert_eq!(refused["structuredContent"]["error"]["code"], "E_CONFLICT", "{refused}");
        let done = client.ask("tools/call", retry(line(), &asked, action))["result"].clone();
        assert_eq!(done["isError"], action == "decline", "{done}");
        assert_eq!(
            (place.work.read("starts").lines().count(), place.work.join("a.txt").exists()),
            (starts, starts == 1)
        );
        client.end();
    }
}

#[test]
fn a_no_is_a_no_and_no_word_decides_nothing() {
    for (action, code) in [("decline", "E_FORBIDDEN"), ("cancel", "E_HUMAN_REQUIRED")] {
        let place = with_file();
        let mut client = start(&place, Era::Modern, asks());
        let asked = client.ask("tools/call", rm())["result"].clone();
        let refused = client.ask("tools/call", retry(rm(), &asked, action))["result"].clone();
        assert_eq!(refused["structuredContent"]["error"]["code"], code, "{refused}");
        let again = client.ask("tools/call", retry(rm(), &asked, "accept"))["result"].clone();
        assert!(again["isError"] == true && place.work.join("a.txt").exists(), "{again}");
        client.end();
        assert_eq!(entries(&place, "approval.denied").len(), usize::from(action == "decline"));
    }
}

#[test]
fn after_a_handshake_the_client_is_asked_while_the_call_waits() {
    for (action, runs) in [("accept", true), ("decline", false), ("cancel", false)] {
        let place = with_file();
        let mut client = start(&place, Era::Handshake, json!({ "elicitation": {} }));
        let id = client.send("tools/call", rm());
        let question = client.process.record();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert!(
            question["params"]["message"].as_str().unwrap().contains("rm a.txt") && place.work.join("a.txt").exists()
        );
        // Another answer than the one that is waited for changes nothing.
        client.process.write("{\"jsonrpc\":\"2.0\",\"id\":\"cp-99\",\"result\":{\"action\":\"accept\"}}\n");
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": action } });
        client.process.write(format!("{answer}\n"));
        let done = client.answer(id)["result"].clone();
        assert_eq!((done["isError"] == false, !place.work.join("a.txt").exists()), (runs, runs), "{action}: {done}");
        client.end();
    }
}

#[test]
fn where_nobody_can_be_asked_a_preview_has_the_token_that_does_it() {
    for era in ERAS {
        let place = with_file();
        // A client that can only open addresses has no form.
        let mut client = start(&place, era, json!({ "elicitation": { "url": {} } }));
        let shown = client.result("cp_run", json!({ "command": "rm a.txt" }));
        assert!(shown["isError"] == true && text(&shown).contains("This program was not started"), "{shown}");
        let token = shown["structuredContent"]["confirm"].clone();
        let forged = client.result("cp_run", json!({ "command": "rm a.txt", "confirm": "ct_00" }));
        assert!(forged["isError"] == true && place.work.join("a.txt").exists(), "{forged}");
        let done = client.result("cp_run", json!({ "command": "rm a.txt", "confirm": token }));
        assert_eq!((&done["isError"], place.work.join("a.txt").exists()), (&json!(false), false), "{done}");
        place.work.write("a.txt", "again");
        let spent = client.result("cp_run", json!({ "command": "rm a.txt", "confirm": token }));
        assert!(spent["isError"] == true && place.work.join("a.txt").exists(), "{spent}");
        client.end();
    }
}

#[test]
fn what_is_the_owners_is_never_asked_of_a_client_and_passes_once_it_is_approved() {
    for era in ERAS {
        let place = with_file();
        place.policy(&POLICY.replace("[exec]", "[exec]\nconfirm = \"owner\""));
        let mut client = start(&place, era, json!({ "elicitation": {} }));
        let paused = client.ask("tools/call", rm())["result"].clone();
        let error = &paused["structuredContent"]["error"];
        assert_eq!((&paused["isError"], &error["code"]), (&json!(true), &json!("E_HUMAN_REQUIRED")), "{paused}");
        let id = error["details"]["id"].as_str().unwrap().to_owned();
        assert!(text(&paused).contains(&format!("approve {id}")), "{paused}");
        // No token does it, whoever made it.
        let forged = json!({ "requestState": "ct_00", "inputResponses": { "approve": { "action": "accept" } } });
        let mut call = rm();
        call.as_object_mut().unwrap().extend(forged.as_object().unwrap().clone());
        assert_eq!(client.ask("tools/call", call)["result"]["isError"], true);
        assert!(place.work.join("a.txt").exists());
        let mut terminal = place.program("cp-exec").args(["approve", &id]).terminal(80);
        terminal.wait_for("Allow it? y = yes, n = no: ");
        terminal.send("y\r");
        terminal.end();
        let done = client.ask("tools/call", rm())["result"].clone();
        assert_eq!((&done["isError"], place.work.join("a.txt").exists()), (&json!(false), false), "{done}");
        client.end();
    }
}

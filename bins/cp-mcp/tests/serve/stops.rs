//! Ends: a call is cancelled, the client leaves, a signal comes. What was started does not stay.

use cp_testkit::{Signal, until};
use serde_json::json;

use super::client::{command, place, start, text};
use crate::session::{ERAS, Era, is_running};

#[test]
fn a_call_that_waits_for_a_person_can_be_cancelled_and_so_can_one_that_waits_its_turn() {
    let place = place();
    place.work.write("a.txt", "x");
    let mut client = start(&place, Era::Handshake, json!({ "elicitation": {} }));
    let asks = client.send("tools/call", command("rm a.txt"));
    assert_eq!(client.process.record()["method"], "elicitation/create");
    client.cancel(asks);
    let sleeping: Vec<u64> = (0..9).map(|_| client.send("tools/call", command("sleep 613"))).collect();
    until("it sleeps", || is_running(&["sleep", "613"]));
    for id in sleeping.iter().rev() {
        client.cancel(*id);
    }
    assert_eq!(text(&client.result("cp_run", json!({ "command": "echo next" }))), "next\n");
    until("all are killed", || !is_running(&["sleep", "613"]));
    assert!(place.work.join("a.txt").exists());
    client.end();
}

#[test]
fn calls_run_beside_each_other_and_answers_come_as_they_end() {
    let place = place();
    let mut client = start(&place, Era::Modern, json!({}));
    let slow = client.send("tools/call", command("sleep 614"));
    until("it sleeps", || is_running(&["sleep", "614"]));
    for _ in 0..20 {
        assert_eq!(client.result("cp_run", json!({ "command": "echo x" }))["isError"], false);
    }
    let again = json!({ "jsonrpc": "2.0", "id": slow, "method": "tools/call", "params": { "name": "cp_run" } });
    client.process.write(format!("{again}\n"));
    assert_eq!(client.process.record()["error"]["code"], -32600, "its id is under way");
    client.cancel(slow);
    until("it is killed", || !is_running(&["sleep", "614"]));
    client.end();
}

#[test]
fn progress_is_reported_where_it_is_asked_for() {
    for era in ERAS {
        let place = place();
        let mut client = start(&place, era, json!({}));
        let call =
            json!({ "name": "cp_run", "arguments": { "command": "sleep 1.2" }, "_meta": { "progressToken": "p" } });
        let id = client.send("tools/call", call);
        let mut told = Vec::new();
        let answer = loop {
            let line = client.process.record();
            if line["id"] == id {
                break line;
            }
            assert_eq!(
                (&line["method"], &line["params"]["progressToken"]),
                (&json!("notifications/progress"), &json!("p"))
            );
            told.push(line["params"]["progress"].as_u64().unwrap());
        };
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        assert!(told.starts_with(&[0, 1]) && told.is_sorted(), "{told:?}");
        client.end();
    }
}

#[test]
fn when_the_client_leaves_what_is_quick_is_answered_and_what_is_not_is_stopped() {
    let place = place();
    let call = |id: u64, line: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": command(line)}).to_string() + "\n"
    };
    let ran = place.feed(&["serve"], call(1, "echo quick") + &call(2, "sleep 615")).success();
    let lines = ran.stdout.lines().collect::<Vec<_>>();
    assert!(lines.len() == 1 && lines[0].contains("quick"), "{lines:?}");
    assert!(!is_running(&["sleep", "615"]));
}

#[test]
fn a_signal_ends_what_runs_and_leaves_only_lines_of_the_protocol() {
    let place = place();
    let mut client = start(&place, Era::Modern, json!({}));
    client.send("tools/call", command("sleep 616"));
    until("it sleeps", || is_running(&["sleep", "616"]));
    client.process.signal(Signal::TERM);
    let ran = client.process.wait();
    assert_eq!((ran.status, ran.stdout.as_str()), (130, ""), "{}", ran.stderr);
    assert!(!is_running(&["sleep", "616"]));
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let place = place();
    let mut client = start(&place, Era::Handshake, json!({}));
    client.process.close_stdout();
    client.send("ping", json!({}));
    let ran = client.process.wait();
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let full = place.sh("echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' | cp-mcp serve >/dev/full");
    assert_eq!(full.status, 1, "{}", full.stderr);
}

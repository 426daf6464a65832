//! Ends: a call is cancelled, the client leaves, a signal comes. What was started does not stay.

use cp_testkit::{Signal, until};
use serde_json::json;

use super::client::{Client, ERAS, Era, entries, place, text};

/// Whether a process sleeps for this time.
fn sleeps(seconds: &str) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).any(|line| line == wanted.as_bytes())
}

#[test]
fn a_call_that_is_cancelled_is_killed_and_not_answered_and_the_next_one_is() {
    for (era, seconds) in [(Era::Handshake, "611"), (Era::Modern, "612")] {
        let place = place();
        let mut client = Client::start(&place, era, json!({}));
        let id = client
            .send("tools/call", json!({ "name": "cp_run", "arguments": { "command": format!("sleep {seconds}") } }));
        until("it sleeps", || sleeps(seconds));
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id, "reason": "enough" } });
        client.server.write(format!("{cancel}\n{cancel}\n"));
        until("it is killed", || !sleeps(seconds));
        assert_eq!(text(&client.call("cp_run", json!({ "command": "echo next" }))), "next\n");
        client.leave();
        let ends = entries(&place, "mcp.result");
        assert!(ends.iter().any(|end| end["data"]["outcome"] == "cancelled"), "{ends:?}");
    }
}

#[test]
fn a_call_that_waits_for_a_person_can_be_cancelled_and_so_can_one_that_waits_its_turn() {
    let place = place();
    place.work.write("a.txt", "x");
    let mut client = Client::start(&place, Era::Handshake, json!({ "elicitation": {} }));
    let cancel = |id: u64| {
        format!("{}\n", json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
    };
    let asks = client.send("tools/call", json!({ "name": "cp_run", "arguments": { "command": "rm a.txt" } }));
    assert_eq!(client.server.record()["method"], "elicitation/create");
    client.server.write(cancel(asks));
    let sleeping: Vec<u64> = (0..9)
        .map(|_| client.send("tools/call", json!({ "name": "cp_run", "arguments": { "command": "sleep 613" } })))
        .collect();
    until("it sleeps", || sleeps("613"));
    for id in sleeping.iter().rev() {
        client.server.write(cancel(*id));
    }
    assert_eq!(text(&client.call("cp_run", json!({ "command": "echo next" }))), "next\n");
    until("all are killed", || !sleeps("613"));
    assert!(place.work.join("a.txt").exists());
    client.leave();
}

#[test]
fn calls_run_beside_each_other_and_answers_come_as_they_end() {
    let place = place();
    let mut client = Client::start(&place, Era::Modern, json!({}));
    let slow = client.send("tools/call", json!({ "name": "cp_run", "arguments": { "command": "sleep 614" } }));
    until("it sleeps", || sleeps("614"));
    for _ in 0..20 {
        assert_eq!(client.call("cp_run", json!({ "command": "echo x" }))["isError"], false);
    }
    let again = json!({ "jsonrpc": "2.0", "id": slow, "method": "tools/call", "params": { "name": "cp_run" } });
    client.server.write(format!("{again}\n"));
    assert_eq!(client.server.record()["error"]["code"], -32600, "its id is under way");
    client.server.write(format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": slow } })
    ));
    until("it is killed", || !sleeps("614"));
    client.leave();
}

#[test]
fn progress_is_told_where_it_is_asked_for() {
    for era in ERAS {
        let place = place();
        let mut client = Client::start(&place, era, json!({}));
        let call =
            json!({ "name": "cp_run", "arguments": { "command": "sleep 1.2" }, "_meta": { "progressToken": "p" } });
        let id = client.send("tools/call", call);
        let mut told = Vec::new();
        let answer = loop {
            let line = client.server.record();
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
        client.leave();
    }
}

#[test]
fn when_the_client_leaves_what_is_quick_is_answered_and_what_is_not_is_stopped() {
    let place = place();
    let call = |id: u64, command: &str| {
        format!(
            "{}\n",
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "cp_run", "arguments": { "command": command } } })
        )
    };
    let ran = place.feed(&["serve"], call(1, "echo quick") + &call(2, "sleep 615")).success();
    let lines = ran.stdout.lines().collect::<Vec<_>>();
    assert!(lines.len() == 1 && lines[0].contains("quick"), "{lines:?}");
    assert!(!sleeps("615"));
}

#[test]
fn a_signal_ends_what_runs_and_leaves_only_lines_of_the_protocol() {
    let place = place();
    let mut client = Client::start(&place, Era::Modern, json!({}));
    client.send("tools/call", json!({ "name": "cp_run", "arguments": { "command": "sleep 616" } }));
    until("it sleeps", || sleeps("616"));
    client.server.signal(Signal::TERM);
    let ran = client.server.wait();
    assert_eq!((ran.status, ran.stdout.as_str()), (130, ""), "{}", ran.stderr);
    assert!(!sleeps("616"));
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let place = place();
    let mut client = Client::start(&place, Era::Handshake, json!({}));
    client.server.close_stdout();
    client.send("ping", json!({}));
    let ran = client.server.wait();
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let full = place.sh("echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' | cp-mcp serve >/dev/full");
    assert_eq!(full.status, 1, "{}", full.stderr);
}

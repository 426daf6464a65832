//! Clients that do not keep to the protocol, or too much of it.

use std::io::Write as _;

use serde_json::{Value, json};

use super::client::{Client, Era, place, text};

/// The most memory that a process has had, in KiB.
fn peak(client: &Client) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.server.pid().as_raw_pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn an_argument_of_a_hundred_megabytes_is_refused_in_little_memory_and_the_next_call_is_answered() {
    let place = place();
    let mut client = Client::start(&place, Era::Handshake, json!({}));
    let mut stdin = client.server.take_stdin();
    let writer = std::thread::spawn(move || {
        stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"cp_run\",\"arguments\":{\"command\":\"").unwrap();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            stdin.write_all(&piece).unwrap();
        }
        stdin.write_all(b"\"}}}\n{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\"}\n").unwrap();
        stdin
    });
    let refused = client.server.record();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
    assert!(refused["error"]["message"].as_str().unwrap().contains("longer than"), "{refused}");
    assert_eq!(client.server.record(), json!({"jsonrpc": "2.0", "id": 6, "result": {}}));
    let stdin = writer.join().unwrap();
    assert!(peak(&client) < 40 << 10, "{} KiB", peak(&client));
    drop(stdin);
    assert_eq!(client.server.wait().status, 0);
}

#[test]
fn a_flood_of_calls_is_answered_or_refused_and_nothing_is_lost() {
    const CALLS: u64 = 600;
    let place = place();
    place.work.write("a.txt", "x");
    let mut client = Client::start(&place, Era::Handshake, json!({}));
    let mut stdin = client.server.take_stdin();
    let writer = std::thread::spawn(move || {
        for id in 100..100 + CALLS {
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "cp_read", "arguments": { "path": "a.txt" } } });
            writeln!(stdin, "{call}").unwrap();
        }
        stdin
    });
    let mut answered: Vec<u64> = (0..CALLS)
        .map(|_| {
            let line = client.server.record();
            assert!(line["result"]["isError"] == false || line["error"]["code"] == -32603, "{line}");
            line["id"].as_u64().unwrap()
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, (100..100 + CALLS).collect::<Vec<_>>());
    drop(writer.join().unwrap());
    assert_eq!(client.server.wait().status, 0);
}

#[test]
fn half_a_line_at_the_end_is_answered_as_one() {
    let place = place();
    let ran = place
        .feed(&["serve"], "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\"")
        .success();
    let codes: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["code"].clone()).collect();
    assert_eq!(codes, [Value::Null, json!(-32700)]);
    assert_eq!(place.feed(&["serve"], "").success().stdout, "");
    assert_eq!(place.feed(&["serve"], "\n \r\n").success().stdout, "");
}

#[test]
fn what_is_in_the_arguments_leads_nowhere_else() {
    let place = place();
    place.root.write("outside.txt", "outside-text");
    let mut client = Client::start(&place, Era::Modern, json!({}));
    for path in ["../outside.txt", "/etc/shadow", "a\u{0}b", "", "~/.ssh/id_rsa", "./../work/../outside.txt"] {
        let read = client.call("cp_read", json!({ "path": path }));
        assert!(read["isError"] == true && !text(&read).contains("outside-text"), "{path:?}: {read}");
    }
    for (tool, arguments) in [
        ("cp_ledger_query", json!({ "event": "--home=/", "grep": "--" })),
        ("cp_session_search", json!({ "query": "--limit" })),
        ("cp_session_search", json!({ "query": "-" })),
    ] {
        let found = client.call(tool, arguments);
        assert_eq!(found["structuredContent"]["items"], json!([]), "{tool}: {found}");
    }
    for (tool, arguments) in [
        ("cp_ledger_query", json!({ "file": "/etc/passwd" })),
        ("cp_ledger_query", json!({ "limit": -1 })),
        ("cp_ledger_query", json!({ "grep": "(" })),
        ("cp_read", json!({ "path": ["a"] })),
        ("cp_run", json!({ "argv": [] })),
        ("cp_run", json!({ "command": "echo $(id)" })),
        ("cp_run", json!({ "command": "echo", "env": { "LD_PRELOAD": "x" } })),
        ("cp_run", json!({ "command": "echo x", "hosted": "a/b/c" })),
        ("cp_prompt", json!({ "prompt": "x", "model": "--backend=/bin/sh" })),
    ] {
        let refused = client.call(tool, arguments.clone());
        assert!(refused["isError"] == true, "{tool} {arguments}: {refused}");
    }
    assert_eq!(client.call("cp_run", json!({ "command": "echo ok" }))["isError"], false);
    client.leave();
}

#[test]
fn a_client_without_a_name_or_with_a_strange_one_is_served() {
    let place = place();
    for name in ["", "a/b\nc", "../../x", "\u{202e}é"] {
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": name, "version": "" } } });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "cp_run", "arguments": { "command": "echo x" } } });
        let ran = place.feed(&["serve"], format!("{hello}\n{call}\n")).success();
        let answer: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(text(&answer["result"]), "x\n", "{name:?}");
    }
}

//! Clients that do not keep to the protocol, or too much of it.

use std::io::Write as _;

use serde_json::{Value, json};

use super::client::{place, start, text};
use crate::session::Era;

#[test]
fn a_flood_of_calls_is_answered_or_refused_and_nothing_is_lost() {
    const CALLS: u64 = 600;
    let place = place();
    place.work.write("a.txt", "x");
    let mut client = start(&place, Era::Handshake, json!({}));
    let mut stdin = client.process.take_stdin();
    let writer = std::thread::spawn(move || {
        for id in 100..100 + CALLS {
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "cp_read", "arguments": { "path": "a.txt" } } });
            writeln!(stdin, "{call}").unwrap();
        }
        stdin
    });
    let mut answered: Vec<u64> = (0..CALLS)
        .map(|_| {
            let line = client.process.record();
            assert!(line["result"]["isError"] == false || line["error"]["code"] == -32603, "{line}");
            line["id"].as_u64().unwrap()
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, (100..100 + CALLS).collect::<Vec<_>>());
    drop(writer.join().unwrap());
    assert_eq!(client.process.wait().status, 0);
}

#[test]
fn what_is_in_the_arguments_leads_nowhere_else() {
    let place = place();
    place.root.write("outside.txt", "outside-text");
    let mut client = start(&place, Era::Modern, json!({}));
    for path in ["../outside.txt", "/etc/shadow", "a\u{0}b", "", "~/.ssh/id_rsa", "./../work/../outside.txt"] {
        let read = client.result("cp_read", json!({ "path": path }));
        assert!(read["isError"] == true && !text(&read).contains("outside-text"), "{path:?}: {read}");
    }
    for (tool, arguments) in [
        ("cp_ledger_query", json!({ "event": "--home=/", "grep": "--" })),
        ("cp_session_search", json!({ "query": "--limit" })),
        ("cp_session_search", json!({ "query": "-" })),
    ] {
        let found = client.result(tool, arguments);
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
        let refused = client.result(tool, arguments.clone());
        assert!(refused["isError"] == true, "{tool} {arguments}: {refused}");
    }
    assert_eq!(client.result("cp_run", json!({ "command": "echo ok" }))["isError"], false);
    client.end();
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

//! A network of names: allowed names are reached, everything else is refused, and both are on the ledger.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::Value;

use crate::exec::{Exec, SCRIPT, Who, everyone, policy_with};

/// A server that answers each connection with one line, and its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 64];
            let length = stream.read(&mut request).unwrap_or_default();
            let _ = stream.write_all(&[b"served ", &request[..length]].concat());
        }
    });
    port
}

pub(crate) fn with_network(who: Who, network: &str) -> Exec {
    Exec::with_policy(who, &policy_with(&format!("network = {network}")))
}

pub(crate) fn python(exec: &Exec, script: &str) -> Value {
    let prelude = include_str!("data/egress/prelude.py");
    exec.write("probe.py", &format!("{prelude}\n{script}"));
    let (answer, _) = exec.ask(&["--timeout", "30", "--", "python3", "-c", SCRIPT, "probe.py"]);
    assert_eq!(answer["ok"], true, "{answer}");
    answer["data"].clone()
}

#[test]
fn allowed_name_is_reached_and_all_else_is_refused() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let port = server();
        let exec = with_network(who, &format!("[\"registry.test=127.0.0.1:{port}\"]"));
        let script = include_str!("data/egress/names.py").replace("PORT", &port.to_string());
        let result = python(&exec, &script);
        let lines =
            "name b'served x'\ncase b'served x'\nport denied\nother denied\nraw denied\npublic denied\nudp denied\n";
        assert_eq!(result["stdout"], lines, "{who:?}: {result}");
        assert!(result["stderr"].as_str().unwrap().contains("connection to evil.test refused"), "{result}");
        let connections = &result["connections"];
        assert_eq!((&connections["allowed"], &connections["bytes_out"]), (&2.into(), &2.into()), "{result}");
        assert_eq!(connections["first_refused"][0]["allow"], "cp-exec allow network evil.test", "{result}");

        let entries = exec.entries("exec.connection");
        let intent = &exec.entries("exec.intent")[0];
        assert_eq!(intent["data"]["network"][0], format!("registry.test=127.0.0.1:{port}"));
        assert!(entries.iter().all(|entry| entry["data"]["intent"] == intent["seq"]));
        let of =
            |decision: &str| entries.iter().filter(|entry| entry["data"]["decision"] == decision).collect::<Vec<_>>();
        assert_eq!(of("allow").len(), 2, "{entries:?}");
        assert_eq!(of("allow")[0]["data"]["address"], format!("127.0.0.1:{port}"));
        assert!(of("deny").iter().all(|entry| entry["data"]["name"] == "evil.test"), "{entries:?}");
    }
}

#[test]
fn read_only_run_has_no_network_of_names() {
    cp_testkit::needs!("python3");
    let exec = with_network(Who::Me, &format!("[\"registry.test=127.0.0.1:{}\"]", server()));
    exec.write("probe.py", "import socket\nsocket.create_connection(('registry.test', 80), 5)\nprint('ESCAPED')\n");
    for (arguments, status) in [
        (&["--read-only", "--", "python3", "-c", SCRIPT, "probe.py"][..], 1),
        (&["--", "python3", "-c", SCRIPT, "probe.py"], 0),
    ] {
        assert_eq!(exec.ask(arguments).1, status, "{arguments:?}");
    }
}

#[test]
fn policy_with_invalid_destination_is_refused_with_line_and_valid_form() {
    let exec = with_network(Who::Me, "[\"https://pypi.org\"]");
    let (answer, _) = exec.ask(&["--", "true"]);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("line ") && message.contains("write only the name"), "{answer}");
}

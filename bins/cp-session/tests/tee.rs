//! `cp-session tee`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn a_round_is_stored_whole_and_passes_byte_for_byte() {
    let place = Sessions::new();
    let session = place.start();
    let line = message("one", "stub response 1");
    let ran = place.feed(&["tee", &session], &line);
    assert_eq!((ran.status, ran.stdout), (0, line));
    let entries = place.entries(&session);
    let events: Vec<&str> = entries.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["session_start", "message", "message", "session_turn"]);
    let closing = &entries[3]["data"];
    assert_eq!((&closing["user_seq"], &closing["assistant_seq"]), (&entries[1]["seq"], &entries[2]["seq"]));
    assert_eq!(entries[2]["data"]["usage"]["output_tokens"], 2);
}

#[test]
fn a_stream_of_rounds_alternates() {
    let place = Sessions::new();
    let session = place.start();
    let open = |line: String| line.replace(",\"meta\":{\"duration_ms\":1}", "");
    let summary = "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"summary\",\"data\":{\"total\":2},\"meta\":{\"duration_ms\":1}}\n";
    let thought =
        "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"delta\",\"data\":{\"text\":\"\",\"thinking\":\"hm\"}}\n";
    let input = [thought.to_owned(), open(message("a", "b")), open(message("c", "d")), summary.to_owned()].concat();
    assert_eq!(place.feed(&["tee", &session], &input).stdout, input);
    let loaded = place.run(&["load", &session, "--format", "text"]).stdout;
    assert_eq!(loaded, "user: a\nassistant: b\nuser: c\nassistant: d\n");
}

#[test]
fn tool_calls_survive_the_round_trip_in_order() {
    let place = Sessions::new();
    let session = place.start();
    let first = message("what time is it?", "let me look")
        .replace("\"tool_calls\":[]", "\"tool_calls\":[{\"id\":\"t1\",\"name\":\"clock\",\"input\":{\"zone\":1e2}}]");
    let second = message("", "noon").replace(
        "[{\"role\":\"user\",\"content\":\"\"}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":\"12:00\",\"is_error\":false}]}]",
    );
    place.feed(&["tee", &session], &first);
    place.feed(&["tee", &session], &second);
    let ran = place.run(&["load", &session]);
    assert!(ran.stdout.contains("{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"clock\",\"input\":{\"zone\":1e2}}"));
    let messages = ran.data()["messages"].clone();
    let roles: Vec<&str> = messages.as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!(messages[2]["content"][0]["tool_use_id"], "t1");
}

#[test]
fn a_failure_from_upstream_passes_and_is_recorded() {
    let place = Sessions::new();
    let session = place.start();
    let line = "{\"ok\":false,\"schema_version\":\"1.0\",\"type\":\"error\",\"error\":{\"code\":\"E_NOT_FOUND\",\"message\":\"no\",\"details\":{},\"retryable\":false},\"meta\":{\"duration_ms\":1}}\n";
    let ran = place.feed(&["tee", &session], line);
    assert_eq!((ran.status, ran.stdout.as_str()), (3, line));
    let entries = place.entries(&session);
    assert_eq!((entries.len(), &entries[1]["event"]), (2, &"error".into()));
    assert_eq!((entries[1]["data"]["code"].as_str(), place.count(&session)), (Some("E_NOT_FOUND"), 0));
}

#[test]
fn both_sides_of_a_round_or_neither_when_the_disk_is_full() {
    let place = Sessions::new();
    let session = place.start();
    let before = std::fs::read(place.file(&session)).unwrap();
    // A limit in the middle of what the round needs. SIGXFSZ is ignored, so that the write fails instead.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec cp-session tee {session}", before.len() / 512 + 1);
    let line = message("one", &"long answer ".repeat(500));
    place.shell("sh", &script).stdin(line).run().failed(1, "E_IO");
    assert_eq!(place.count(&session), 0);
    assert_eq!(std::fs::read(place.file(&session)).unwrap(), before);
}

#[test]
fn a_message_without_its_members_passes_and_is_not_stored() {
    let place = Sessions::new();
    let session = place.start();
    let line = "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"message\",\"data\":{\"role\":\"assistant\"},\"meta\":{\"duration_ms\":1}}\n";
    let ran = place.feed(&["tee", &session], line);
    assert_eq!(ran.stdout, line);
    assert!(ran.stderr.contains("not recorded") && ran.stderr.contains("content"), "{}", ran.stderr);
    assert_eq!(place.count(&session), 0);
}

#[test]
fn tee_refuses_text() {
    let place = Sessions::new();
    let session = place.start();
    place.feed(&["tee", &session], "hello\n").failed(2, "E_VALIDATION");
}

#[test]
fn a_session_that_is_deleted_stays_deleted_while_a_tee_is_open() {
    let place = Sessions::new();
    let session = place.start();
    let mut tee = place.subject().args(["tee", &session]).start();
    // Open records, so that each is passed at once.
    let line = message("q", "a").replace(r#","meta":{"duration_ms":1}"#, "");
    tee.write(&line);
    // The line was let through, so the ledger has it, and the input is still open.
    assert_eq!((tee.line() + "\n", place.count(&session)), (line.clone(), 2));
    let delete = ["delete", &session, "--dangerous"];
    let token = place.run(&[&delete[..], &["--dry-run"]].concat()).data()["confirm_token"].clone();
    place.run(&[&delete[..], &["--confirm", token.as_str().unwrap()]].concat()).success();
    tee.write(&line);
    let closing = tee.record();
    assert_eq!(closing["error"]["code"], "E_NOT_FOUND", "{closing}");
    assert_eq!(tee.finish().status, 3);
    let sessions = place.home.join("planes/ho1/sessions");
    let left: Vec<_> = std::fs::read_dir(sessions).unwrap().map(|name| name.unwrap().file_name()).collect();
    assert_eq!(left, [".deleting"]);
    place.run(&["show", &session]).failed(3, "E_NOT_FOUND");
}

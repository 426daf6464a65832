//! The hub: available, unreachable, and slow.

use serde_json::json;

use crate::person::{Person, asked, hub};

#[expect(clippy::unnecessary_wraps, reason = "another hub gives no answer")]
fn up(request: &str) -> Option<(u16, &'static str)> {
    Some(match request.split(['?', ' ']).nth(1).unwrap() {
        "/workstreams/" => (200, "[{\"id\":\"CYA-WP-0007\",\"title\":\"the shell\\u001b[31m\",\"status\":\"active\"}]"),
        "/tasks/" => (200, "{\"items\":[{\"id\":3,\"title\":\"write tests\",\"status\":\"open\"}]}"),
        "/messages/" => (200, "{\"messages\":[{\"id\":\"m-1\",\"from_agent\":\"ops\",\"subject\":\"mind the gap\"}]}"),
        "/messages/m-1/read" | "/progress/" => (200, ""),
        _ => (404, "{}"),
    })
}

#[test]
fn hub_answers_are_shown_recorded_and_sent() {
    let place = Person::new();
    let hub = hub(up);
    place.hub_at(&hub.url(), 20_000);
    let output = place.stub("/hub\n/inbox\ngo on with CYA-WP-0007\n/explain\ngo on with CYA-WP-0008\n");
    let text = &output.stdout;
    for words in [
        "workstream CYA-WP-0007 the shell^[[31m (active)",
        "task       3 write tests (open)",
        "m-1  ops: mind the gap",
        "context     hub",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    assert_eq!(text.matches("hint state-hub-alignment: CYA-WP-0008").count(), 1, "{text}");
    assert!(!text.contains("state-hub-alignment: CYA-WP-0007"), "{text}");
    assert_eq!(place.data("session_hub")[0]["workstreams"][0]["id"], "CYA-WP-0007");
    assert_eq!(
        asked(&hub),
        [
            "GET /workstreams/?topic_id=T%201&status=active",
            "GET /tasks/?topic_id=T%201&status=open",
            "GET /messages/?to_agent=me&unread_only=true"
        ],
        "nothing is written of itself"
    );
}

#[test]
fn message_is_marked_read_only_by_command() {
    let place = Person::new();
    let hub = hub(up);
    place.hub_at(&hub.url(), 20_000);
    let output = place.stub("/inbox read m-1\n/inbox\n/inbox read m-2\n/inbox read\n");
    assert!(
        output.stdout.contains("m-1 is marked as read") && output.stdout.contains("no unread message"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains("✗ POST /messages/m-2/read: status 404"), "{}", output.stdout);
    assert_eq!(asked(&hub)[3], "POST /messages/m-1/read {\"agent\":\"me\"}");
    assert_eq!(place.data("session_inbox_read"), [json!({"message_id": "m-1"})]);
}

#[test]
fn hub_note_is_posted_after_confirmation() {
    let place = Person::new();
    let hub = hub(up);
    place.hub_at(&hub.url(), 20_000);
    let mut terminal = place.terminal(&["--backend", "stub"], 100);
    terminal.prompted();
    for (answer, told, posted) in [("n", "cancelled: nothing was posted", 0), ("y", "posted", 1)] {
        terminal.send("/hub log \"all done\"\r");
        terminal.wait_for("Post to the hub: all done? [y/N] ");
        terminal.send(&format!("{answer}\r"));
        terminal.wait_for(told);
        terminal.prompted();
        let posts: Vec<String> = asked(&hub).into_iter().filter(|request| request.starts_with("POST")).collect();
        assert_eq!(posts.len(), posted, "{posts:?}");
        if let Some(post) = posts.first() {
            assert!(
                post.starts_with("POST /progress/ {\"topic_id\":\"T 1\",\"agent\":\"me\",\"session_id\":\"SES-"),
                "{post}"
            );
            assert!(post.ends_with("\"event_type\":\"note\",\"summary\":\"all done\"}"), "{post}");
        }
    }
    terminal.send(":quit\r");
    assert_eq!(terminal.end(), Some(0));
    let script = place.script(&["--backend", "stub", "-c"], "/hub log \"all done\"\ny\n");
    assert!(script.stdout.contains("✗ cancelled: nothing was posted"), "{script:?}");
    assert_eq!(asked(&hub).iter().filter(|request| request.starts_with("POST")).count(), 1);
}

#[test]
fn failing_hub_is_named_and_does_not_block() {
    // A port without a listener, because it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (silent, broken) = (hub(|_| None), hub(|_| Some((500, "<html>"))));
    for (url, timeout_ms, shown, recorded) in [
        (format!("http://{free}"), 20_000, "error      GET /workstreams/: ", "GET /workstreams/: "),
        (broken.url(), 20_000, "GET /tasks/: status 500", "status 500"),
        (silent.url(), 50, "no complete answer within 0.05 s", ""),
        // Longer than any test waits.
        (silent.url(), 3_600_000, "hub         asked, no answer yet", "had not answered"),
    ] {
        let place = Person::new();
        place.hub_at(&url, timeout_ms);
        let question = if timeout_ms > 20_000 { "" } else { "/hub\n" };
        let output = place.stub(&format!("hello\n{question}/explain\n")).success();
        assert!(output.stdout.contains("stub response 1") && output.stdout.contains(shown), "{shown}: {output:?}");
        let errors = place.data("session_hub")[0]["errors"].to_string();
        assert!(errors.contains(recorded), "{errors}");
    }
}

#[test]
fn no_hub_reads_neither_brief_nor_hub() {
    let place = Person::new();
    let hub = hub(up);
    place.hub_at(&hub.url(), 20_000);
    place.work.write(".custodian-brief.md", "the brief\n");
    let with = place.stub("/hub\n");
    assert!(with.stdout.contains("the brief") && !asked(&hub).is_empty());
    let before = asked(&hub).len();
    let without = place.script(&["--no-hub", "--backend", "stub"], "/hub\n");
    assert!(
        without.stdout.contains("disabled: --no-hub") && !without.stdout.contains("the brief"),
        "{}",
        without.stdout
    );
    assert_eq!(asked(&hub).len(), before);
}

//! Attachments with URLs: fetched if policy permits it; the URL is never sent.

use cp_testkit::{Server, server};
use serde_json::{Value, json};

use crate::llm::Llm;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

/// A fake of a provider and of the hosts of attachments.
fn world() -> Server {
    Server::replying(|request| match request.line().split(' ').nth(1).unwrap_or_default() {
        "/a.png?signature=s" | "/a.png" => server::reply(200, "text/plain", "", PNG),
        "/a.pdf" => server::reply(200, "application/pdf", "", b"%PDF-1.7"),
        "/page" => server::reply(200, "image/png", "", b"<html>"),
        "/moved" => server::reply(302, "text/plain", "location: /a.png\r\n", b""),
        "/large" => server::reply(200, "image/png", "", &[PNG, &vec![0; 5 << 20]].concat()),
        "/v1/chat/completions" => server::json(
            200,
            &json!({"id": "c", "choices": [{"message": {"content": "seen"}, "finish_reason": "stop"}]}),
        ),
        _ => server::json(404, &json!({})),
    })
}

fn row(blocks: &Value) -> String {
    json!({"messages": [{"role": "user", "content": blocks}]}).to_string() + "\n"
}

fn image(url: &str) -> Value {
    json!([{"type": "image", "source": {"type": "url", "url": url}}])
}

#[test]
fn attachment_of_permitted_host_is_sent_as_bytes() {
    let world = world();
    let llm = Llm::asking("openai", &world);
    let url = format!("{}/a.png?signature=s", world.url());
    for policy in ["", "[llm]\nfetch = [\"other.example\"]\n"] {
        llm.policy(policy);
        for options in [&["--rows", "-m", "m"][..], &["--rows", "-m", "m", "--dry-run"]] {
            let ran = llm.feed(options, &row(&image(&url)));
            let error = ran.first_error();
            assert_eq!(
                (&error["code"], &error["details"]["rule"]),
                (&json!("E_FORBIDDEN"), &json!("llm.fetch")),
                "{error}"
            );
            if policy.is_empty() {
                assert!(error["details"]["hint"].as_str().unwrap().contains("fetch = [\"127.0.0.1\"]"), "{error}");
            }
        }
    }
    // A pattern does not permit addresses that are not public.
    llm.policy("[llm]\nfetch = [\"*.0.0.1\"]\n");
    let error = llm.feed(&["--rows", "-m", "m"], &row(&image(&url))).first_error();
    assert_eq!((&error["code"], &error["details"]["rule"]), (&json!("E_FORBIDDEN"), &json!("llm.fetch")), "{error}");
    assert!(world.requests().is_empty(), "something was fetched or sent");
    llm.policy("[llm]\nfetch = [\"127.0.0.1\"]\n");
    let tool = json!([{"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "document", "source": {"type": "url", "url": format!("{}/a.pdf", world.url())}}]}]);
    let calls = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]});
    let turns =
        json!({"messages": [{"role": "user", "content": image(&url)}, calls, {"role": "user", "content": tool}]});
    let said = llm.feed(&["--rows", "-m", "m"], &(turns.to_string() + "\n")).success();
    assert_eq!(said.of("message")[0]["content"], "seen");
    let [first, second, asked] = world.requests().try_into().ok().unwrap();
    assert!(first.header("authorization").is_none() && second.line().contains("/a.pdf"));
    let body = asked.json().to_string();
    assert!(body.contains("data:image/png;base64,iVBORw0KGgpyZXN0") && body.contains("JVBERi0xLjc"), "{body}");
    assert!(!body.contains("a.png") && !body.contains("a.pdf"), "{body}");
    let lines = llm.ledger();
    let kept = &lines.iter().find(|line| line["event"] == "llm.request").unwrap()["data"]["fetched"];
    assert_eq!(kept[0]["url"], format!("{}/a.png", world.url()), "without its query");
    assert_eq!((&kept[0]["bytes"], &kept[1]["media_type"]), (&json!(PNG.len()), &json!("application/pdf")));
    assert!(kept[0]["sha256"].as_str().unwrap().starts_with("sha256:"));
}

#[test]
fn invalid_attachments_are_rejected() {
    let world = world();
    let llm = Llm::asking("openai", &world);
    llm.policy("[llm]\nfetch = [\"localhost\", \"127.0.0.1\", \"files.example\"]\n");
    let here = |path: &str| format!("{}{path}", world.url());
    for (url, code) in [
        (here("/page"), "E_VALIDATION"),
        (here("/large"), "E_VALIDATION"),
        (here("/none"), "E_NOT_FOUND"),
        (here("/moved"), "E_CONFIG"),
        (here("/a.png").replace("http://", "http://user@"), "E_VALIDATION"),
        ("http://files.example/a.png".to_owned(), "E_VALIDATION"),
        ("file:///etc/passwd".to_owned(), "E_VALIDATION"),
    ] {
        let error = llm.feed(&["--rows", "-m", "m"], &row(&image(&url))).first_error();
        assert_eq!(error["code"], code, "{url}: {error}");
    }
    let moved = llm.feed(&["--rows", "-m", "m"], &row(&image(&here("/moved")))).first_error();
    assert_eq!(moved["details"]["location"], "/a.png");
    assert!(
        world.requests().iter().all(|request| request.line().starts_with("GET") && !request.line().contains("a.png"))
    );
    let by_name = here("/a.png").replace("127.0.0.1", "localhost");
    assert_eq!(llm.feed(&["--rows", "-m", "m"], &row(&image(&by_name))).of("message").len(), 1);
    llm.policy("[llm]\nfetch = [\"127.0.0.1\"]\nnetwork = \"token\"\n");
    let stub = llm.feed(&["--rows", "--backend", "stub"], &row(&image(&here("/a.png"))));
    assert_eq!(stub.first_error()["details"]["rule"], "llm.network");
}

#[test]
fn replay_fetches_no_attachments() {
    let world = world();
    let llm = Llm::asking("openai", &world);
    llm.policy("[llm]\nfetch = [\"127.0.0.1\"]\n");
    let input = row(&json!([{"type": "document", "source": {"type": "url", "url": format!("{}/a.pdf", world.url())}}]));
    llm.feed(&["--rows", "-m", "m", "--record", "tape"], &input).success();
    assert_eq!(world.requests().len(), 2);
    let again = llm.feed(&["--rows", "-m", "m", "--replay", "tape"], &input).success();
    assert_eq!((&again.of("message")[0]["content"], world.requests().len()), (&json!("seen"), 2));
}

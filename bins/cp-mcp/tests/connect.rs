//! `cp-mcp connect`, over servers whose every byte is chosen.

use cp_testkit::server::{Reply, Request, Server, Step, chunk, events, json, reply, stream_head};
use cp_testkit::{Background, Outcome, Place, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn place() -> Place {
    Place::of("cp-mcp")
}

/// The line of a request.
fn line(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string() + "\n"
}

fn hello() -> String {
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    format!("{}{ready}\n", line(0, "initialize", &params))
}

fn call(id: u64, tool: &str) -> String {
    line(id, "tools/call", &json!({"name": tool, "arguments": {}}))
}

/// The answer to a request.
fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn text(id: &Value, text: &str) -> Value {
    result(id, &json!({"content": [{"type": "text", "text": text}]}))
}

fn data(message: &Value) -> Vec<u8> {
    format!("event: message\ndata: {message}\n\n").into_bytes()
}

/// What a server does that shakes hands and has nothing of its own to say.
fn greets(request: &Request) -> Option<Reply> {
    if !request.line().starts_with("POST") {
        return Some(reply(405, "text/plain", "", b""));
    }
    let body = request.json();
    match body["method"].as_str()? {
        "initialize" => {
            let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}});
            let whole = result(&body["id"], &greeting).to_string();
            Some(reply(200, "application/json", "Mcp-Session-Id: s1\r\n", whole.as_bytes()))
        }
        "tools/list" => {
            let names = ["a", "quick", "slow", "stuck", "refuse"];
            let tools = names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            Some(json(200, &result(&body["id"], &json!({"tools": tools}))))
        }
        method if method.starts_with("notifications/") => Some(reply(202, "text/plain", "", b"")),
        _ => None,
    }
}

/// A server that answers calls so.
fn serving(answer: impl Fn(&Request, &Value) -> Reply + Send + Sync + 'static) -> Server {
    Server::replying(move |request| greets(request).unwrap_or_else(|| answer(request, &request.json()["id"])))
}

fn fed(place: &Place, server: &Server, input: &str) -> Outcome {
    place.feed(&["connect", "--server", "s", &format!("{}/mcp", server.url())], input)
}

fn started(place: &Place, server: &Server) -> Background {
    place.subject().args(["connect", "--server", "s", &format!("{}/mcp", server.url())]).start()
}

/// The messages of an outcome by their ids; those that have none under null.
fn answers(outcome: &Outcome) -> BTreeMap<String, Value> {
    let lines = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|message| (message["id"].to_string(), message)).collect()
}

/// The failure of a call that this server answers so.
fn failure(answer: impl Fn(&Request, &Value) -> Reply + Send + Sync + 'static) -> Value {
    let (place, server) = (place(), serving(answer));
    let outcome = fed(&place, &server, &(hello() + &call(1, "a"))).success();
    assert!(outcome.stderr.contains("the server s: E_"), "{}", outcome.stderr);
    answers(&outcome)["1"]["error"]["data"].clone()
}

fn methods(server: &Server) -> Vec<String> {
    let word = |request: Request| match request.line().split(' ').next() {
        Some("POST") => request.json()["method"].as_str().unwrap_or("answer").to_owned(),
        verb => verb.unwrap_or_default().to_owned(),
    };
    server.requests().into_iter().map(word).collect()
}

#[test]
fn session_id_is_sent_and_session_ended() {
    let server = serving(|_, id| {
        let pretty = serde_json::to_string_pretty(&text(id, "hi")).unwrap().replace('\n', "\r\n");
        reply(200, "application/json; charset=utf-8", "", pretty.as_bytes())
    });
    let place = place();
    let outcome = fed(&place, &server, &(hello() + &call(1, "a"))).success();
    // Pretty JSON is one line for the client.
    let answers = answers(&outcome);
    assert_eq!(answers["0"]["result"]["serverInfo"]["name"], "s");
    assert_eq!(answers["1"]["result"]["content"][0]["text"], "hi");
    let requests = server.requests();
    assert!(requests[0].header("mcp-session-id").is_none() && requests[0].header("mcp-protocol-version").is_none());
    for request in &requests[1..] {
        assert_eq!(request.header("mcp-session-id"), Some("s1"), "{request:?}");
        assert_eq!(request.header("mcp-protocol-version"), Some("2025-11-25"), "{request:?}");
        assert_eq!(request.header("mcp-method"), None, "{request:?}");
    }
    for request in requests.iter().filter(|request| request.line().starts_with("POST")) {
        assert_eq!(request.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert!(request.header("user-agent").unwrap().starts_with("cp-mcp/"));
    }
    let mut seen = methods(&server);
    // A thread opens the stream of the server's own messages, in so short a session perhaps too late.
    seen.retain(|method| method != "GET");
    assert_eq!((seen.pop().unwrap().as_str(), seen[0].as_str()), ("DELETE", "initialize"));
}

#[test]
fn a_stream_has_messages_before_the_answer_and_may_be_spread_over_lines() {
    let server = serving(|_, id| {
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}});
        let spread = format!(
            ": ping\n\nid: 1\ndata:\n\nevent: other\ndata: x\n\ndata: {{\"jsonrpc\":\"2.0\",\r\ndata: \"id\":{id},\"result\":{{}}}}\n\n"
        );
        events(&[&data(&progress), spread.as_bytes(), b"data: {\"jsonrpc\":\"2.0\",\"method\":\"late\"}\n\n"])
    });
    let place = place();
    let outcome = fed(&place, &server, &(hello() + &call(1, "a"))).success();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[1].contains("notifications/progress"), "{lines:?}");
    assert_eq!(answers(&outcome)["1"]["result"], json!({}));
}

#[test]
fn what_the_server_says_by_itself_is_heard_and_answered() {
    let place = place();
    let server = Server::replying(|request| {
        let asks = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}});
        match request.line() {
            "GET /mcp" => vec![stream_head(), chunk(&data(&asks)), Step::Stall],
            line if line.starts_with("POST") && request.json().get("result").is_some() => {
                reply(202, "text/plain", "", b"")
            }
            _ => greets(request).unwrap(),
        }
    });
    let mut client = started(&place, &server);
    client.write(hello());
    let lines = [client.line(), client.line()].concat();
    assert!(lines.contains("elicitation/create"), "{lines}");
    client.write("{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"action\":\"decline\"}}\n");
    until("it comes", || methods(&server).contains(&"answer".to_owned()));
    client.finish().success();
}

#[test]
fn requests_follow_the_notification_before_them() {
    let is_ready = AtomicBool::new(false);
    let server = Server::replying(move |request| {
        if request.line().starts_with("POST") && request.json()["method"] == "notifications/initialized" {
            std::thread::sleep(Duration::from_millis(300));
            is_ready.store(true, Ordering::SeqCst);
        }
        let is_ready = is_ready.load(Ordering::SeqCst);
        greets(request)
            .unwrap_or_else(|| json(200, &text(&request.json()["id"], if is_ready { "ready" } else { "too early" })))
    });
    let place = place();
    let outcome = fed(&place, &server, &(hello() + &call(1, "a"))).success();
    assert_eq!(answers(&outcome)["1"]["result"]["content"][0]["text"], "ready");
}

#[test]
fn slow_requests_wait_beside_each_other_and_all_are_answered() {
    let server = serving(|request, id| {
        let mut steps = vec![Step::Wait(if request.json()["params"]["name"] == "slow" { 500 } else { 0 })];
        steps.extend(json(200, &text(id, "done")));
        steps
    });
    let place = place();
    let many: String = (1..=150).map(|id| call(id, if id == 1 { "slow" } else { "quick" })).collect();
    let outcome = fed(&place, &server, &(hello() + &many)).success();
    let ids: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(ids.len(), 151);
    assert_ne!(ids[1], json!(1), "the slow one is not the first");
    assert!(server.connections() < 100, "connections are used again: {}", server.connections());
}

#[test]
fn stuck_call_ends_by_cancellation_or_timeout_and_the_server_gets_the_notification() {
    for is_cancelled in [true, false] {
        let server = serving(|request, id| {
            let is_stuck = request.json()["params"]["name"] == "stuck";
            if is_stuck { vec![stream_head(), Step::Stall] } else { json(200, &text(id, "hi")) }
        });
        let place = place();
        place.policy(if is_cancelled { "" } else { "[mcp.s]\ntimeout = 1\n" });
        let mut client = started(&place, &server);
        client.write(hello() + &call(1, "stuck"));
        client.line();
        until("it comes", || methods(&server).contains(&"tools/call".to_owned()));
        if is_cancelled {
            client.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n");
        }
        client.write(call(2, "a"));
        assert_eq!(client.record()["id"], 2);
        if !is_cancelled {
            let late = client.record();
            let said = late["result"]["content"][0]["text"].as_str().unwrap_or_default();
            assert!(late["id"] == 1 && said.starts_with("E_TIMEOUT") && said.contains("timeout in [mcp.s]"), "{late}");
        }
        until("the cancellation arrives", || methods(&server).contains(&"notifications/cancelled".to_owned()));
        client.kill();
    }
}

/// A piece of a body, and so many of another after it.
fn long(head: Step, first: &[u8]) -> Reply {
    let mebibyte = chunk(&vec![b'x'; 1 << 20]);
    [head, chunk(first)].into_iter().chain(std::iter::repeat_n(mebibyte, 100)).collect()
}

#[test]
fn invalid_response_fails_its_request() {
    let plain = |status: u16| reply(status, "text/plain", "", b"not\nnow");
    let body = |text: &[u8]| reply(200, "application/json", "", text);
    let broken = |sent: &str| vec![stream_head(), chunk(sent.as_bytes()), Step::Close];
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let login = "WWW-Authenticate: Bearer resource_metadata=\"http://127.0.0.1/x\"\r\n";
    let login = reply(401, "application/json", login, b"{\"error\":\"invalid_token\"}");
    let steps: &[&str] = &[
        "--header-file",
        "mcp-remote-client http://127.0.0.1:",
        "cp-mcp proxy --server s",
        "MCP_REMOTE_CONFIG_DIR",
        "[mcp.s]",
    ];
    for (answer, code, words) in [
        (reply(200, "text/html", "", b"<html>"), "E_SERVER", &["text/html"][..]),
        (plain(403), "E_FORBIDDEN", &[": not now"]),
        (plain(404), "E_NOT_FOUND", &["start cp-mcp connect again"]),
        (plain(405), "E_VALIDATION", &[": not now"]),
        (plain(418), "E_VALIDATION", &[": not now"]),
        (plain(429), "E_RATE_LIMITED", &[": not now"]),
        (plain(503), "E_SERVER", &[": not now"]),
        (body(b"{\"jsonrpc\""), "E_SERVER", &[]),
        (body(b"null!"), "E_SERVER", &[]),
        (body(b"[]"), "E_SERVER", &[]),
        (body(b"{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}"), "E_SERVER", &[]),
        (body(b"\xff"), "E_SERVER", &[]),
        (broken("data: {\"jsonrpc\"\n"), "E_NETWORK", &["\"retryable\":true"]),
        (broken("id: e1\nretry: 10\ndata:\n\nid: e2\ndata: {\"json"), "E_NETWORK", &["\"retryable\":true"]),
        (long(stream_head(), b"data: \""), "E_SERVER", &[]),
        (long(Step::Bytes(head), b"x"), "E_SERVER", &["64 MiB"]),
        (login, "E_AUTH", steps),
    ] {
        let error = failure(move |_, _| answer.clone());
        assert_eq!(error["code"], code, "{error}");
        assert!(words.iter().all(|words| error.to_string().contains(words)), "{words:?}: {error}");
    }
    // An error of the protocol stays the server's own.
    let server =
        serving(|_, _| json(400, &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "bad"}})));
    let outcome = fed(&place(), &server, &(hello() + &call(1, "a"))).success();
    assert_eq!(answers(&outcome)["1"]["error"], json!({"code": -32602, "message": "bad"}));
}

#[test]
fn client_that_looks_for_the_other_era_is_asked_for_a_handshake() {
    let (place, server) = (place(), serving(|_, id| json(200, &text(id, "hi"))));
    let discover = line(7, "server/discover", &json!({}));
    let outcome = fed(&place, &server, &(discover + &hello() + &call(1, "a"))).success();
    let answers = answers(&outcome);
    assert_eq!(answers["7"]["error"]["code"], -32601, "{}", outcome.stdout);
    assert_eq!(answers["1"]["result"]["content"][0]["text"], "hi");
    assert_eq!(methods(&server)[0], "initialize", "the server is not asked");
}

#[test]
fn redirect_is_not_followed_and_its_target_is_named() {
    let other = serving(|_, id| json(200, &text(id, "elsewhere")));
    for to in [format!("{}/mcp", other.url()), "/mcp/".to_owned()] {
        let location = format!("Location: {to}\r\n");
        let error = failure(move |_, _| reply(307, "text/plain", &location, b""));
        assert_eq!(error["code"], "E_CONFIG", "{error}");
        assert!(error["details"]["hint"].as_str().unwrap().ends_with(&to), "{error}");
    }
    assert!(other.requests().is_empty());
}

#[test]
fn the_headers_of_a_file_are_sent_and_never_shown() {
    let place = place();
    let secret = "tok-9f3k2m5x7q";
    let file = place.work.write("headers", format!("# for s\nAuthorization: Bearer {secret}\nX-Team: a\n"));
    let path = file.display().to_string();
    let server = serving(|request, id| {
        let given = request.header("authorization").unwrap_or("nothing").to_owned();
        match request.json()["params"]["name"].as_str() {
            Some("refuse") => reply(401, "text/plain", "", format!("{given} is wrong").as_bytes()),
            _ => json(200, &text(id, &format!("got {given}, {}", request.header("x-team").unwrap_or_default()))),
        }
    });
    let url = format!("{}/mcp", server.url());
    let arguments = ["connect", "--server", "s", "--header-file", &path, &url];
    let mode = |mode| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o600);
    let outcome = place.feed(&arguments, hello() + &call(1, "a") + &call(2, "refuse")).success();
    let answers = answers(&outcome);
    assert_eq!(answers["1"]["result"]["content"][0]["text"], "got [REDACTED], a");
    assert!(
        answers["2"]["error"]["message"].as_str().unwrap().contains("--header-file is not accepted"),
        "{}",
        outcome.stdout
    );
    let ledgers = place.sh("find \"$CP_HOME\" -name '*.jsonl' -exec cat {} +").stdout;
    assert!(!format!("{}{}{ledgers}", outcome.stdout, outcome.stderr).contains(secret));
    mode(0o644);
    let error = place.feed(&arguments, "").failed(4, "E_CONFIG");
    assert!(error["details"]["hint"].as_str().unwrap().starts_with("chmod 600"), "{error}");
    mode(0o600);
    place.work.write("headers", format!("Host: {secret}\n"));
    let error = place.feed(&arguments, "").failed(4, "E_CONFIG");
    assert!(!error.to_string().contains(secret) && error["message"].as_str().unwrap().contains("line 1"), "{error}");
    place.feed(&["connect", "--header-file", "/nowhere", &url], "").failed(4, "E_CONFIG");
}

#[test]
fn the_policy_says_which_servers_are_reached() {
    let place = place();
    let rule = |outcome: Outcome| outcome.failed(4, "E_FORBIDDEN")["details"]["rule"].as_str().unwrap().to_owned();
    let far = "https://mcp.invalid/mcp";
    let run = |arguments: &[&str]| place.feed(&[&["connect"], arguments].concat(), hello());
    assert_eq!(rule(run(&["http://mcp.invalid/mcp"])), "mcp.encryption");
    assert_eq!(rule(run(&[far])), "mcp.network");
    run(&["not a URL"]).failed(2, "E_USAGE");
    run(&["--server", "a b", far]).failed(2, "E_USAGE");
    run(&["--server", "s"]).failed(2, "E_USAGE");
    run(&[]).failed(2, "E_USAGE");
    // What is permitted gets as far as the network.
    let tried = |outcome: Outcome| assert!(outcome.success().stdout.contains("E_NETWORK"));
    place.policy(&format!("[mcp.s]\nurl = \"{far}\"\n[mcp.mcp-invalid]\nnetwork = \"host\"\n"));
    tried(run(&[far]));
    tried(run(&["--server", "s", far]));
    tried(run(&["--server", "s"]));
    assert_eq!(rule(run(&["--server", "s", "https://mcp.invalid/other"])), "mcp.url");
    assert_eq!(rule(run(&["--server", "other", far])), "mcp.network");
    let server = serving(|_, id| json(200, &text(id, "hi")));
    let proxied =
        place.subject().args(["connect", &format!("{}/mcp", server.url())]).env("http_proxy", "http://127.0.0.1:1");
    assert!(
        proxied.stdin(hello()).run().success().stdout.contains("serverInfo"),
        "this machine is reached without a proxy"
    );
}

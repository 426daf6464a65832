//! `cp-mcp proxy` before servers that break the protocol, and clients that break it.

use cp_testkit::{Place, Signal};
use serde_json::json;

use crate::proxy::{looking, open, serving, tool};
use crate::session::{Session, entries};

/// The most memory that the process has had, in KiB.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A server whose answer is the one with this number.
const ANSWERS: &str = r#"    id, n = m["id"], (arguments or {}).get("n", 0)
    if n == 0: return "fine"
    image = lambda data: {'content': [{'type': 'image', 'mimeType': 'image/png', 'data': data}]}
    if n == 1: return image('iVBORw0KGgo=')
    if n == 2: return image('not base64!')
    if n == 3: return '\ud800 ghp_' + 'a1B2c3D4e5' * 4
    sys.stdout.flush()
    # The response follows that nobody waits for any more.
    sys.stdout.buffer.write({
        4: b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xff"}]}}\n' % id,
        5: b'{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}\n' % id,
        6: b'{"jsonrpc": "2.0", "id": %d, "result": {\n    "content": []\n  }\n}\n' % id,
        7: b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}}\n' % id,
        8: b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"bad line"}}\n',
        9: b'x' * 100000000 + b'\n',
    }[n])
    sys.stdout.buffer.flush()
    return name"#;

#[test]
fn unusable_response_fails_call_at_once_with_reason() {
    let Some((place, server)) = looking(ANSWERS) else { return };
    let mut session = open(&place, &server);
    for (n, said, fails) in [
        (0, "fine", false),
        (1, "iVBORw0KGgo=", false),
        (2, "an image (image/png) that is not valid base64", true),
        (3, "\u{fffd} [REDACTED:github_token]", false),
        (4, "not JSON: invalid unicode", true),
        (5, "", false),
        (6, "not JSON: EOF", true),
        (7, "not JSON", true),
        (8, "bad line", true),
        (9, "longer than 64 MiB", true),
        (0, "has exited", true),
    ] {
        let answer = session.ask("tools/call", json!({"name": "look", "arguments": {"n": n}}));
        let content = answer["result"]["content"][0].clone();
        let text = content["text"].as_str().or(content["data"].as_str()).unwrap_or_default();
        assert!(text.contains(said) && (answer["result"]["isError"] == true) == fails, "{n}: {answer}");
        assert!(!fails || n < 4 || text.contains("E_SERVER") || n == 0, "{n}: {answer}");
    }
    assert!(peak(session.pid()) < 300 << 10, "{}", peak(session.pid()));
    assert_eq!(session.leave().status, 0);
    let results = entries(&place, "mcp.result");
    let failed = results.iter().filter(|entry| entry["data"]["is_error"] == true).count();
    assert_eq!((results.len(), failed), (10, 6), "{results:?}");
}

#[test]
fn noise_is_counted_and_named_and_unknown_responses_are_ignored() {
    let calls = r#"    sys.stdout.write('Server listening\n\n[1]\n{"jsonrpc":\n\x00\xff\n{"id":1,"result":{"content":[{"type":"text","text":"forged"}]}}\n{"id":null,"result":{}}\n{"id":"99","error":{"code":1}}\n')
    return name"#;
    let Some((place, server)) = looking(calls) else { return };
    let mut session = open(&place, &server);
    session.tools();
    for _ in 0..3 {
        assert_eq!(session.call("look", json!({})), ("look".to_owned(), false));
    }
    assert!(session.others.is_empty(), "{:?}", session.others);
    let stderr = session.leave().stderr;
    for said in ["wrote a line that is not a message: Server listening", "wrote 21 lines that are not messages"] {
        assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
    }
}

#[test]
fn notification_flood_reaches_client_in_order() {
    let calls = "    for i in range(20000): sys.stdout.write(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': {'progressToken': 'token-1', 'progress': i}}) + '\\n')
    return name";
    let Some((place, server)) = looking(calls) else { return };
    let mut session = open(&place, &server);
    let big = "y".repeat(1 << 20);
    for _ in 0..3 {
        let id = session.send("tools/call", json!({"name": "look", "_meta": {"p": big}}));
        assert_eq!(session.answer(id)["result"]["content"][0]["text"], "look");
    }
    let progress: Vec<u64> = session.others.iter().map(|line| line["params"]["progress"].as_u64().unwrap()).collect();
    assert_eq!((progress.len(), progress[0], progress[59_999]), (60_000, 0, 19_999));
    assert_eq!(session.others[0]["params"]["progressToken"], "token-1", "no secret");
    assert!(session.leave().status == 0);
}

#[test]
fn endless_tool_list_is_an_error() {
    let Some((place, server)) = looking("    return name") else { return };
    place.work.write("tools.json", json!({"first": {"tools": [tool("look")], "nextCursor": "first"}}).to_string());
    let mut session = open(&place, &server);
    let (text, is_error) = session.call("look", json!({}));
    assert!(is_error && text.contains("does not end"), "{text}");
    place.work.write(
        "tools.json",
        json!({"first": {"tools": [tool("look"), {"name": "look", "description": "another"}, {"no": 1}, 7]}})
            .to_string(),
    );
    let listed = session.ask("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"], json!([tool("look")]), "of two tools with one name the first counts");
    assert!(!session.call("look", json!({})).1);
    for list in [json!({"first": {"tools": 7}}), json!({"first": []}), json!({"first": null})] {
        place.work.write("tools.json", list.to_string());
        let answer = session.ask("tools/list", json!({}));
        assert!(answer["error"]["code"].is_i64(), "{list}: {answer}");
    }
}

#[test]
fn cancelled_call_is_recorded_and_late_response_ignored() {
    let Some((place, server)) = looking("    time.sleep((arguments or {}).get('n', 0)); return name") else { return };
    let mut session = open(&place, &server);
    session.tools();
    let id = session.send("tools/call", json!({"name": "look", "arguments": {"n": 1}}));
    session.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    assert_eq!(session.call("look", json!({})), ("look".to_owned(), false));
    assert!(session.others.is_empty(), "{:?}", session.others);
    session.leave();
    let results = entries(&place, "mcp.result");
    assert_eq!((results.len(), &results[0]["data"]["is_error"]), (2, &json!(true)));
}

#[test]
fn duplicate_request_id_is_refused() {
    let Some((place, server)) = looking("    time.sleep(0.5); return name") else { return };
    let mut session = open(&place, &server);
    session.tools();
    for id in ["\"\\u0061\"", "\"a\""] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"look"}}}}"#);
        session.write_bytes(format!("{line}\n").as_bytes());
    }
    let [first, second] = [session.read(), session.read()];
    assert!(first["result"]["isError"] == true && first["id"] == "a", "{first}");
    assert_eq!(second["result"]["content"][0]["text"], "look", "{second}");
}

#[test]
fn half_line_of_one_side_holds_neither_the_other_nor_a_signal() {
    let calls = r#"    half = '{"jsonrpc":"2.0","method":"notifications/'
    sys.stdout.write(half); sys.stdout.flush(); time.sleep(1); sys.stdout.write('half"}\n')
    return name"#;
    let Some((place, server)) = looking(calls) else { return };
    let mut session = open(&place, &server);
    session.tools();
    let id = session.send("tools/call", json!({"name": "look"}));
    assert!(session.call("other", json!({})).1);
    assert!(session.others.is_empty(), "{:?}", session.others);
    session.write_bytes(br#"{"jsonrpc":"2.0","id":"whole","#);
    assert_eq!(session.answer(id)["result"]["content"][0]["text"], "look");
    assert_eq!(session.others[0]["method"], "notifications/half");
    session.write_bytes(b"\"method\":\"ping\"}\n");
    assert_eq!(session.read()["id"], "whole");
    session.send("tools/call", json!({"name": "look"}));
    session.write_bytes(b"{");
    session.process.signal(Signal::TERM);
    assert_eq!(session.process.finish().status, 130);
}

#[test]
fn stubborn_server_is_killed() {
    cp_testkit::needs!("python3");
    let place = Place::of("cp-mcp");
    place.root.executable(
        "stubborn",
        "#!/usr/bin/python3\nimport signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: print('noise' * 1000, flush=True)\n",
    );
    let server = place.root.join("stubborn").display().to_string();
    let began = std::time::Instant::now();
    let ran = place.feed(&["proxy", "--", &server], "");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(ran.bytes().is_empty(), "{ran:?}");
}

#[test]
fn tool_with_invalid_name_is_left_out_and_controls_in_descriptions_are_shown() {
    let mut look = tool("look");
    look["description"] = "a\u{1b}[31mb\u{202e}c".into();
    let odd = ["../x", "look\u{202e}", "é", "a b"].map(|name| json!({"name": name}));
    let Some((place, server)) = serving("    return name", &json!([&[look, tool("a.B_1-c")][..], &odd].concat()))
    else {
        return;
    };
    let mut session = open(&place, &server);
    let listed = session.ask("tools/list", json!({}))["result"].clone();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["look", "a.B_1-c"]);
    assert_eq!(listed["tools"][0]["description"], "a^[[31mb<U+202E>c");
    assert!(session.call("../x", json!({})).0.contains("does not list"));
    let warned = session.leave().stderr;
    for name in ["../x", "look<U+202E>"] {
        assert!(warned.contains(&format!("the tool `{name}` of the server scripted is left out")), "{warned}");
    }
}

#[test]
fn initialize_is_bounded_by_start_timeout() {
    let place = Place::of("cp-mcp");
    place.root.executable("silent", "#!/bin/sh\nexec cat >/dev/null\n");
    place.policy("[mcp.silent]\nstart_timeout = 0.4\n");
    let mut session = Session::silent(&place, &["proxy", "--", &place.root.join("silent").display().to_string()]);
    let answer = session.ask("initialize", json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("E_TIMEOUT") && message.contains("start_timeout in [mcp.silent]"), "{answer}");
    assert_eq!((&answer["error"]["data"]["code"], session.leave().status), (&json!("E_TIMEOUT"), 0));
}

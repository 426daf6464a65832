//! Lines that are no requests, or strange ones.

use serde_json::Value;

use super::Serve;

#[test]
fn an_id_comes_back_as_it_is_and_what_cannot_be_one_is_refused() {
    let mut serve = Serve::greeted();
    let long = format!("\"{}\"", "x".repeat(100_000));
    let ids = ["0", "-1", "1.5", "9223372036854775807", "18446744073709551616", "1e3", "\"\"", "\"1\"", r#""\u0000""#];
    for id in ids.into_iter().chain([&*long, r#""a\"b\\c ü 🙂""#, r#""\ud83d\ude42""#]) {
        serve.lines(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n"));
        let line = serve.child.line();
        assert!(line.contains(&format!("\"id\":{id}")) && line.contains("\"result\":{"), "{id}: {line}");
    }
    for id in ["true", "false", "[]", "[1]", "{}", "{\"a\":1}"] {
        serve.lines(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n"));
        let answer = serve.next();
        assert!(answer["id"].is_null() && answer["error"]["code"] == -32600, "{id}: {answer}");
    }
    serve.end();
}

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

/// What each line is answered with: the code of an error, 0 for a result, and nothing.
#[test]
fn each_line_is_answered_once_or_not_at_all_and_the_next_is_read() {
    let none = None;
    let (parse, invalid, unknown, params) = (Some(-32700), Some(-32600), Some(-32601), Some(-32602));
    for (line, code, has_id) in [
        // No message.
        ("{", parse, false),
        ("x", parse, false),
        (r#"{"jsonrpc":"2.0","id":1,"method":"pi"#, parse, false),
        ("\0", parse, false),
        ("{\"jsonrpc\":\"2.0\",\0\"id\":1,\"method\":\"ping\"}", parse, false),
        (&format!("{PING} x"), parse, false),
        (&PING.repeat(2), parse, false),
        ("Content-Length: 40\r", parse, false),
        ("1", invalid, false),
        ("null", invalid, false),
        ("\"ping\"", invalid, false),
        ("[]", invalid, false),
        (&format!("[{PING},{PING}]"), invalid, false),
        ("{}", invalid, false),
        (r#"{"jsonrpc":"2.0"}"#, invalid, false),
        (r#"{"jsonrpc":"2.0","method":7}"#, invalid, false),
        // A request that is wrong.
        (r#"{"id":7,"method":"ping"}"#, invalid, true),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, invalid, true),
        (r#"{"jsonrpc":2.0,"id":7,"method":"ping"}"#, invalid, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"shutdown"}"#, unknown, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":""}"#, unknown, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled"}"#, unknown, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#, params, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#, params, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, params, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":1}}"#, params, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nobody"}}"#, params, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"cp_read","arguments":[1]}}"#, params, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"nobody"}}"#, unknown, true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}"#, params, true),
        // What asks for nothing.
        (r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, none, false),
        (r#"{"jsonrpc":"2.0","id":"never","result":{"action":"accept"}}"#, none, false),
        (r#"{"jsonrpc":"2.0","id":99,"error":{"code":-1,"message":"no"}}"#, none, false),
        (r#"{"jsonrpc":"2.0","method":"notifications/nobody","params":{}}"#, none, false),
        (
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"cp_run","arguments":{"argv":["true"]}}}"#,
            none,
            false,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
            none,
            false,
        ),
        // A request, whatever is around it.
        (PING, Some(0), true),
        (&format!("{PING}\r"), Some(0), true),
        (&format!("  \t{PING}  "), Some(0), true),
        (&format!("\u{feff}{PING}"), Some(0), true),
    ] {
        check(line.as_bytes(), code, has_id);
    }
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}", parse, false);
    check(b"\xff\xfe\x00\x01", parse, false);
}

#[track_caller]
fn check(line: &[u8], code: Option<i64>, has_id: bool) {
    let mut serve = Serve::greeted();
    serve.lines([line, b"\n"].concat());
    let came = serve.is_alive();
    serve.end();
    let told = |answer: &Value| (answer["error"]["code"].as_i64().unwrap_or_default(), answer["id"] == 7);
    let expected: Vec<(i64, bool)> = code.map(|code| (code, has_id)).into_iter().collect();
    let found: Vec<(i64, bool)> = came.iter().map(told).collect();
    assert_eq!(found, expected, "{}: {came:?}", String::from_utf8_lossy(line));
}

#[test]
fn the_end_of_the_input_ends_the_last_line() {
    for (line, is_whole) in [(PING, true), (&PING[..20], false)] {
        let mut serve = Serve::greeted();
        serve.lines(line);
        let came = serve.end();
        assert!(came.len() == 1 || !is_whole && came.is_empty(), "{came:?}");
        assert!(is_whole || came.iter().all(|answer| answer["error"]["code"] == -32700), "{came:?}");
    }
}

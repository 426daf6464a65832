//! Lines that are no requests, or strange ones.

use serde_json::{Value, json};

use super::{Serve, counts, request};

/// What comes for these bytes, and nothing breaks.
#[track_caller]
fn told(bytes: &[u8]) -> Vec<Value> {
    let mut serve = Serve::greeted();
    serve.lines(bytes);
    let came = serve.is_alive();
    serve.end();
    came
}

#[test]
fn an_id_comes_back_as_it_is_and_what_cannot_be_one_is_refused() {
    let mut serve = Serve::greeted();
    let long = "x".repeat(100_000);
    let ids = ["0", "-1", "1.5", "9223372036854775807", "18446744073709551616", "1e3", "\"\"", "\"1\"", r#""\u0000""#]
        .map(ToOwned::to_owned);
    let ids =
        ids.into_iter().chain([format!("\"{long}\""), r#""a\"b\\c ü 🙂""#.to_owned(), r#""\ud83d\ude42""#.to_owned()]);
    for id in ids {
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

#[test]
fn a_line_that_is_not_a_message_is_refused_once_and_the_next_is_read() {
    let cases: &[(&[u8], i64)] = &[
        (b"{", -32700),
        (b"x", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}", -32700),
        (b"\xff\xfe\x00\x01", -32700),
        (b"\0", -32700),
        (b"{\"jsonrpc\":\"2.0\",\0\"id\":1,\"method\":\"ping\"}", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}",
            -32700,
        ),
        (b"1", -32600),
        (b"null", -32600),
        (b"\"ping\"", -32600),
        (b"[]", -32600),
        (
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]",
            -32600,
        ),
        (b"{}", -32600),
        (b"{\"jsonrpc\":\"2.0\"}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"method\":7}", -32600),
        (b"Content-Length: 40\r", -32700),
    ];
    for (line, code) in cases {
        let came = told(&[line, &b"\n"[..]].concat());
        let [answer] = &came[..] else { panic!("{}: {came:?}", String::from_utf8_lossy(line)) };
        let is_right = answer["error"]["code"] == *code && answer["id"].is_null();
        assert!(is_right, "{}: {answer}", String::from_utf8_lossy(line));
    }
}

#[test]
fn a_request_that_is_wrong_is_refused_under_its_id() {
    let cases = [
        (r#"{"id":7,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":2.0,"id":7,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":7,"method":"shutdown"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":7,"method":""}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":1}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nobody"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"cp_read","arguments":[1]}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"nobody"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{}}"#, -32602),
    ];
    for (line, code) in cases {
        let came = told(format!("{line}\n").as_bytes());
        let [answer] = &came[..] else { panic!("{line}: {came:?}") };
        assert!(answer["error"]["code"] == code && answer["id"] == 7, "{line}: {answer}");
    }
}

#[test]
fn what_asks_for_nothing_is_answered_by_nothing() {
    for line in [
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"never","result":{"action":"accept"}}"#,
        r#"{"jsonrpc":"2.0","id":99,"error":{"code":-1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/nobody","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"cp_run","arguments":{"argv":["true"]}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    ] {
        assert_eq!(told(format!("{line}\n").as_bytes()), [] as [Value; 0], "{line}");
    }
}

#[test]
fn a_request_is_one_whatever_is_around_its_line() {
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    for line in [format!("{ping}\r\n"), format!("  \t{ping}  \n"), format!("\u{feff}{ping}\n"), format!("{ping}\n")] {
        let came = told(line.as_bytes());
        assert_eq!(counts(&came), [("7".to_owned(), 1)].into(), "{line:?}: {came:?}");
    }
    // The end of the input ends the last line, too.
    let mut serve = Serve::greeted();
    serve.lines(ping);
    assert_eq!(serve.end().len(), 1);
    let mut serve = Serve::greeted();
    serve.lines(&ping[..20]);
    let came = serve.end();
    assert!(came.len() <= 1 && came.iter().all(|answer| answer["error"]["code"] == -32700), "{came:?}");
}

#[test]
fn nothing_but_what_was_handed_out_is_read_as_a_resource() {
    let mut serve = Serve::greeted();
    let none = "0".repeat(64);
    for uri in [
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "cp-blob:",
        "cp-blob:sha256:../../config/policy.toml",
        &format!("cp-blob:sha256:{none}"),
        &format!("cp-blob:sha256:{none}/../../../config/policy.toml"),
        "http://127.0.0.1:1/",
    ] {
        serve.write(&request(json!(1), "resources/read", json!({"uri": uri})));
        let answer = serve.answer_to(&json!(1));
        assert!(matches!(answer["error"]["code"].as_i64(), Some(-32602 | -32002)), "{uri}: {answer}");
    }
    serve.end();
}

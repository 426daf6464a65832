//! Too much of something.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::{Serve, call, counts, lines_of, ping};

#[test]
fn ten_thousand_pings_that_nobody_reads_the_answers_of_wait_in_the_pipe() {
    let mut serve = Serve::greeted();
    let pings = lines_of((0..10_000).map(|id| ping(json!(id))));
    let length = pings.len();
    let (writer, written) = serve.flood(pings);
    // It reads no more once nobody reads what it answers.
    let mut before = usize::MAX;
    while before != written.load(Ordering::SeqCst) {
        before = written.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(before < length, "it keeps the answers to all of them");
    assert!(serve.peak_mib() <= 10.0, "{} MiB", serve.peak_mib());

    for _ in 0..10_000 {
        serve.next();
    }
    assert!(serve.peak_mib() <= 10.0, "{} MiB", serve.peak_mib());
    drop(writer.join().unwrap());
    let counts = counts(&serve.end());
    assert_eq!((counts.len(), counts.values().max()), (10_000, Some(&1)));
}

#[test]
fn a_line_as_long_as_a_call_may_be_is_answered_and_a_longer_one_is_refused_in_bounded_memory() {
    for (length, is_read) in [(1 << 20, true), (63 << 20, false), (100 << 20, false)] {
        let mut serve = Serve::greeted();
        let line = format!("{}\n", call(json!(1), "cp_check", json!({"command": "x".repeat(length)})));
        let (writer, _) = serve.flood(line.into_bytes());
        let answer = serve.next();
        if is_read {
            assert_eq!(answer["id"], 1, "{}", answer["error"]);
        } else {
            assert!(answer["id"].is_null() && answer["error"]["code"] == -32600, "{answer}");
        }
        assert!(serve.peak_mib() <= 20.0, "{length} bytes: {} MiB", serve.peak_mib());
        let mut stdin = writer.join().unwrap();
        std::io::Write::write_all(&mut stdin, format!("{}\n", ping(json!(2))).as_bytes()).unwrap();
        serve.answer_to(&json!(2));
        drop(stdin);
        assert_eq!(serve.end().len(), 2);
    }
}

#[test]
fn a_line_that_is_too_long_and_does_not_end_holds_no_answer() {
    let mut serve = Serve::greeted();
    serve.write(&call(json!(1), "cp_run", json!({"argv": ["sleep", "1"]})));
    serve.lines("x".repeat(2 << 20));
    assert_eq!(serve.next()["error"]["code"], -32600);
    assert_eq!(serve.next()["id"], 1);
    serve.lines("x\n");
    assert!(serve.is_alive().len() == 2);
    serve.end();
}

#[test]
fn what_is_nested_too_deep_is_refused_and_does_not_overflow_the_stack() {
    let mut serve = Serve::greeted();
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let values = [deep("[", "]"), deep("{\"a\":", "}"), "[".repeat(100_000), deep("[{\"a\":", "}]")];
    for value in &values {
        for line in [
            value.clone(),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{value}}}}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"cp_check","arguments":{{"command":{value}}}}}}}"#
            ),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"cp_run","arguments":{{"argv":["true"],"env":{value}}}}}}}"#
            ),
            format!(r#"{{"jsonrpc":"2.0","id":{value},"method":"ping"}}"#),
        ] {
            serve.lines(format!("{line}\n"));
            let came = serve.is_alive();
            let [answer] = &came[..] else { panic!("{}…: {came:?}", &line[..60]) };
            assert!(answer["id"].is_null() || answer["id"] == 1, "{answer}");
        }
    }
    assert!(serve.peak_mib() <= 20.0, "{} MiB", serve.peak_mib());
    serve.end();
}

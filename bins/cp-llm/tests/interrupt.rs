//! Signals and closed streams: nothing hangs, and the closing line is always printed.

use std::time::{Duration, Instant};

use cp_testkit::server::{Step, chunk, reply, stream_head};
use cp_testkit::{Background, Outcome, Server, Signal, until};
use serde_json::Value;

use crate::llm::Llm;
use crate::messages::stream_start;

fn start(server: &Server, arguments: &[&str]) -> (Llm, Background) {
    let llm = Llm::new().set("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    let child = llm.start(arguments);
    (llm, child)
}

/// Sends a signal. The program must end soon.
fn ended_after(child: Background, signal: Signal) -> Outcome {
    let since = Instant::now();
    child.signal(signal);
    let ran = child.wait();
    assert!(since.elapsed() < Duration::from_secs(2), "it took {:?}", since.elapsed());
    ran
}

#[test]
fn signal_ends_stalled_answer_with_closing_line() {
    for signal in [Signal::INT, Signal::TERM] {
        for (stream, script) in [
            (false, vec![Step::Stall]),
            (true, vec![stream_head(), chunk(stream_start("openai").as_bytes()), Step::Stall]),
            (false, reply(503, "text/plain", "retry-after: 30\r\n", b"")),
        ] {
            let server = Server::playing(vec![script]);
            let mut arguments = vec!["-m", "m", "hi"];
            arguments.extend(stream.then_some("--stream"));
            let (_llm, child) = start(&server, &arguments);
            until("the request", || !server.requests().is_empty());
            std::thread::sleep(Duration::from_millis(100));
            let ran = ended_after(child, signal);
            let last = ran.closing();
            assert_eq!((ran.status, &last["error"]["code"]), (130, &Value::from("E_INTERRUPTED")), "{ran:?}");
            assert!(last.get("meta").is_some());
            assert_eq!(last.get("type").and_then(Value::as_str), Some(if stream { "summary" } else { "error" }));
        }
    }
}

#[test]
fn signal_in_batch_records_requests_in_flight() {
    let mut slow = crate::messages::whole("openai", "fine");
    slow.insert(0, Step::Wait(30_000));
    let mut script = vec![crate::messages::whole("openai", "fine"); 5];
    script.push(slow);
    let server = Server::playing(script);
    let (llm, mut child) = start(&server, &["-m", "m", "--rows", "--jobs", "4"]);
    child.write("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n".repeat(50));
    until("the requests", || server.requests().len() >= 9);
    std::thread::sleep(Duration::from_millis(100));
    child.close_stdin();
    let ran = ended_after(child, Signal::INT);
    let (last, records) = (ran.closing(), ran.records());
    assert_eq!((ran.status, &last["error"]["code"]), (130, &Value::from("E_INTERRUPTED")), "{ran:?}");
    let count = |kind: &str| records.iter().filter(|record| record["type"] == kind).count();
    assert_eq!((count("message"), &last["error"]["details"]["succeeded"]), (5, &Value::from(5)));
    // Requests in flight are marked, and prompts that were not started are absent.
    assert_eq!((count("error"), &last["error"]["details"]["failed"]), (4, &Value::from(4)), "{records:?}");
    assert_eq!((llm.entries("llm.request").len(), llm.entries("llm.response").len()), (9, 9));
}

#[test]
fn closed_reader_succeeds_and_full_disk_fails() {
    let llm = Llm::new();
    llm.work.write("rows", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n".repeat(2000));
    let shell = |tail: &str| {
        llm.shell("bash", &format!("set -o pipefail; cp-llm --backend stub --rows <rows {tail}")).run().status
    };
    assert_eq!(shell("| head -n 1 | wc -l"), 0);
    assert_eq!(shell(">/dev/full"), 1);
}

#[test]
fn reader_closed_during_stream_succeeds() {
    for format in ["json", "text"] {
        let mut script = vec![stream_head(), chunk(stream_start("openai").as_bytes())];
        for _ in 0..50 {
            script.extend([
                Step::Wait(10),
                chunk(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" more\"}}]}\n\n"),
            ]);
        }
        let server = Server::playing(vec![script]);
        let (_llm, mut child) = start(&server, &["-m", "m", "--stream", "--format", format, "hi"]);
        child.read(3);
        child.close_stdout();
        let ran = child.wait();
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{format}");
    }
}

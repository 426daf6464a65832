//! Signals and open ends: nothing hangs, and a closing line is always left.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::messages::stream_start;
use crate::server::{Program, Server, Step, chunk, stream_head};

fn spawn(program: &Program, server: Option<&Server>, arguments: &[&str]) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("cp-llm"));
    command.env_clear().env("CP_HOME", program.home.path());
    if let Some(server) = server {
        command.env("OPENAI_BASE_URL", format!("{}/v1", server.url()));
    }
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(child: &Child, signal: Signal) -> Instant {
    kill_process(Pid::from_child(child), signal).unwrap();
    Instant::now()
}

fn ended(mut child: Child, since: Instant) -> (i32, Vec<Value>) {
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    let status = child.wait().unwrap().code().expect("it left by itself");
    assert!(since.elapsed() < Duration::from_secs(2), "it took {:?}", since.elapsed());
    (status, stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn a_signal_ends_a_stalled_answer_at_once_with_a_closing_line() {
    for signal in [Signal::INT, Signal::TERM] {
        for (stream, script) in [
            (false, vec![Step::Stall]),
            (true, vec![stream_head(), chunk(stream_start("openai").as_bytes()), Step::Stall]),
            (false, crate::server::answer(503, "text/plain", "retry-after: 30\r\n", b"")),
        ] {
            let server = Server::start(vec![script]);
            let program = Program::new();
            let mut arguments = vec!["-m", "m", "hi"];
            arguments.extend(stream.then_some("--stream"));
            let child = spawn(&program, Some(&server), &arguments);
            while server.requests().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(100));
            let (status, records) = ended_after(child, signal);
            let last = records.last().unwrap();
            assert_eq!((status, &last["error"]["code"]), (130, &Value::from("E_INTERRUPTED")), "{records:?}");
            assert!(last.get("meta").is_some());
            assert_eq!(last.get("type").and_then(Value::as_str), Some(if stream { "summary" } else { "error" }));
        }
    }
}

#[test]
fn a_signal_in_a_batch_closes_the_stream_and_puts_what_was_in_flight_on_the_ledger() {
    let mut slow = crate::messages::whole("openai", "fine");
    slow.insert(0, Step::Wait(30_000));
    let mut script = vec![crate::messages::whole("openai", "fine"); 5];
    script.push(slow);
    let server = Server::start(script);
    let program = Program::new();
    let mut child = spawn(&program, Some(&server), &["-m", "m", "--rows", "--jobs", "4"]);
    let rows = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n".repeat(50);
    child.stdin.take().unwrap().write_all(rows.as_bytes()).unwrap();
    while server.requests().len() < 9 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    let (status, records) = ended_after(child, Signal::INT);
    let last = records.last().unwrap();
    assert_eq!((status, &last["error"]["code"]), (130, &Value::from("E_INTERRUPTED")), "{records:?}");
    let count = |kind: &str| records.iter().filter(|record| record["type"] == kind).count();
    assert_eq!((count("message"), &last["error"]["details"]["succeeded"]), (5, &Value::from(5)));
    // What was in flight is marked, and what nobody began is not there.
    assert_eq!((count("error"), &last["error"]["details"]["failed"]), (4, &Value::from(4)), "{records:?}");
    let count = |event: &str| program.ledger().iter().filter(|entry| entry["event"] == event).count();
    assert_eq!((count("llm.request"), count("llm.response")), (9, 9));
}

fn ended_after(child: Child, signal: Signal) -> (i32, Vec<Value>) {
    let since = interrupt(&child, signal);
    ended(child, since)
}

#[test]
fn an_argument_never_waits_for_standard_input() {
    let program = Program::new();
    let child = spawn(&program, None, &["--backend", "stub", "hi"]);
    let (status, records) = ended(child, Instant::now());
    assert_eq!((status, &records[0]["data"]["content"]), (0, &Value::from("stub response 1")));
}

#[test]
fn each_prompt_is_answered_before_the_next_one_comes() {
    use std::io::{BufRead, BufReader};
    for more in [&[][..], &["--jobs", "4"], &["--jobs", "4", "--unordered"]] {
        let program = Program::new();
        let mut child = spawn(&program, None, &[&["--backend", "stub"], more].concat());
        let mut stdin = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        for n in 1..=3 {
            let prompt = "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"prompt\",\"data\":{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}}\n";
            stdin.write_all(prompt.as_bytes()).unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            assert!(line.contains(&format!("stub response {n}")), "{more:?} {line}");
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_closed_reader_is_no_failure_and_a_full_disk_is_one() {
    let program = Program::new();
    let rows = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n".repeat(2000);
    let shell = |tail: &str| {
        let file = program.home.path().join("rows");
        std::fs::write(&file, &rows).unwrap();
        let binary = assert_cmd::cargo::cargo_bin("cp-llm");
        let line = format!("{} --backend stub --rows <{} {tail}", binary.display(), file.display());
        Command::new("bash").args(["-o", "pipefail", "-c", &line]).env("CP_HOME", program.home.path()).output().unwrap()
    };
    assert_eq!(shell("| head -n 1 | wc -l").status.code(), Some(0));
    assert_eq!(shell(">/dev/full").status.code(), Some(1));
}

#[test]
fn a_reader_that_leaves_in_the_middle_of_an_answer_is_no_failure() {
    for format in ["json", "text"] {
        let mut script = vec![stream_head(), chunk(stream_start("openai").as_bytes())];
        for _ in 0..50 {
            script.extend([
                Step::Wait(10),
                chunk(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" more\"}}]}\n\n"),
            ]);
        }
        let server = Server::start(vec![script]);
        let mut child = spawn(&Program::new(), Some(&server), &["-m", "m", "--stream", "--format", format, "hi"]);
        child.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{format}");
    }
}

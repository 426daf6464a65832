//! A server on loopback that plays a script, byte for byte, and keeps what it was asked.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// A step of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Bytes, in one write.
    Bytes(Vec<u8>),
    /// Nothing for so many milliseconds.
    Wait(u64),
    /// The connection breaks.
    Reset,
    /// Nothing, and no end.
    Stall,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let found =
            self.head.lines().find_map(|line| line.split_once(':').filter(|(n, _)| n.eq_ignore_ascii_case(name)));
        found.map(|(_, value)| value.trim().to_owned())
    }
}

/// The server. The last answer of its script is given again and again.
pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start(script: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, script) = (Arc::clone(&requests), Arc::new(script));
        let connections = Arc::new(AtomicUsize::new(0));
        let opened = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                opened.fetch_add(1, Ordering::SeqCst);
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                std::thread::spawn(move || serve(stream, &script, &seen));
            }
        });
        Self { port, requests, connections }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn serve(mut stream: TcpStream, script: &[Vec<Step>], seen: &Mutex<Vec<Request>>) {
    while let Some(request) = read_request(&mut stream) {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len()
        };
        for step in &script[(number - 1).min(script.len() - 1)] {
            match step {
                Step::Bytes(bytes) => {
                    if stream.write_all(bytes).and_then(|()| stream.flush()).is_err() {
                        return;
                    }
                }
                Step::Wait(ms) => std::thread::sleep(Duration::from_millis(*ms)),
                Step::Reset => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                Step::Stall => std::thread::sleep(Duration::from_mins(10)),
            }
        }
    }
}

fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(Request { head, body })
}

/// A whole answer.
pub(crate) fn answer(status: u16, kind: &str, headers: &str, body: &[u8]) -> Vec<Step> {
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{headers}content-length: {}\r\n\r\n", body.len())
            .into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Bytes(bytes)]
}

pub(crate) fn json(status: u16, body: &Value) -> Vec<Step> {
    answer(status, "application/json", "", body.to_string().as_bytes())
}

/// A stream of events in chunks, one write for each piece.
pub(crate) fn events(pieces: &[&[u8]]) -> Vec<Step> {
    let mut steps = vec![stream_head()];
    steps.extend(pieces.iter().map(|piece| chunk(piece)));
    steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
    steps
}

pub(crate) fn stream_head() -> Step {
    Step::Bytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: req_7\r\ntransfer-encoding: chunked\r\n\r\n".to_vec())
}

pub(crate) fn chunk(piece: &[u8]) -> Step {
    let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(b"\r\n");
    Step::Bytes(bytes)
}

/// The program in a home of its own, with an environment that has nothing in it.
pub(crate) struct Program {
    pub(crate) home: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { home: TempDir::new().unwrap(), variables: Vec::new() }
    }

    /// With a server that stands for one of the providers.
    pub(crate) fn asking(backend: &str, server: &Server) -> Self {
        let mut program = Self::new();
        let (base, key, url) = match backend {
            "anthropic" => ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", server.url()),
            "gemini" => ("GEMINI_BASE_URL", "GEMINI_API_KEY", format!("{}/v1beta", server.url())),
            "openai" | "openai-responses" => ("OPENAI_BASE_URL", "OPENAI_API_KEY", format!("{}/v1", server.url())),
            other => panic!("no provider {other}"),
        };
        program.variables =
            vec![(base, url), (key, "key-of-the-test-0123456789".to_owned()), ("CP_BACKEND", backend.to_owned())];
        program
    }

    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.to_owned()));
        self
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::cargo_bin("cp-llm").unwrap();
        command.env_clear().env("CP_HOME", self.home.path()).envs(self.variables.iter().cloned());
        command.timeout(Duration::from_mins(1));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command().args(arguments).output().unwrap())
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        Ran::of(self.command().args(arguments).write_stdin(input).output().unwrap())
    }

    pub(crate) fn ledger(&self) -> Vec<Value> {
        lines_of(&self.home.path().join("ledger/cp-llm.jsonl"))
    }
}

pub(crate) fn lines_of(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What came of it.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            status: output.status.code().expect("it left by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn records(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    /// The only line.
    pub(crate) fn only(&self) -> Value {
        let records = self.records();
        assert_eq!(records.len(), 1, "{}", self.stdout);
        records[0].clone()
    }

    /// The closing line.
    pub(crate) fn last(&self) -> Value {
        let last = self.records().pop().expect("a line");
        assert!(last.get("meta").is_some(), "{last}");
        assert_eq!(last["ok"] == true, self.status == 0, "{last}");
        last
    }

    /// The error that it ended with, wherever it stands.
    pub(crate) fn error(&self) -> Value {
        let records = self.records();
        records
            .iter()
            .find_map(|record| record.get("error"))
            .cloned()
            .unwrap_or_else(|| panic!("no error: {}", self.stdout))
    }
}

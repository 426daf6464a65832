//! Clients that `cp-mcp serve` must outlive. Of all of them the same holds: a request with an id gets one answer or was
//! cancelled, what is written is the protocol and nothing else, memory stays bounded, and the end of the input is the
//! end of the program, with status 0.

mod cancels;
mod eras;
mod floods;
mod lines;
mod mixed;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use cp_testkit::{Background, Place, until};
use serde_json::{Value, json};

use crate::session::is_running;

/// What everybody may run here: `sleep`, as the call that takes long.
const POLICY: &str = "[exec]\nallowed_commands = [\"sleep\", \"true\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n";

/// A server with a client that keeps no promises.
struct Serve {
    place: Rc<Place>,
    child: Background,
    answers: Vec<Value>,
}

impl Serve {
    /// Under this policy, before a handshake.
    fn new(policy: &str) -> Self {
        let place = Rc::new(Place::of("cp-mcp"));
        place.policy(policy);
        place.work.write("small", "text\n");
        let child = place.subject().arg("serve").start();
        Self { place, child, answers: Vec::new() }
    }

    /// After a handshake of the older era.
    fn greeted() -> Self {
        Self::under(POLICY)
    }

    /// The same under a policy of its own.
    fn under(policy: &str) -> Self {
        let mut serve = Self::new(policy);
        serve.write(&greeting(json!("hello")));
        serve.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(serve.answer_to(&json!("hello"))["result"]["serverInfo"]["name"], "cp-mcp");
        serve.answers.clear();
        serve
    }

    fn write(&mut self, message: &Value) {
        self.child.write(format!("{message}\n"));
    }

    fn lines(&mut self, bytes: impl AsRef<[u8]>) {
        self.child.write(bytes);
    }

    /// Writes all this beside the test, however long the server does not read; how much it has read so far.
    fn flood(&mut self, bytes: Vec<u8>) -> (JoinHandle<std::process::ChildStdin>, Arc<AtomicUsize>) {
        let (mut stdin, written) = (self.child.take_stdin(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&written);
        let writer = std::thread::spawn(move || {
            for piece in bytes.chunks(4096) {
                stdin.write_all(piece).unwrap();
                count.fetch_add(piece.len(), Ordering::SeqCst);
            }
            stdin
        });
        (writer, written)
    }

    /// Reads until the answer under this id has come.
    #[track_caller]
    fn answer_to(&mut self, id: &Value) -> Value {
        loop {
            let message = self.next();
            if is_answer(&message) && message["id"] == *id {
                return message;
            }
        }
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let message = self.child.record();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        self.answers.push(message.clone());
        message
    }

    /// Whether it still answers; what has come by then.
    #[track_caller]
    fn is_alive(&mut self) -> Vec<Value> {
        self.write(&ping(json!("alive?")));
        self.answer_to(&json!("alive?"));
        self.answers.pop();
        std::mem::take(&mut self.answers)
    }

    /// Ends the input: nobody panicked, and the answers that came in all.
    #[track_caller]
    fn end(mut self) -> Vec<Value> {
        self.child.close_stdin();
        while let Some(line) = self.child.next_line() {
            self.answers.push(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")));
        }
        let ended = self.child.wait();
        assert_eq!(ended.status, 0, "{ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        self.answers
    }

    /// The most memory that it had so far, without the pages of its file.
    fn peak_mib(&self) -> f64 {
        let pid = self.child.pid().as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let of = |name: &str| -> u32 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
        };
        f64::from(of("VmHWM:") - of("RssFile:").min(of("VmHWM:"))) / 1024.0
    }

    #[track_caller]
    fn wait_until_runs(marker: &str, does: bool) {
        until(&format!("`sleep {marker}` runs: {does}"), || is_running(&["sleep", marker]) == does);
    }
}

/// Messages as a client writes them.
fn lines_of(messages: impl Iterator<Item = Value>) -> Vec<u8> {
    let mut text = Vec::new();
    messages.for_each(|message| text.extend(format!("{message}\n").bytes()));
    text
}

fn is_answer(message: &Value) -> bool {
    message.get("method").is_none()
}

/// How often each id was answered, by its text.
fn counts(answers: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers.iter().filter(|answer| is_answer(answer)) {
        *counts.entry(answer["id"].to_string()).or_default() += 1;
    }
    counts
}

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn ping(id: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

fn greeting(id: Value) -> Value {
    let client = json!({"name": "hostile", "version": "6.6.6"});
    request(id, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}))
}

/// A call of a tool.
fn call(id: Value, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// A call that takes long, with an argument that nobody else has.
fn sleep(id: Value, marker: &str) -> Value {
    call(id, "cp_run", json!({"argv": ["sleep", marker]}))
}

fn cancel(id: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

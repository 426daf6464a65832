//! A client by hand: it writes lines of the protocol and reads what comes back.

use cp_testkit::{Background, Outcome, Place, Program};
use serde_json::{Value, json};

/// The two eras of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Handshake,
    Modern,
}

pub(crate) const ERAS: [Era; 2] = [Era::Handshake, Era::Modern];

/// A client, with the program that it started.
pub(crate) struct Session {
    pub(crate) process: Background,
    era: Era,
    capabilities: Value,
    next: u64,
    /// What came beside the answers.
    pub(crate) others: Vec<Value>,
}

impl Session {
    /// Starts `cp-mcp` with these arguments, and makes the handshake.
    #[track_caller]
    pub(crate) fn open(place: &Place, arguments: &[&str]) -> Self {
        Self::of(place.subject().args(arguments), Era::Handshake, json!({}))
    }

    /// A client of an era, which can do this, of a program.
    #[track_caller]
    pub(crate) fn of(program: Program, era: Era, capabilities: Value) -> Self {
        let mut session = Self { process: program.start(), era, capabilities, next: 0, others: Vec::new() };
        if era == Era::Handshake {
            let client = json!({"name": "by-hand", "version": "7"});
            let can = session.capabilities.clone();
            let greeting = json!({"protocolVersion": "2025-06-18", "capabilities": can, "clientInfo": client});
            let answer = session.ask("initialize", greeting);
            assert_eq!(answer["result"]["protocolVersion"], "2025-06-18", "{answer}");
            session.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        session
    }

    /// Starts it, and says nothing.
    pub(crate) fn silent(place: &Place, arguments: &[&str]) -> Self {
        let process = place.subject().args(arguments).start();
        Self { process, era: Era::Handshake, capabilities: json!({}), next: 0, others: Vec::new() }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.pid().as_raw_nonzero().get()
    }

    pub(crate) fn write(&mut self, message: &Value) {
        self.process.write(format!("{message}\n"));
    }

    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) {
        self.process.write(bytes);
    }

    #[track_caller]
    pub(crate) fn read(&mut self) -> Value {
        self.process.record()
    }

    /// Sends a request, and gives its id.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.era == Era::Modern {
            let meta = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "by-hand", "version": "7"});
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        self.write(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.read();
            if line["id"] == id && line.get("method").is_none() {
                return line;
            }
            self.others.push(line);
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool: the text of the result, and whether it failed.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.map_or_else(|| answer.to_string(), str::to_owned);
        (text, answer["result"]["isError"] == true)
    }

    /// Calls a tool: its result.
    #[track_caller]
    pub(crate) fn result(&mut self, tool: &str, arguments: Value) -> Value {
        let line = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(line["error"].is_null(), "{line}");
        line["result"].clone()
    }

    /// Takes a request back.
    pub(crate) fn cancel(&mut self, id: u64) {
        let params = json!({"requestId": id, "reason": "enough"});
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }

    /// The names of the tools that are offered.
    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends its input, and waits for it to leave.
    #[track_caller]
    pub(crate) fn leave(mut self) -> Outcome {
        self.process.close_stdin();
        self.process.finish()
    }

    /// The same, where each line was the answer to the request before it.
    #[track_caller]
    pub(crate) fn end(self) {
        assert_eq!(self.others, [] as [Value; 0]);
        let ran = self.leave();
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
}

/// Whether a command of these words runs anywhere.
pub(crate) fn is_running(words: &[&str]) -> bool {
    let line: Vec<u8> = words.iter().flat_map(|word| format!("{word}\0").into_bytes()).collect();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).any(|found| found == line)
}

/// The entries of the ledger with this event.
pub(crate) fn entries(place: &Place, event: &str) -> Vec<Value> {
    let entries = place.home.records("ledger/cp-mcp.jsonl").into_iter();
    entries.filter(|entry| entry["event"] == event).collect()
}

/// A person at a terminal who says yes to what waits under this id.
#[track_caller]
pub(crate) fn approve(place: &Place, id: &str) -> String {
    let mut terminal = place.program("cp-exec").args(["approve", id]).terminal(200);
    let shown = terminal.wait_for("Allow it?");
    terminal.send("y\n");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
    shown
}

/// The id of an approval in a text.
#[track_caller]
pub(crate) fn id_in(text: &str) -> String {
    let at = text.find("APR-").unwrap_or_else(|| panic!("no id: {text}"));
    text[at..at + 20].to_owned()
}

//! A client that speaks to the server line by line.

use cp_testkit::{Background, Place};
use serde_json::{Value, json};

/// What the tests allow.
pub(super) const POLICY: &str = "[exec]\nallowed_commands = [\"echo\", \"sleep\", \"rm\", \"seq\", \"printf\", \"false\"]\ncgroup = false\n\n[[exec.rule]]\ncommand = \"rm\"\ndecision = \"ask\"\n";

/// The two eras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Handshake,
    Modern,
}

pub(super) const ERAS: [Era; 2] = [Era::Handshake, Era::Modern];

/// A client, with the server that it started.
pub(super) struct Client {
    pub(super) server: Background,
    era: Era,
    capabilities: Value,
    next: u64,
}

/// A place with a policy.
pub(super) fn place() -> Place {
    let place = Place::of("cp-mcp");
    place.policy(POLICY);
    place
}

impl Client {
    /// Starts a server and greets it.
    pub(super) fn start(place: &Place, era: Era, capabilities: Value) -> Self {
        Self::with(place, era, capabilities, &[])
    }

    /// The same with options.
    pub(super) fn with(place: &Place, era: Era, capabilities: Value, options: &[&str]) -> Self {
        let server = place.subject().arg("serve").args(options).start();
        let mut client = Self { server, era, capabilities, next: 0 };
        if era == Era::Handshake {
            let greeting = client.request(
                "initialize",
                json!({ "protocolVersion": "2025-06-18", "capabilities": client.capabilities, "clientInfo": { "name": "by-hand", "version": "7" } }),
            );
            assert_eq!(greeting["result"]["protocolVersion"], "2025-06-18");
            client.server.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        }
        client
    }

    /// Sends a request and gives its id.
    pub(super) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.era == Era::Modern {
            let meta = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "by-hand", "version": "7" });
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        let line = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.server.write(format!("{line}\n"));
        self.next
    }

    /// Sends a request and gives the line that answers it.
    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The line that answers a request, which is the next one.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        let line = self.server.record();
        assert_eq!(line["id"], id, "{line}");
        line
    }

    /// Calls a tool and gives its result.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut params = json!({ "name": tool });
        params["arguments"] = arguments;
        let line = self.request("tools/call", params);
        assert!(line["error"].is_null(), "{line}");
        line["result"].clone()
    }

    /// Ends its input; it must leave as one that was asked to.
    pub(super) fn leave(self) {
        let ran = self.server.finish();
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
}

/// The text of a result; what is in its data must say the same.
pub(super) fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    match &result["structuredContent"]["output"] {
        Value::String(output) => assert_eq!(*output, text),
        _ => assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), result["structuredContent"]),
    }
    text
}

/// Everything on the ledgers of all sessions.
pub(super) fn ledger(place: &Place) -> Vec<Value> {
    let ran = place.sh("cp-log query --format json --limit 10000 $(find $CP_HOME -name '*.jsonl')");
    ran.of("entry")
}

/// The entries of an event.
pub(super) fn entries(place: &Place, event: &str) -> Vec<Value> {
    ledger(place).into_iter().filter(|entry| entry["event"] == event).collect()
}

//! The official libraries of the protocol, in Python, TypeScript and Rust, as clients of `cp-mcp serve`, in both eras.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use cp_testkit::{Background, Place, Program, counterpart, packages, repository, required, until};
use serde_json::{Value, json};

use crate::session::is_running;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Python,
    TypeScript,
    Rust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// It looks for the version without a handshake first.
    Auto,
    Legacy,
}

/// All of them in both eras.
fn all() -> impl Iterator<Item = (Library, Era)> {
    let libraries =
        [Library::Python, Library::TypeScript, Library::Rust].into_iter().filter(|library| library.is_there());
    libraries.flat_map(|library| [(library, Era::Auto), (library, Era::Legacy)])
}

impl Library {
    fn is_there(self) -> bool {
        let file = match self {
            Self::Python => packages().join("python/bin/mcp"),
            Self::TypeScript => packages().join("node_modules/@modelcontextprotocol/client/package.json"),
            Self::Rust => return required("rmcp (scripts/test builds it)", rust_client().is_some()),
        };
        required(&format!("{self:?} (.ci/run installs its library)"), file.is_file())
    }

    /// What the client calls itself.
    fn name(self) -> &'static str {
        match self {
            Self::Python => "python-client",
            Self::TypeScript => "typescript-client",
            Self::Rust => "rust-client",
        }
    }

    fn program(self, place: &Place) -> Program {
        let clients = repository().join("bins/cp-mcp/tests/clients");
        match self {
            Self::Python => place.program(packages().join("python/bin/python")).arg(clients.join("client.py")),
            Self::TypeScript => {
                let node = counterpart("node").unwrap();
                place.program(node).arg(clients.join("client.mjs")).env("PACKAGES", packages())
            }
            Self::Rust => place.program(rust_client().unwrap()),
        }
    }
}

/// The client in Rust lies apart from the workspace: its library is asynchronous. Building it again takes no time.
fn rust_client() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let target = cp_testkit::program("cp-mcp").with_file_name("").with_file_name("rmcp");
        let mut cargo = std::process::Command::new(std::env::var_os("CARGO")?);
        cargo.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(repository().join("tests/rmcp/Cargo.toml"));
        let built = cargo.arg("--target-dir").arg(&target).status().is_ok_and(|status| status.success());
        built.then(|| target.join("debug/rmcp-client"))
    });
    built.as_deref()
}

/// A client that follows a list of steps.
struct Client(Background);

impl Client {
    /// Connects it with a server; `answer` is its person's, who can be asked only where there is one.
    fn new(place: &Place, library: Library, era: Era, answer: Option<&str>) -> Self {
        let era = if era == Era::Auto { "auto" } else { "legacy" };
        let how = json!({"era": era, "answer": answer, "command": [cp_testkit::program("cp-mcp"), "serve"]});
        let mut client = Self(library.program(place).arg(how.to_string()).limit(Duration::from_mins(3)).start());
        let hello = client.0.record();
        let version = if era == "auto" { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(hello["protocol"], version, "{library:?}: {hello}");
        client
    }

    #[track_caller]
    fn step(&mut self, step: &Value) -> Value {
        self.0.write(format!("{step}\n"));
        self.0.record()
    }

    /// The result of a call.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let told = self.step(&json!({"do": "call", "name": tool, "arguments": arguments}));
        assert!(told.get("result").is_some(), "{tool}: {told}");
        told
    }

    #[track_caller]
    fn end(self) {
        let ended = self.0.finish();
        assert_eq!(ended.status, 0, "{ended:?}");
    }
}

/// The text of a result.
fn text(told: &Value) -> String {
    let content = told["result"]["content"].as_array().into_iter().flatten();
    content.filter_map(|part| part["text"].as_str()).collect()
}

const POLICY: &str = "[exec]
allowed_commands = [\"printenv\", \"touch\", \"sleep\", \"seq\"]
confirm = \"agent\"
[[exec.rule]]
command = \"touch\"
decision = \"confirm\"
[paths]
read = [\".\"]
write = [\".\"]
";

fn governed() -> Place {
    let place = Place::new();
    place.policy(POLICY);
    place.work.write("small", "a line\nanother\n");
    place
}

#[test]
fn each_reading_tool_answers_in_text_and_structure_alike_and_the_ledger_says_who_asked() {
    for (library, era) in all() {
        let place = governed();
        let mut client = Client::new(&place, library, era, None);
        let listed = client.step(&json!({"do": "tools"}))["result"]["tools"].clone();
        let read_only = |tool: &Value| tool["annotations"]["readOnlyHint"] == true;
        let tools = listed.as_array().unwrap();
        let names = |is_reading: bool| -> Vec<&str> {
            let of_kind = tools.iter().filter(|tool| read_only(tool) == is_reading);
            of_kind.map(|tool| tool["name"].as_str().unwrap()).collect()
        };
        let reading = ["cp_check", "cp_read", "cp_ledger_query", "cp_verify", "cp_session_search"];
        assert_eq!(names(true), reading, "{library:?}");
        assert_eq!(names(false), ["cp_run", "cp_write", "cp_edit", "cp_prompt"], "{library:?}");

        let arguments = [
            json!({"command": "printenv HOME"}),
            json!({"path": "small"}),
            json!({"all": true}),
            json!({"all": true}),
            json!({"query": "nobody said this"}),
        ];
        for (tool, arguments) in reading.into_iter().zip(arguments) {
            let told = client.call(tool, arguments);
            let shown = format!("{library:?} {era:?} {tool}: {told}");
            assert!(told["result"]["isError"] != true, "{shown}");
            let structured = &told["result"]["structuredContent"];
            assert!(structured.is_object(), "{shown}");
            assert!(!text(&told).is_empty(), "{shown}");
        }
        assert!(text(&client.call("cp_read", json!({"path": "small"}))).contains("a line\nanother"), "{library:?}");

        let ran = client.call("cp_run", json!({"argv": ["printenv", "HOME"]}));
        assert!(ran["result"]["isError"] != true && text(&ran).contains("/tmp/home"), "{library:?} {era:?}: {ran}");
        let refused = client.call("cp_run", json!({"argv": ["mv", "small", "gone"]}));
        assert!(refused["result"]["isError"] == true, "{library:?} {era:?}: {refused}");
        assert!(text(&refused).contains("`mv` is not in allowed_commands"), "{library:?} {era:?}: {refused}");
        assert!(place.work.join("small").exists());
        client.end();

        let ledger = place.sh("find \"$CP_HOME\" -path '*/ledger/*.jsonl' -exec cat {} +").stdout;
        assert!(ledger.contains(library.name()) && ledger.contains("7.8.9"), "{library:?} {era:?}: {ledger}");
        place.program("cp-log").arg("verify").run().success();
    }
}

#[test]
fn a_call_that_is_cancelled_is_gone_with_all_that_it_started() {
    for (library, era) in all() {
        let place = governed();
        let mut client = Client::new(&place, library, era, None);
        let marker = format!("601.{}{}", library as u8, era as u8);
        let runs = || is_running(&["sleep", &marker]);
        let call = json!({"argv": ["sleep", marker]});
        // The client goes away from the call when this file is there.
        let path = place.root.join("away");
        let step = json!({"do": "call", "name": "cp_run", "arguments": call, "cancel_at": path});
        client.0.write(format!("{step}\n"));
        until("the call runs", runs);
        place.root.write("away", "");
        let told = client.0.record();
        assert_eq!(told["result"]["cancelled"], true, "{library:?} {era:?}: {told}");
        until(&format!("{library:?} {era:?}: nothing of the call runs"), || !runs());
        // The server is there yet.
        let told = client.call("cp_read", json!({"path": "small"}));
        assert!(text(&told).contains("a line"), "{library:?} {era:?}: {told}");
        client.end();
    }
}

#[test]
fn approved_call_runs_only_after_approval() {
    for (library, era) in all() {
        for (answer, runs) in [(Some("accept"), true), (Some("decline"), false), (None, false)] {
            let place = governed();
            let mut client = Client::new(&place, library, era, answer);
            let told = client.call("cp_run", json!({"argv": ["touch", "made"]}));
            let shown = format!("{library:?} {era:?} {answer:?}: {told}");
            assert_eq!(place.work.join("made").exists(), runs, "{shown}");
            assert_eq!(told["result"]["isError"] == true, !runs, "{shown}");
            let questions = told["questions"].as_array().unwrap();
            assert_eq!(questions.len(), usize::from(answer.is_some()), "{shown}");
            assert!(questions.iter().all(|question| question.as_str().unwrap().contains("touch")), "{shown}");
            client.end();
        }
    }
}

//! Fixtures for interactive sessions: a script or a terminal, and a hub on loopback.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use cp_testkit::server::{Step, reply};
use cp_testkit::{Directory, Outcome, Place, Program, Server, Terminal};
use serde_json::Value;

pub(crate) struct Person(Place);

impl Deref for Person {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Person {
    pub(crate) fn new() -> Self {
        Self(Place::of("cp-shell"))
    }

    /// The program in interactive mode, without a terminal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Program {
        self.at_terminal().arg("--interactive").args(arguments)
    }

    /// The program with the variables of a terminal.
    pub(crate) fn at_terminal(&self) -> Program {
        self.subject().env("TERM", "xterm").env("SHELL", "/bin/sh")
    }

    /// A session with a script.
    #[track_caller]
    pub(crate) fn script(&self, arguments: &[&str], lines: &str) -> Outcome {
        self.command(arguments).stdin(lines).run()
    }

    /// Like [`Person::script`], with the stub as backend.
    #[track_caller]
    pub(crate) fn stub(&self, lines: &str) -> Outcome {
        self.script(&["--backend", "stub"], lines)
    }

    /// A session at a terminal with a number of columns.
    #[track_caller]
    pub(crate) fn terminal(&self, arguments: &[&str], columns: u16) -> Session {
        Session(self.at_terminal().args(arguments).terminal(columns))
    }

    /// The only session of the home.
    pub(crate) fn session(&self) -> Directory {
        let sessions = self.home.at("planes/ho1/sessions");
        let names = sessions.names();
        assert_eq!(names.len(), 1, "{names:?}");
        sessions.at(&names[0])
    }

    /// True if a model was called in a session of the home.
    pub(crate) fn asked(&self) -> bool {
        let sessions = self.home.at("planes/ho1/sessions");
        let asked = |name: &String| sessions.read_if_there(format!("{name}/ledger/llm.jsonl")).contains("llm.request");
        sessions.names().iter().any(asked)
    }

    /// The entries of its ledger.
    pub(crate) fn entries(&self) -> Vec<Value> {
        self.session().records("session.jsonl")
    }

    /// The data of its entries of one event.
    pub(crate) fn data(&self, event: &str) -> Vec<Value> {
        self.entries().into_iter().filter(|entry| entry["event"] == event).map(|entry| entry["data"].clone()).collect()
    }

    /// Writes the answers of the stub, and configures them in the home.
    pub(crate) fn stub_plays(&self, lines: &str) -> PathBuf {
        let script = self.root.write("script.jsonl", lines);
        self.home.write("config/cp.toml", format!("stub_script = \"{}\"\n", script.display()));
        script
    }

    /// Configures the URL of the hub.
    pub(crate) fn hub_at(&self, url: &str, timeout_ms: u64) {
        let text = format!("[hub]\nurl = \"{url}\"\ntopic = \"T 1\"\nagent = \"me\"\ntimeout_ms = {timeout_ms}\n");
        self.home.write("config/shell.toml", text);
    }
}

/// A session at a terminal.
pub(crate) struct Session(pub(crate) Terminal);

impl Deref for Session {
    type Target = Terminal;

    fn deref(&self) -> &Terminal {
        &self.0
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Terminal {
        &mut self.0
    }
}

impl Session {
    /// Waits for the prompt.
    #[track_caller]
    pub(crate) fn prompted(&mut self) -> String {
        self.wait_for("cp> ")
    }

    /// Types a line at the prompt and returns the output up to the next prompt.
    #[track_caller]
    pub(crate) fn says(&mut self, line: &str) -> String {
        self.send(&format!("{line}\r"));
        // The editor echoes the typed line before the output.
        self.wait_for(&format!("{line}\n"));
        self.prompted()
    }

    /// True if the output contained a colour, or faint or bold text.
    pub(crate) fn has_colour(&self) -> bool {
        self.raw().split("\x1b[").skip(1).any(|rest| {
            rest.find(|letter: char| letter.is_ascii_alphabetic()).is_some_and(|at| rest[at..].starts_with('m'))
        })
    }
}

/// A hub that answers with the result of `answer`, or does not answer if it is `None`.
pub(crate) fn hub(answer: fn(&str) -> Option<(u16, &'static str)>) -> Server {
    Server::replying(move |request| match answer(request.line()) {
        Some((status, body)) => reply(status, "application/json", "connection: close\r\n", body.as_bytes()),
        None => vec![Step::Stall],
    })
}

/// The requests to a hub: method, target and body.
pub(crate) fn asked(hub: &Server) -> Vec<String> {
    let requests = hub.requests();
    let shown = requests.iter().map(|request| format!("{} {}", request.line(), String::from_utf8_lossy(&request.body)));
    shown.map(|request| request.trim().to_owned()).collect()
}

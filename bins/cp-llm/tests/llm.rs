//! The program in its own directory, with only the variables of a provider in its environment.

use std::ops::Deref;
use std::time::Duration;

use cp_testkit::server::Reply;
use cp_testkit::{Background, BatchProvider, Conduct, Outcome, Place, Program, Server};
use serde_json::Value;

pub(crate) struct Llm {
    place: Place,
    variables: Vec<(&'static str, String)>,
}

impl Deref for Llm {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Llm {
    pub(crate) fn new() -> Self {
        Self { place: Place::of("cp-llm"), variables: Vec::new() }
    }

    /// With a fake server of a provider.
    pub(crate) fn asking(backend: &str, server: &Server) -> Self {
        let (base, key, url) = match backend {
            "anthropic" => ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", server.url()),
            "gemini" => ("GEMINI_BASE_URL", "GEMINI_API_KEY", format!("{}/v1beta", server.url())),
            "openai" | "openai-responses" => ("OPENAI_BASE_URL", "OPENAI_API_KEY", format!("{}/v1", server.url())),
            other => panic!("no provider {other}"),
        };
        Self::new().set(base, &url).set(key, "key-of-the-test-0123456789").set("CP_BACKEND", backend)
    }

    /// With a server that plays this script.
    pub(crate) fn playing(backend: &str, script: Vec<Reply>) -> (Self, Server) {
        let server = Server::playing(script);
        (Self::asking(backend, &server), server)
    }

    /// With a provider of batches.
    pub(crate) fn batching(backend: &str, conduct: Conduct) -> (Self, BatchProvider) {
        let provider = BatchProvider::new(conduct);
        (Self::asking(backend, &provider.server), provider)
    }

    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.to_owned()));
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Program {
        self.with_variables(self.subject().args(arguments))
    }

    /// A script, with the same variables.
    pub(crate) fn script(&self, script: &str) -> Program {
        self.with_variables(self.shell("sh", script))
    }

    fn with_variables(&self, program: Program) -> Program {
        let program = program.limit(Duration::from_mins(1));
        self.variables.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        self.command(arguments).run()
    }

    #[track_caller]
    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> Outcome {
        self.command(arguments).stdin(input).run()
    }

    #[track_caller]
    pub(crate) fn start(&self, arguments: &[&str]) -> Background {
        self.command(arguments).start()
    }

    pub(crate) fn ledger(&self) -> Vec<Value> {
        self.home.records("ledger/cp-llm.jsonl")
    }

    /// The entries of an event.
    pub(crate) fn entries(&self, event: &str) -> Vec<Value> {
        self.ledger().into_iter().filter(|entry| entry["event"] == event).collect()
    }
}

//! The program with tools, a script for the stub model, and the real programs beside it.

use std::ops::Deref;

use cp_testkit::{Outcome, Place, Program, until};

/// A place with `tools` and `script` beside its working directory.
pub(crate) struct ToolLoop(Place);

impl Deref for ToolLoop {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl ToolLoop {
    pub(crate) fn new() -> Self {
        // Those that it runs, so that a missing one is named before a test fails for another reason.
        for program in ["cp-llm", "cp-exec", "cp-log"] {
            cp_testkit::program(program);
        }
        let place = Place::of("cp-toolloop");
        place.root.directory("tools");
        Self(place)
    }

    /// Makes a tool of a shell script; `more` are members of its description beside its name.
    pub(crate) fn tool(&self, name: &str, more: &str, script: &str) {
        let description = format!(r#"{{"name":"{name}","description":"a tool of a test"{more}}}"#);
        let text = format!("#!/bin/sh\nif [ \"$1\" = --describe ]; then echo '{description}'; exit; fi\n{script}\n");
        self.root.executable(format!("tools/{name}"), text);
    }

    /// Writes what the stub plays.
    pub(crate) fn script(&self, lines: &[&str]) {
        self.root.write("script", lines.join("\n"));
    }

    /// The program with the stub for its model.
    pub(crate) fn command(&self, arguments: &[&str]) -> Program {
        let command = self.subject().args(arguments).env("CP_BACKEND", "stub");
        let script = self.root.join("script");
        if script.exists() { command.env("CP_STUB_SCRIPT", script) } else { command }
    }

    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        self.command(arguments).run()
    }

    /// The path of the tools, for the command line.
    pub(crate) fn tools(&self) -> String {
        self.root.join("tools").display().to_string()
    }

    /// Runs the program with the tools of this place.
    #[track_caller]
    pub(crate) fn with_tools(&self, arguments: &[&str]) -> Outcome {
        let (verb, options) = arguments.split_at(usize::from(arguments.first() == Some(&"tools")));
        self.run(&[verb, &["--tools", &self.tools()], options].concat())
    }

    /// What a tool wrote into a file of the working directory.
    pub(crate) fn written(&self, name: &str) -> String {
        self.work.read_if_there(name)
    }

    /// Waits until a tool has written into a file of the working directory.
    pub(crate) fn until_written(&self, name: &str) {
        until(name, || !self.written(name).is_empty());
    }
}

/// What the records of a run say.
pub(crate) trait Results {
    /// The contents of the tool results.
    fn results(&self) -> Vec<String>;

    /// A detail of the error of the closing line, as text.
    fn detail(&self, name: &str) -> String;
}

impl Results for Outcome {
    #[track_caller]
    fn results(&self) -> Vec<String> {
        self.of("tool_result").iter().map(|data| data["content"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    fn detail(&self, name: &str) -> String {
        self.error()["details"][name].as_str().unwrap_or_default().to_owned()
    }
}

/// The words after the program's name of a command line that an answer gave.
pub(crate) fn words_of(line: &str) -> Vec<&str> {
    line.split(' ').skip(1).collect()
}

//! Work that the other programs did, with its ledgers: what an audit and a bundle are about.

use std::path::{Path, PathBuf};

use cp_ledger::format::line::{Hash, Line, compose};
use cp_testkit::Place;
use serde_json::Value;

/// A home in which commands, requests, a model and a session left their ledgers.
pub(crate) struct Work(pub(crate) Place);

impl Work {
    pub(crate) fn new() -> Self {
        let place = Place::of("cp-log");
        place.policy("[exec]\nallowed_commands = [\"echo\", \"false\", \"cat\"]\n");
        place.program("cp-exec").args(["--", "echo", "hi"]).run().success();
        place.program("cp-exec").args(["-c", "cat <<<part | cat && TZ=UTC cat </dev/null"]).run().success();
        place.program("cp-exec").args(["-c", "ls; true"]).run().code(4);
        place.program("cp-exec").args(["--", "false"]).run().code(1);
        place.program("cp-exec").args(["--", "echo", "--password", "hunter2hunter2"]).run().success();
        let long = "y".repeat(20 << 10);
        let requests = format!(
            "{{\"operation\":\"signal_status\"}}\n{{\"operation\":\"execute_command\",\"command\":\"! echo hi\"}}\n\
             {{\"operation\":\"explain_path\",\"path\":\"{long}\"}}\n{{bad\n{{\"operation\":\"x\",\"password\":\"hunter2hunter2\"}}\n"
        );
        place.home.write("tier.json", "{\"tier\":\"ho1\"}");
        place.program("cp-shell").stdin(requests).run();
        let describe =
            "if [ \"$1\" = --describe ]; then echo '{\"name\":\"copy\",\"description\":\"A tool.\"}'; exit; fi";
        place.work.executable("tools/copy", format!("#!/bin/sh\n{describe}\ncat\n"));
        place.work.write("script", "{\"tool_calls\":[{\"name\":\"copy\",\"input\":{\"text\":\"x\"}}]}\n");
        let arguments = ["--tools", "tools", "--backend", "stub", "--stub-script", "script", "hello"];
        place.program("cp-toolloop").args(arguments).run().success();
        let started = place.program("cp-session").arg("start").run().data();
        let session = started["session_id"].as_str().unwrap().to_owned();
        place.program("cp-session").args(["append", "--session", &session, "--role", "user", "a question"]).run();
        Self(place)
    }

    /// The ledgers with this name.
    pub(crate) fn ledgers(&self, name: &str) -> Vec<PathBuf> {
        let found = self.0.program("find").arg(&self.0.home).args(["-name", name]).run().success();
        let mut paths: Vec<PathBuf> = found.stdout.lines().map(PathBuf::from).collect();
        paths.sort();
        paths
    }

    /// The one ledger with this name that has such an event, and the number of the first line that has it.
    pub(crate) fn find(&self, name: &str, event: &str) -> (PathBuf, u64) {
        let seq = |path: &Path| {
            let lines = cp_testkit::records_of(&std::fs::read(path).unwrap());
            lines.iter().find(|line| line["event"] == event).map(|line| line["seq"].as_u64().unwrap())
        };
        let mut found = self.ledgers(name).into_iter().filter_map(|path| seq(&path).map(|seq| (path, seq)));
        found.next().unwrap_or_else(|| panic!("{event} is on no {name}"))
    }

    /// The names of the run of a model, and of the session with commands.
    pub(crate) fn names(&self) -> [String; 2] {
        let ((run, _), (exec, _)) = (self.find("RUN-*.jsonl", "run_end"), self.find("exec.jsonl", "agent_turn"));
        let session = exec.ancestors().nth(2).unwrap();
        [run.file_stem(), session.file_name()].map(|name| name.unwrap().to_str().unwrap().to_owned())
    }

    /// The claims of an audit, and its closing line.
    #[track_caller]
    pub(crate) fn audit(&self, arguments: &[&str], exit: i32) -> (Vec<Value>, Value) {
        let ran = self.0.run(&[&["audit"], arguments].concat()).code(exit);
        (ran.of("item"), ran.closing())
    }
}

/// Writes one line of a ledger anew, and all behind it so that the chain is right again.
#[track_caller]
pub(crate) fn forge(path: &Path, seq: u64, edit: impl Fn(&str) -> String) {
    let text = std::fs::read(path).unwrap();
    let (mut out, mut prev) = (Vec::new(), None::<Hash>);
    for bytes in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = Line::parse(bytes).unwrap();
        let body = std::str::from_utf8(line.body()).unwrap();
        let edited = if line.seq() == seq { edit(body) } else { body.to_owned() };
        assert!(line.seq() != seq || edited != body, "nothing was edited in {body}");
        let before = prev.unwrap_or_else(|| line.prev());
        prev = Some(compose(line.seq(), line.ts(), edited.as_bytes(), &before, &mut out).unwrap());
    }
    std::fs::write(path, out).unwrap();
}

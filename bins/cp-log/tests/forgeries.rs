//! `cp-log audit` over a forged run. A run with approvals, commands and changes is recorded; then lines are removed,
//! repeated, exchanged and changed, with right numbers, receipts, hashes and chains.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_ledger::format::line::{Hash, Line, compose};
use cp_testkit::Place;
use serde_json::{Value, json};

/// A recorded run.
pub(crate) struct Recorded {
    pub(crate) place: Place,
    /// The operand of the audit.
    pub(crate) subject: String,
    pub(crate) ledgers: Vec<(PathBuf, Vec<Stored>)>,
}

/// A line of a ledger.
#[derive(Clone)]
pub(crate) struct Stored {
    seq: u64,
    ts: String,
    body: Value,
}

/// A forgery: the ledger and its entries afterwards.
struct Forgery {
    ledger: usize,
    /// True if references stay as they are.
    is_plain: bool,
    lines: Vec<Stored>,
    /// For each earlier number the number now.
    moved: BTreeMap<u64, u64>,
}

impl Recorded {
    pub(crate) fn new() -> Self {
        let place = Place::of("cp-log");
        place.policy(
            "[exec]\nallowed_commands = [\"echo\", \"tee\"]\n[[exec.rule]]\ncommand = \"tee\"\n\
             decision = \"confirm\"\nreason = \"it writes\"\n[paths]\nread = [\".\", \"../beside\"]\nwrite = [\".\", \"../beside\"]\n",
        );
        // Outside of the working directory, so that a person is asked.
        place.root.write("beside/f", "one\n");
        place.work.write("g", "a\nb\nc\n");
        let describe = r#"if [ "$1" = --describe ]; then echo '{"name":"deploy","description":"A tool.","approve":true}'; exit; fi"#;
        place.root.executable("tools/deploy", format!("#!/bin/sh\n{describe}\necho deployed\n"));
        let turns = [
            json!({"content": "I read", "tool_calls": [
                {"name": "filesystem", "input": {"operation": "read_file", "path": "g"}},
                {"name": "shell", "input": {"argv": ["echo", "hi there"]}},
            ]}),
            json!({"tool_calls": [{"name": "filesystem", "input": {"operation": "write_file", "path": "../beside/f", "content": "two\n", "mode": "overwrite"}}]}),
            json!({"tool_calls": [{"name": "filesystem", "input": {"operation": "edit_file", "path": "g", "old": "b", "new": "bB"}}]}),
            json!({"tool_calls": [{"name": "bash", "input": {"command": "echo a | tee b; echo err >&2"}}, {"name": "shell", "input": {"argv": ["tee", "made"]}}]}),
            json!({"tool_calls": [{"name": "deploy", "input": {}}]}),
            json!({"content": "done"}),
        ];
        place.root.write("script", turns.map(|turn| turn.to_string()).join("\n"));
        let tools = place.root.join("tools").display().to_string();
        let run = |arguments: &[&str]| {
            let script = place.root.join("script");
            place.program("cp-toolloop").args(arguments).env("CP_BACKEND", "stub").env("CP_STUB_SCRIPT", script).run()
        };
        let mut ran = run(&["--max-iterations", "40", "--tools", &tools, "go"]);
        let name = ran.error()["details"]["run_id"].as_str().unwrap().to_owned();
        while ran.status == 9 {
            let call = ran.error()["details"]["call"]["id"].as_str().unwrap().to_owned();
            ran = run(&["resume", &name, "--approve", &call]);
        }
        assert_eq!(ran.status, 0, "{ran:?}");
        let found = place.program("find").arg(&place.home).args(["-name", "RUN-*.jsonl"]).run().success();
        let mut ledgers: Vec<PathBuf> = found.stdout.lines().map(PathBuf::from).collect();
        ledgers.sort_by_key(|path| path.to_string_lossy().contains(&name));
        let subject = ledgers.last().unwrap().display().to_string();
        let ledgers = ledgers.iter().map(|path| (path.clone(), stored(path))).collect();
        Self { place, subject, ledgers }
    }

    /// True if an audit finds a claim that does not hold.
    pub(crate) fn is_found(&self) -> bool {
        let ran = self.place.run(&["audit", &self.subject]);
        assert!([0, 1].contains(&ran.status), "{ran:?}");
        ran.status != 0
    }

    /// Writes a forgery with right numbers, receipts, hashes and chains.
    fn write(&self, forgery: &Forgery) {
        let mut hashes: BTreeMap<(String, u64), String> = BTreeMap::new();
        for (at, (path, lines)) in self.ledgers.iter().enumerate() {
            let lines = if at == forgery.ledger { &forgery.lines } else { lines };
            let (mut out, mut prev) = (Vec::new(), None::<Hash>);
            let first = std::fs::read(path).unwrap();
            let first = Line::parse(first.split(|byte| *byte == b'\n').next().unwrap()).unwrap().prev();
            for line in lines {
                let mut body = line.body.clone();
                self.mend(&mut body, at == forgery.ledger, forgery, &hashes);
                let text = body.to_string();
                let text = &text.as_bytes()[1..text.len() - 1];
                let body: Vec<u8> = if text.is_empty() { Vec::new() } else { [b",", text].concat() };
                let hash = compose(line.seq, &line.ts, &body, prev.as_ref().unwrap_or(&first), &mut out).unwrap();
                hashes.insert((path.display().to_string(), line.seq), hash.to_string());
                prev = Some(hash);
            }
            std::fs::write(path, out).unwrap();
        }
    }

    /// Adapts the references of an entry to the new numbers and hashes.
    fn mend(&self, body: &mut Value, is_forged: bool, forgery: &Forgery, hashes: &BTreeMap<(String, u64), String>) {
        let forged = self.ledgers[forgery.ledger].0.display().to_string();
        let Some(data) = body.get_mut("data").filter(|_| !forgery.is_plain) else { return };
        let moved = |seq: &Value| seq.as_u64().and_then(|seq| forgery.moved.get(&seq)).map(|seq| json!(seq));
        if let Some(seq) = data.get("intent").and_then(moved).filter(|_| is_forged) {
            data["intent"] = seq;
        }
        if let Some(receipt) = data.get_mut("receipt").filter(|receipt| receipt.is_object()) {
            if receipt["ledger"] == forged.as_str() {
                receipt["seq"] = moved(&receipt["seq"]).unwrap_or_else(|| receipt["seq"].clone());
            }
            let ledger = receipt["ledger"].as_str().unwrap_or_default().to_owned();
            if let Some(hash) = hashes.get(&(ledger, receipt["seq"].as_u64().unwrap_or_default())) {
                receipt["hash"] = json!(hash);
            }
        }
    }
}

fn stored(path: &Path) -> Vec<Stored> {
    let text = std::fs::read(path).unwrap();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let stored = |bytes: &[u8]| {
        let line = Line::parse(bytes).unwrap();
        let body = std::str::from_utf8(line.body()).unwrap().trim_start_matches(',');
        let body = serde_json::from_str(&format!("{{{body}}}")).unwrap();
        Stored { seq: line.seq(), ts: line.ts().to_owned(), body }
    };
    lines.map(stored).collect()
}

/// A forgery of these lines, with the numbers of their places.
fn renumbered(ledger: usize, mut lines: Vec<Stored>) -> Forgery {
    let mut moved = BTreeMap::new();
    for (seq, line) in lines.iter_mut().enumerate() {
        moved.entry(line.seq).or_insert(seq as u64);
        line.seq = seq as u64;
    }
    Forgery { ledger, is_plain: false, lines, moved }
}

/// What is done with each line of an event, and the claim that is false then.
const FORGED: [(&str, &str, &str); 15] = [
    ("exec.intent", "removed", "finished"),
    ("exec.result", "repeated", "finished"),
    ("tool_call", "removed", "finished"),
    ("tool_result", "repeated", "finished"),
    ("llm.request", "removed", "finished"),
    ("llm.response", "repeated", "finished"),
    ("approval.asked", "removed", "approval"),
    ("approval.granted", "removed", "approval"),
    ("approval.spent", "repeated", "approval"),
    ("approval.asked", "/data/approval/binds/request", "approval"),
    ("approval.spent", "/data/id", "approval"),
    ("approval.spent", "/data/receipt/seq", "receipt"),
    ("tool_result", "/data/receipt/hash", "receipt"),
    ("exec.step", "/data/intent", "step"),
    ("exec.result", "/data/intent", "finished"),
];

#[test]
fn forged_lines_under_a_right_chain_are_found() {
    let recorded = Recorded::new();
    assert!(!recorded.is_found(), "the run itself holds");
    for (event, how, claim) in FORGED {
        let mut count = 0;
        for (ledger, (path, lines)) in recorded.ledgers.iter().enumerate() {
            // A call that was begun again has two starts.
            let is_once = |line: &Stored| {
                lines.iter().filter(|other| other.body["data"]["id"] == line.body["data"]["id"]).count() == 2
            };
            let is_forged = |line: &Stored| {
                line.body["event"] == event
                    && (!how.starts_with('/') || line.body.pointer(how).is_some())
                    && ((event, how) != ("tool_call", "removed") || is_once(line))
            };
            for at in (0..lines.len()).filter(|at| is_forged(&lines[*at])) {
                let mut lines = lines.clone();
                match (how, lines[at].body.pointer_mut(how)) {
                    ("removed", _) => drop(lines.remove(at)),
                    ("repeated", _) => lines.insert(at, lines[at].clone()),
                    (_, Some(Value::Number(number))) => *number = (number.as_u64().unwrap() + 1).into(),
                    (_, Some(Value::String(text))) => text.insert(text.len(), 'x'),
                    other => panic!("{other:?}"),
                }
                let forgery = Forgery { is_plain: how.starts_with('/'), ..renumbered(ledger, lines) };
                recorded.write(&forgery);
                let claims = recorded.place.run(&["audit", &path.display().to_string()]).code(1).of("item");
                let is_false = |found: &&Value| found["claim"] == claim && found["holds"] == false;
                assert!(claims.iter().any(|found| is_false(&found)), "{event} {how} at {at}: {claims:#?}");
                assert!(claims.iter().all(|found| found["claim"] != "chain" || found["holds"] == true));
                count += 1;
            }
        }
        println!("{event} {how}: {count} of {count} found");
        assert!(count > 0, "{event} {how}");
    }
}

#[test]
fn effect_whose_approvals_are_removed_is_found() {
    let recorded = Recorded::new();
    let ledger = recorded.ledgers.len() - 1;
    let is_approval = |line: &Stored| line.body["event"].as_str().is_some_and(|event| event.starts_with("approval."));
    let lines = recorded.ledgers[ledger].1.iter().filter(|line| !is_approval(line)).cloned().collect();
    recorded.write(&renumbered(ledger, lines));
    let ran = recorded.place.run(&["audit", &recorded.subject]).code(1);
    for why in ["no approval of call_", "has no request"] {
        let is_said = |claim: &Value| claim["why"].as_str().is_some_and(|text| text.contains(why));
        assert!(ran.of("item").iter().any(is_said), "{why}: {ran:?}");
    }
}

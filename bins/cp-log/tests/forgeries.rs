//! `cp-log audit` over a forged run. A run with approvals, commands and changes is recorded; then lines are removed,
//! repeated, exchanged and changed, with right numbers, receipts, hashes and chains.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_ledger::format::line::{Line, compose};
use cp_testkit::Place;
use serde_json::{Value, json};

use crate::work::forge;

/// A recorded run.
struct Recorded {
    place: Place,
    /// The operand of the audit.
    subject: String,
    /// Each ledger with its bytes and its lines; that of the run is the last.
    ledgers: Vec<(PathBuf, Vec<u8>, Vec<Value>)>,
}

impl Recorded {
    fn new() -> Self {
        let place = Place::of("cp-log");
        place.policy(
            "[exec]\nallowed_commands = [\"echo\", \"tee\"]\n[[exec.rule]]\ncommand = \"tee\"\n\
             decision = \"confirm\"\nreason = \"it writes\"\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n\
             [tools]\nallow = [\"*\"]\napprove = [\"bash\", \"filesystem\"]\n",
        );
        place.work.write("g", "a\nb\nc\n");
        let describe = r#"if [ "$1" = --describe ]; then echo '{"name":"deploy","description":"A tool.","approve":true}'; exit; fi"#;
        place.root.executable("tools/deploy", format!("#!/bin/sh\n{describe}\necho deployed\n"));
        let turns = [
            json!({"content": "I read", "tool_calls": [
                {"name": "filesystem", "input": {"operation": "read_file", "path": "g"}},
                {"name": "shell", "input": {"argv": ["echo", "hi there"]}},
            ]}),
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
        let read = |path: PathBuf| {
            let bytes = std::fs::read(&path).unwrap();
            let lines = cp_testkit::records_of(&bytes);
            (path, bytes, lines)
        };
        Self { place, subject, ledgers: ledgers.into_iter().map(read).collect() }
    }

    /// Writes these lines of a ledger with the numbers of their places, and with right receipts, hashes and chains.
    fn write(&self, ledger: usize, forged: &[Value]) {
        let mut moved = BTreeMap::new();
        for (seq, line) in (0_u64..).zip(forged) {
            moved.entry(line["seq"].as_u64().unwrap()).or_insert(seq);
        }
        let name = self.ledgers[ledger].0.display().to_string();
        let now = |seq: &Value| seq.as_u64().and_then(|seq| moved.get(&seq)).map(|seq| json!(seq));
        let mut hashes: BTreeMap<(String, u64), String> = BTreeMap::new();
        for (at, (path, bytes, lines)) in self.ledgers.iter().enumerate() {
            let first = Line::parse(bytes.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
            let (mut out, mut prev) = (Vec::new(), first.prev());
            for (seq, line) in (0..).zip(if at == ledger { forged } else { lines }) {
                let mut line = line.clone();
                if let Some(seq) = line["data"].get("intent").and_then(now).filter(|_| at == ledger) {
                    line["data"]["intent"] = seq;
                }
                if let Some(receipt) = line.pointer_mut("/data/receipt").filter(|receipt| receipt.is_object()) {
                    if receipt["ledger"] == name.as_str() {
                        receipt["seq"] = now(&receipt["seq"]).unwrap_or_else(|| receipt["seq"].clone());
                    }
                    let of = receipt["ledger"].as_str().unwrap_or_default().to_owned();
                    if let Some(hash) = hashes.get(&(of, receipt["seq"].as_u64().unwrap_or_default())) {
                        receipt["hash"] = json!(hash);
                    }
                }
                let ts = line["ts"].as_str().unwrap().to_owned();
                prev = compose(seq, &ts, body_of(line).as_bytes(), &prev, &mut out).unwrap();
                hashes.insert((path.display().to_string(), seq), prev.to_string());
            }
            std::fs::write(path, out).unwrap();
        }
    }
}

/// The members of a line between its time and the hash before it.
fn body_of(mut line: Value) -> String {
    let members = line.as_object_mut().unwrap();
    members.retain(|name, _| !["seq", "ts", "prev", "hash"].contains(&name.as_str()));
    let text = line.to_string();
    format!(",{}", &text[1..text.len() - 1])
}

/// True if a line about an approval is about a step of a command, and not about a whole call.
fn is_of_step(lines: &[Value], line: &Value) -> bool {
    lines.iter().any(|step| step["event"] == "exec.step" && step["data"]["approval"] == line["data"]["id"])
}

/// What is done with each line of an event, and the claim that is false then.
const FORGED: [(&str, &str, &str); 20] = [
    ("exec.intent", "removed", "finished"),
    ("exec.result", "repeated", "finished"),
    ("tool_call", "removed", "finished"),
    ("tool_result", "repeated", "finished"),
    ("llm.request", "removed", "finished"),
    ("llm.response", "repeated", "finished"),
    ("approval.asked", "removed", "approval"),
    ("approval.granted", "removed", "approval"),
    ("approval.spent", "repeated", "approval"),
    ("approval.spent", "removed", "approval"),
    ("approval.spent", "/data/call", "approval"),
    ("approval.asked", "/data/approval/binds/request", "approval"),
    ("approval.spent", "/data/id", "approval"),
    ("approval.spent", "/data/receipt/seq", "receipt"),
    ("tool_result", "/data/receipt/hash", "receipt"),
    ("exec.step", "/data/intent", "step"),
    ("exec.step", "removed", "step"),
    ("exec.step", "repeated", "step"),
    ("exec.changes", "repeated", "step"),
    ("exec.result", "/data/intent", "finished"),
];

#[test]
fn forged_lines_under_a_right_chain_are_found() {
    let recorded = Recorded::new();
    recorded.place.run(&["audit", &recorded.subject]).success();
    for (event, how, claim) in FORGED {
        let mut count = 0;
        for (ledger, (path, _, lines)) in recorded.ledgers.iter().enumerate() {
            // A call that was begun again has two starts.
            let is_once =
                |line: &Value| lines.iter().filter(|other| other["data"]["id"] == line["data"]["id"]).count() == 2;
            // That an approved step started is in no other line.
            let is_use = (event, how) == ("approval.spent", "removed") || how == "/data/call";
            let is_forged = |line: &Value| {
                line["event"] == event
                    && !(is_use && is_of_step(lines, line))
                    && (!how.starts_with('/') || line.pointer(how).is_some())
                    && ((event, how) != ("tool_call", "removed") || is_once(line))
                    // An edit has no command that could have only one list.
                    && (event != "exec.changes" || line["data"]["intent"].is_number())
            };
            for at in (0..lines.len()).filter(|at| is_forged(&lines[*at])) {
                let mut lines = lines.clone();
                match (how, lines[at].pointer_mut(how)) {
                    ("removed", _) => drop(lines.remove(at)),
                    ("repeated", _) => lines.insert(at, lines[at].clone()),
                    (_, Some(Value::Number(number))) => *number = (number.as_u64().unwrap() + 1).into(),
                    (_, Some(Value::String(text))) => text.push('x'),
                    other => panic!("{other:?}"),
                }
                if how.starts_with('/') {
                    forge(path, at as u64, |_| body_of(lines[at].clone()));
                } else {
                    recorded.write(ledger, &lines);
                }
                let claims = recorded.place.run(&["audit", &path.display().to_string()]).code(1).of("item");
                let is_false = |found: &Value| found["claim"] == claim && found["holds"] == false;
                assert!(claims.iter().any(is_false), "{event} {how} at {at}: {claims:#?}");
                assert!(claims.iter().all(|found| found["claim"] != "chain" || found["holds"] == true));
                count += 1;
                for (path, bytes, _) in &recorded.ledgers {
                    std::fs::write(path, bytes).unwrap();
                }
            }
        }
        assert!(count > 0, "{event} {how}");
    }
}

#[test]
fn effect_whose_approvals_are_removed_is_found() {
    let recorded = Recorded::new();
    let ledger = recorded.ledgers.len() - 1;
    let is_approval = |line: &&Value| line["event"].as_str().is_some_and(|event| event.starts_with("approval."));
    let lines: Vec<Value> = recorded.ledgers[ledger].2.iter().filter(|line| !is_approval(line)).cloned().collect();
    recorded.write(ledger, &lines);
    let ran = recorded.place.run(&["audit", &recorded.subject]).code(1);
    for why in ["no approval of call_", "has no request"] {
        let is_said = |claim: &Value| claim["why"].as_str().is_some_and(|text| text.contains(why));
        assert!(ran.of("item").iter().any(is_said), "{why}: {ran:?}");
    }
}

#[test]
fn effect_whose_question_was_not_granted_and_used_is_found() {
    let recorded = Recorded::new();
    let ledger = recorded.ledgers.len() - 1;
    let original = &recorded.ledgers[ledger].2;
    let questions = original.iter().filter(|line| line["event"] == "approval.asked" && !is_of_step(original, line));
    let ids: Vec<&Value> = questions.map(|line| &line["data"]["id"]).collect();
    assert!(ids.len() >= 5, "{ids:?}");
    for id in ids {
        for answer in [None, Some("approval.denied")] {
            let mut lines = original.clone();
            let is_about = |line: &Value, event: &str| line["event"] == event && line["data"]["id"] == *id;
            lines.retain(|line| {
                !is_about(line, "approval.spent") && (answer.is_some() || !is_about(line, "approval.granted"))
            });
            for line in lines.iter_mut().filter(|line| is_about(line, "approval.granted")) {
                line["event"] = json!(answer);
            }
            recorded.write(ledger, &lines);
            let ran = recorded.place.run(&["audit", &recorded.subject]).code(1);
            let is_false = |claim: &Value| claim["claim"] == "approval" && claim["holds"] == false;
            assert!(ran.of("item").iter().any(is_false), "{id} {answer:?}: {ran:?}");
        }
    }
    let (path, bytes, _) = &recorded.ledgers[ledger];
    std::fs::write(path, bytes).unwrap();
}

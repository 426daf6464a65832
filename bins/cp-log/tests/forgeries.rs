//! `cp-log audit` over forged runs. A run with approvals, commands, changes and an agent is recorded; then each member of each entry is changed,
//! removed or exchanged with that of another entry, and each entry is removed, repeated or exchanged, with right numbers, receipts, hashes
//! and chains. The members of which an audit finds no forgery are listed in cp-ledger(5).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_ledger::format::canonical::hash_normal;
use cp_ledger::format::claims::{ExecResult, exec_command, exec_result};
use cp_ledger::format::line::{Hash, Line, compose};
use cp_testkit::Place;
use serde_json::{Value, json};

/// Forgeries that are tried without `CP_LONG=1`.
const SAMPLE: u64 = 120;

/// The share of the judged forgeries that an audit has to find.
const SHARE: f64 = 0.95;

/// A recorded run with its agent, the ledgers of the agent first; or a session.
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
    pub(crate) body: Value,
}

/// A forgery: the ledger, the entry, the member that it is about, and the entries afterwards.
pub(crate) struct Forgery {
    pub(crate) ledger: usize,
    pub(crate) member: String,
    pub(crate) name: String,
    lines: Vec<Stored>,
    /// For each earlier number the number now.
    moved: BTreeMap<u64, u64>,
}

impl Recorded {
    pub(crate) fn new() -> Self {
        let place = Place::of("cp-log");
        place.policy(
            "[exec]\nallowed_commands = [\"echo\", \"tee\"]\nargument_rules = \"off\"\n[[exec.rule]]\ncommand = \"tee\"\n\
             decision = \"confirm\"\nreason = \"it writes\"\n[paths]\nread = [\".\", \"../beside\"]\nwrite = [\".\", \"../beside\"]\n",
        );
        // Outside of the working directory, so that a person is asked.
        place.root.write("beside/f", "one\n");
        place.work.write("g", "a\nb\nc\n");
        let describe = r#"if [ "$1" = --describe ]; then echo '{"name":"deploy","description":"A tool.","approve":true}'; exit; fi"#;
        place.root.executable("tools/deploy", format!("#!/bin/sh\n{describe}\necho deployed\n"));
        let turns = [
            json!({"content": "I delegate", "tool_calls": [{"name": "agent", "input": {"task": "read it"}}]}),
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
        Self::of(place, subject, &ledgers)
    }

    pub(crate) fn of(place: Place, subject: String, ledgers: &[PathBuf]) -> Self {
        let ledgers = ledgers.iter().map(|path| (path.clone(), stored(path))).collect();
        Self { place, subject, ledgers }
    }

    /// True if an audit finds a claim that does not hold.
    pub(crate) fn is_found(&self) -> bool {
        let ran = self.place.run(&["audit", &self.subject]);
        assert!([0, 1, 10].contains(&ran.status), "{ran:?}");
        ran.status != 0
    }

    /// Writes a forgery with right numbers, receipts, hashes and chains.
    pub(crate) fn write(&self, forgery: &Forgery) {
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

    /// Adapts the references of an entry to the new numbers and hashes, and its own hashes to its members.
    fn mend(&self, body: &mut Value, is_forged: bool, forgery: &Forgery, hashes: &BTreeMap<(String, u64), String>) {
        let event = body["event"].as_str().unwrap_or_default().to_owned();
        let forged = self.ledgers[forgery.ledger].0.display().to_string();
        let Some(data) = body.get_mut("data") else { return };
        let moved = |seq: &Value| seq.as_u64().and_then(|seq| forgery.moved.get(&seq)).map(|seq| json!(seq));
        let is_own = forgery.member == format!("{event}.data.intent");
        if let Some(seq) = data.get("intent").and_then(moved).filter(|_| is_forged && !is_own) {
            data["intent"] = seq;
        }
        let is_own = forgery.member.contains(".receipt.");
        if let Some(receipt) = data.get_mut("receipt").filter(|receipt| receipt.is_object() && !is_own) {
            if receipt["ledger"] == forged.as_str() {
                let seq = moved(&receipt["seq"]);
                receipt["seq"] = seq.unwrap_or_else(|| receipt["seq"].clone());
            }
            let ledger = receipt["ledger"].as_str().unwrap_or_default().to_owned();
            if let Some(hash) = hashes.get(&(ledger, receipt["seq"].as_u64().unwrap_or_default())) {
                receipt["hash"] = json!(hash);
            }
        }
        if data.get("argv").is_some() && data.get("command_hash").is_some() && !forgery.member.ends_with("command_hash")
        {
            let argv: Vec<&str> = data["argv"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let names: Vec<&String> = data["env"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
            data["command_hash"] =
                json!(hash_normal(&exec_command(&argv, data["cwd"].as_str().unwrap_or_default(), &names)));
        }
        if data.get("stdout").is_some() && data.get("result_hash").is_some() && !forgery.member.ends_with("result_hash")
        {
            let number = |name: &str| data[name].as_i64().and_then(|number| i32::try_from(number).ok());
            let stream = |name: &str| data[name]["sha256"].as_str().unwrap_or_default().to_owned();
            let (stdout, stderr) = (stream("stdout"), stream("stderr"));
            let result = ExecResult {
                return_code: number("return_code"),
                signal: number("signal"),
                stdout: &stdout,
                stderr: &stderr,
            };
            data["result_hash"] = json!(exec_result(&result));
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

/// The pointers of the members of a value, without the members of objects and lists themselves.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            members
                .iter()
                .for_each(|(name, value)| pointers(value, &format!("{at}/{}", name.replace('/', "~1")), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(place, value)| pointers(value, &format!("{at}/{place}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// The name of a member: its event and its path, without the places in lists.
fn member(event: &str, pointer: &str) -> String {
    let parts = pointer.split('/').filter(|part| !part.is_empty() && part.parse::<u64>().is_err());
    [event].into_iter().chain(parts).collect::<Vec<_>>().join(".")
}

/// Another value of the same type.
fn changed(value: &Value) -> Value {
    match value {
        Value::Null => json!("x"),
        Value::Bool(is) => json!(!is),
        Value::Number(number) => number.as_u64().map_or(json!(7.25), |number| json!(number + 1)),
        Value::String(text) => match text.rfind(|c: char| c.is_ascii_hexdigit()).filter(|_| text.contains("sha256:")) {
            Some(at) => {
                let other = if &text[at..=at] == "0" { "1" } else { "0" };
                json!(format!("{}{other}{}", &text[..at], &text[at + 1..]))
            }
            None => json!(format!("{text}x")),
        },
        Value::Array(_) => json!(["x"]),
        Value::Object(_) => json!({"x": 1}),
    }
}

fn removed(body: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match body.pointer_mut(parent) {
        Some(Value::Object(members)) => drop(members.shift_remove(&name.replace("~1", "/"))),
        Some(Value::Array(items)) => drop(items.remove(name.parse().unwrap())),
        _ => {}
    }
}

/// A forgery of these lines, with the numbers of their places.
pub(crate) fn renumbered(ledger: usize, member: String, name: String, mut lines: Vec<Stored>) -> Forgery {
    let mut moved = BTreeMap::new();
    for (seq, line) in lines.iter_mut().enumerate() {
        moved.entry(line.seq).or_insert(seq as u64);
        line.seq = seq as u64;
    }
    // A receipt of a removed line names the line in its place.
    for seq in 0..lines.len() as u64 {
        moved.entry(seq).or_insert(seq);
    }
    Forgery { ledger, member, name, lines, moved }
}

/// All forgeries of the ledgers.
pub(crate) fn forgeries(recorded: &Recorded) -> Vec<Forgery> {
    let mut all = Vec::new();
    for (ledger, (_, lines)) in recorded.ledgers.iter().enumerate() {
        for (at, line) in lines.iter().enumerate().skip(1) {
            let event = line.body["event"].as_str().unwrap_or_default();
            let mut edit = |member: String, kind: &str, body: Value| {
                let mut lines = lines.clone();
                if body != lines[at].body {
                    lines[at].body = body;
                    let name = format!("{kind} {member} of line {at}");
                    all.push(Forgery { ledger, member, name, lines, moved: BTreeMap::new() });
                }
            };
            let mut found = Vec::new();
            pointers(&line.body, "", &mut found);
            for pointer in found.into_iter().filter(|pointer| pointer != "/event") {
                let name = member(event, &pointer);
                let mut body = line.body.clone();
                *body.pointer_mut(&pointer).unwrap() = changed(line.body.pointer(&pointer).unwrap());
                edit(name.clone(), "change", body);
                let mut body = line.body.clone();
                removed(&mut body, &pointer);
                edit(name.clone(), "remove", body);
                let others = lines.iter().filter(|other| other.body["event"] == event);
                let value = line.body.pointer(&pointer);
                if let Some(other) =
                    others.filter_map(|other| other.body.pointer(&pointer)).find(|other| Some(*other) != value)
                {
                    let mut body = line.body.clone();
                    *body.pointer_mut(&pointer).unwrap() = other.clone();
                    edit(name, "exchange", body);
                }
            }
            let renumbered = |lines: Vec<Stored>, kind: &str| {
                renumbered(ledger, format!("{event}.{kind}"), format!("{kind} {event}, line {at}"), lines)
            };
            let mut without = lines.clone();
            without.remove(at);
            all.push(renumbered(without, "removed"));
            let mut twice = lines.clone();
            twice.insert(at, lines[at].clone());
            all.push(renumbered(twice, "repeated"));
            if let Some(place) = (at + 1..lines.len()).find(|place| lines[*place].body["event"] == event) {
                let mut exchanged = lines.clone();
                exchanged.swap(at, place);
                all.push(renumbered(exchanged, "exchanged"));
            }
        }
    }
    all
}

/// The members that the manual lists: an event or `*`, and the beginning of a path.
pub(crate) fn listed() -> Vec<(String, String)> {
    let page = include_str!("../../../man/cp-ledger.5");
    let part = page.split(".Ss Members that an audit cannot judge").nth(1).unwrap().split("\n.Ss ").next().unwrap();
    let (mut all, mut events) = (Vec::new(), Vec::new());
    for line in part.lines() {
        if let Some(names) = line.strip_prefix(".It Cm ") {
            events = names.split(" , ").map(str::to_owned).collect();
        } else if let Some(names) = line.strip_prefix(".Ql ") {
            for event in &events {
                let names = names.split(" , ").map(|name| name.trim_matches('"'));
                all.extend(names.map(|name| (event.clone(), name.to_owned())));
            }
        }
    }
    all
}

pub(crate) fn is_listed(listed: &[(String, String)], name: &str) -> bool {
    listed.iter().any(|(event, path)| {
        let rest = match event.as_str() {
            "*" => path_of(name),
            event => name
                .strip_prefix(event)
                .and_then(|rest| rest.strip_prefix('.'))
                .map(|rest| rest.trim_start_matches("data.")),
        };
        rest.is_some_and(|rest| {
            rest == path || rest.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'))
        })
    })
}

/// The path of a member behind its event, whose name may have a dot.
fn path_of(name: &str) -> Option<&str> {
    let (event, rest) = name.split_once('.')?;
    let rest = if ["exec", "llm", "approval"].contains(&event) { rest.split_once('.')?.1 } else { rest };
    Some(rest.trim_start_matches("data."))
}

#[test]
fn forgery_of_any_listed_or_judged_member_is_as_the_manual_says() {
    let recorded = Recorded::new();
    assert!(!recorded.is_found(), "the run itself holds");
    for (ledger, (_, lines)) in recorded.ledgers.iter().enumerate() {
        let is_asked = |line: &&Stored| line.body["event"] == "approval.asked";
        let calls: Vec<&Value> = lines.iter().filter(is_asked).map(|line| &line.body["data"]["call"]).collect();
        assert_eq!(calls.len(), 4);
        for call in calls {
            let is_about = |line: &Stored| {
                line.body["event"].as_str().unwrap().starts_with("approval.") && line.body["data"]["call"] == *call
            };
            let kept = lines.iter().filter(|line| !is_about(line)).cloned().collect();
            recorded.write(&renumbered(ledger, "approvals".to_owned(), format!("approvals of {call}"), kept));
            assert!(recorded.is_found(), "all approvals of {call} were removed");
        }
    }
    let (listed, all) = (listed(), forgeries(&recorded));
    let is_long = cp_testkit::is_long();
    let seed = std::env::var("CP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    // Knuth's multiplier spreads the sample over all entries and members.
    let drawn = |at: usize| (at as u64).wrapping_add(seed).wrapping_mul(6_364_136_223_846_793_005) >> 33;
    let sample = std::env::var("CP_SAMPLE").ok().and_then(|count| count.parse().ok()).unwrap_or(SAMPLE);
    let step = (all.len() as u64 / sample).max(1);
    let mut shares: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut missed = Vec::new();
    for (_, forgery) in all.iter().enumerate().filter(|(at, _)| is_long || drawn(*at).is_multiple_of(step)) {
        recorded.write(forgery);
        let is_found = recorded.is_found();
        let share = shares.entry(forgery.member.clone()).or_default();
        *share = (share.0 + u64::from(is_found), share.1 + 1);
        println!("{} {}", if is_found { "found" } else { "missed" }, forgery.name);
        if !is_found && !is_listed(&listed, &forgery.member) {
            missed.push(forgery.name.clone());
        }
    }
    let (mut found, mut judged, mut tried) = (0, 0, 0);
    for (name, (caught, count)) in &shares {
        let is_listed = is_listed(&listed, name);
        println!("{name}: {caught} of {count}{}", if is_listed { ", listed" } else { "" });
        tried += count;
        if !is_listed {
            (found, judged) = (found + caught, judged + count);
        }
    }
    println!("seed {seed}: {tried} forgeries, {judged} of members that can be judged, {found} of these found");
    println!("missed: {missed:#?}");
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = found as f64 / judged as f64;
    // A sample differs from the whole.
    assert!(
        share >= if is_long { SHARE } else { SHARE - 0.05 },
        "seed {seed}: {found} of {judged}, missed {missed:#?}"
    );
}

#[test]
fn effect_whose_approval_is_removed_has_exit_status_of_an_unseen_call() {
    let recorded = Recorded::new();
    let ledger = recorded.ledgers.len() - 1;
    let is_approval = |line: &Stored| line.body["event"].as_str().is_some_and(|event| event.starts_with("approval."));
    let lines = recorded.ledgers[ledger].1.iter().filter(|line| !is_approval(line)).cloned().collect();
    recorded.write(&renumbered(ledger, "approvals".to_owned(), "removed".to_owned(), lines));
    let error = recorded.place.run(&["audit", &recorded.subject]).failed(10, "E_UNSEEN");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("without its approval: ") && message.contains("no approval of call_"), "{message}");
}

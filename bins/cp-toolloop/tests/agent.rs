//! Agents: a task given to a run of its own, its share of the budget, and what becomes of it when somebody is killed or asked.

use cp_testkit::{Outcome, until};

use crate::toolloop::{Results, ToolLoop, words_of};
use serde_json::{Value, json};

/// A model that says what the script has for the conversation's first words, turn by turn.
const MODEL: &str = r#"#!/usr/bin/python3
import json, os, sys
script = json.load(open(os.path.join(os.path.dirname(sys.argv[0]), "turns")))
for line in sys.stdin:
    record = json.loads(line)
    if record.get("type") != "prompt": continue
    data = record["data"]
    turns = script[data["messages"][0]["content"]]
    n = sum(1 for turn in data["messages"] if turn["role"] == "assistant")
    says = turns[min(n, len(turns) - 1)]
    calls = [{"id": "c%d_%d" % (n, i), "name": c[0], "input": c[1]} for i, c in enumerate(says.get("calls", []))]
    content = says.get("says", "").replace("TOOLS", ",".join(t["name"] for t in data.get("tools", [])))
    message = {"id": "m", "role": "assistant", "content": content, "tool_calls": calls, "input": [], "model": "x", "backend": "x",
        "stop_reason": "tool_use" if calls else "end_turn", "usage": {"input_tokens": 10, "output_tokens": 1, "cost_usd": 0.5}}
    print(json.dumps({"ok": True, "schema_version": "1.0", "type": "message", "data": message}), flush=True)
"#;

pub(crate) fn place(turns: &Value) -> ToolLoop {
    let place = ToolLoop::new();
    place.root.executable("model", MODEL);
    place.root.write("turns", turns.to_string());
    place
}

fn arguments(place: &ToolLoop) -> Vec<String> {
    let path = |name: &str| place.root.join(name).display().to_string();
    vec!["--tools".to_owned(), path("tools"), "--llm".to_owned(), path("model")]
}

pub(crate) fn ask(place: &ToolLoop, more: &[&str]) -> Outcome {
    let arguments = arguments(place);
    place.run(&[&arguments.iter().map(String::as_str).collect::<Vec<_>>(), more].concat())
}

fn delegate(task: &str) -> Value {
    json!({"calls": [["agent", {"task": task}]]})
}

fn runs(place: &ToolLoop) -> Vec<Value> {
    place.run(&["runs"]).closing()["data"]["items"].as_array().unwrap().clone()
}

fn kept(place: &ToolLoop) -> usize {
    let files = std::fs::read_dir(place.root.join("home/planes/ho1/runs")).unwrap();
    files.filter(|file| file.as_ref().unwrap().path().extension().is_none_or(|extension| extension != "jsonl")).count()
}

#[test]
fn agent_has_own_run_and_answers_once() {
    cp_testkit::needs!("python3");
    let place = place(&json!({
        "go": [delegate("sub"), {"says": "done"}],
        "sub": [{"calls": [["step", {}]]}, {"says": "found it with TOOLS"}],
    }));
    place.tool("step", "", "echo did");
    let ran = ask(&place, &["--budget-usd", "10", "go"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    // It cannot start agents itself.
    assert_eq!(ran.results(), ["found it with step,filesystem,system,shell,bash"]);
    assert_eq!((ran.of("message").len(), ran.of("tool_call").len()), (2, 1), "only its answer is ours: {ran:?}");
    let closing = &ran.closing()["data"];
    assert_eq!((&closing["iterations"], &closing["agent_iterations"]), (&json!(2), &json!(2)));
    assert_eq!(closing["usage"]["input_tokens"], 40);
    assert_eq!(closing["usage"]["cost_usd"], 2.0);
    let ledger = ran.of("tool_result")[0]["receipt"]["ledger"].as_str().unwrap().to_owned();
    let shown = place.run(&["show", &ledger]);
    let data = &shown.closing()["data"];
    assert_eq!(data["status"], "completed", "{shown:?}");
    assert_eq!(data["steps"][1]["data"]["parent"], closing["run_id"], "{shown:?}");
    assert_eq!(runs(&place).len(), 2);
    assert_eq!(kept(&place), 0, "nothing exact is left of runs that are over");
}

#[test]
fn recorded_run_with_agent_is_replayed() {
    cp_testkit::needs!("python3");
    let place = place(&json!({"go": [delegate("sub"), {"says": "done"}], "sub": [{"says": "found"}]}));
    let ran = ask(&place, &["--record", "r.jsonl", "go"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let again = place.run(&["--replay", "r.jsonl"]);
    assert_eq!(again.status, 0, "{again:?}");
    assert_eq!(again.results(), ["found"]);
    for name in ["usage", "iterations", "agent_iterations", "tool_calls"] {
        assert_eq!(again.closing()["data"][name], ran.closing()["data"][name], "{name}");
    }
    assert_eq!(runs(&place).len(), 2, "nothing was started");
}

#[test]
fn agent_gets_half_of_budget_and_named_tools() {
    cp_testkit::needs!("python3");
    let place = place(&json!({
        "go": [{"calls": [["agent", {"task": "sub", "tools": []}]]}, {"calls": [["agent", {"task": "sub", "tools": ["nope"]}]]},
            delegate("sub"), {"says": "done"}],
        "sub": [{"says": "I have (TOOLS)", "calls": [["step", {}]]}],
    }));
    place.tool("step", "", "echo x >>effects; echo did");
    let ran = ask(&place, &["--max-iterations", "12", "go"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let results = ran.results();
    // (12 - 1) / 2 turns, and then (12 - 3 - 5) / 2.
    assert!(results[0].contains("E_BUDGET_EXHAUSTED") && results[0].contains("asked 5 times"), "{results:?}");
    assert!(results[0].contains("So far: I have ()"), "{results:?}");
    assert_eq!(results[1], "Tool not permitted: nope");
    assert!(results[2].contains("asked 2 times") && results[2].contains("step,filesystem"), "{results:?}");
    assert_eq!(place.written("effects").lines().count(), 2);
    assert_eq!(ran.closing()["data"]["agent_iterations"], 7);
    let poor = ask(&place, &["--max-iterations", "2", "go"]);
    assert!(poor.results()[0].contains("not enough of the budget"), "{poor:?}");
    let none = ask(&place, &["--agent-depth", "0", "--max-iterations", "2", "go"]);
    assert_eq!(none.results()[0], "Tool not permitted: agent");
}

#[test]
fn dollar_budget_stops_run_and_agents() {
    cp_testkit::needs!("python3");
    let more = json!({"calls": [["step", {}]]});
    let place = place(&json!({"go": [delegate("sub"), more], "sub": [more]}));
    place.tool("step", "", "echo did");
    // Half a dollar a turn: one, then an agent with 1.75 to spend, then as many as are left.
    let ran = ask(&place, &["--budget-usd", "4", "go"]);
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "usd"), "{ran:?}");
    assert!(ran.results()[0].contains("2.0000 dollars were spent, of 1.7500"), "{ran:?}");
    let details = &ran.error()["details"];
    assert_eq!((&details["iterations"], &details["agent_iterations"]), (&json!(4), &json!(4)), "{ran:?}");
    assert!(ran.detail("resume").contains("--budget-usd 8"), "{ran:?}");
}

#[test]
fn policy_budget_is_shared_by_agents_and_resumes() {
    cp_testkit::needs!("python3");
    let more = json!({"calls": [["step", {}]]});
    let place = place(&json!({"go": [delegate("sub"), more], "sub": [more]}));
    place.tool("step", "", "echo did");
    place.policy("[llm]\nbudget_usd = 2.0\n");
    // Half a dollar a turn: one, two of an agent with 0.75 to spend, and one more.
    let ran = ask(&place, &["go"]);
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "usd"), "{ran:?}");
    assert!(ran.error()["message"].as_str().unwrap().contains("policy allows a run 2.0000"), "{ran:?}");
    assert!(ran.results()[0].contains("1.0000 dollars were spent, of 0.7500"), "{ran:?}");
    let run = ran.detail("run_id");
    for more in [&["--budget-usd", "90"][..], &[]] {
        let again = place.run(&[&["resume", &run], more].concat());
        assert_eq!((again.status, &again.error()["details"]["usage"]["cost_usd"]), (9, &json!(2.0)), "{again:?}");
    }
    place.policy("[llm]\nbudget_usd = 3.0\n");
    let again = place.run(&["resume", &run]);
    assert_eq!((again.status, &again.error()["details"]["usage"]["cost_usd"]), (9, &json!(3.0)), "{again:?}");
}

#[test]
fn two_agents_run_in_parallel() {
    cp_testkit::needs!("python3");
    let two = json!({"calls": [["agent", {"task": "a"}], ["agent", {"task": "b"}]]});
    let waits = json!({"calls": [["meet", {}]]});
    let place =
        place(&json!({"go": [two, {"says": "done"}], "a": [waits, {"says": "A"}], "b": [waits, {"says": "B"}]}));
    place.tool(
        "meet",
        "",
        "echo x >>here; for i in $(seq 200); do [ $(wc -l <here) = 2 ] && exit; sleep 0.05; done; exit 1",
    );
    let ran = ask(&place, &["--parallel", "2", "go"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.results(), ["A", "B"]);
}

#[test]
fn killed_agent_is_resumed() {
    cp_testkit::needs!("python3");
    let step = |n: u64| json!({"calls": [["step", {"n": n}]]});
    for kill_at in 1..=3 {
        let place = place(
            &json!({"go": [delegate("sub"), {"says": "done"}], "sub": [step(1), step(2), step(3), {"says": "ok"}]}),
        );
        place.tool("step", r#","idempotent":true"#, "cat >>effects; echo >>effects; sleep 0.3; echo did");
        let arguments = arguments(&place);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["go"]).collect();
        let child = place.command(&arguments).start();
        until("the step", || place.written("effects").matches('\n').count() == kill_at);
        child.kill();
        let id = runs(&place).last().unwrap()["id"].as_str().unwrap().to_owned();
        let ran = place.run(&["resume", &id]);
        assert_eq!(ran.status, 0, "killed at {kill_at}: {ran:?}");
        assert_eq!(ran.results(), ["ok"]);
        let effects = place.written("effects");
        let mut different: Vec<&str> = effects.lines().collect();
        different.dedup();
        assert_eq!(different, [1, 2, 3].map(|n| format!("{{\"n\": {n}}}")), "killed at {kill_at}");
        assert!(effects.lines().count() <= 4, "only the step that was under way is repeated: {effects}");
        let runs = runs(&place);
        assert_eq!(runs.len(), 2, "no second agent was started");
        assert!(runs.iter().all(|run| run["status"] == "completed"), "{runs:?}");
        assert_eq!(kept(&place), 0);
    }
}

#[test]
fn approval_of_agent_is_passed_to_parent_run() {
    cp_testkit::needs!("python3");
    for (answer, expected) in [("resume", "did\n"), ("otherwise", "Denied: no")] {
        let place = place(&json!({
            "go": [delegate("sub"), {"says": "done"}],
            "sub": [{"calls": [["deploy", {}]]}, {"says": "it is over"}],
        }));
        place.tool("deploy", r#","approve":true"#, "echo did");
        let asked = ask(&place, &["go"]);
        assert_eq!((asked.status, &asked.error()["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{asked:?}");
        let agent = asked.error()["details"]["agent"].as_str().unwrap().to_owned();
        assert_eq!(asked.error()["details"]["call"]["id"], format!("{agent}/c0_0"));
        assert_eq!(asked.detail("action"), "approve_tool_call");
        let ran = place.run(&words_of(&asked.detail(answer)));
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!(ran.results(), ["it is over"]);
        let shown = place.run(&["show", &agent]);
        let closing = shown.closing();
        let told = closing["data"]["steps"].as_array().unwrap().iter().find(|step| step["event"] == "tool_result");
        assert_eq!(told.unwrap()["content"], expected);
    }
}

#[test]
fn agent_ends_with_parent_run() {
    cp_testkit::needs!("python3");
    let place = place(&json!({"go": [delegate("sub")], "sub": [{"calls": [["deploy", {}]]}]}));
    place.tool("deploy", r#","approve":true"#, "echo did");
    let asked = ask(&place, &["go"]);
    assert_eq!(place.run(&["cancel", &asked.detail("run_id")]).status, 0);
    let runs = runs(&place);
    assert!(runs.len() == 2 && runs.iter().all(|run| run["status"] == "cancelled"), "{runs:?}");
    assert_eq!(kept(&place), 0);
}

#[test]
fn agent_shares_deadline_of_run() {
    cp_testkit::needs!("python3");
    let place =
        place(&json!({"go": [delegate("sub"), {"says": "done"}], "sub": [{"calls": [["slow", {}]]}, {"says": "ok"}]}));
    place.tool("slow", r#","idempotent":true"#, "[ -e quick ] || sleep 30; echo did");
    let ran = ask(&place, &["--deadline", "2", "go"]);
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "time"), "{ran:?}");
    place.work.write("quick", "");
    let again = place.run(&words_of(&ran.detail("resume")));
    assert_eq!(again.status, 0, "{again:?}");
    assert_eq!(again.results(), ["ok"]);
}

#[test]
fn terminal_output_ends_with_report_command() {
    let place = ToolLoop::new();
    place.script(&[r#"{"tool_calls":[{"name":"agent","input":{"task":"sub"}}]}"#, r#"{"content":"done"}"#]);
    let other = place.root.join("an other home").display().to_string();
    for home in [None, Some(&other)] {
        let named: Vec<&str> = home.iter().flat_map(|home| ["--home", home.as_str()]).collect();
        let arguments = [&named[..], &["--agent-depth", "1", "go"]].concat();
        let piped = place.run(&arguments);
        assert_eq!((piped.status, piped.stderr.contains("cp-report")), (0, false), "{piped:?}");
        let mut terminal = place.command(&arguments).terminal(400);
        assert_eq!(terminal.end(), Some(0));
        let shown = terminal.text();
        let line = shown.lines().find(|line| line.contains("cp-report")).unwrap_or_else(|| panic!("{shown}"));
        place.sh(line.trim()).success();
        let page = place.work.read(line.trim().rsplit('>').next().unwrap());
        // The ledger of the run and that of its agent.
        assert_eq!(page.matches(r#""type":"bundle_ledger""#).count(), 2, "{line}");
    }
}

#[test]
fn run_agents_and_resume_share_budget_file() {
    let place = ToolLoop::new();
    let used = r#""usage":{"input_tokens":6,"output_tokens":4}"#;
    let call = format!(r#"{{"tool_calls":[{{"name":"agent","input":{{"task":"sub"}}}}],{used}}}"#);
    place.script(&[&call, &format!(r#"{{"content":"done",{used}}}"#)]);
    let spent = || -> Value {
        let budget: Value = serde_json::from_str(&place.work.read("budget")).unwrap();
        assert_eq!(budget["reserved"], json!([]), "{budget}");
        budget["spent"]["tokens"].clone()
    };
    // The loop asks twice, and so does its agent.
    let ran = place.run(&["--budget-file", "budget", "--budget-tokens", "1000", "go"]);
    assert_eq!((ran.status, spent()), (0, json!(40)), "{ran:?}");
    // Other processes have spent most of the budget: the rest is enough for one request, and the agent makes none.
    place.work.write("budget", r#"{"limit":{},"spent":{"usd":0.0,"tokens":115},"reserved":[]}"#);
    let ran = place.run(&["--budget-file", "budget", "--budget-tokens", "120", "go"]);
    assert_eq!((ran.status, &ran.error()["code"], spent()), (9, &json!("E_BUDGET_EXHAUSTED"), json!(125)), "{ran:?}");
    assert!(ran.results()[0].contains("E_BUDGET_EXHAUSTED"), "{ran:?}");
    assert!(ran.detail("resume").ends_with(" --budget-tokens 250"), "{ran:?}");
    let again = place.run(&words_of(&ran.detail("resume")));
    assert_eq!((again.status, spent()), (0, json!(135)), "{again:?}");
    let other = place.run(&["--llm", "/bin/true", "--budget-file", "budget", "go"]);
    assert_eq!((other.status, &other.error()["code"]), (2, &json!("E_USAGE")), "{other:?}");
}

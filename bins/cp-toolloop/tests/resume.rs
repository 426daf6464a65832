//! Runs that are killed, stopped, approved, denied, cancelled, and go on without repeating what was done.

use cp_testkit::{Outcome, until};

use std::time::{Duration, Instant};

use crate::toolloop::{Results, ToolLoop, words_of};
use serde_json::{Value, json};

/// A place whose model calls `step` five times, one after the other, each with its number.
fn five_steps(idempotent: bool) -> ToolLoop {
    let place = ToolLoop::new();
    let hint = format!(r#","idempotent":{idempotent}"#);
    place.tool(
        "step",
        &hint,
        r#"n=$(cat); grep -qxF "$n" effects 2>/dev/null || echo "$n" >>effects; echo "$n" >>calls; echo did"#,
    );
    let lines: Vec<String> =
        (1..=5).map(|n| format!(r#"{{"tool_calls":[{{"name":"step","input":{{"n":{n}}}}}]}}"#)).collect();
    place.script(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    place
}

/// Starts a run, kills it with SIGKILL when its line number `kill_at` is out, and returns its id.
fn killed(place: &ToolLoop, kill_at: usize) -> String {
    killed_when(place, kill_at, || ())
}

/// The same, but it may go on after that line until something is so.
fn killed_when(place: &ToolLoop, kill_at: usize, until: impl FnOnce()) -> String {
    let mut child = place.command(&["--tools", &place.tools(), "go"]).start();
    let mut run = String::new();
    for _ in 0..kill_at {
        let Some(line) = child.next_line() else { break };
        let line: Value = serde_json::from_str(&line).unwrap();
        if let Some(id) = line["data"]["run_id"].as_str() {
            id.clone_into(&mut run);
        }
    }
    until();
    child.kill();
    run
}

/// Goes on until the run is over, deciding about each unfinished call by looking whether it had its effect.
fn finish(place: &ToolLoop, run: &str) -> Outcome {
    let mut arguments = vec!["resume".to_owned(), run.to_owned()];
    for _ in 0..10 {
        let ran = place.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        if ran.error()["code"] != "E_HUMAN_REQUIRED" {
            return ran;
        }
        assert_eq!((ran.status, ran.detail("action").as_str()), (9, "resolve_unfinished_call"), "{ran:?}");
        let call = &ran.error()["details"]["call"];
        let effect = format!("{}\n", call["input"]);
        let (option, id) =
            if place.written("effects").contains(&effect) { ("--deny", call) } else { ("--approve", call) };
        arguments = vec!["resume".to_owned(), run.to_owned(), option.to_owned(), id["id"].as_str().unwrap().to_owned()];
    }
    panic!("the run does not end");
}

#[test]
fn kill_at_every_line_has_each_effect_once() {
    // 1 run_start, then for each of five turns: iteration, message, tool_call, tool_result; then iteration, message,
    // summary.
    for kill_at in 1..=23 {
        let place = five_steps(false);
        let run = killed(&place, kill_at);
        let ran = finish(&place, &run);
        // From the last turn on nothing waits: the signal may come too late.
        let finished_before = ran.error()["code"] == "E_CONFLICT" && kill_at >= 21;
        assert!(ran.status == 0 || finished_before, "killed at {kill_at}: {ran:?}");
        let expected = [1, 2, 3, 4, 5].map(|n| format!("{{\"n\":{n}}}\n")).concat();
        assert_eq!((kill_at, place.written("calls")), (kill_at, expected));
    }
}

#[test]
fn output_of_command_that_ended_after_kill_reaches_model() {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"sh\", \"sleep\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    let command = "echo begun >>begun; sleep 2; echo the output; echo the error >&2";
    let call = json!({"tool_calls": [{"name": "bash", "input": {"command": command}}]}).to_string();
    place.script(&[&call, r#"{"content":"done"}"#]);
    let run = killed_when(&place, 4, || place.until_written("begun"));
    // The run is locked until its command has ended: nobody is asked, and nothing runs twice.
    let ran = place.run(&["resume", &run]).success();
    let result = &ran.results()[0];
    for part in ["ended with exit status 0", "standard output: the output\n", "standard error: the error\n"] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert_eq!(place.written("begun"), "begun\n");
}

#[test]
fn idempotent_call_is_repeated_after_stop() {
    for kill_at in [4, 8, 12] {
        let place = five_steps(true);
        let run = killed(&place, kill_at);
        let ran = place.run(&["resume", &run]);
        assert_eq!(ran.status, 0, "killed at {kill_at}: {ran:?}");
        assert_eq!(place.written("effects").lines().count(), 5);
    }
}

#[test]
fn run_has_one_owner() {
    let place = five_steps(false);
    place.tool("step", "", "sleep 4; echo did");
    let mut running = place.command(&["--tools", &place.tools(), "go"]).start();
    let run = running.record()["data"]["run_id"].as_str().unwrap().to_owned();
    let second = place.run(&["resume", &run]);
    assert_eq!((second.status, &second.error()["code"]), (6, &json!("E_CONFLICT")), "{second:?}");
    place.run(&["undo", &run, "--dry-run"]).failed(6, "E_CONFLICT");
    let shown = place.run(&["runs"]);
    assert_eq!(shown.closing()["data"]["items"][0]["status"], "running");
    let cancelled = place.run(&["cancel", &run]);
    assert_eq!(cancelled.closing()["data"]["status"], "cancelled", "{cancelled:?}");
    running.finish();
    let listed = place.run(&["runs", "--fields", "id,status"]);
    assert_eq!(listed.closing()["data"]["items"], json!([{"id": run, "status": "cancelled"}]));
    assert_eq!(place.run(&["resume", &run]).status, 6);
    assert_eq!(place.run(&["cancel", &run]).status, 6);
}

#[test]
fn run_is_found_by_name() {
    let place = five_steps(true);
    let stopped = place.with_tools(&["--name", "nightly", "--max-iterations", "1", "go"]);
    let run = stopped.detail("run_id");
    let taken = place.with_tools(&["--name", "nightly", "go"]);
    assert_eq!((taken.status, &taken.error()["code"]), (6, &json!("E_CONFLICT")), "{taken:?}");
    assert_eq!(taken.detail("run_id"), run);
    let shown = place.run(&["show", "nightly"]);
    assert_eq!((&shown.closing()["data"]["id"], &shown.closing()["data"]["name"]), (&json!(run), &json!("nightly")));
    assert_eq!(place.run(&["resume", "nightly", "--max-iterations", "2"]).status, 9);
    assert_eq!(place.run(&["cancel", "nightly"]).closing()["data"]["id"], json!(run));
    // A run that is over leaves its name to the next one.
    let next = place.with_tools(&["--name", "nightly", "go"]);
    assert_eq!(next.status, 0, "{next:?}");
    assert_eq!(place.run(&["show", "nightly"]).closing()["data"]["id"], next.closing()["data"]["run_id"]);
    assert_eq!(place.run(&["show", "nobody"]).status, 3);
    assert_eq!(place.with_tools(&["--name", "RUN-1", "go"]).status, 2);
}

#[test]
fn changed_state_is_refused() {
    let place = five_steps(false);
    let run = killed(&place, 9);
    let sealed = place.root.join(format!("home/planes/ho1/runs/{run}.sealed"));
    let text = std::fs::read_to_string(&sealed).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&sealed.metadata().unwrap().permissions()) & 0o777, 0o600);
    std::fs::write(&sealed, text.replacen("\"started\":0", "\"started\":1", 1).replacen("go", "no", 1)).unwrap();
    let ran = place.run(&["resume", &run]);
    assert_eq!((ran.status, &ran.error()["code"]), (1, &json!("E_INTEGRITY")), "{ran:?}");
    // A line that a power cut tore is simply not there.
    std::fs::write(&sealed, format!("{text}{{\"mac\":\"00")).unwrap();
    assert_eq!(finish(&place, &run).status, 0);
}

#[test]
fn restored_earlier_state_is_refused() {
    let place = five_steps(false);
    let stopped = place.with_tools(&["--max-iterations", "3", "go"]);
    let run = stopped.detail("run_id");
    let runs = place.home.at("planes/ho1/runs");
    let [sealed, ledger] = ["sealed", "jsonl"].map(|end| format!("{run}.{end}"));
    let (state, entries) = (runs.read(&sealed), runs.read(&ledger));
    let lines: Vec<&str> = state.lines().collect();
    let mut refused = 0;
    for kept in 1..=lines.len() {
        runs.write(&sealed, lines[..kept].join("\n") + "\n");
        runs.write(&ledger, &entries);
        for effect in ["effects", "calls"] {
            place.work.write(effect, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
        }
        let ran = place.run(&["resume", &run, "--max-iterations", "9"]);
        refused += usize::from(ran.error()["code"] == "E_INTEGRITY");
        let calls = place.written("calls");
        assert!(calls.matches("\"n\":3").count() == 1 && calls.matches("\"n\":1").count() == 1, "{kept}: {ran:?}");
        assert_eq!(ran.status == 0, calls.lines().count() == 5, "{kept}: {ran:?}");
    }
    assert!(refused > lines.len() / 2 && refused < lines.len(), "{refused} of {}", lines.len());
    // What was refused can still be ended.
    runs.write(&sealed, lines[..4].join("\n") + "\n");
    assert_eq!(place.run(&["cancel", &run]).status, 0);
}

#[test]
fn run_without_approver_is_resumed_with_decision() {
    for (answer, expected) in [("--approve", "deployed\n"), ("--deny", "")] {
        let place = ToolLoop::new();
        place.tool("deploy", r#","approve":true"#, "echo deployed | tee -a deployed");
        place.script(&[r#"{"tool_calls":[{"name":"deploy","input":{"to":"here"}}]}"#]);
        let asked = place.with_tools(&["x"]);
        assert_eq!((asked.status, &asked.error()["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{asked:?}");
        assert_eq!(asked.detail("action"), "approve_tool_call");
        assert_eq!(asked.error()["details"]["call"]["input"], json!({"to":"here"}));
        assert_eq!(place.written("deployed"), "");
        let call = asked.error()["details"]["call"]["id"].as_str().unwrap().to_owned();
        let run = asked.detail("run_id");
        let shown = place.run(&["show", &run]);
        assert_eq!(shown.closing()["data"]["pending"][0]["id"], json!(call), "{shown:?}");
        assert_eq!(place.run(&["resume", &run, "--approve", "nobody"]).status, 3);
        let more: &[&str] = if answer == "--deny" { &["--message", "not on a friday"] } else { &[] };
        let ran = place.run(&[&["resume", &run, answer, &call], more].concat());
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!(place.written("deployed"), expected);
        assert!(ran.results()[0].contains(if answer == "--deny" { "not on a friday" } else { "deployed" }));
        // The word was given once and is used up.
        assert_eq!(place.run(&["resume", &run, answer, &call]).status, 6);
        assert_eq!(place.written("deployed"), expected);
    }
}

#[test]
fn policy_approval_is_answered_by_program() {
    let place = ToolLoop::new();
    place.policy("[tools]\napprove = [\"dep*\"]\n");
    place.tool("deploy", "", "echo deployed | tee -a deployed");
    place.root.executable("yes", "#!/bin/sh\ncat >question\n");
    place.root.executable("no", "#!/bin/sh\necho too late\nexit 1\n");
    place.script(&[r#"{"tool_calls":[{"name":"deploy"}]}"#]);
    let yes = place.root.join("yes").display().to_string();
    let ran = place.with_tools(&["--approver", &yes, "x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.results(), ["deployed\n"]);
    let question: Value = serde_json::from_str(&place.written("question")).unwrap();
    assert_eq!((&question["shown"]["rule"], &question["level"]), (&json!("tools.approve"), &json!("agent")));
    let no = place.root.join("no").display().to_string();
    let ran = place.with_tools(&["--approver", &no, "x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.results(), ["Denied: too late"]);
    assert_eq!(place.written("deployed"), "deployed\n");
    let asked = place.with_tools(&["x"]);
    assert_eq!(asked.status, 9);
    // One word is enough: the loop does not ask what cp-exec asks.
    assert_eq!(place.run(&words_of(&asked.detail("resume"))).status, 0);
}

#[test]
fn token_and_time_budgets_stop_resumable_run() {
    let place = ToolLoop::new();
    place.tool("slow", r#","idempotent":true"#, "[ -e quick ] || sleep 30; echo done");
    let call = r#"{"tool_calls":[{"name":"slow"}],"usage":{"input_tokens":10,"output_tokens":10}}"#;
    place.script(&[call]);
    let began = Instant::now();
    let ran = place.with_tools(&["--deadline", "1.5", "x"]);
    assert!(began.elapsed() < Duration::from_secs(8), "{ran:?}");
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "time"), "{ran:?}");
    place.work.write("quick", "");
    let again = place.run(&words_of(&ran.detail("resume")));
    assert_eq!(again.status, 0, "{again:?}");
    assert_eq!(again.results(), ["done\n"]);
    let ran = place.with_tools(&["--budget-tokens", "20", "x"]);
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "tokens"), "{ran:?}");
    assert_eq!(place.run(&words_of(&ran.detail("resume"))).status, 0);
    let unpriced = place.with_tools(&["--budget-usd", "1", "x"]);
    assert_eq!((unpriced.status, &unpriced.error()["code"]), (4, &json!("E_CONFIG")), "{unpriced:?}");
}

#[test]
fn tool_is_stopped_at_its_time_limit() {
    let place = ToolLoop::new();
    place.tool("slow", r#","timeout":0.5"#, "sleep 30");
    place.script(&[r#"{"tool_calls":[{"name":"slow"}]}"#]);
    let began = Instant::now();
    let ran = place.with_tools(&["x"]);
    assert!(ran.status == 0 && ran.results()[0].starts_with("stopped after"), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(8));
}

#[test]
fn model_exit_is_an_error() {
    let place = ToolLoop::new();
    let dies = place.root.executable("dies", "#!/bin/sh\nread -r line\nexit 3\n").display().to_string();
    let ran = place.run(&["--llm", &dies, "x"]);
    assert_eq!((ran.status, &ran.error()["code"]), (1, &json!("E_IO")), "{ran:?}");
    let babbles =
        place.root.executable("babbles", "#!/bin/sh\nread -r line\necho hello\nsleep 5\n").display().to_string();
    let ran = place.run(&["--llm", &babbles, "x"]);
    assert_eq!((ran.status, &ran.error()["code"]), (1, &json!("E_IO")), "{ran:?}");
}

#[test]
fn model_that_never_stops_writing_is_stopped_at_the_deadline() {
    let place = ToolLoop::new();
    let delta = r#"{"ok":true,"schema_version":"1.0","type":"delta","data":{"text":"x"}}"#;
    let floods = place.root.executable("floods", format!("#!/bin/sh\nread -r line\nexec yes '{delta}'\n"));
    let ran = place.run(&["--llm", &floods.display().to_string(), "--deadline", "1", "x"]);
    assert_eq!((ran.status, &ran.error()["code"]), (9, &json!("E_BUDGET_EXHAUSTED")), "{ran:?}");
}

#[test]
fn resume_prints_stored_records() {
    let place = ToolLoop::new();
    place.tool("step", "", "echo did");
    // More than a pipe holds: nobody reads it, so the run is killed in the middle of printing.
    let long = "x".repeat(300_000);
    place.script(&[&json!({"content": long, "tool_calls": [{"name": "step"}]}).to_string(), r#"{"content":"done"}"#]);
    let mut child = place.command(&["--tools", &place.tools(), "go"]).start();
    let run = child.record()["data"]["run_id"].as_str().unwrap().to_owned();
    let sealed = format!("planes/ho1/runs/{run}.sealed");
    until("the message on disk", || place.home.read_if_there(&sealed).contains(&long));
    child.kill();
    let ran = place.run(&["resume", &run]);
    assert_eq!((ran.status, &ran.records()[0]["data"]["replayed"]), (0, &json!(1)), "{}", ran.stderr);
    assert!(ran.records()[1]["type"] == "message" && ran.records()[1].to_string().contains(&long));
    assert_eq!(ran.of("message").len(), 2);
    assert_eq!(ran.results(), ["did\n"]);
}

#[test]
fn repeated_failure_is_detected_after_resume() {
    let place = ToolLoop::new();
    place.tool("fails", "", "date +%N; exit 1");
    place.tool("looks", "", "echo the same");
    let call = |name: &str| format!(r#"{{"tool_calls":[{{"name":"{name}"}}]}}"#);
    let calls = ["fails", "fails", "fails", "looks", "looks", "looks", "fails"].map(call);
    place.script(&calls.iter().map(String::as_str).collect::<Vec<_>>());
    let stopped = place.with_tools(&["--max-iterations", "1", "x"]);
    assert!(!stopped.results()[0].contains("same call"), "{stopped:?}");
    let again = place.run(&words_of(&stopped.detail("resume")));
    assert!(again.results()[0].contains("made 2 times in a row"), "{again:?}");
    let rest = place.run(&["resume", &again.detail("run_id"), "--max-iterations", "20"]);
    let results = rest.results();
    assert!(results[0].contains("made 3 times in a row"), "{rest:?}");
    // What works may be looked at as often as it takes, and what was between the failures may have changed something.
    assert!(results.len() == 5 && results[1..].iter().all(|result| !result.contains("same call")), "{rest:?}");
}

#[test]
fn calls_with_same_id_get_unique_ids() {
    let place = ToolLoop::new();
    place.tool("deploy", r#","approve":true"#, "cat; echo");
    place.script(&[
        r#"{"tool_calls":[{"id":"c","name":"deploy","input":{"n":1}},{"id":"c","name":"deploy","input":{"n":2}}]}"#,
    ]);
    let asked = place.with_tools(&["x"]);
    assert_eq!(asked.status, 9, "{asked:?}");
    let run = asked.detail("run_id");
    let waiting = |asked: &Outcome| asked.error()["details"]["call"].clone();
    assert_eq!((&waiting(&asked)["id"], &waiting(&asked)["input"]), (&json!("c"), &json!({"n":1})));
    let asked = place.run(&["resume", &run, "--deny", "c"]);
    assert_eq!((&waiting(&asked)["id"], &waiting(&asked)["input"]), (&json!("c_2"), &json!({"n":2})));
    let ran = place.run(&["resume", &run, "--approve", "c_2"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.results()[0], "{\"n\":2}\n", "{ran:?}");
    let turns = &ran.of("message").pop().unwrap()["input"];
    let answered: Vec<&Value> =
        turns[0]["content"].as_array().unwrap().iter().map(|block| &block["tool_use_id"]).collect();
    assert_eq!(answered, [&json!("c"), &json!("c_2")]);
    let ledger = place.home.read(format!("planes/ho1/runs/{run}.jsonl"));
    assert!(ledger.contains(r#""data":{"id":"c_2""#), "{ledger}");
}

#[test]
fn dollar_budgets_of_run_and_policy_hold_over_resumes() {
    let place = ToolLoop::new();
    place.tool("step", "", "echo did");
    // Half a dollar a turn.
    let turn = r#"{"tool_calls":[{"name":"step"}],"usage":{"input_tokens":1,"output_tokens":1,"cost_usd":0.5}}"#;
    place.script(&[turn; 12]);
    let ran = place.with_tools(&["--budget-usd", "2", "go"]);
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "usd"), "{ran:?}");
    assert!(ran.detail("resume").contains("--budget-usd 4"), "{ran:?}");
    place.policy("[llm]\nbudget_usd = 2.0\n");
    let ran = place.with_tools(&["go"]);
    assert!(ran.error()["message"].as_str().unwrap().contains("policy allows a run 2.0000"), "{ran:?}");
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
fn run_and_resume_share_budget_file() {
    let place = ToolLoop::new();
    let used = r#""usage":{"input_tokens":6,"output_tokens":4}"#;
    place.tool("step", "", "echo did");
    let call = format!(r#"{{"tool_calls":[{{"name":"step"}}],{used}}}"#);
    place.script(&[&call, &format!(r#"{{"content":"done",{used}}}"#)]);
    let spent = || -> Value {
        let budget: Value = serde_json::from_str(&place.work.read("budget")).unwrap();
        assert_eq!(budget["reserved"], json!([]), "{budget}");
        budget["spent"]["tokens"].clone()
    };
    let ran = place.with_tools(&["--budget-file", "budget", "--budget-tokens", "1000", "go"]);
    assert_eq!((ran.status, spent()), (0, json!(20)), "{ran:?}");
    // Other processes have spent most of the budget: the rest is enough for one request.
    place.work.write("budget", r#"{"limit":{},"spent":{"usd":0.0,"tokens":115},"reserved":[]}"#);
    let ran = place.with_tools(&["--budget-file", "budget", "--budget-tokens", "120", "go"]);
    assert_eq!((ran.status, &ran.error()["code"], spent()), (9, &json!("E_BUDGET_EXHAUSTED"), json!(125)), "{ran:?}");
    let again = place.run(&words_of(&ran.detail("resume")));
    assert_eq!((again.status, spent()), (0, json!(135)), "{again:?}");
    let other = place.run(&["--llm", "/bin/true", "--budget-file", "budget", "go"]);
    assert_eq!((other.status, &other.error()["code"]), (2, &json!("E_USAGE")), "{other:?}");
}

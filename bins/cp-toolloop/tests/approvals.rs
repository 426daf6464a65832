//! Approval of calls: who approves, how long an approval lasts, and that a stop does not extend it.

use std::time::{Duration, Instant};

use cp_testkit::{Outcome, Signal, Terminal, until};
use serde_json::{Value, json};

use crate::toolloop::{Results, ToolLoop, words_of};

/// A place whose model runs a command that replaces a file outside of the working directory, once.
fn overwrites() -> ToolLoop {
    let place = ToolLoop::new();
    let beside = place.root.directory("beside");
    let beside = beside.display();
    let policy =
        asking("agent").replace("tee", "cp").replace("write = [\".\"]", &format!("write = [\".\", \"{beside}\"]"));
    place.policy(&policy);
    place.root.write("beside/f", "one\n");
    place.work.write("two", "two\n");
    place.script(&[
        r#"{"tool_calls":[{"name":"shell","input":{"argv":["cp","two","../beside/f"]}}]}"#,
        r#"{"content":"done"}"#,
    ]);
    place
}

/// A policy that asks about `tee`.
fn asking(level: &str) -> String {
    let rule = "[[exec.rule]]\ncommand = \"tee\"\ndecision = \"confirm\"\nreason = \"it writes\"\n";
    let commands = "allowed_commands = [\"tee\", \"touch\"]";
    format!("[exec]\n{commands}\nconfirm = \"{level}\"\n{rule}[paths]\nwrite = [\".\"]\n")
}

/// A place whose model runs `touch`-like commands that the policy asks about.
fn asks(level: &str, calls: &[Value]) -> ToolLoop {
    let place = ToolLoop::new();
    place.policy(&asking(level));
    let calls: Vec<String> = calls
        .iter()
        .map(|argv| json!({"tool_calls": [{"name": "shell", "input": {"argv": argv}}]}).to_string())
        .chain([r#"{"content":"done"}"#.to_owned()])
        .collect();
    place.script(&calls.iter().map(String::as_str).collect::<Vec<_>>());
    place
}

/// A place whose model calls one tool that requires approval and has an effect.
fn deploys(script: &str) -> ToolLoop {
    let place = ToolLoop::new();
    place.tool("deploy", r#","approve":true"#, script);
    place.script(&[r#"{"tool_calls":[{"name":"deploy"}]}"#, r#"{"content":"done"}"#]);
    place
}

/// The events of a run's ledger that are about approvals.
fn life(place: &ToolLoop, run: &str) -> Vec<String> {
    let entries = place.home.records(format!("planes/ho1/runs/{run}.jsonl")).into_iter();
    entries.filter_map(|entry| entry["event"].as_str()?.strip_prefix("approval.").map(str::to_owned)).collect()
}

fn call_of(asked: &Outcome) -> String {
    asked.error()["details"]["call"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn approval_is_of_this_call_and_policy() {
    let place = overwrites();
    let asked = place.run(&["x"]);
    assert_eq!((asked.status, place.written("../beside/f").as_str()), (9, "one\n"), "{asked:?}");
    let approval = asked.error()["details"]["approval"].clone();
    assert_eq!(approval["shown"]["argv"], json!(["cp", "two", "../beside/f"]), "{approval}");
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    // The policy is another one: the approval is void, and the call requires approval again.
    place.policy(&format!("{}# Changed.\n", place.home.read("config/policy.toml")));
    let again = place.run(&words_of(&asked.detail("resume")));
    let other = again.error()["details"]["approval"].clone();
    assert_eq!((again.status, place.written("../beside/f").as_str()), (9, "one\n"), "{again:?}");
    assert_ne!(other["id"], approval["id"], "{other}");
    let ran = place.run(&["resume", &run, "--approve", &call]);
    assert_eq!((ran.status, place.written("../beside/f").as_str()), (0, "two\n"), "{ran:?}");
    assert_eq!(life(&place, &run), ["asked", "granted", "asked", "granted", "spent"]);
    assert!(place.home.read_if_there("state/approvals").is_empty());
    let approvals = place.program("cp-exec").arg("approve").run();
    assert_eq!(approvals.closing()["data"]["count"], 0, "{approvals:?}");
    assert_eq!(place.program("cp-log").arg("audit").run().status, 0);
}

#[test]
fn approver_answers_requests_of_cp_exec() {
    for (script, status, content) in [("cat >asked", 0, "two\n"), ("echo not this; exit 1", 0, "one\n")] {
        let place = overwrites();
        let approver = place.root.executable("approver", format!("#!/bin/sh\n{script}\n")).display().to_string();
        let ran = place.run(&["--approver", &approver, "x"]);
        assert_eq!((ran.status, place.written("../beside/f").as_str()), (status, content), "{ran:?}");
        assert_eq!(ran.of("tool_call").len(), 1, "the call is shown once: {ran:?}");
        assert_eq!(ran.results()[0].contains("not this"), script.starts_with("echo"), "{ran:?}");
        assert_eq!(place.written("asked").contains("../beside/f"), script.starts_with("cat"));
    }
}

#[test]
fn run_pauses_if_approver_gives_no_answer() {
    for script in ["kill -9 $$", "exit 127"] {
        let place = deploys("echo x >>effects");
        let approver = place.root.executable("approver", format!("#!/bin/sh\n{script}\n")).display().to_string();
        let asked = place.with_tools(&["--approver", &approver, "x"]);
        assert_eq!(asked.status, 9, "{script}: {asked:?}");
        assert!(asked.detail("approver").contains("approver"), "{asked:?}");
        assert_eq!(life(&place, &asked.detail("run_id")), ["asked"], "{script}");
        assert_eq!(place.run(&words_of(&asked.detail("otherwise"))).status, 0);
    }
}

#[test]
fn signal_or_deadline_during_approver_decides_nothing() {
    let place = deploys("echo x >>effects");
    place.root.executable("approver", "#!/bin/sh\necho x >asked; exec sleep 60\n");
    let approver = place.root.join("approver").display().to_string();
    let began = Instant::now();
    let late = place.with_tools(&["--approver", &approver, "--deadline", "2", "x"]);
    assert_eq!((late.status, late.detail("budget").as_str()), (9, "time"), "{late:?}");
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(life(&place, &late.detail("run_id")), ["asked"]);

    std::fs::remove_file(place.work.join("asked")).unwrap();
    let child = place.command(&["--tools", &place.tools(), "--approver", &approver, "x"]).start();
    place.until_written("asked");
    child.signal(Signal::INT);
    let stopped = child.wait();
    assert_eq!((stopped.status, &stopped.error()["code"]), (130, &json!("E_INTERRUPTED")), "{stopped:?}");
    let run = stopped.detail("run_id");
    assert_eq!(life(&place, &run), ["asked"]);
    place.root.executable("approver", "#!/bin/sh\nexit 0\n");
    assert_eq!(place.run(&["resume", &run]).status, 0);
    assert_eq!(place.written("effects"), "x\n");
}

#[test]
fn contradictory_or_unrequested_decisions_are_usage_errors() {
    let place = deploys("echo x >>effects");
    let asked = place.with_tools(&["x"]);
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    assert_eq!(place.run(&["resume", &run, "--approve", &call, "--deny", &call]).status, 2);
    assert_eq!(place.run(&["resume", &run, "--approve", &call]).status, 0);
    assert_eq!(place.written("effects"), "x\n");
}

#[test]
fn grant_is_spent_by_one_start() {
    let place = deploys("echo x >>effects; [ -e quick ] || sleep 60");
    place.policy("[exec]\ntimeout = 3\n");
    let asked = place.with_tools(&["x"]);
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    let going = place.command(&["resume", &run, "--approve", &call]).start();
    place.until_written("effects");
    going.kill();
    place.work.write("quick", "");
    // The tool of the killed run runs into its own limit: how far it came is not known.
    let again = place.run(&["resume", &run, "--approve", &call]);
    assert!([6, 9].contains(&again.status), "the same words are no new yes: {again:?}");
    let again = until_free(&place, &run);
    assert_eq!((again.status, again.detail("action").as_str()), (9, "resolve_unfinished_call"), "{again:?}");
    assert_eq!(place.written("effects"), "x\n");
    let ran = place.run(&["resume", &run, "--approve", &call]);
    assert_eq!(
        (ran.status, place.written("effects").as_str()),
        (0, "x\nx\n"),
        "a second yes is a second start: {ran:?}"
    );
}

/// Resumes a run after its last tool has exited.
fn until_free(place: &ToolLoop, run: &str) -> Outcome {
    let mut last = None;
    until("the run to be free", || {
        let ran = place.run(&["resume", run]);
        let is_free = !ran.error()["message"].as_str().unwrap_or_default().contains("another process");
        last = Some(ran);
        is_free
    });
    last.unwrap()
}

#[test]
fn parallel_approvals_of_one_call_have_one_effect() {
    for place in [deploys("echo x >>effects; sleep 0.3"), overwrites()] {
        let asked = place.with_tools(&["x"]);
        let (run, call) = (asked.detail("run_id"), call_of(&asked));
        let going: Vec<_> = (0..5).map(|_| place.command(&["resume", &run, "--approve", &call]).start()).collect();
        let ended: Vec<i32> = going.into_iter().map(|child| child.wait().status).collect();
        assert_eq!(ended.iter().filter(|status| **status == 0).count(), 1, "{ended:?}");
        assert!(ended.iter().all(|status| [0, 3, 6].contains(status)), "{ended:?}");
        assert_eq!(life(&place, &run), ["asked", "granted", "spent"]);
        assert!(place.written("effects") == "x\n" || place.written("../beside/f") == "two\n");
    }
}

#[test]
fn kill_after_approval_never_repeats_or_hides_effect() {
    let delays: Vec<u64> = (0..12).map(|step| step * 45).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            delays.chunks(6).map(|delays| scope.spawn(|| delays.iter().for_each(|at| kill_at(*at)))).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

fn kill_at(delay: u64) {
    let place = deploys("echo x >>effects; sleep 0.1; echo did");
    let asked = place.with_tools(&["x"]);
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    let going = place.command(&["resume", &run, "--approve", &call]).start();
    std::thread::sleep(Duration::from_millis(delay));
    going.kill();
    let mut ran = until_free(&place, &run);
    while ran.error()["code"] == "E_HUMAN_REQUIRED" {
        let effects = place.written("effects");
        assert!(effects.is_empty() || effects == "x\n", "killed after {delay} ms: {effects}");
        let is_open = ran.detail("action") == "approve_tool_call";
        assert!(!is_open || effects.is_empty(), "killed after {delay} ms, a question as if nothing had begun: {ran:?}");
        let answer = if effects.is_empty() { "--approve" } else { "--deny" };
        ran = place.run(&["resume", &run, answer, &call]);
    }
    // The run may have ended before it was killed.
    assert!(ran.status == 0 || ran.status == 6, "killed after {delay} ms: {ran:?}");
    assert_eq!(place.written("effects"), "x\n", "killed after {delay} ms: {ran:?}");
}

#[test]
fn owner_approval_is_answered_only_by_cp_exec_approve() {
    let place = asks("owner", &[json!(["tee", "made"])]);
    let yes = place.root.executable("yes", "#!/bin/sh\necho x >>asked\n").display().to_string();
    let asked = place.run(&["--approver", &yes, "x"]);
    assert_eq!((asked.status, place.written("asked").as_str()), (9, ""), "{asked:?}");
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    let denied = place.run(&["resume", &run, "--approve", &call]);
    assert_eq!(denied.status, 9, "no terminal, no owner: {denied:?}");
    let id = asked.error()["details"]["approval"]["id"].as_str().unwrap().to_owned();
    let mut terminal = place.program("cp-exec").args(["approve", &id]).terminal(100);
    terminal.wait_for("The policy leaves this to its owner.");
    terminal.wait_for("Allow it? y = yes, n = no: ");
    terminal.send("y\r");
    assert_eq!(terminal.end(), Some(0));
    let ran = place.run(&words_of(&asked.detail("resume")));
    assert_eq!((ran.status, place.work.join("made").exists()), (0, true), "{ran:?}");
}

#[test]
fn approval_by_tool_hint_is_listed_by_cp_exec() {
    let place = deploys("echo x >>effects");
    let asked = place.with_tools(&["x"]);
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    let listed = place.program("cp-exec").args(["approve", "--format", "text"]).run().stdout;
    let id = asked.error()["details"]["approval"]["id"].as_str().unwrap().to_owned();
    assert!(listed.contains(&format!("{id}  deploy {{}}")), "{listed}");
    let mut terminal = place.program("cp-exec").args(["approve", &id]).terminal(100);
    let shown = terminal.wait_for("Allow it? y = yes, n = no: ");
    assert!(shown.contains(&run) && shown.contains(&format!("call {call}")), "{shown}");
    terminal.send("y\r");
    assert_eq!(terminal.end(), Some(0));
    let ran = place.run(&["resume", &run]);
    assert_eq!((ran.status, place.written("effects").as_str()), (0, "x\n"), "{ran:?}");
    let spent = place.home.records(format!("planes/ho1/runs/{run}.jsonl"));
    let spent = spent.iter().find(|entry| entry["event"] == "approval.spent").unwrap();
    let granted = place.home.records("ledger/cp-exec.jsonl");
    let granted = granted.iter().find(|entry| entry["event"] == "approval.granted").unwrap();
    assert_eq!(spent["data"]["receipt"]["hash"], granted["hash"]);
}

fn at_terminal(place: &ToolLoop, arguments: &[&str]) -> Terminal {
    place.command(&[&["--format", "text"], arguments].concat()).terminal(100)
}

#[test]
fn terminal_shows_command_and_reads_answer() {
    let files = [json!(["tee", "a"]), json!(["tee", "b"]), json!(["tee", "c\x1b[31m"])];
    let place = asks("agent", &files);
    let mut terminal = at_terminal(&place, &["x"]);
    let shown = terminal.wait_for("Allow it? y = yes, n = no, a = always for this run: ");
    assert!(
        shown.contains("tee a\n") && shown.contains("policy.tee: it writes") && shown.contains("risk high"),
        "{shown}"
    );
    assert!(shown.contains("asked by cp-exec for the agent default at 20"), "{shown}");
    terminal.send("what\r");
    terminal.wait_for("Type one of the letters: ");
    terminal.send("n\r");
    terminal.wait_for("tee b\n");
    terminal.wait_for("for this run: ");
    terminal.send("a\r");
    // The third is covered by the second.
    terminal.wait_for("done");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
    for line in ["  ✗ shell: tee a", "  ✓ shell: tee b", "  ✓ shell: tee 'c^[[31m'"] {
        assert!(terminal.text().lines().any(|shown| shown.trim_end() == line), "{line}: {}", terminal.text());
    }
    assert_eq!(["a", "b", "c\x1b[31m"].map(|name| place.work.join(name).exists()), [false, true, true]);
    let run = place.run(&["runs"]).closing()["data"]["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(life(&place, &run), ["asked", "denied", "asked", "granted", "spent", "asked", "granted", "spent"]);
    let shown = place.run(&["show", &run, "--format", "text"]);
    for line in [
        "tool_call shell call_1_1: tee a",
        "approval.denied call_1_1: by terminal",
        "approval.granted call_2_1: by terminal (terminal, run)",
    ] {
        assert!(shown.stdout.contains(line), "{line}: {}", shown.stdout);
    }
    assert!(!terminal.raw().contains("c\x1b[31m") && !shown.stdout.contains('\x1b'));
}

#[test]
fn pause_in_text_format_names_resume_commands() {
    let place = overwrites();
    let asked = place.run(&["--format", "text", "x"]);
    assert_eq!(asked.status, 9, "{asked:?}");
    let run = place.run(&["runs"]).closing()["data"]["items"][0]["id"].as_str().unwrap().to_owned();
    let home = place.home.display();
    for words in [
        format!("{run}, call call_1_1: cp two ../beside/f"),
        format!("  yes: cp-toolloop --home {home} resume {run} --approve call_1_1\n"),
        format!("  no:  cp-toolloop --home {home} resume {run} --deny call_1_1 --message no\n"),
    ] {
        assert!(asked.stderr.contains(&words), "{words}: {}", asked.stderr);
    }
    // Ctrl-D does not answer the question.
    let mut terminal = at_terminal(&place, &["resume", &run]);
    terminal.wait_for("for this run: ");
    terminal.send("\x04");
    assert_eq!(terminal.end(), Some(9), "{}", terminal.text());
    assert_eq!(
        (life(&place, &run).last().unwrap().as_str(), place.written("../beside/f").as_str()),
        ("asked", "one\n")
    );
}

#[test]
fn line_that_awaits_approval_names_what_ran_and_starts_again_after_it() {
    let place = ToolLoop::new();
    place.policy(&asking("agent"));
    let line = json!({"command": "touch a; for f in b c; do echo x >>$f; done; echo y | tee d"});
    let call = json!({"tool_calls": [{"name": "bash", "input": line}]}).to_string();
    place.script(&[&call, r#"{"content":"done"}"#, &call, r#"{"content":"done"}"#]);
    let asked = place.run(&["x"]);
    assert_eq!((asked.status, place.written("b").as_str()), (9, "x\n"), "{asked:?}");
    let why = asked.error()["details"]["approval"]["shown"]["why"].as_str().unwrap().to_owned();
    let ran = "these programs of it have run already: `touch a`";
    assert_eq!(why, format!("it writes; the line starts again from its beginning, and {ran}"));
    let listed = place.program("cp-exec").arg("approve").run().closing();
    assert_eq!(listed["data"]["items"][0]["shown"]["why"], why, "{listed}");
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    let done = place.run(&["resume", &run, "--approve", &call]);
    assert_eq!((done.status, place.written("d").as_str()), (0, "y\n"), "{done:?}");
    assert_eq!(place.written("b"), "x\nx\n", "the line started again");
    assert_eq!(life(&place, &run), ["asked", "granted", "spent"]);
    let shown = place.run(&["show", &run, "--format", "text"]).stdout;
    assert!(shown.contains("$ touch a; for f in b c; do "), "{shown}");
    // A person who denies it tells the model what ran all the same.
    let asked = place.run(&["x"]);
    let denied = place.run(&["resume", &asked.detail("run_id"), "--deny", &call_of(&asked), "--message", "no"]);
    assert_eq!((denied.status, place.written("b").as_str()), (0, "x\nx\nx\n"), "{denied:?}");
    assert!(denied.results()[0].contains(ran), "{denied:?}");
    assert_eq!(place.program("cp-log").arg("audit").run().status, 0);
}

#[test]
fn line_with_several_approvals_ends_with_as_many_answers() {
    for steps in 1..=3 {
        let words: Vec<String> = (0..steps).map(|step| format!("echo x | tee -a f{step}")).collect();
        let line = words.join("; ");
        let place = ToolLoop::new();
        place.policy(&asking("agent"));
        let call = json!({"tool_calls": [{"name": "bash", "input": {"command": line}}]}).to_string();
        place.script(&[&call, r#"{"content":"done"}"#, &call, r#"{"content":"done"}"#]);
        let mut ran = place.run(&["x"]);
        let run = ran.detail("run_id");
        for answers in 0..steps {
            assert_eq!(ran.status, 9, "{answers} of {steps}: {ran:?}");
            ran = place.run(&["resume", &run, "--approve", &call_of(&ran)]);
        }
        assert_eq!(ran.status, 0, "{steps}: {ran:?}");
        // A step runs in each pass after its answer, and no further run may repeat it.
        let times = |step: usize| place.written(&format!("f{step}")).lines().count();
        assert_eq!((0..steps).map(times).collect::<Vec<_>>(), (1..=steps).rev().collect::<Vec<_>>(), "{steps}");
        assert_eq!(place.run(&["x"]).status, 9, "another call needs answers of its own");
        // Outside of a run, each answer is a grant for the next start.
        for answers in 0..=steps {
            let ran = place.program("cp-exec").args(["-c", &line]).run();
            assert_eq!(ran.status, if answers == steps { 0 } else { 9 }, "{answers} of {steps}: {ran:?}");
            if ran.status == 9 {
                let id = ran.error()["details"]["id"].as_str().unwrap().to_owned();
                let mut terminal = place.program("cp-exec").args(["approve", &id]).terminal(80);
                terminal.wait_for("y = yes");
                terminal.send("y\r");
                terminal.end();
            }
        }
        let again = place.program("cp-exec").args(["-c", &line]).run();
        assert_eq!(again.status, 9, "{steps}: the grants ended with the line: {again:?}");
        let audit = place.program("cp-log").arg("audit").run();
        assert_eq!(audit.status, 0, "{steps}: {audit:?}");
    }
}

#[test]
fn grant_of_one_run_does_not_start_equal_call_of_another() {
    let place = asks("agent", &[json!(["tee", "made"])]);
    let asked = [place.run(&["x"]), place.run(&["x"])];
    let ids = asked.each_ref().map(|asked| asked.error()["details"]["approval"]["id"].as_str().unwrap().to_owned());
    assert!(ids[0] != ids[1], "each run has a request");
    let [first, second] = asked.map(|asked| (asked.detail("run_id"), call_of(&asked)));
    assert_eq!(place.program("cp-exec").arg("approve").run().closing()["data"]["count"], 2);
    let mut terminal = place.program("cp-exec").args(["approve", &ids[0]]).terminal(100);
    terminal.wait_for("Allow it?");
    terminal.send("y\r");
    assert_eq!(terminal.end(), Some(0));
    // The person approved the call of the first run.
    assert_eq!((place.run(&["resume", &second.0]).status, place.work.join("made").exists()), (9, false));
    let ran = place.run(&["resume", &first.0]);
    assert_eq!((ran.status, place.work.join("made").exists()), (0, true), "{ran:?}");
    let ran = place.run(&["resume", &second.0, "--approve", &second.1]);
    assert_eq!(ran.status, 0, "{ran:?}");
    // A command line without a terminal answers as the caller.
    let entries = place.home.records(format!("planes/ho1/runs/{}.jsonl", second.0));
    let granted = &entries.iter().find(|entry| entry["event"] == "approval.granted").unwrap()["data"];
    assert_eq!((&granted["by"], &granted["command"]), (&json!("caller"), &json!("tee made")));
    assert_eq!((&granted["tty"], granted["uid"].is_u64()), (&Value::Null, true), "{granted}");
    let audit = place.program("cp-log").arg("audit").run();
    assert_eq!(audit.status, 0, "{audit:?}");
}

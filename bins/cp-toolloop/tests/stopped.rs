//! Runs that are stopped at any work, in any way, and go on where they can: an audit of their homes has no false claim.

use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::thread::{scope, sleep};
use std::time::Duration;

use cp_testkit::{Outcome, Signal, until};
use rustix::process::kill_process_group;
use serde_json::{Value, json};

use crate::mcp::{server, tool};
use crate::toolloop::{Results as _, ToolLoop, words_of};

/// The ways in which a run is stopped. Ctrl-C reaches each process of the terminal, the others only the run: what it
/// has started goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    CtrlC,
    Term,
    Hup,
    Kill,
    /// Killed, and resumed when the work that it had started has ended.
    KillAndWait,
    Deadline,
}

const STOPS: [Stop; 6] = [Stop::CtrlC, Stop::Term, Stop::Hup, Stop::Kill, Stop::KillAndWait, Stop::Deadline];

/// The work that a run is at when it is stopped. All but `model` write the file `began`.
const WORK: [&str; 10] = ["model", "shell", "bash", "argv", "filesystem", "tool", "mcp", "approval", "refused", "rows"];

const ROWS: &str = "{\"messages\":[{\"role\":\"user\",\"content\":\"a row\"}]}\n{\"messages\":[{\"role\":\"user\",\"content\":\"a row\"}]}\n";

/// A place whose model asks for this work first, and the words of the command line.
fn place(work: &str, milliseconds: u64) -> (ToolLoop, Vec<String>) {
    let seconds = format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000);
    let place = ToolLoop::new();
    place.policy(
        "[exec]\nallowed_commands = [\"sh\", \"tee\", \"sleep\", \"echo\"]\n[[exec.rule]]\ncommand = \"tee\"\n\
         decision = \"confirm\"\nreason = \"it writes\"\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n[tools]\nallow = [\"*\"]\napprove = [\"shell\"]\n",
    );
    place.tool("step", "", &format!("echo x >began; sleep {seconds}; echo did"));
    let line = format!("echo start; echo x >began; sleep {seconds}; echo end");
    let call = |name: &str, input: Value| json!({"name": name, "input": input});
    let written = json!({"operation": "write_file", "path": "began", "content": "x\n"});
    let calls = match work {
        "model" => json!([]),
        // A program that the policy refuses, on a line that goes on.
        "bash" => json!([call("bash", json!({"command": format!("{line}; ls; true")}))]),
        "argv" => json!([call("shell", json!({"argv": ["sh", "-c", line]}))]),
        "filesystem" => {
            json!([call("filesystem", written), call("bash", json!({"command": format!("sleep {seconds}")}))])
        }
        "mcp" => json!([call("wait", json!({"n": 1}))]),
        "approval" => json!([call("bash", json!({"command": "echo a | tee b"}))]),
        // Calls that have a result and never start: the approver denies the last.
        "refused" => json!([
            call("nope", json!({})),
            call("bash", json!({"command": 7})),
            call("shell", json!({"argv": ["echo"]})),
            call("bash", json!({"command": "echo a | tee b"})),
        ]),
        "tool" | "rows" => json!([call("step", json!({"n": 1}))]),
        _ => json!([call("shell", json!({"command": format!("sh -c '{line}'")}))]),
    };
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    let first = json!({"content": "first", "tool_calls": calls, "delay_ms": if work == "model" { milliseconds } else { 0 }, "usage": usage});
    place.script(&[&first.to_string(), r#"{"content":"done"}"#]);
    let mut words = vec!["--tools".to_owned(), place.tools()];
    match work {
        "approval" | "refused" => {
            let status = u8::from(work == "refused");
            let script = format!("#!/bin/sh\necho x >began; sleep {seconds}; exit {status}\n");
            let approver = place.root.executable("approver", script);
            words.extend(["--approver".to_owned(), approver.display().to_string()]);
        }
        "mcp" => {
            let calls = format!("    open('began', 'w').write('x'); time.sleep({seconds}); return name");
            let command = server(&place, &json!([tool("wait", &json!({}))]), &calls);
            words.extend(["--mcp".to_owned(), format!("s={command}")]);
        }
        _ => {}
    }
    words.push(if work == "rows" { "--rows" } else { "go" }.to_owned());
    (place, words)
}

/// The words with options after their verb.
fn with_options<'a>(words: &'a [String], options: &[&'a str]) -> Vec<&'a str> {
    let (verb, rest) = words.split_at(words.iter().position(|word| word == "resume").map_or(0, |at| at + 1));
    let own = |words: &'a [String]| words.iter().map(String::as_str);
    own(verb).chain(options.iter().copied()).chain(own(rest)).collect()
}

/// Starts the run, and stops it when its work has begun.
fn stopped(place: &ToolLoop, work: &str, stop: Stop, words: &[String]) -> Outcome {
    let words = with_options(words, if stop == Stop::Deadline { &["--deadline", "1.2"] } else { &[] });
    let program = place.command(&words).stdin(if work == "rows" { ROWS } else { "" });
    let mut child = program.with(|command| _ = command.process_group(0)).start();
    child.close_stdin();
    let has_begun = || match work {
        "model" => ledgers(place)
            .iter()
            .any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"llm.request\""))),
        _ => !place.written("began").is_empty(),
    };
    until("the work begins, or the run ends", || has_begun() || child.has_ended());
    if !child.has_ended() {
        match stop {
            Stop::CtrlC => _ = kill_process_group(child.pid(), Signal::INT),
            Stop::Term => child.signal(Signal::TERM),
            Stop::Hup => child.signal(Signal::HUP),
            Stop::Kill | Stop::KillAndWait => child.signal(Signal::KILL),
            Stop::Deadline => {}
        }
    }
    let ended = child.wait();
    if stop == Stop::KillAndWait {
        sleep(Duration::from_millis(1500));
    }
    ended
}

/// Goes on, with time enough.
fn going_on(place: &ToolLoop, work: &str, words: &[String]) -> Outcome {
    let words = with_options(words, &["--deadline", "60"]);
    place.command(&words).stdin(if work == "rows" { ROWS } else { "" }).run()
}

/// The ledgers of runs.
fn ledgers(place: &ToolLoop) -> Vec<PathBuf> {
    let found = place.program("find").arg(&place.home).args(["-name", "RUN-*.jsonl"]).run().success();
    found.stdout.lines().map(PathBuf::from).collect()
}

/// The words that go on with a run: those that it names, or those of a run that was killed.
fn next(place: &ToolLoop, ended: &Outcome) -> Option<Vec<String>> {
    let named = if ended.stdout.lines().last().is_some_and(|line| line.contains("\"error\"")) {
        ended.detail("resume")
    } else {
        String::new()
    };
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<_>>();
    if ended.status == 0 {
        return None;
    }
    let run = ledgers(place).first()?.file_stem()?.display().to_string();
    Some(if named.is_empty() { owned(vec!["resume", &run]) } else { owned(words_of(&named)) })
}

/// The sums of an audit of the whole home.
#[derive(Default)]
struct Sums {
    homes: u64,
    held: u64,
    unknown: u64,
    broken: u64,
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { homes, held, unknown, broken } = self;
        write!(f, "{homes} audits: {held} claims true, {unknown} unknown, {broken} false")
    }
}

impl Sums {
    fn audit(&mut self, place: &ToolLoop, at: &str) {
        let ran = place.program("cp-log").arg("audit").run();
        let closing = ran.closing();
        let counts = if ran.status == 0 { &closing["data"] } else { &closing["error"]["details"] };
        let count = |name: &str| counts[name].as_u64().unwrap();
        let broken: Vec<Value> = ran.of("item").into_iter().filter(|claim| claim["holds"] == false).collect();
        assert!(ran.status == 0 && broken.is_empty(), "{at}: {broken:#?}");
        self.homes += 1;
        (self.held, self.unknown) = (self.held + count("held"), self.unknown + count("unknown"));
        self.broken += count("broken");
    }
}

/// A copy of the home with one line more, under a right chain, is found.
fn judge_forged(place: &ToolLoop, at: &str) {
    let ledger = ledgers(place)[0].display().to_string();
    place.forged();
    let append = ["append", "-f", &ledger, "--event", "exec.result", "--data", "{\"intent\":0}"];
    place.program("cp-log").args(append).run().success();
    place.program("cp-log").args(["verify", &ledger]).run().success();
    let error = place.program("cp-log").arg("audit").run().failed(1, "E_INTEGRITY");
    assert!(error["message"].as_str().unwrap().contains("the command that it ends (0) was not begun"), "{at}: {error}");
}

fn judge(work: &str, stop: Stop) -> Sums {
    let at = format!("{stop:?} at {work}");
    // A deadline has to pass before the work ends by itself.
    let (place, mut words) = place(work, if stop == Stop::Deadline { 2500 } else { 500 });
    let mut sums = Sums::default();
    let mut ended = stopped(&place, work, stop, &words);
    sums.audit(&place, &at);
    for round in 0.. {
        assert!(round < 8, "{at} does not end: {ended:?}");
        // Each row is a run of its own, and is begun anew.
        let Some(more) = next(&place, &ended).filter(|_| work != "rows" || round == 0) else { break };
        words = if work == "rows" { words } else { more };
        let has_begun = !place.written("began").is_empty() || work == "model";
        ended = if has_begun { going_on(&place, work, &words) } else { stopped(&place, work, stop, &words) };
        sums.audit(&place, &at);
    }
    assert_eq!(ended.status, 0, "{at}: {ended:?}");
    judge_forged(&place, &at);
    sums
}

#[test]
fn stopped_runs_have_no_false_claim() {
    cp_testkit::needs!("python3");
    let rows: Vec<(&str, Vec<Sums>)> = scope(|all| {
        let work = WORK.map(|work| (work, all.spawn(move || STOPS.map(|stop| judge(work, stop)))));
        work.into_iter().map(|(work, row)| (work, row.join().unwrap().into())).collect()
    });
    for (work, row) in rows {
        for (stop, sums) in STOPS.iter().zip(row) {
            println!("{stop:?} at {work}: {sums}");
            assert!(sums.homes > 0 && sums.held > 5 && sums.broken == 0, "{stop:?} at {work}: {sums}");
        }
    }
}

/// A kill between any two lines: each beginning of the state, with each end of the ledger that it can have then.
#[test]
fn kill_between_any_two_lines_has_no_false_claim() {
    for work in ["filesystem", "bash", "approval", "refused"] {
        let (place, mut words) = place(work, 10);
        words.splice(0..0, ["--max-iterations", "1"].map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_ne!(place.command(&words).run().status, 0, "it stops");
        let ledger = ledgers(&place).remove(0);
        let found = place
            .program("find")
            .arg(&place.home)
            .args(["-type", "f", "-name", "RUN-*", "!", "-name", "*.jsonl"])
            .run();
        let state = PathBuf::from(found.stdout.lines().next().unwrap());
        let [entries, steps] = [&ledger, &state].map(|path| std::fs::read_to_string(path).unwrap());
        let [entries, steps] = [&entries, &steps].map(|text| text.lines().collect::<Vec<_>>());
        let seq = |line: &str| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
        let whole = place.root.join("whole").display().to_string();
        place.program("cp").args(["-a", &place.home.display().to_string(), &whole]).run().success();
        let mut tried = 0;
        for kept in 2..=steps.len() {
            let next = steps.get(kept).map_or(u64::MAX, |line| seq(line));
            // Lines of cp-exec come before the step that has their receipt.
            let step: Value = serde_json::from_str(steps[kept - 1]).unwrap();
            let receipt = step["step"]["finished"][1]["receipt"]["seq"].as_u64();
            let from = seq(steps[kept - 1]).max(receipt.unwrap_or_default());
            for entry in entries.iter().map(|line| seq(line)).filter(|entry| (from.max(1)..=next).contains(entry)) {
                place.sh(&format!("rm -rf \"$CP_HOME\" && cp -a '{whole}' \"$CP_HOME\""));
                let left: Vec<&str> = entries.iter().copied().filter(|line| seq(line) <= entry).collect();
                std::fs::write(&ledger, whole_lines(&left)).unwrap();
                std::fs::write(&state, whole_lines(&steps[..kept])).unwrap();
                let at = format!("{work}, killed after {kept} steps and entry {entry}");
                let mut sums = Sums::default();
                sums.audit(&place, &at);
                let run = ledger.file_stem().unwrap().display().to_string();
                place.command(&["resume", &run, "--max-iterations", "9"]).run();
                sums.audit(&place, &at);
                tried += 1;
            }
        }
        assert!(tried > steps.len(), "{work}: {tried}");
    }
}

fn whole_lines(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

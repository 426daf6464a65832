//! Interactive sessions at a terminal.

use cp_testkit::{Signal, until};
use serde_json::json;

use crate::person::{Person, Session};

const STUB: [&str; 2] = ["--backend", "stub"];

/// The question about tools.
pub(crate) const TOOLS: &str = "a = always in this session: ";

#[test]
fn terminal_session_takes_turn_and_ends_with_input() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    let answer = terminal.says("hello");
    assert!(answer.contains("stub response 1\n") && answer.contains("| ctx:"), "{answer}");
    // Ctrl-C at the prompt keeps the session, and Ctrl-D ends it without a question.
    terminal.send("half a li\x03");
    terminal.wait_for(":quit ends the session");
    terminal.prompted();
    terminal.send("\x04");
    terminal.wait_for("ended after 1 round · cp-shell -c continues it\n");
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.text().contains("Keep a lesson") && !place.home.join("memory").exists());
    assert_eq!(place.data("session_end").len(), 1);
}

#[test]
fn session_end_names_the_command_of_its_page() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 200);
    terminal.prompted();
    terminal.says("hello");
    terminal.send("\x04");
    assert_eq!(terminal.end(), Some(0));
    let shown = terminal.text();
    let line = shown.lines().find(|line| line.contains("cp-log page")).unwrap_or_else(|| panic!("{shown}")).trim();
    place.sh(line.strip_prefix("the record: ").unwrap()).success();
    let page = place.work.read(line.rsplit('>').next().unwrap());
    assert!(page.to_lowercase().starts_with("<!doctype html>") && page.contains("stub response 1"), "{line}");
    let piped = Person::new().stub("hello\n");
    assert!(!piped.stderr.contains("cp-log page") && !piped.stdout.contains("cp-log page"), "{piped:?}");
}

#[test]
fn ctrl_c_stops_answer_and_keeps_session() {
    let place = Person::new();
    let first = json!({"content": "one two three four", "delay_ms": 600_000});
    place.stub_plays(&format!("{first}\n{first}\n"));
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":ctx");
    let session = place.session();
    let requests = || session.read_if_there("ledger/llm.jsonl").matches("llm.request").count();
    for _ in 0..2 {
        let before = requests();
        terminal.send("go\r");
        terminal.wait_for("go\n");
        // The model is running when its request is recorded.
        until("the request", || requests() > before);
        terminal.send("\x03");
        terminal.wait_for("✗ interrupted: the turn was stopped");
        terminal.prompted();
    }
    assert!(terminal.says("and now").contains("stub response 3"));
    // The stopped answer stays in the conversation with a mark.
    let said: Vec<String> = place.entries().iter().map(|entry| entry["content"].to_string()).collect();
    assert_eq!(said.iter().filter(|content| content.contains("[interrupted]")).count(), 2, "{said:?}");
    let turns = place.data("session_turn");
    let cancelled: Vec<bool> = turns.iter().map(|turn| turn["cancelled"] == true).collect();
    assert_eq!(cancelled, [true, true, false]);
}

#[test]
fn risky_turn_is_sent_only_after_confirmation() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    for (answer, told) in [("n", "cancelled: nothing was sent"), ("y", "stub response 1")] {
        terminal.send("delete the logs\r");
        terminal.wait_for("risk destructive: ");
        terminal.wait_for("Send this destructive turn? [y/N] ");
        terminal.send(&format!("{answer}\r"));
        terminal.wait_for(told);
        terminal.prompted();
    }
    assert!(terminal.says(":explain").contains("yes, by the person"));
    assert!(terminal.text().contains("hint repeated-destructive-intent"), "{}", terminal.text());
    let turns = place.data("session_turn");
    assert_eq!((&turns[0]["cancelled"], &turns[1]["cancelled"]), (&json!(true), &json!(false)));
}

#[test]
fn policy_question_is_asked_at_terminal() {
    let place = Person::new();
    place
        .home
        .write("config/policy.toml", "[exec]\nallowed_commands = [\"find\", \"echo\"]\n[[exec.rule]]\ncommand = \"find\"\ndecision = \"ask\"\n[paths]\nwrite = [\".\"]\n");
    let file = place.work.write("old.log", "x");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    assert!(terminal.says(":! echo hi").contains("hi\n"));
    terminal.send(":! id\r");
    let question = terminal.wait_for("allow program id for this project? [y/N/always: every project] ");
    assert!(question.contains("cp-exec: id: `id` is not in allowed_commands"), "{question}");
    terminal.send("n\r");
    terminal.prompted();
    for (answer, told, there) in [("n", "✗ the command exited with status 126", true), ("y", "| ctx:", false)] {
        terminal.send(":! find . -name old.log -delete\r");
        terminal.wait_for("Allow it? y = yes, n = no: ");
        terminal.send(&format!("{answer}\r"));
        terminal.wait_for(told);
        terminal.prompted();
        assert_eq!(file.exists(), there, "{}", terminal.text());
    }
}

#[test]
fn tools_are_used_after_confirmation_and_calls_approved_one_by_one() {
    let place = Person::new();
    place.root.executable("tools/mark", include_str!("data/agents/mark.sh"));
    let calls = "{\"tool_calls\":[{\"name\":\"mark\",\"input\":{\"n\":1}}]}\n{\"tool_calls\":[{\"name\":\"mark\",\"input\":{\"n\":2}}]}\n{\"content\":\"It is done.\"}\n";
    place.stub_plays(calls);
    let tools = place.root.join("tools");
    let mut terminal = place.terminal(&[&STUB[..], &["--tools", tools.to_str().unwrap()]].concat(), 100);
    terminal.prompted();
    for answer in ["n", "y"] {
        terminal.send("mark it\r");
        let question = terminal.wait_for("in this turn?");
        let named = question.split("Let the model use ").nth(1).unwrap();
        assert!(named.contains("mark") && named.contains("shell"), "the tools are named: {question}");
        terminal.wait_for(TOOLS);
        terminal.send(&format!("{answer}\r"));
        if answer == "n" {
            terminal.wait_for("cancelled: nothing was sent");
            terminal.prompted();
        }
    }
    let shown = terminal.wait_for("Allow it? y = yes, n = no, a = always for this run: ");
    assert!(shown.contains("mark {\"n\":1}") && shown.contains("tool.approve: mark requires approval"), "{shown}");
    terminal.send("n\r");
    terminal.wait_for("mark {\"n\":2}");
    terminal.wait_for("for this run: ");
    assert!(!terminal.text().contains("marked it"), "{}", terminal.text());
    terminal.send("y\r");
    terminal.wait_for("← mark: marked it");
    terminal.wait_for("It is done.");
    // One of the two calls was denied.
    terminal.wait_for("protective · ");
    terminal.prompted();
    assert!(terminal.says(":trust").contains("trust ◐ 0.50"));
    let entries = place.entries();
    let turns = entries.iter().filter(|entry| entry["event"] == "message");
    let roles: Vec<&str> = turns.map(|entry| entry["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant"]);
}

#[test]
fn lesson_is_saved_at_session_end() {
    let place = Person::new();
    place.home.write("config/shell.toml", "[learning]\nask = true\n");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says("my password=hunter2hunter2");
    terminal.send(":quit\r");
    terminal.wait_for("Keep a lesson of this session? (Enter skips): ");
    terminal.send("keep secrets out\r");
    terminal.wait_for("saved in ");
    terminal.wait_for("Remember its 1 round");
    terminal.send("y\r");
    terminal.wait_for("memory/session_turn.jsonl");
    assert_eq!(terminal.end(), Some(0));
    let lesson = place.home.read("memory/lesson.jsonl");
    let round = place.home.read("memory/session_turn.jsonl");
    assert!(lesson.contains("keep secrets out") && round.contains("stub response 1"));
    assert!(!round.contains("hunter2"));
}

#[test]
fn terminal_width_may_change() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 120);
    terminal.prompted();
    let wide = terminal.says(":help");
    assert!(wide.lines().any(|line| line.starts_with("  :quit, :q") && line.contains("end the session")), "{wide}");
    terminal.resize(40);
    let narrow = terminal.says(":help");
    assert!(narrow.contains("  :export-session\n      write summary.json, without secrets\n"), "{narrow}");
}

#[test]
fn type_ahead_does_not_answer_questions() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    // The text is pasted at once, so the question appears after the y.
    terminal.send("\x1b[200~delete the logs\ny\n\x1b[201~");
    terminal.send("\r");
    terminal.wait_for("Send this destructive turn? [y/N] ");
    terminal.send("\r");
    terminal.wait_for("cancelled: nothing was sent");
    terminal.prompted();
}

#[test]
fn ctrl_c_stops_command_and_keeps_session() {
    let place = Person::new();
    place.policy("[exec]\nallowed_commands = [\"sleep\"]\n");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":ctx");
    terminal.send(":! sleep 600\r");
    terminal.wait_for("sleep 600\n");
    let session = place.session();
    until("the command", || session.read_if_there("ledger/exec.jsonl").contains("exec.intent"));
    terminal.send("\x03");
    terminal.wait_for("✗ the command ");
    terminal.prompted();
    assert!(terminal.says("hello").contains("stub response 1"));
}

#[test]
fn signal_at_prompt_does_not_stop_next_turn() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":notes");
    terminal.signal(Signal::INT);
    let answer = terminal.says("hello");
    assert!(answer.contains("stub response 1"), "{answer}\n{}", terminal.text());
    // Ctrl-C does not answer an open question; the text typed after it does.
    terminal.send("delete the logs\r");
    terminal.wait_for("[y/N] ");
    terminal.signal(Signal::INT);
    terminal.send("y\r");
    terminal.wait_for("stub response 2");
    terminal.prompted();
}

#[test]
fn signal_ends_session_in_turn_and_at_prompt() {
    for (signal, in_turn) in [(Signal::TERM, true), (Signal::TERM, false), (Signal::QUIT, false)] {
        let place = Person::new();
        place.stub_plays(&format!("{}\n", json!({"content": "one", "delay_ms": if in_turn { 600_000 } else { 0 }})));
        let mut terminal = place.terminal(&STUB, 100);
        terminal.prompted();
        terminal.send("go\r");
        // The turn has begun when the model is called.
        until("the request", || place.asked());
        if !in_turn {
            terminal.wait_for("one\n");
            terminal.prompted();
        }
        terminal.signal(signal);
        assert_eq!(terminal.end(), Some(130));
        assert_eq!(place.data("session_turn")[0]["cancelled"], in_turn);
        assert_eq!(place.data("session_end").len(), 1);
    }
}

#[test]
fn work_order_is_applied_after_confirmation() {
    let place = Person::new();
    let order = place.work.write("order.json", "{\"work_order_id\":\"WO-20260203-001\",\"title\":\"x\"}");
    let mut terminal = place.terminal(&STUB, 120);
    terminal.prompted();
    for (answer, told, there) in
        [("n", "cancelled: nothing was applied", false), ("y", "WO-20260203-001 was applied", true)]
    {
        terminal.send(":wo apply order.json\r");
        terminal.wait_for("to the ledger of the home? [y/N] ");
        terminal.send(&format!("{answer}\r"));
        terminal.wait_for(told);
        terminal.prompted();
        assert_eq!(place.home.join("planes/ho2/ledger/workorder.jsonl").exists(), there, "{}", order.display());
    }
    assert!(terminal.says(":wo").contains("WO-20260203-001"));
}

#[test]
fn prompt_is_on_terminal_if_output_is_redirected() {
    let place = Person::new();
    let piped = place.shell("sh", "cp-shell --backend stub | cat > out").env("TERM", "xterm");
    let mut terminal = Session(piped.terminal(100));
    terminal.prompted();
    terminal.send("hello\r");
    terminal.prompted();
    terminal.send(":quit\r");
    assert_eq!(terminal.end(), Some(0));
    let out = place.work.read("out");
    assert!(out.contains("stub response 1") && !out.contains('\x1b') && !out.contains("cp> "), "{out}");
}

#[test]
fn colour_is_disabled_by_no_color() {
    for (variable, value, wanted) in [("NO_COLOR", "", true), ("NO_COLOR", "1", false), ("TERM", "dumb", false)] {
        let place = Person::new();
        let mut terminal = Session(place.at_terminal().args(STUB).env(variable, value).terminal(100));
        terminal.prompted();
        terminal.send("delete it\r");
        terminal.wait_for("[y/N] ");
        terminal.send("n\r");
        terminal.wait_for("nothing was sent");
        terminal.prompted();
        assert_eq!(terminal.has_colour(), wanted, "{variable}={value}");
    }
}

/// A home whose model runs two commands that require approval, and a terminal in which the turn was sent.
pub(crate) fn sent(place: &Person, level: &str) -> Session {
    let rule =
        ["tee", "touch"].map(|name| format!("[[exec.rule]]\ncommand = \"{name}\"\ndecision = \"confirm\"\n")).concat();
    place.home.write(
        "config/policy.toml",
        format!(
            "[exec]\nallowed_commands = [\"tee\", \"touch\"]\nconfirm = \"{level}\"\n{rule}[paths]\nwrite = [\".\"]\n"
        ),
    );
    let tool = "#!/bin/sh\necho '{\"name\":\"mark\",\"description\":\"Mark.\"}' # --describe\n";
    let tools = place.root.executable("tools/mark", tool).parent().unwrap().display().to_string();
    let call = |argv: [&str; 2]| format!("{}\n", json!({"tool_calls": [{"name": "shell", "input": {"argv": argv}}]}));
    let done = "{\"content\":\"It is done.\"}\n";
    let plays = [&call(["tee", "a"]), &call(["tee", "b"]), done, &call(["tee", "c"]), &call(["touch", "d"]), done];
    place.stub_plays(&plays.concat());
    let mut terminal = place.terminal(&[&STUB[..], &["--tools", &tools]].concat(), 100);
    terminal.prompted();
    terminal.send("do it\r");
    terminal.wait_for(TOOLS);
    terminal.send("y\r");
    terminal
}

//! A person at a real terminal.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::support::Place;

const STUB: [&str; 2] = ["--backend", "stub"];

#[test]
fn a_prompt_a_turn_and_the_end_of_the_input() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    let answer = terminal.says("hello");
    assert!(answer.contains("stub response 1\n") && answer.contains("| ctx:"), "{answer}");
    // Ctrl-C at the prompt keeps the session, Ctrl-D ends it; two empty answers skip what is asked then.
    terminal.types("half a li\x03");
    terminal.sees(":quit ends the session");
    terminal.prompted();
    terminal.types("\x04");
    terminal.sees("Keep a lesson");
    terminal.types("\r");
    terminal.sees("[y/N] ");
    terminal.types("\r");
    terminal.sees("ended after 1 turn\n");
    assert_eq!(terminal.ended(), Some(0));
    assert!(!place.path("home/memory").exists(), "to skip writes nothing");
    assert_eq!(place.data("session_end").len(), 1);
}

#[test]
fn ctrl_c_stops_a_streaming_answer_and_keeps_the_session() {
    let place = Place::new();
    let first = json!({"content": "one two three four", "delay_ms": 600_000});
    let script = place.write("script.jsonl", &format!("{first}\n"));
    place.write("home/config/cp.toml", &format!("stub_script = \"{}\"\n", script.display()));
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":ctx");
    let asked = place.session().join("ledger/llm.jsonl");
    let requests = || std::fs::read_to_string(&asked).unwrap_or_default().matches("llm.request").count();
    for _ in 0..2 {
        let before = requests();
        terminal.types("go\r");
        terminal.sees("go\n");
        // The model is at it when its request is on the ledger.
        while requests() == before {
            std::thread::yield_now();
        }
        terminal.types("\x03");
        terminal.sees("✗ interrupted: the turn was stopped");
        terminal.prompted();
    }
    place.write("script.jsonl", "{\"content\":\"there again\"}\n");
    assert!(terminal.says("and now").contains("there again"));
    let turns = place.data("session_turn");
    let cancelled: Vec<bool> = turns.iter().map(|turn| turn["cancelled"] == true).collect();
    assert_eq!(cancelled, [true, true, false]);
}

#[test]
fn a_risky_turn_is_sent_after_a_yes_and_not_after_a_no() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    for (answer, told) in [("n", "cancelled: nothing was sent"), ("y", "stub response 1")] {
        terminal.types("delete the logs\r");
        terminal.sees("risk destructive: ");
        terminal.sees("Send this destructive turn? [y/N] ");
        terminal.types(&format!("{answer}\r"));
        terminal.sees(told);
        terminal.prompted();
    }
    assert!(terminal.says(":explain").contains("yes, by the person"));
    assert!(terminal.all().contains("hint repeated-destructive-intent"), "{}", terminal.all());
    let turns = place.data("session_turn");
    assert_eq!((&turns[0]["cancelled"], &turns[1]["cancelled"]), (&json!(true), &json!(false)));
}

#[test]
fn a_command_that_policy_asks_about_runs_after_a_yes() {
    let place = Place::new();
    place.write(
        "home/config/policy.toml",
        "[exec]\nallowed_commands = [\"find\", \"echo\"]\n[paths]\nwrite = [\".\"]\n",
    );
    let file = place.write("work/old.log", "x");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    assert!(terminal.says(":! echo hi").contains("hi\n"));
    assert!(terminal.says(":! id").contains("✗ denied: "));
    for (answer, told, there) in [("n", "cancelled: nothing was run", true), ("y", "| ctx:", false)] {
        terminal.types(":! find . -name old.log -delete\r");
        terminal.sees("Run find . -name old.log -delete? [y/N] ");
        terminal.types(&format!("{answer}\r"));
        terminal.sees(told);
        terminal.prompted();
        assert_eq!(file.exists(), there, "{}", terminal.all());
    }
}

#[test]
fn a_tool_is_used_after_a_yes() {
    let place = Place::new();
    let tool = "#!/bin/sh\nif [ \"$1\" = --describe ]; then\n  echo '{\"name\":\"mark\",\"description\":\"Mark.\",\"parameters\":{\"type\":\"object\"}}'\nelse\n  echo marked it\nfi\n";
    let file = place.write("tools/mark", tool);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = place
        .write("script.jsonl", "{\"tool_calls\":[{\"name\":\"mark\",\"input\":{}}]}\n{\"content\":\"It is done.\"}\n");
    place.write("home/config/cp.toml", &format!("stub_script = \"{}\"\n", script.display()));
    let tools = place.path("tools");
    let mut terminal = place.terminal(&[&STUB[..], &["--tools", tools.to_str().unwrap()]].concat(), 100);
    terminal.prompted();
    terminal.types("mark it\r");
    let question = terminal.sees("in this turn? [y/N] ");
    let named = question.split("Let the model use ").nth(1).unwrap();
    assert!(named.contains("mark") && named.contains("shell"), "the tools are named: {question}");
    terminal.types("n\r");
    terminal.sees("cancelled: nothing was sent");
    terminal.prompted();
    terminal.types("mark it\r");
    terminal.sees("in this turn? [y/N] ");
    terminal.types("y\r");
    terminal.sees("→ mark {}");
    terminal.sees("← mark: marked it");
    terminal.sees("It is done.");
    terminal.prompted();
    let roles: Vec<String> = place
        .entries()
        .iter()
        .filter(|entry| entry["event"] == "message")
        .map(|entry| entry["role"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}

#[test]
fn a_tool_that_wants_a_word_for_each_call_gets_it_from_the_person() {
    let place = Place::new();
    let tool = "#!/bin/sh\nif [ \"$1\" = --describe ]; then\n  echo '{\"name\":\"mark\",\"description\":\"Mark.\",\"approve\":true,\"parameters\":{\"type\":\"object\"}}'\nelse\n  echo marked it\nfi\n";
    let file = place.write("tools/mark", tool);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let calls = "{\"tool_calls\":[{\"name\":\"mark\",\"input\":{\"n\":1}}]}\n{\"tool_calls\":[{\"name\":\"mark\",\"input\":{\"n\":2}}]}\n{\"content\":\"It is done.\"}\n";
    let script = place.write("script.jsonl", calls);
    place.write("home/config/cp.toml", &format!("stub_script = \"{}\"\n", script.display()));
    let tools = place.path("tools");
    let mut terminal = place.terminal(&[&STUB[..], &["--tools", tools.to_str().unwrap()]].concat(), 100);
    terminal.prompted();
    terminal.types("mark it\r");
    terminal.sees("in this turn? [y/N] ");
    terminal.types("y\r");
    terminal.sees("Allow mark {\"n\":1}? [y/N] ");
    terminal.types("n\r");
    terminal.sees("Allow mark {\"n\":2}? [y/N] ");
    assert!(!terminal.all().contains("marked it"), "{}", terminal.all());
    terminal.types("y\r");
    terminal.sees("marked it");
    terminal.sees("It is done.");
    // One of the two calls was denied.
    terminal.sees("protective · ");
    terminal.prompted();
    assert!(terminal.says(":trust").contains("trust ◐ 0.50"));
    let roles: Vec<String> = place
        .entries()
        .iter()
        .filter(|entry| entry["event"] == "message")
        .map(|entry| entry["role"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant"]);
}

#[test]
fn what_was_learnt_is_kept_at_the_end_where_the_person_wants_it() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says("my password=hunter2hunter2");
    terminal.types(":quit\r");
    terminal.sees("Keep a lesson of this session? (Enter skips): ");
    terminal.types("keep secrets out\r");
    terminal.sees("kept in ");
    terminal.sees("Remember its 1 round");
    terminal.types("y\r");
    terminal.sees("memory/session_turn.jsonl");
    assert_eq!(terminal.ended(), Some(0));
    let lesson = std::fs::read_to_string(place.path("home/memory/lesson.jsonl")).unwrap();
    let round = std::fs::read_to_string(place.path("home/memory/session_turn.jsonl")).unwrap();
    assert!(lesson.contains("keep secrets out") && round.contains("stub response 1"));
    assert!(!round.contains("hunter2"));
}

#[test]
fn the_terminal_can_change_its_width() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 120);
    terminal.prompted();
    let wide = terminal.says(":help");
    assert!(wide.lines().any(|line| line.starts_with("  :quit, :q") && line.contains("end the session")), "{wide}");
    let resized = Command::new("stty").args(["-F", &terminal.tty, "cols", "40"]).status().unwrap();
    assert!(resized.success());
    let narrow = terminal.says(":help");
    assert!(narrow.contains("  :quit, :q\n      end the session\n"), "{narrow}");
}

#[test]
fn lines_are_kept_for_the_next_session_where_that_is_wanted() {
    let place = Place::new();
    place.write("home/config/shell.toml", "[history]\nenabled = true\n");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":notes");
    terminal.says(":learn the password=hunter2hunter2 is old");
    terminal.types(":quit\r");
    assert_eq!(terminal.ended(), Some(0));
    let kept = std::fs::read_to_string(place.path("home/state/prompt_history")).unwrap();
    assert!(kept.contains(":notes\n") && !kept.contains("hunter2"), "{kept}");
    let mut again = place.terminal(&STUB, 100);
    again.prompted();
    // Up three times: :quit, :learn, :notes.
    again.types("\x1b[A\x1b[A\x1b[A\r");
    again.sees("note: ");
    again.prompted();
    let off = Place::new();
    let mut terminal = off.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":notes");
    assert!(!off.path("home/state/prompt_history").exists());
}

#[test]
fn tab_completes_commands_and_ids() {
    let place = Place::new();
    place.write("home/installed/PKG-ALPHA/manifest.json", "{\"package_id\":\"PKG-ALPHA\",\"version\":\"7.7.7\"}");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.types(":frame\t");
    terminal.sees("framework");
    terminal.types("\x15:pkg PKG-A\t\r");
    terminal.sees("7.7.7");
    terminal.prompted();
}

#[test]
fn what_was_typed_ahead_is_no_answer() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    // Pasted at once: the question comes after the y.
    terminal.types("\x1b[200~delete the logs\ny\n\x1b[201~");
    terminal.types("\r");
    terminal.sees("Send this destructive turn? [y/N] ");
    terminal.types("\r");
    terminal.sees("cancelled: nothing was sent");
    terminal.prompted();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says("hello");
    terminal.signals(Signal::TERM);
    assert_eq!(terminal.ended(), Some(130));
    assert_eq!(place.data("session_end").len(), 1);
}

#[test]
fn ctrl_c_stops_a_command_and_keeps_the_session() {
    let place = Place::new();
    place.write("home/config/policy.toml", "[exec]\nallowed_commands = [\"sleep\"]\n");
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":ctx");
    terminal.types(":! sleep 600\r");
    terminal.sees("sleep 600\n");
    let ledger = place.session().join("ledger/exec.jsonl");
    while !std::fs::read_to_string(&ledger).unwrap_or_default().contains("exec.intent") {
        std::thread::yield_now();
    }
    terminal.types("\x03");
    terminal.sees("✗ sleep ");
    terminal.prompted();
    assert!(terminal.says("hello").contains("stub response 1"));
}

#[test]
fn a_signal_at_the_prompt_is_not_taken_for_the_next_turn() {
    let place = Place::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.says(":notes");
    terminal.signals(Signal::INT);
    let answer = terminal.says("hello");
    assert!(answer.contains("stub response 1"), "{answer}\n{}", terminal.all());
    // While a question is open it is no answer either, and what is typed then answers the question.
    terminal.types("delete the logs\r");
    terminal.sees("[y/N] ");
    terminal.signals(Signal::INT);
    terminal.types("y\r");
    terminal.sees("stub response 2");
    terminal.prompted();
}

#[test]
fn a_signal_in_a_turn_ends_it_and_the_session() {
    let place = Place::new();
    let first = json!({"content": "one", "delay_ms": 600_000});
    let script = place.write("script.jsonl", &format!("{first}\n"));
    place.write("home/config/cp.toml", &format!("stub_script = \"{}\"\n", script.display()));
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    terminal.types("go\r");
    // The turn has begun when the model is asked.
    while !place.asked() {
        std::thread::yield_now();
    }
    terminal.signals(Signal::TERM);
    assert_eq!(terminal.ended(), Some(130));
    assert_eq!((place.data("session_turn")[0]["cancelled"] == true, place.data("session_end").len()), (true, 1));
}

#[test]
fn a_work_order_is_applied_after_a_yes() {
    let place = Place::new();
    let order = place.write("work/order.json", "{\"work_order_id\":\"WO-20260203-001\",\"title\":\"x\"}");
    let mut terminal = place.terminal(&STUB, 120);
    terminal.prompted();
    for (answer, told, there) in
        [("n", "cancelled: nothing was applied", false), ("y", "WO-20260203-001 was applied", true)]
    {
        terminal.types(":wo apply order.json\r");
        terminal.sees("on the ledger of the home? [y/N] ");
        terminal.types(&format!("{answer}\r"));
        terminal.sees(told);
        terminal.prompted();
        assert_eq!(place.path("home/planes/ho2/ledger/workorder.jsonl").exists(), there, "{}", order.display());
    }
    assert!(terminal.says(":wo").contains("WO-20260203-001"));
}

#[test]
fn the_prompt_is_on_the_terminal_where_the_output_goes_elsewhere() {
    let place = Place::new();
    let mut terminal = place.terminal(&[&STUB[..], &["| cat > out"]].concat(), 100);
    terminal.prompted();
    terminal.types("hello\r");
    terminal.prompted();
    terminal.types(":quit\r");
    terminal.sees("Keep a lesson");
    terminal.types("\r");
    terminal.sees("[y/N] ");
    terminal.types("\r");
    assert_eq!(terminal.ended(), Some(0));
    let out = std::fs::read_to_string(place.path("work/out")).unwrap();
    assert!(out.contains("stub response 1") && !out.contains('\x1b') && !out.contains("cp> "), "{out}");
}

#[test]
fn colour_is_shown_unless_it_is_not_wanted() {
    for (variables, wanted) in [("NO_COLOR=", true), ("NO_COLOR=1", false), ("TERM=dumb", false)] {
        let place = Place::new();
        let mut terminal = place.terminal_with(variables, &STUB, 100);
        terminal.prompted();
        terminal.types("delete it\r");
        terminal.sees("[y/N] ");
        terminal.types("n\r");
        terminal.sees("nothing was sent");
        terminal.prompted();
        assert_eq!(terminal.has_colour(), wanted, "{variables}");
    }
}

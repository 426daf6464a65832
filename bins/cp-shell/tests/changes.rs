//! The tools of an interactive session: their confirmation, the differences that they make, and undo.

use serde_json::{Value, json};

use crate::person::{Person, Session};
use crate::terminal::TOOLS;

const ARGUMENTS: [&str; 4] = ["--backend", "stub", "--with-tools", "--no-hub"];

/// A call of the built-in file tool.
fn call(operation: &str, arguments: &Value) -> String {
    let mut input = json!({"operation": operation});
    input.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    format!("{}\n", json!({"tool_calls": [{"name": "filesystem", "input": input}]}))
}

/// The answers of a model that edits `a.py`, and creates `new.txt` in the next turn.
fn plays(place: &Person) {
    place.home.write("config/policy.toml", "[exec]\nallowed_commands = [\"*\"]\n[paths]\nwrite = [\".\"]\n");
    place.work.write("a.py", "x = 1\ny = 3\n");
    let edit = call("edit_file", &json!({"path": "a.py", "old": "x = 1", "new": "x = 2"}));
    let create = call("write_file", &json!({"path": "new.txt", "content": "new\n"}));
    let done = "{\"content\":\"Done.\"}\n";
    place.stub_plays(&format!("{edit}{done}{create}{done}"));
}

/// A session in which both turns were answered; the use of tools was confirmed once.
fn answered(place: &Person) -> Session {
    plays(place);
    let mut terminal = place.terminal(&ARGUMENTS, 100);
    terminal.prompted();
    terminal.send("edit it\r");
    terminal.wait_for("Let the model use filesystem");
    terminal.wait_for(TOOLS);
    terminal.send("what\r");
    terminal.wait_for("Type y, n or a, then Enter: ");
    terminal.send("a\r");
    let shown = terminal.wait_for("Done.");
    assert!(shown.contains("\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n y = 3\n"), "{shown}");
    let ended = terminal.prompted();
    assert!(ended.contains("\nRUN-") && ended.contains(": 1 call, 1 change of files · :diff shows"), "{ended}");
    let second = terminal.says("create it");
    assert!(second.contains("+++ ") && second.contains("\n+new\n") && !second.contains("Let the model"), "{second}");
    terminal
}

#[test]
fn undo_puts_back_files_after_confirmation() {
    let place = Person::new();
    let mut terminal = answered(&place);
    assert!(terminal.says(":diff").contains("+new\n"));
    for (answer, is_there) in [("n", true), ("y", false)] {
        terminal.send(":undo\r");
        terminal.wait_for("  remove new.txt\n");
        terminal.wait_for("Put back 1 file? [y/N] ");
        terminal.send(&format!("{answer}\r"));
        terminal.prompted();
        assert_eq!(place.work.join("new.txt").exists(), is_there, "{}", terminal.text());
    }
    assert!(terminal.text().contains("1 file put back; the conversation is as it was\n"), "{}", terminal.text());
    assert_eq!(place.work.read("a.py"), "x = 2\ny = 3\n");
    terminal.send(":quit\r");
    assert_eq!(terminal.end(), Some(0));
    // The run before is known after the shell was restarted. A script puts nothing back.
    let options = [&ARGUMENTS[..], &["-c"]].concat();
    let ran = place.script(&options, ":undo\n").code(5);
    assert!(ran.stdout.contains("nothing was put back: it requires approval at a terminal"), "{ran:?}");
    let mut terminal = place.terminal(&options, 100);
    terminal.prompted();
    assert!(terminal.says(":diff").contains("-x = 1\n+x = 2\n"));
    terminal.send(":undo\r");
    terminal.wait_for("  restore a.py\n");
    terminal.wait_for("[y/N] ");
    terminal.send("y\r");
    terminal.prompted();
    assert_eq!(place.work.read("a.py"), "x = 1\ny = 3\n");
    for command in [":undo", ":diff"] {
        let shown = terminal.says(command);
        assert!(shown.contains("✗ the files of RUN-") && shown.contains("put back already"), "{shown}");
    }
}

#[test]
fn undo_keeps_later_change_of_file() {
    let place = Person::new();
    let mut terminal = answered(&place);
    place.work.write("new.txt", "mine\n");
    let refused = terminal.says(":undo");
    assert!(refused.contains("✗ ") && refused.contains("new.txt") && refused.contains("Hint: "), "{refused}");
    assert_eq!(place.work.read("new.txt"), "mine\n");
}

#[test]
fn undo_takes_back_changes_of_commands() {
    let place = Person::new();
    plays(&place);
    let touch = json!({"tool_calls": [{"name": "shell", "input": {"argv": ["touch", "made"]}}]});
    place.stub_plays(&format!("{touch}\n{{\"content\":\"Done.\"}}\n"));
    let mut terminal = place.terminal(&ARGUMENTS, 100);
    terminal.prompted();
    terminal.send("touch it\r");
    terminal.wait_for(TOOLS);
    terminal.send("a\r");
    terminal.prompted();
    assert!(place.work.join("made").exists());
    terminal.send(":undo\r");
    let listed = terminal.wait_for("[y/N] ");
    assert!(listed.contains("  remove made\n"), "{listed}");
    terminal.send("y\r");
    assert!(terminal.prompted().contains("1 file put back") && !place.work.join("made").exists());
    terminal.send(":quit\r");
    assert_eq!(terminal.end(), Some(0));
    let evidence = place.session().records("ledger/evidence.jsonl");
    let writes: Vec<&Value> =
        evidence.iter().filter_map(|turn| turn["data"]["declared_writes"].as_array()).flatten().collect();
    let made = place.work.join("made").display().to_string();
    assert!(writes.len() == 2 && writes.iter().all(|write| write["path"] == *made), "{writes:?}");
    assert!(writes[0]["hash"].is_string() && writes[1]["hash"].is_null(), "made, and removed: {writes:?}");
}

#[test]
fn tool_call_in_session_without_tools_is_reported() {
    let place = Person::new();
    let touch = json!({"tool_calls": [{"name": "shell", "input": {"argv": ["touch", "made"]}}]});
    place.stub_plays(&format!("{touch}\n{{\"content\":\"Fine.\"}}\n"));
    let ran = place.stub("make it\nand now\n");
    let line = "✗ the model called shell, but this session has no tools\n";
    assert!(ran.stdout.contains(line) && ran.stdout.contains("Fine."), "{ran:?}");
    // The next prompt has no call without a result.
    let shown = place.script(&["--backend", "stub", "-c"], ":v\n").stdout;
    assert!(shown.contains("[called without effect: shell]"), "{shown}");
}

#[test]
fn tools_are_switched_in_session() {
    let place = Person::new();
    plays(&place);
    let mut terminal = place.terminal(&["--backend", "stub", "--no-hub"], 100);
    terminal.prompted();
    assert!(terminal.says(":tools").contains("off: `:tools on`"));
    assert!(terminal.says(":tools on").contains("filesystem"));
    terminal.send("edit it\r");
    terminal.wait_for(TOOLS);
    // Esc declines.
    terminal.send("\x1b");
    terminal.wait_for("cancelled: nothing was sent");
    terminal.prompted();
    assert!(terminal.says(":tools off").contains("off: "));
}

#[test]
fn signals_show_state_before_their_own_command() {
    let place = Person::new();
    let mut terminal = place.terminal(&["--backend", "stub", "--no-hub"], 100);
    terminal.prompted();
    assert!(terminal.says(":signals").contains("neutral · L2 · [█████] · t0 |"));
    terminal.says("hello");
    assert!(terminal.says(":signals").contains("grounded · L2 · [█████] · t1 |"));
    terminal.send("delete the logs\r");
    terminal.wait_for("[y/N] ");
    terminal.send("n\r");
    terminal.prompted();
    for _ in 0..2 {
        assert!(terminal.says(":signals").contains("protective · L2 · [█████] · t2 |"));
    }
    terminal.send(":quit\r");
    terminal.wait_for("ended after 2 rounds");
    let mut again = place.terminal(&["--backend", "stub", "--no-hub", "-c"], 100);
    again.prompted();
    assert!(again.says(":signals").contains("· t2 |"), "{}", again.text());
}

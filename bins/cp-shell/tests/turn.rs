//! Turns at a terminal: output while a turn is answered, interruption, and recording.

use cp_testkit::until;

use crate::person::{Person, hub};

const SLOW: &str = "{\"content\":\"late\",\"delay_ms\":600000}\n";
const STUB: [&str; 2] = ["--backend", "stub"];

#[test]
fn tab_completes_paths_after_at() {
    let place = Person::new();
    place.work.write("docs/reading-list.md", "many books");
    place.work.write(".docs-hidden", "");
    for columns in [40, 200] {
        let mut terminal = place.terminal(&STUB, columns);
        terminal.prompted();
        terminal.send("see @do\tre\t\r");
        terminal.wait_for("see @docs/reading-list.md");
        terminal.wait_for("attached: docs/reading-list.md");
        terminal.prompted();
        terminal.send("see @.docs\t\r");
        terminal.wait_for("see @.docs-hidden");
        terminal.prompted();
    }
}

#[test]
fn ctrl_c_ends_hub_wait_and_keeps_session() {
    let place = Person::new();
    let hub = hub(|_| None);
    place.hub_at(&hub.url(), 3_600_000);
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    for line in [":hub", ":inbox read m-1"] {
        terminal.send(&format!("{line}\r"));
        terminal.wait_for(&format!("{line}\n"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        terminal.send("\x03");
        terminal.wait_for("✗ interrupted by a signal");
        terminal.prompted();
    }
    assert!(terminal.says("hello").contains("stub response 1"));
}

#[test]
fn question_of_killed_shell_is_kept() {
    for columns in [40, 80, 200] {
        let place = Person::new();
        place.stub_plays(&format!("{{\"content\":\"one\"}}\n{SLOW}"));
        let mut terminal = place.terminal(&STUB, columns);
        terminal.prompted();
        terminal.says("first");
        terminal.send("what is 17 * 3?\r");
        let session = place.session();
        until("the request", || session.read_if_there("ledger/llm.jsonl").matches("llm.request").count() == 2);
        terminal.kill();
        let mut again = place.terminal(&["--backend", "stub", "-c"], columns);
        let recap = again.prompted();
        let marked = "you: first\n  → one\nyou: what is 17 * 3?\n  → [interrupted]\n";
        assert!(recap.contains(marked), "{recap}");
        // The question is in the conversation once, and is closed.
        assert!(again.says("and now").contains("stub response 3"));
        assert!(again.says(":v").contains("user: what is 17 * 3?\nassistant: [interrupted]\nuser: and now"));
        again.send(":quit\r");
        assert_eq!(again.end(), Some(0));
        let mut third = place.terminal(&["--backend", "stub", "-c"], columns);
        assert_eq!(third.prompted().matches("17 * 3").count(), 1);
        assert_eq!(place.data("session_turn").iter().filter(|turn| turn["cancelled"] == true).count(), 1);
    }
}

#[test]
fn turn_is_written_on_several_lines() {
    let place = Person::new();
    let mut terminal = place.terminal(&STUB, 100);
    terminal.prompted();
    // Alt-Enter and a backslash before Enter continue the line; Enter sends all lines.
    terminal.send("a\x1b\rb\\\rc\r");
    terminal.wait_for("stub response 1");
    terminal.prompted();
    let said: Vec<_> = place.entries().into_iter().filter(|entry| entry["role"] == "user").collect();
    assert_eq!(said.iter().map(|turn| turn["content"].as_str().unwrap()).collect::<Vec<_>>(), ["a\nb\nc"]);
}

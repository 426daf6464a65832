//! Interactive features at a terminal: command lines, lines of a turn and the brief.

use crate::person::Person;

const STUB: [&str; 2] = ["--backend", "stub"];

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

#[test]
fn brief_is_sent_after_one_confirmation() {
    let place = Person::new();
    for (brief, answer, goes) in
        [("one", Some("n"), false), ("two", Some("y"), true), ("two", None, true), ("one", None, false)]
    {
        place.work.write(".custodian-brief.md", brief);
        let mut terminal = place.terminal(&STUB, 100);
        terminal.prompted();
        terminal.send("hello\r");
        if let Some(answer) = answer {
            terminal.wait_for(".custodian-brief.md (3 bytes) with turns? [y/N] ");
            terminal.send(&format!("{answer}\r"));
        }
        terminal.wait_for("stub response");
        terminal.prompted();
        assert_eq!(
            terminal.says(":explain").contains("context     brief, 3 bytes"),
            goes,
            "{brief}: {}",
            terminal.text()
        );
        terminal.send(":quit\r");
        assert_eq!(terminal.end(), Some(0));
    }
}

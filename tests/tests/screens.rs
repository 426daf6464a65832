//! Standard error at a terminal: the progress of long work.

use cp_testkit::Place;

/// A filter whose seven rows take three seconds to arrive.
fn rows(more: &str) -> String {
    let row = r#"echo '{"messages":[{"role":"user","content":"a"}]}'; sleep 0.5"#;
    format!("{{ for i in 1 2 3 4 5 6 7; do {row}; done; {more} }} | cp-llm --backend stub --rows")
}

#[test]
fn progress_of_rows_is_one_line_that_is_erased() {
    let place = Place::new();
    let mut terminal = place.shell("sh", &format!("{} >out; echo ended", rows(""))).terminal(20);
    terminal.wait_for("6 done");
    terminal.wait_for("ended");
    assert_eq!(terminal.end(), Some(0));
    let raw = terminal.raw();
    assert!(raw.ends_with("\r\u{1b}[Kended\r\n") && raw.matches('\n').count() == 1, "{raw:?}");
    assert_eq!(place.work.records("out").len(), 8);
}

#[test]
fn progress_is_silent_when_quiet_short_or_not_at_terminal() {
    let place = Place::new();
    let (long, short) = (rows(""), rows("").replace("0.5", "0.1"));
    for line in [
        format!("{long} --quiet >out"),
        format!("{long} 2>err >out; cat err"),
        format!("{short} >out"),
        long.clone() + " --format json",
    ] {
        let mut terminal = place.shell("sh", &line).terminal(80);
        assert_eq!(terminal.end(), Some(0));
        assert!(!terminal.text().contains("done"), "{line}: {}", terminal.text());
    }
}

#[test]
fn warning_erases_progress() {
    let place = Place::new();
    let mut terminal = place.shell("sh", &(rows("echo '{}';") + " >out")).terminal(80);
    terminal.wait_for("cp-llm: ");
    terminal.end();
    let raw = terminal.raw();
    let before = &raw[..raw.find("cp-llm: ").unwrap()];
    assert!(before.ends_with("\r\u{1b}[K"), "{raw:?}");
}

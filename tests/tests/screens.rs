//! Standard output and standard error at a terminal: the progress of long work, and the pager.

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

/// A place whose ledger has 60 lines.
fn with_ledger() -> Place {
    let place = Place::new();
    place.sh("seq 60 | jq -c {message:tostring} | cp-log append --rows >/dev/null").success();
    place
}

#[test]
fn pager_gets_long_list_at_terminal_only() {
    let place = with_ledger();
    for (variables, words, is_paged) in [
        ("CP_PAGER='cat >paged'", "query", true),
        ("PAGER='cat >paged'", "query", true),
        ("CP_PAGER='cat >paged' PAGER=false", "query --limit 30", true),
        ("CP_PAGER='cat >paged'", "query --limit 5", false),
        ("CP_PAGER='cat >paged'", "query --format json", false),
        ("CP_PAGER='cat >paged'", "query --quiet | cat", false),
        ("CP_PAGER= PAGER='cat >paged'", "query", false),
        ("CP_PAGER='cat >paged'", "reference", true),
    ] {
        let line = format!("rm -f paged; {variables} cp-log {words}; echo \"ended $?\"");
        let mut terminal = place.shell("sh", &line).terminal(80);
        terminal.wait_for("ended 0");
        let paged = place.work.read_if_there("paged");
        assert_eq!(!paged.is_empty(), is_paged, "{line}: {}", terminal.text());
        let screen = terminal.text();
        assert!(is_paged != (screen.lines().count() > 3), "{line}: {screen}");
        if words == "query" && is_paged {
            assert!(paged.lines().count() >= 60, "{paged}");
        }
        terminal.end();
    }
}

#[test]
fn pager_that_is_left_early_ends_quietly() {
    let place = with_ledger();
    for pager in ["head -n 1", "true", "no-such-pager"] {
        let mut terminal = place.shell("sh", "cp-log query; echo \"ended $?\"").env("CP_PAGER", pager).terminal(80);
        terminal.wait_for("ended 0");
        assert!(!terminal.text().contains("pipe") && !terminal.text().contains('✗'), "{}", terminal.text());
        terminal.end();
    }
}

#[test]
fn interrupt_leaves_pager_in_control() {
    let place = with_ledger();
    // The pager ignores SIGINT, as less does, and ends on a key.
    place
        .root
        .executable("pager", "#!/bin/sh\ntrap '' INT\ncat >/dev/null\necho shown\nread key </dev/tty\necho left\n");
    let pager = place.root.join("pager");
    let mut terminal = place.program("cp-log").arg("query").env("CP_PAGER", pager).terminal(80);
    terminal.wait_for("shown");
    terminal.send("\u{3}");
    std::thread::sleep(std::time::Duration::from_millis(400));
    terminal.send("q\r");
    terminal.wait_for("left");
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.text().contains("interrupted"), "{}", terminal.text());
}

#[test]
fn follow_is_shown_at_once() {
    let place = with_ledger();
    let mut terminal = place.shell("sh", "cp-log follow --last 40").env("CP_PAGER", "cat >paged").terminal(80);
    terminal.wait_for("60");
    assert!(!place.work.join("paged").exists());
}

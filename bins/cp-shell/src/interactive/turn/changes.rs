//! The differences of the files that the tools of a run changed, as `cp-toolloop show` reports them.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use cp_common::coprocess::find;
use cp_common::{Error, Result};

use crate::interactive::console::render::{Style, count, escaped};

/// The number of lines of a difference that are shown during a turn.
const LINES: usize = 40;

/// The differences of a run, one for each operation that changed files.
pub(crate) fn differences(run: &str, flags: &[OsString]) -> Result<Vec<String>> {
    let mut show = Command::new(find("cp-toolloop")?);
    show.args(["show", run, "--format", "text"]).args(flags).stderr(Stdio::null());
    let output = show.output().map_err(|e| Error::io("starting cp-toolloop", e))?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Extracts the differences. Each follows the line of its entry, which begins with its time, as no line of a difference does.
fn parse(text: &str) -> Vec<String> {
    let (mut found, mut is_change) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            is_change = line.split(' ').nth(1) == Some("exec.operation");
            found.extend(is_change.then(String::new));
        } else if let Some(difference) = found.last_mut().filter(|_| is_change) {
            difference.push_str(line);
            difference.push('\n');
        }
    }
    found.retain(|difference| !difference.is_empty());
    found
}

/// A difference in colour.
pub(crate) fn painted(difference: &str, style: Style) -> String {
    difference.lines().map(|line| painted_line(line, style)).collect()
}

/// The first lines of a difference in colour, and the number of the others.
pub(super) fn painted_start(difference: &str, style: Style) -> String {
    let mut text: String = difference.lines().take(LINES).map(|line| painted_line(line, style)).collect();
    let more = difference.lines().count().saturating_sub(LINES);
    if more > 0 {
        text.push_str(&style.faint(&format!("… {}, which :diff shows", count(more, "more line"))));
        text.push('\n');
    }
    text
}

fn painted_line(line: &str, style: Style) -> String {
    let line_text = escaped(line);
    let shown = match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => style.strong(&line_text),
        [b'+', ..] => style.painted("32", &line_text),
        [b'-', ..] => style.painted("31", &line_text),
        _ => style.faint(&line_text),
    };
    format!("{shown}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_follow_entries_of_operations() {
        let text = "RUN-1  done\n2026-01-01T00:00:00Z run_start\n2026-01-01T00:00:01Z exec.operation\n--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2026 exec.operation\n\
            2026-01-01T00:00:02Z exec.intent\n$ ls\n2026-01-01T00:00:03Z exec.operation\n2026-01-01T00:00:04Z exec.operation\n--- /dev/null\n+++ b\n";
        let found = parse(text);
        assert_eq!(found, ["--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2026 exec.operation\n", "--- /dev/null\n+++ b\n"]);
    }

    #[test]
    fn long_difference_is_shortened() {
        let style = Style { width: 80, colour: false };
        let long = (0..50).map(|number| format!("+{number}")).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(painted(&long, style), long);
        assert!(painted_start(&long, style).ends_with("+39\n… 10 more lines, which :diff shows\n"));
    }
}

//! The differences of the files that the tools of a run changed, as `cp-toolloop show` reports them.

use std::ffi::OsString;

use cp_common::Result;
use cp_common::coprocess::ask_with;
use serde_json::Value;

use crate::interactive::console::render::{Style, count, escaped};

/// The differences of a run, one for each operation that changed files.
pub(crate) fn differences(run: &str, flags: Vec<OsString>) -> Result<Vec<String>> {
    let shown: Value = ask_with("cp-toolloop", &["show", run], b"", flags)?.data()?;
    let steps = shown["steps"].as_array().into_iter().flatten();
    Ok(steps.filter_map(|step| step["difference"].as_str().map(str::to_owned)).collect())
}

/// The number of lines of a difference that are shown during a turn.
pub(super) const SHOWN: usize = 40;

/// The first lines of a difference in colour, and the number of the others.
pub(crate) fn painted(difference: &str, most: usize, style: Style) -> String {
    let mut text: String = difference.lines().take(most).map(|line| painted_line(line, style)).collect();
    let more = difference.lines().count().saturating_sub(most);
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
    fn long_difference_is_shortened() {
        let style = Style { width: 80, colour: false };
        let long = (0..50).map(|number| format!("+{number}")).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(painted(&long, usize::MAX, style), long);
        assert!(painted(&long, SHOWN, style).ends_with("+39\n… 10 more lines, which :diff shows\n"));
    }
}

//! Transcripts: `$ command` lines and the output they are said to give, run in a shell and compared.
//!
//! Blank lines do not count. `...` inside an expected line stands for anything, a line that is only `...` for any lines, and a command without expected lines must only exit with 0.

use cp_testkit::Place;

/// A command and what it is said to print.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The command, with its continuation lines.
    pub command: String,
    /// The expected lines.
    pub expected: Vec<String>,
}

/// The steps of a transcript: `$ ` begins a command, `> ` continues it, other lines are its output.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), expected: Vec::new() });
        } else if let (Some(more), Some(step)) = (line.strip_prefix("> "), steps.last_mut()) {
            step.command.push('\n');
            step.command.push_str(more);
        } else if let (false, Some(step)) = (line.trim().is_empty(), steps.last_mut()) {
            step.expected.push(line.to_owned());
        }
    }
    steps
}

/// Runs the steps one after the other in one shell, so that variables and files carry over.
pub fn run(name: &str, text: &str, place: &Place) {
    let steps = steps(text);
    assert!(!steps.is_empty(), "{name}: no `$ ` line");
    let mark = "-=- step -=-";
    let script: Vec<String> = steps.iter().map(|step| format!("{}\necho \"{mark} $?\"\n", step.command)).collect();
    let ran = place.sh(&script.concat());
    let mut outputs = ran.stdout.split(mark);
    let mut output = outputs.next().unwrap_or_default().to_owned();
    for step in &steps {
        let rest = outputs
            .next()
            .unwrap_or_else(|| panic!("{name}: `{}` ended the shell; stderr:\n{}", step.command, ran.stderr));
        let (status, next) = rest.split_once('\n').unwrap_or((rest, ""));
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        if step.expected.is_empty() {
            assert_eq!(status.trim(), "0", "{name}: `{}` failed:\n{output}\nstderr:\n{}", step.command, ran.stderr);
        } else {
            let expected: Vec<&str> = step.expected.iter().map(String::as_str).collect();
            assert!(
                lines_match(&expected, &lines),
                "{name}: `{}`\nexpected:\n{}\nprinted:\n{output}\nstderr:\n{}",
                step.command,
                expected.join("\n"),
                ran.stderr
            );
        }
        next.clone_into(&mut output);
    }
}

fn lines_match(expected: &[&str], lines: &[&str]) -> bool {
    match expected {
        [] => lines.is_empty(),
        ["...", rest @ ..] => (0..=lines.len()).any(|skipped| lines_match(rest, &lines[skipped..])),
        [first, rest @ ..] => {
            lines.split_first().is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others))
        }
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The literal blocks of a manual page's EXAMPLES section that hold commands, without mdoc's escapes.
pub fn examples_of_page(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    let mut in_examples = false;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix(".Sh ") {
            in_examples = title.trim() == "EXAMPLES";
        } else if in_examples && line.starts_with(".Bd ") {
            block = Some(String::new());
        } else if line.starts_with(".Ed") {
            blocks.extend(block.take().filter(|text| text.lines().any(|l| l.starts_with("$ "))));
        } else if let Some(text) = &mut block {
            text.push_str(&unescaped(line));
            text.push('\n');
        }
    }
    blocks
}

fn unescaped(line: &str) -> String {
    let pairs = [
        ("\\e", "\\"),
        ("\\&", ""),
        ("\\-", "-"),
        ("\\(aq", "'"),
        ("\\(dq", "\""),
        ("\\(ti", "~"),
        ("\\(ha", "^"),
        ("\\(ga", "`"),
    ];
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (from, to) = pairs.into_iter().find(|(from, _)| rest.starts_with(from)).unwrap_or(("\\", "\\"));
        text.push_str(to);
        rest = &rest[from.len()..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_anything_and_nothing_else_does() {
        assert!(line_matches("a ... c", "a b c"));
        assert!(line_matches("a", "a"));
        assert!(!line_matches("a", "ab"));
        assert!(!line_matches("a ... c", "a b d"));
        assert!(lines_match(&["a", "...", "z"], &["a", "b", "c", "z"]));
        assert!(!lines_match(&["a", "...", "z"], &["a", "b"]));
    }

    #[test]
    fn a_step_has_its_continuations_and_its_output() {
        let steps = steps("$ for i in 1 2; do\n> echo $i; done\n1\n2\n\n$ true\n");
        assert_eq!(steps[0].command, "for i in 1 2; do\necho $i; done");
        assert_eq!(steps[0].expected, ["1", "2"]);
        assert!(steps[1].expected.is_empty());
    }

    #[test]
    fn mdoc_escapes_are_taken_out() {
        assert_eq!(unescaped("\\&.x \\(aqa\\(aq \\e n"), ".x 'a' \\ n");
    }
}

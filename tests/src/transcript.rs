//! Transcripts: `$ command` lines and their expected output, run in a shell and compared.
//!
//! Blank lines do not count. `...` inside an expected line stands for anything, a line that is only `...` for any
//! lines, and a command without expected lines must only exit with 0.

use std::path::Path;

use cp_testkit::Place;

/// A part of a file that is a transcript.
#[derive(Debug)]
pub struct Block {
    /// The number of lines of the file before it.
    pub before: usize,
    /// Its lines, without what the format of the file adds to them.
    pub text: String,
}

/// A command and its expected output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The command, with its continuation lines.
    pub command: String,
    /// The expected lines.
    pub expected: Vec<String>,
    /// Where they are in the block.
    pub places: Vec<usize>,
}

/// A command that printed something else than the file says.
#[derive(Debug)]
pub struct Difference {
    /// Where the expected lines are in the file.
    places: Vec<usize>,
    printed: Vec<String>,
    told: String,
}

/// The steps of a transcript: `$ ` begins a command, `> ` continues it, other lines are its output.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (place, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), ..Step::default() });
        } else if let (Some(more), Some(step)) = (line.strip_prefix("> "), steps.last_mut()) {
            step.command.push('\n');
            step.command.push_str(more);
        } else if let (false, Some(step)) = (line.trim().is_empty(), steps.last_mut()) {
            step.expected.push(line.to_owned());
            step.places.push(place);
        }
    }
    steps
}

/// Runs the steps one after the other in one shell, so that variables and files carry over, and gives what was
/// different.
pub fn run(name: &str, shell: &str, block: &Block, place: &Place) -> Vec<Difference> {
    let steps = steps(&block.text);
    assert!(!steps.is_empty(), "{name}: no `$ ` line");
    let mark = "-=- step -=-";
    let script: Vec<String> = steps.iter().map(|step| format!("{}\necho \"{mark} $?\"\n", step.command)).collect();
    let ran = place.shell(shell, &script.concat()).run();
    let mut outputs = ran.stdout.split(mark);
    let mut output = outputs.next().unwrap_or_default().to_owned();
    let mut differences = Vec::new();
    for step in &steps {
        let rest = outputs
            .next()
            .unwrap_or_else(|| panic!("{name}: {shell}: `{}` ended the shell; stderr:\n{}", step.command, ran.stderr));
        let (status, next) = rest.split_once('\n').unwrap_or((rest, ""));
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        let expected: Vec<&str> = step.expected.iter().map(String::as_str).collect();
        if expected.is_empty() {
            let (command, stderr) = (&step.command, &ran.stderr);
            assert_eq!(status.trim(), "0", "{name}: {shell}: `{command}` failed:\n{output}\nstderr:\n{stderr}");
        } else if !lines_match(&expected, &lines) {
            differences.push(Difference {
                places: step.places.iter().map(|place| place + block.before).collect(),
                printed: lines.iter().map(|line| (*line).to_owned()).collect(),
                told: format!(
                    "{name}: {shell}: `{}`\nexpected:\n{}\nprinted:\n{output}\nstderr:\n{}",
                    step.command,
                    expected.join("\n"),
                    ran.stderr
                ),
            });
        }
        next.clone_into(&mut output);
    }
    differences
}

/// Fails where something was different; under `UPDATE=1` rewrites the file instead, with `written` as it writes a line.
///
/// # Panics
///
/// Panics if something was different: it is called by tests.
pub fn same_or_update(path: &Path, differences: &[Difference], written: fn(&str) -> String) {
    if differences.is_empty() {
        return;
    }
    let told: Vec<&str> = differences.iter().map(|difference| difference.told.as_str()).collect();
    assert!(std::env::var_os("UPDATE").is_some(), "{}\nUPDATE=1 rewrites it", told.join("\n"));
    let text = std::fs::read_to_string(path).expect("the file was read before");
    std::fs::write(path, rewritten(&text, differences, written)).expect("the file can be written");
}

fn rewritten(text: &str, differences: &[Difference], written: fn(&str) -> String) -> String {
    let mut lines: Vec<Option<String>> = text.lines().map(|line| Some(line.to_owned())).collect();
    for Difference { places, printed, .. } in differences {
        for place in places {
            lines[*place] = None;
        }
        let printed: Vec<String> = printed.iter().map(|line| written(line)).collect();
        lines[places[0]] = Some(printed.join("\n")).filter(|printed| !printed.is_empty());
    }
    lines.into_iter().flatten().map(|line| line + "\n").collect()
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

/// The literal blocks of the sections EXAMPLES and WHAT PEOPLE DO of a manual page that hold commands, without mdoc's
/// escapes.
pub fn examples_of_page(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut block: Option<Block> = None;
    let mut in_examples = false;
    for (number, line) in page.lines().enumerate() {
        if let Some(title) = line.strip_prefix(".Sh ") {
            in_examples = ["EXAMPLES", "WHAT PEOPLE DO"].contains(&title.trim());
        } else if in_examples && line.starts_with(".Bd ") {
            block = Some(Block { before: number + 1, text: String::new() });
        } else if line.starts_with(".Ed") {
            blocks.extend(block.take().filter(|block| block.text.lines().any(|l| l.starts_with("$ "))));
        } else if let Some(block) = &mut block {
            block.text.push_str(&unescaped(line));
            block.text.push('\n');
        }
    }
    blocks
}

/// Blocks of a file as one, which a reader types into one shell.
pub fn joined(blocks: &[Block]) -> Block {
    let mut text = String::new();
    for block in blocks {
        // Its lines keep their numbers.
        text.extend(std::iter::repeat_n('\n', block.before - text.lines().count()));
        text.push_str(&block.text);
    }
    Block { before: 0, text }
}

/// The first literal block of a manual page below the heading of this title, without mdoc's escapes.
pub fn block_below(page: &str, title: &str) -> String {
    let lines = page.lines().skip_while(|line| line.get(4..) != Some(title));
    let block = lines.skip_while(|line| !line.starts_with(".Bd ")).skip(1).take_while(|line| *line != ".Ed");
    block.map(|line| unescaped(line) + "\n").collect()
}

/// The blocks of a page of Markdown that are marked as a console.
pub fn consoles_of_markdown(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut block: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut block) {
            (Some("console"), None) => block = Some(Block { before: number + 1, text: String::new() }),
            (Some(_), _) => blocks.extend(block.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// A line as mdoc writes it in a literal block.
pub fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
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
    fn what_is_rewritten_is_what_was_printed_and_nothing_else() {
        let page = ".Sh EXAMPLES\n.Bd -literal\n$ one\nold\n\nolder\n$ two\nkept\n.Ed\nend\n";
        let block = &examples_of_page(page)[0];
        let step = &steps(&block.text)[0];
        let difference = Difference {
            places: step.places.iter().map(|place| place + block.before).collect(),
            printed: vec![".a\\b".to_owned(), "c".to_owned()],
            told: String::new(),
        };
        assert_eq!(
            rewritten(page, &[difference], escaped),
            ".Sh EXAMPLES\n.Bd -literal\n$ one\n\\&.a\\eb\nc\n\n$ two\nkept\n.Ed\nend\n"
        );
        assert_eq!(unescaped(&escaped(".a\\b")), ".a\\b");
    }

    #[test]
    fn a_block_is_the_one_below_its_heading_without_escapes() {
        let page = ".Ss A\n.Bd -literal\na\n.Ed\n.Ss B\ntext\n.Bd -literal\n\\&.x \\(aqa\\(aq \\e n\n.Ed\n";
        assert_eq!(block_below(page, "B"), ".x 'a' \\ n\n");
    }
}

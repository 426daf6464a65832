//! The output of `-h` and `--help`, from the table that parses the command line: for a program, a verb, or a group of
//! verbs.
//!
//! clap's own help would omit the options of the implicit verb, which most users need.

use clap::{Arg, Command};
use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;

use crate::program::identity::{Input, Program, VerbDoc};
use crate::program::{command, standard};

/// The length of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// About one screen.
    Short,
    /// Everything.
    Long,
}

/// Maximum number of lines of short help.
const SCREEN: usize = 48;
/// Width of a line where standard output is not a terminal.
const WIDTH: usize = 80;
/// Widths of a terminal that lines fit. On a wider one they would be harder to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=100;
/// The heading of options without a heading of their own.
const OPTIONS: &str = "Options";
/// The heading of operands.
const OPERANDS: &str = "Operands";
/// The heading of shared options.
const OF_EVERY_PROGRAM: &str = "Options of every program";

/// Formats the help of the program, or of the verb at `path`.
pub(super) fn help(program: &Program, root: &Command, path: &[String], length: Length) -> String {
    let terminal = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    let width = terminal.map_or(WIDTH, |width| width.clamp(*WIDTHS.start(), *WIDTHS.end()));
    let page = Page { program, root, length, width, lines: Vec::new() };
    match command::at(root, path) {
        Some(verb) if !path.is_empty() => page.of_verb(verb, &path.join(" ")),
        _ => page.of_program(),
    }
}

struct Page<'a> {
    program: &'a Program,
    root: &'a Command,
    length: Length,
    width: usize,
    lines: Vec<String>,
}

impl Page<'_> {
    fn of_program(mut self) -> String {
        let name = self.program.name;
        self.paragraph(&format!("{name}: {}", self.program.about));
        let main = self.program.implicit.and_then(|verb| self.root.find_subcommand(verb));
        let mut usage = Vec::new();
        if let Some(main) = main {
            usage.push(format!("{name} [OPTIONS]{}", operands(main)));
            usage.extend(fed(name, self.program.doc("")));
        }
        usage.push(format!("{name} VERB [OPTIONS] [OPERANDS]"));
        self.usage(&usage);
        let begun = self.lines.len();
        self.examples(&self.program.examples());
        let examples = self.lines.len();
        if let Some(main) = main {
            self.arguments(main);
        }
        self.verbs(|_| true);
        self.options_of_every_program();
        self.last_words("");
        if self.length == Length::Short {
            // The first example is kept, after an empty line and the heading.
            let surplus = self.lines.len().saturating_sub(SCREEN).min(examples.saturating_sub(begun + 3));
            self.lines.drain(examples - surplus..examples);
        }
        self.text()
    }

    fn of_verb(mut self, verb: &Command, path: &str) -> String {
        let name = format!("{} {path}", self.program.name);
        self.paragraph(&format!("{name}: {}", about(verb)));
        let mut usage = Vec::new();
        if command::runs(verb) {
            usage.push(format!("{name} [OPTIONS]{}", operands(verb)));
            usage.extend(fed(&name, self.program.doc(path)));
        }
        if verb.has_subcommands() {
            usage.push(format!("{name} VERB [OPTIONS] [OPERANDS]"));
        }
        self.usage(&usage);
        let examples = self.program.doc(path).map(|doc| doc.examples).unwrap_or_default();
        self.examples(examples);
        self.arguments(verb);
        if verb.has_subcommands() {
            self.verbs(|other| other.starts_with(&format!("{path} ")));
        }
        self.options_of_every_program();
        self.last_words(path);
        self.text()
    }

    fn text(self) -> String {
        self.lines.join("\n") + "\n"
    }

    fn heading(&mut self, heading: &str) {
        self.lines.push(String::new());
        self.lines.push(format!("{heading}:"));
    }

    fn usage(&mut self, usage: &[String]) {
        self.lines.push(String::new());
        for (at, line) in usage.iter().enumerate() {
            self.lines.push(format!("{}{line}", if at == 0 { "Usage: " } else { "       " }));
        }
    }

    fn examples(&mut self, examples: &[&str]) {
        if !examples.is_empty() {
            self.heading("Examples");
        }
        self.lines.extend(examples.iter().map(|example| format!("  {}", example.replace("{}", self.program.name))));
    }

    /// Adds the arguments of a verb under their headings, in the order of first appearance.
    fn arguments(&mut self, verb: &Command) {
        let mut shown: Vec<&Arg> = verb.get_arguments().filter(|argument| self.shows(argument)).collect();
        shown.sort_by_key(|argument| !argument.is_positional());
        let mut headings: Vec<&str> = Vec::new();
        for heading in shown.iter().map(|argument| heading_of(argument)) {
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        for (at, heading) in headings.into_iter().enumerate() {
            let under = shown.iter().filter(|argument| heading_of(argument) == heading);
            let rows: Vec<(String, String)> =
                under.map(|argument| (command::spelled(argument), described(argument))).collect();
            self.heading(heading);
            if self.length == Length::Short && at > 0 {
                // Short help omits the empty line, to fit on a screen.
                self.lines.remove(self.lines.len() - 2);
            }
            self.rows(&rows);
        }
    }

    fn shows(&self, argument: &Arg) -> bool {
        let is_hidden = match self.length {
            Length::Short => argument.is_hide_short_help_set(),
            Length::Long => argument.is_hide_long_help_set(),
        };
        !argument.is_hide_set() && !is_hidden && !matches!(argument.get_id().as_str(), "help" | "version")
    }

    /// Adds the verbs that a user can name, under the program's headings.
    fn verbs(&mut self, wanted: impl Fn(&str) -> bool) {
        let all = command::verbs(self.program, self.root);
        let row = |path: &str| all.iter().find(|verb| verb.path == path && wanted(path));
        let whole = [("Verbs", self.program.verbs.iter().map(|doc| doc.path).collect::<Vec<_>>())];
        let groups = self.program.groups.iter().map(|(heading, paths)| (*heading, paths.to_vec()));
        let groups: Vec<(&str, Vec<&str>)> =
            if self.program.groups.is_empty() { whole.to_vec() } else { groups.collect() };
        let standard = ("Verbs of every program", standard::VERBS.iter().map(|doc| doc.path).collect());
        let is_short = self.length == Length::Short;
        for (heading, paths) in groups.into_iter().chain((!is_short).then_some(standard)) {
            let found = paths.iter().filter(|path| !path.is_empty()).filter_map(|path| row(path));
            let rows: Vec<(String, String)> = found.map(|verb| (verb.path.clone(), about(verb.command))).collect();
            if !rows.is_empty() {
                self.heading(heading);
                self.rows(&rows);
            }
        }
    }

    fn options_of_every_program(&mut self) {
        if self.length == Length::Short {
            return;
        }
        self.heading(OF_EVERY_PROGRAM);
        let shared = self.root.get_arguments().filter(|argument| self.shows(argument));
        let mut rows: Vec<(String, String)> =
            shared.map(|argument| (command::spelled(argument), described(argument))).collect();
        rows.push(("-h, --help".to_owned(), "Print help; -h prints a shorter one".to_owned()));
        rows.push(("-V, --version".to_owned(), "Print the version".to_owned()));
        self.rows(&rows);
    }

    /// Adds the pointers to more documentation.
    fn last_words(&mut self, path: &str) {
        let name = self.program.name;
        let of_verb = if path.is_empty() { String::new() } else { format!(" {path}") };
        self.lines.push(String::new());
        if self.length == Length::Short {
            let standard: Vec<&str> = standard::VERBS.iter().map(|doc| doc.path).collect();
            self.paragraph(&format!("Every program has: {}.", standard.join(", ")));
            self.paragraph(&format!("`{name}{of_verb} --help` has every option, `man {name}` the whole manual."));
        } else if path.is_empty() {
            self.paragraph(&format!("`{name} VERB --help` has the options of a verb, `man {name}` the whole manual."));
        } else {
            self.paragraph(&format!("`{name} --help` has the other verbs, `man {name}` the whole manual."));
        }
    }

    fn paragraph(&mut self, text: &str) {
        self.lines.extend(wrapped(text, self.width));
    }

    /// Adds names and descriptions in two columns.
    fn rows(&mut self, rows: &[(String, String)]) {
        // The description of a longer name begins below it.
        let widest = self.width / 3;
        let column = rows.iter().map(|(name, _)| name.chars().count()).filter(|width| *width <= widest).max();
        let column = column.unwrap_or(widest / 2) + 2;
        for (name, text) in rows {
            let mut begin = format!("  {name}");
            if name.chars().count() > column {
                self.lines.push(std::mem::take(&mut begin));
            }
            let width = self.width - 2 - column;
            let text = if self.length == Length::Short { first_clause(text, width) } else { text };
            for line in wrapped(text, width) {
                let gap = (2 + column).saturating_sub(begin.chars().count());
                self.lines.push(format!("{begin}{}{line}", " ".repeat(gap)).trim_end().to_owned());
                begin.clear();
            }
        }
    }
}

fn heading_of(argument: &Arg) -> &str {
    // clap applies the heading of flattened options also to operands that follow.
    if argument.is_positional() { OPERANDS } else { argument.get_help_heading().unwrap_or(OPTIONS) }
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Formats the operands of a usage line.
fn operands(verb: &Command) -> String {
    let shown = verb.get_positionals().filter(|operand| !operand.is_hide_set());
    shown
        .map(|operand| {
            let many = command::is_multiple(operand) && !command::is_free_text(operand);
            let name = format!("{}{}", command::spelled(operand), if many { "..." } else { "" });
            match (command::is_command(operand), operand.is_required_set()) {
                (true, _) => format!(" [-- {name}]"),
                (false, _) if command::is_free_text(operand) => format!(" [--] [{name}]"),
                (false, true) => format!(" {name}"),
                (false, false) => format!(" [{name}]"),
            }
        })
        .collect()
}

/// Formats the usage line of a verb that reads standard input.
fn fed(name: &str, doc: Option<&VerbDoc>) -> Option<String> {
    let kinds: Vec<&str> = doc?.input.iter().filter_map(|input| input.noun()).collect();
    (!kinds.is_empty()).then(|| format!("{} | {name} [OPTIONS]", either(&kinds)))
}

fn either(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Formats the description of an argument, with its values and its default unless the text mentions them.
fn described(argument: &Arg) -> String {
    let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = command::values(argument).iter().map(|value| value.get_name().to_owned()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let says_them = values.iter().all(|value| text.contains(value));
    let values = if says_them { String::new() } else { format!(": {}", either(&values)) };
    let default = command::default(argument).filter(|_| !argument.is_hide_default_value_set());
    let default = default.map(|default| format!(" (default: {default})")).unwrap_or_default();
    format!("{text}{values}{default}")
}

/// Returns the beginning of a text that fits, up to the end of a clause; the whole text if there is none.
fn first_clause(text: &str, width: usize) -> &str {
    let fits = |end: &usize| text[..*end].chars().count() <= width;
    let ends = ["; ", " ("].iter().flat_map(|mark| text.match_indices(mark)).map(|(at, _)| at);
    ends.chain([text.len()]).filter(fits).max().map_or(text, |end| &text[..end])
}

/// Wraps text to lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Input {
    /// Returns the noun for the input in a usage line.
    fn noun(self) -> Option<&'static str> {
        match self {
            Self::Text => Some("text"),
            Self::Records => Some("records"),
            Self::Rows => Some("rows"),
            Self::Bytes => Some("bytes"),
            Self::Person => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_clause_fits_or_is_whole_text() {
        assert_eq!(first_clause("One tool (repeatable)", 40), "One tool (repeatable)");
        assert_eq!(first_clause("One tool, two tools (repeatable)", 20), "One tool, two tools");
        assert_eq!(first_clause("One tool; more", 10), "One tool");
        assert_eq!(first_clause("One tool", 4), "One tool");
    }

    #[test]
    fn wrapped_breaks_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
        assert_eq!(either(&["a", "b", "c"]), "a, b or c");
    }
}

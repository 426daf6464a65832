//! The output of `-h` and `--help`: clap formats it, from a command made for the page, because clap's page of a program
//! would omit the verbs below a verb.

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};
use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;

use crate::program::identity::{Input, Program};
use crate::program::{command, standard};

/// The length of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// About one screen.
    Short,
    /// Everything.
    Long,
}

/// Width of a line where standard output is not a terminal.
const WIDTH: usize = 80;
/// Widths of a terminal that lines fit. On a wider one they would be harder to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=100;

/// Formats the help of the program, or of the verb at `path`.
pub(super) fn help(program: &Program, root: &Command, path: &[String], length: Length) -> String {
    let verb = command::at(root, path).unwrap_or(root);
    let words = path.join(" ");
    let name = [program.name, &words].join(" ").trim_end().to_owned();
    let own = Some(verb).filter(|verb| command::runs(verb));
    let about = if path.is_empty() { program.about.to_owned() } else { about(verb) };

    let nouns: Vec<&str> =
        program.doc(&words).into_iter().flat_map(|doc| doc.input).filter_map(|input| noun(*input)).collect();
    let fed = (!nouns.is_empty()).then(|| format!("{} | {name} [OPTIONS]", nouns.join(" or ")));
    let below = verb.has_subcommands().then(|| format!("{name} VERB [OPTIONS] [OPERANDS]"));
    let usage: Vec<String> = own.map(|_| "{usage}".to_owned()).into_iter().chain(fed).chain(below).collect();
    let template = format!(
        "{name}: {about}\n\nUsage: {}\n\n{{examples}}\n\n{{all-args}}{{after-help}}\n",
        usage.join("\n       ")
    );

    let own_arguments = own.into_iter().flat_map(Command::get_arguments).filter(|argument| !argument.is_global_set());
    let shared = root.get_arguments().filter(|argument| argument.is_global_set());
    let arguments = own_arguments.chain(shared).cloned().chain(own_options());
    Command::new(program.name)
        .bin_name(name)
        .args(arguments.enumerate().map(|(at, argument)| shown(argument, length).display_order(at)))
        .groups(own.into_iter().flat_map(Command::get_groups).cloned())
        .disable_help_flag(true)
        .help_template(template)
        .after_help(verbs(program, root, &words, length) + &last_words(program, &words, length))
        .term_width(width())
        .render_help()
        .to_string()
        // clap leaves the place of a name that it does not know; in the template, clap would break these lines.
        .replace("{examples}", &examples(program, path, length))
        // A program may have no options of its own.
        .replace("\n\n\n\n", "\n\n")
}

fn width() -> usize {
    let terminal = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    terminal.map_or(WIDTH, |width| width.clamp(*WIDTHS.start(), *WIDTHS.end()))
}

fn own_options() -> [Arg; 2] {
    let option = |name, letter, help| {
        let option = Arg::new(name).long(name).short(letter).action(ArgAction::SetTrue);
        option.help(help).help_heading("Options of every program").hide_short_help(true)
    };
    [option("help", 'h', "Print help; -h prints a shorter one"), option("version", 'V', "Print the version")]
}

/// Short help has one list of options with the first clause of each description.
fn shown(argument: Arg, length: Length) -> Arg {
    let argument = if argument.is_positional() { argument.help_heading(Resettable::Reset) } else { argument };
    if length == Length::Long {
        return argument.hide_short_help(false);
    }
    let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let end = text.find("; ").into_iter().chain(text.find(" (")).min().unwrap_or(text.len());
    let takes_value = argument.get_action().takes_values();
    argument.help(text[..end].to_owned()).help_heading(Resettable::Reset).hide_possible_values(takes_value)
}

fn examples(program: &Program, path: &[String], length: Length) -> String {
    let doc = program.doc(&path.join(" ")).map(|doc| doc.examples.to_vec());
    let all = if path.is_empty() { program.examples() } else { doc.unwrap_or_default() };
    let count = if length == Length::Short { 1 } else { all.len() };
    let lines = all.iter().take(count).map(|example| format!("\n  {}", example.replace("{}", program.name)));
    format!("Examples:{}", lines.collect::<String>())
}

/// Formats the verbs below `above` that a user can name, under the program's headings.
fn verbs(program: &Program, root: &Command, above: &str, length: Length) -> String {
    let all = command::verbs(root);
    let whole = [("Verbs", &program.verbs.iter().map(|doc| doc.path).collect::<Vec<_>>()[..])];
    let groups = if program.groups.is_empty() { &whole } else { program.groups };
    let standard = standard::VERBS.map(|doc| doc.path);
    let standard = (length == Length::Long).then_some(("Verbs of every program", &standard[..]));
    let rows = |paths: &[&'static str]| -> Vec<Command> {
        let below = paths.iter().filter(|path| {
            !path.is_empty() && (above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.starts_with(' ')))
        });
        let row = |path: &&'static str| {
            let verb = all.iter().find(|verb| verb.path == **path)?;
            Some(Command::new(*path).about(about(verb.command)))
        };
        below.filter_map(row).collect()
    };
    let list = |(heading, paths): (&'static str, &[&'static str])| {
        let rows = rows(paths);
        if rows.is_empty() {
            return String::new();
        }
        let list = Command::new("").subcommands(rows).subcommand_help_heading(heading).help_template("{all-args}");
        let mut list = list.disable_help_flag(true).disable_help_subcommand(true).term_width(width());
        list.render_help().to_string() + "\n"
    };
    groups.iter().copied().chain(standard).map(list).collect()
}

/// Formats the pointers to more documentation, and the rule of the format.
fn last_words(program: &Program, path: &str, length: Length) -> String {
    let name = program.name;
    let of_verb = if path.is_empty() { String::new() } else { format!(" {path}") };
    let more = match length {
        Length::Short => {
            let standard = standard::VERBS.map(|doc| doc.path).join(", ");
            format!("Every program has: {standard}.\n`{name}{of_verb} --help` has every option")
        }
        Length::Long if path.is_empty() => format!("`{name} VERB --help` has the options of a verb"),
        Length::Long => format!("`{name} --help` has the other verbs"),
    };
    format!(
        "Results are text at a terminal and JSON elsewhere; --format chooses.\n{more}, `man {name}` the whole manual."
    )
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Returns the noun for the input in a usage line.
const fn noun(input: Input) -> Option<&'static str> {
    match input {
        Input::Text => Some("text"),
        Input::Records => Some("records"),
        Input::Rows => Some("rows"),
        Input::Bytes => Some("bytes"),
        Input::Person => None,
    }
}

//! The command line: a question with its options, or a command as the first word.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches as _, Subcommand, value_parser};
use cp_common::program::{VERSION, message_of, usage_error};
use cp_common::wire::misspelt_verb;
use cp_common::{Error, Result};

use crate::Rest;
use crate::providers::{Keys, Models};

/// An option: its name, its letter, the name of its value, the options that it excludes, and its help.
pub(crate) type Row = (&'static str, Option<char>, Option<&'static str>, &'static str, &'static str);

/// The options of the request, which a template can have too.
pub(crate) const REQUEST: [Row; 7] = [
    ("system", Some('s'), Some("TEXT|FILE"), "", "More system text"),
    ("model", Some('m'), Some("MODEL"), "", "The model"),
    ("option", Some('o'), Some("KEY=VALUE"), "", "A parameter of the request (repeatable)"),
    ("schema", None, Some("SCHEMA|FILE"), "", "Answer as JSON with this schema"),
    ("extract", Some('x'), None, "", "Print the first fenced code block of the answer"),
    ("retries", None, Some("N"), "", "How often a request that failed is repeated"),
    ("timeout", None, Some("SECONDS"), "", "The longest time for a request, in seconds"),
];

/// The other options. `SENT` stands for those of a question that is sent in a conversation.
const OTHERS: [Row; 20] = [
    ("continue", Some('c'), None, "", "Continue the conversation that was used last"),
    ("session", None, Some("SESSION"), "", "Continue this one: an id, a prefix or a name"),
    ("name", None, Some("NAME"), "session", "Name the conversation"),
    ("no-log", Some('n'), None, "continue session name tools", "Keep neither the conversation nor a record of it"),
    ("attach", Some('a'), Some("URL|FILE"), "", "Attach an image, a PDF or a text (repeatable)"),
    ("file", Some('f'), Some("FILE"), "", "A text: file, directory, glob or URL (repeatable)"),
    ("no-redact", None, None, "", "Send files without removing secrets"),
    ("template", Some('t'), Some("NAME"), "", "Begin the text with a template"),
    ("param", Some('p'), Some("NAME=VALUE"), "", "A variable of the template (repeatable)"),
    ("save", None, Some("TEMPLATE"), "SENT backend", "Write this line as a template, and send nothing"),
    ("command", Some('C'), None, "SENT save system schema extract", "Propose a command line, and run it if confirmed"),
    ("stream", None, None, "", "Print the answer as it comes, as at a terminal"),
    ("usage", Some('u'), None, "", "Print the tokens and the cost on standard error"),
    ("dry-run", None, None, "tools", "Print the request instead of sending it"),
    ("agent", None, Some("ID"), "", "The agent, with its soul.md and model"),
    ("prompt", None, Some("ID"), "", "Begin the system text with a governed prompt"),
    ("tools", None, Some("DIR|FILE"), "extract", "Let the model use these tools"),
    ("tool-backend", None, Some("LOOP"), "", "native, bash, llm, elixir or a program"),
    ("backend", None, Some("NAME"), "", "A provider, an endpoint, stub or a program"),
    ("text", None, Some("TEXT"), "", "The text to send; - adds standard input"),
];

const SENT: &str =
    "continue session name no-log attach file no-redact template stream usage dry-run agent prompt tools";

/// A question and its options.
pub(crate) struct Question {
    given: ArgMatches,
    /// The options of the template.
    template: Option<ArgMatches>,
    /// The text to send.
    pub text: Vec<String>,
    /// True if `-` follows or replaces the text.
    pub reads_input: bool,
    /// True if the text is one word, and a command of a similar program.
    pub is_foreign: bool,
}

impl Question {
    /// The values of an option. Those of the command line follow those of the template, because the last is in force.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of = |matches: &'a ArgMatches| matches.try_get_many::<String>(name).ok().flatten().into_iter().flatten();
        self.template.iter().chain([&self.given]).flat_map(of).map(String::as_str)
    }

    /// The files of `-f`, whose names are any bytes.
    pub(crate) fn files(&self) -> impl Iterator<Item = &OsString> {
        self.given.get_many("file").into_iter().flatten()
    }

    /// The value of an option.
    pub(crate) fn one<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).last()
    }

    /// True if a flag is given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        let is_given = |matches: &ArgMatches| matches!(matches.try_get_one(flag), Ok(Some(true)));
        self.template.iter().chain([&self.given]).any(is_given)
    }

    /// Those of these options that are given, as words for a program with options of the same names. The last value is
    /// in force, of each key of a parameter.
    pub(crate) fn passed<'a>(&'a self, names: &'a str) -> impl Iterator<Item = String> + 'a {
        names.split(' ').flat_map(|name| {
            let key = |value: &'a str| value.split_once('=').filter(|_| name == "option").map(|(key, _)| key);
            let last: BTreeMap<_, _> = self.all(name).map(|value| (key(value), format!("--{name}={value}"))).collect();
            last.into_values().chain(self.has(name).then(|| format!("--{name}")))
        })
    }

    /// Adds the options of a template, whose first word is the name of this program.
    pub(crate) fn complete(&mut self, words: &[String]) -> Result<()> {
        let parser = with(clap::Command::new("cp-ask").disable_help_flag(true), &REQUEST);
        self.template = Some(parser.try_get_matches_from(words).map_err(|e| Error::usage(message_of(&e)))?);
        Ok(())
    }

    /// True if there must be standard input, because something is sent and there is neither a text nor a template, or
    /// `-` stands for it.
    pub(crate) fn needs_input(&self) -> bool {
        let has_text = !self.text.is_empty() || self.one("template").is_some();
        self.one("save").is_none() && (self.reads_input || !has_text)
    }

    /// True if standard input is an attachment or a context file.
    pub(crate) fn attaches_input(&self) -> bool {
        self.all("attach").any(|file| file == "-") || self.files().any(|file| file == "-")
    }
}

/// A command.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Create the home: directories and starter files
    Init(Rest),
    /// Print the settings in force
    Config(Rest),
    /// Check the installation, the settings and the backend
    Doctor(Rest),
    /// List the models, or print or set the default model
    #[command(args_conflicts_with_subcommands = true, disable_help_flag = true)]
    Models {
        #[command(subcommand)]
        action: Option<Models>,
        #[command(flatten)]
        rest: Rest,
    },
    /// Store the key of a provider, or list the names
    Keys {
        #[command(subcommand)]
        action: Option<Keys>,
    },
    /// List the templates, or print one
    Templates {
        /// The template to print
        name: Option<String>,
    },
    /// Start an interactive session
    Chat(Rest),
    /// Print the conversation
    Session(Rest),
    /// Start a new conversation; the old one is kept
    Reset,
    /// List the last questions of all conversations
    Logs {
        /// The number of questions
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        limit: usize,
        /// Only questions and answers that contain this text, in any case
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell
        #[arg(value_parser = ["bash", "zsh", "fish"])]
        shell: String,
        // The form of the other programs.
        #[arg(long, hide = true)]
        format: Option<String>,
    },
}

/// A parsed command line.
pub(crate) enum Arguments {
    Ask(Box<Question>),
    /// A command and the agent that it applies to.
    Command(Verb, Option<String>),
    /// Help or the version.
    Print(String),
}

/// Words that are commands of the other programs, or of similar ones.
const FOREIGN: &str = "agent allow append approve audit batch blob bundle call cancel changelog check check-proof \
    checkpoint clear compact connect context count create delete end export follow fork history hook keygen list load \
    login page policy prompts prove proxy query recall reference register remember rename reopen repair resume rotate \
    runs scan search serve sessions settings show start stats status tee tip tools undo update verify version";

/// Returns the tree of options and commands.
pub(crate) fn command() -> clap::Command {
    let command = Verb::augment_subcommands(with(with(clap::Command::new("cp-ask"), &REQUEST), &OTHERS));
    let command = command
        .about("Send a text to a model and print the answer")
        .version(VERSION)
        .bin_name("cp-ask")
        .no_binary_name(true)
        .args_conflicts_with_subcommands(true)
        .override_usage("cp-ask [OPTIONS] [TEXT] [-]\n       cp-ask COMMAND [OPTIONS]")
        .help_template("{usage-heading} {usage}\n\n{about}\n\n{all-args}{after-help}\n")
        .after_help(
            "Text on standard input from a pipe or a file is joined to TEXT; write </dev/null\nin a loop that \
            reads. Everything after -- is text. The current conversation is\nthe agent's, or the one that CP_SESSION \
            names.",
        );
    let command = command.mut_arg("param", |param| param.requires("template"));
    command.mut_arg("tool-backend", |backend| backend.requires("tools"))
}

/// Adds options.
fn with(command: clap::Command, rows: &[Row]) -> clap::Command {
    rows.iter().fold(command.args_override_self(true), |command, (name, letter, value, excluded, help)| {
        let excluded = excluded.split(' ').flat_map(|name| if name == "SENT" { SENT } else { name }.split(' '));
        let option = Arg::new(*name).short(*letter).help(*help);
        let option = option.conflicts_with_all(excluded.filter(|name| !name.is_empty()));
        let option = if *name == "text" { option.num_args(0..) } else { option.long(*name) };
        let option = match value {
            Some(_) => option.value_name(*value).action(ArgAction::Append).allow_hyphen_values(*name != "text"),
            None => option.action(ArgAction::SetTrue),
        };
        command.arg(if *name == "file" { option.value_parser(value_parser!(OsString)) } else { option })
    })
}

/// Parses a command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Arguments> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (options, texts) = (&arguments[..end], arguments.get(end + 1..).unwrap_or_default());
    // The agent is the only option that can be given before a command.
    let skipped = match options.first().and_then(|word| word.to_str()).unwrap_or_default() {
        "--agent" => options.len().min(2),
        word => usize::from(word.starts_with("--agent=")),
    };
    let words = &options[skipped..];
    let first = words.first().and_then(|word| word.to_str()).unwrap_or_default();
    let is_verb = command().find_subcommand(first).is_some();
    let is_foreign = words.len() == 1 && texts.is_empty() && !is_verb && check_word(first)?;
    let mut command = command();
    let given = match command.try_get_matches_from_mut(if is_verb { &arguments[skipped..] } else { options }) {
        Ok(given) => given,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Arguments::Print(e.to_string()));
        }
        Err(e) => return Err(usage_error("cp-ask", &command, arguments, &e)),
    };
    if is_verb {
        let agent = options[..skipped].last().map(|word| word.to_string_lossy());
        let agent = agent.map(|word| word.trim_start_matches("--agent=").to_owned());
        let verb = Verb::from_arg_matches(&given).map_err(|e| Error::usage(message_of(&e)))?;
        return Ok(Arguments::Command(verb, agent));
    }
    let mut question = Question { given, template: None, text: Vec::new(), reads_input: false, is_foreign };
    let (inputs, mut words): (Vec<_>, Vec<_>) = question.all("text").map(str::to_owned).partition(|word| word == "-");
    for text in texts {
        words.push(text.to_str().ok_or_else(|| Error::usage("the text is not UTF-8"))?.to_owned());
    }
    (question.text, question.reads_input) = (words, !inputs.is_empty());
    if let (Some(second), false) = (question.text.get(1), question.has("command")) {
        return Err(Error::usage(format!("more than one text: {second}")).hint("quote it: one argument is one text"));
    }
    Ok(Arguments::Ask(Box::new(question)))
}

/// Returns true if the only word is a command of a similar program. Fails if it is a mistyped command, because a text
/// costs money.
fn check_word(word: &str) -> Result<bool> {
    let command = command();
    let verbs = || command.get_subcommands().map(clap::Command::get_name).chain(["help"]);
    let singular = || verbs().find(|verb| verb.strip_suffix('s') == Some(word));
    misspelt_verb(word, verbs()).or_else(singular).map_or(Ok(FOREIGN.split(' ').any(|known| known == word)), |near| {
        let hint = format!("did you mean `{near}`? To send the word: cp-ask -- {word}");
        Err(Error::usage(format!("unknown command {word}")).hint(hint))
    })
}

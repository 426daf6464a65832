//! The command line: a question with its options, or a command as the first word.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cp_common::program::VERSION;
use cp_common::spelling::misspelt_verb;
use cp_common::{Error, Result};

use crate::execute::Rest;
use crate::{keys, logs, models};

/// Send a text to a model and print the answer.
#[derive(Parser)]
#[command(
    name = "cp-ask",
    disable_help_subcommand = true,
    version = VERSION,
    args_override_self = true,
    override_usage = "cp-ask [OPTIONS] [TEXT] [-]\n       cp-ask COMMAND [OPTIONS]",
    help_template = "{usage-heading} {usage}\n\n{about}\n\n{all-args}{after-help}\n",
    after_help = "Text on standard input from a pipe or a file is joined to TEXT; write </dev/null\nin a loop that reads. \
        Everything after -- is text. The current conversation is\nthe agent's, or the one that CP_SESSION names."
)]
struct Cli {
    #[command(flatten)]
    question: Question,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// A question and its options.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Question {
    /// More system text
    #[arg(short, long, value_name = "TEXT|FILE", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Continue the current conversation
    #[arg(short = 'c', long = "continue")]
    pub goes_on: bool,
    /// Continue this one: an id, a prefix or a name
    #[arg(long, allow_hyphen_values = true)]
    pub session: Option<String>,
    /// Name the conversation
    #[arg(long, allow_hyphen_values = true)]
    pub name: Option<String>,
    /// Propose a command line, and run it if confirmed
    #[arg(short = 'C', long, conflicts_with_all = ["system", "goes_on", "session", "name", "agent", "prompt", "tools", "tool_backend",
        "attach", "file", "template", "param", "extract", "schema"])]
    pub command: bool,
    /// Attach an image, a PDF or a text (repeatable)
    #[arg(short, long, value_name = "URL|FILE", allow_hyphen_values = true)]
    pub attach: Vec<String>,
    /// A text file as context, with its name (repeatable)
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub file: Vec<String>,
    /// Begin the text with a template
    #[arg(short, long, value_name = "NAME", allow_hyphen_values = true)]
    pub template: Option<String>,
    /// A variable of the template (repeatable)
    #[arg(short, long, value_name = "NAME=VALUE", requires = "template", allow_hyphen_values = true)]
    pub param: Vec<String>,
    /// Print the first fenced code block of the answer
    #[arg(short = 'x', long, conflicts_with = "tools")]
    pub extract: bool,
    /// Answer as JSON with this schema
    #[arg(long, value_name = "SCHEMA|FILE", allow_hyphen_values = true)]
    pub schema: Option<String>,
    /// A parameter of the request (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub option: Vec<String>,
    /// How often a request that failed is repeated
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub retries: Option<String>,
    /// The longest time for a request, in seconds
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub timeout: Option<String>,
    /// The model
    #[arg(short, long, allow_hyphen_values = true)]
    pub model: Option<String>,
    /// The agent, with its soul.md and model
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub agent: Option<String>,
    /// Begin the system text with a governed prompt
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Let the model use these tools
    #[arg(long, value_name = "DIR|FILE", allow_hyphen_values = true)]
    pub tools: Option<String>,
    /// native, bash, llm, elixir or a program
    #[arg(long, value_name = "LOOP", requires = "tools", allow_hyphen_values = true)]
    pub tool_backend: Option<String>,
    /// A provider, an endpoint, stub or a program
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub backend: Option<String>,
    /// The text to send; - adds standard input
    pub text: Vec<String>,
    /// True if `-` follows or replaces the text.
    #[arg(skip)]
    pub reads_input: bool,
}

impl Question {
    /// True if an empty text is a complete question, because a template needs none.
    pub(crate) fn takes_no_input(&self) -> bool {
        self.template.is_none() && !self.reads_input && !self.attaches_input()
    }

    /// The options of the request.
    pub(crate) fn request(&self) -> Vec<String> {
        let options = self.option.iter().map(|option| format!("--option={option}"));
        let retries = self.retries.iter().map(|number| format!("--retries={number}"));
        let timeout = self.timeout.iter().map(|length| format!("--timeout={length}"));
        options.chain(retries).chain(timeout).collect()
    }

    /// True if standard input is an attachment or a context file.
    pub(crate) fn attaches_input(&self) -> bool {
        self.attach.iter().chain(&self.file).any(|file| file == "-")
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
    Models(models::Args),
    /// Store the key of a provider, or list the names
    Keys(keys::Args),
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
    Logs(logs::Args),
    /// Print the trace of the conversation as JSON lines
    Log(Rest),
    /// Print the completions of a shell
    Completions {
        /// The shell
        #[arg(value_parser = ["bash", "zsh", "fish"])]
        shell: String,
        // The form of the other programs.
        #[arg(long, hide = true)]
        format: Option<String>,
    },
    /// Print this help
    Help,
}

/// A parsed command line.
pub(crate) enum Arguments {
    Ask(Box<Question>),
    /// A command and the agent that it applies to.
    Command(Verb, Option<String>),
    /// Help or the version.
    Print(String),
}

/// Words that are commands of similar programs.
const FOREIGN: [&str; 9] =
    ["list", "status", "login", "update", "history", "sessions", "prompts", "version", "settings"];

/// Returns the tree of options and commands.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Returns the help.
pub(crate) fn usage() -> String {
    command().render_help().to_string()
}

/// Parses a command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Arguments> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (options, texts) = (&arguments[..end], arguments.get(end + 1..).unwrap_or_default());
    let (agent, words) = agent_before(options);
    if let Some(first) = words.first().and_then(|word| word.to_str()) {
        if command().find_subcommand(first).is_some() {
            let name = OsString::from("cp-ask");
            let words = [name].into_iter().chain(words.iter().cloned()).chain(arguments[end..].iter().cloned());
            return match Cli::try_parse_from(words) {
                Ok(cli) => Ok(Arguments::Command(cli.verb.unwrap_or(Verb::Help), agent)),
                Err(e) => text_or_error(&e),
            };
        }
        if words.len() == 1 && texts.is_empty() {
            check_word(first)?;
        }
    }
    if options.iter().any(|word| word == "-V" || word == "--version") {
        return Ok(Arguments::Print(format!("cp-ask {VERSION}\n")));
    }
    let parser = Question::augment_args(clap::Command::new("cp-ask")).no_binary_name(true).args_override_self(true);
    let parsed = parser.try_get_matches_from(options).and_then(|matches| Question::from_arg_matches(&matches));
    let mut question = match parsed {
        Ok(question) => question,
        Err(e) => return text_or_error(&e),
    };
    question.reads_input = question.text.iter().any(|word| word == "-");
    question.text.retain(|word| word != "-");
    let not_utf8 = || Error::usage("the text is not UTF-8").hint("give it on standard input");
    for text in texts {
        question.text.push(text.to_str().ok_or_else(not_utf8)?.to_owned());
    }
    if let (Some(second), false) = (question.text.get(1), question.command) {
        return Err(Error::usage(format!("more than one text: {second}")).hint("quote it: one argument is one text"));
    }
    Ok(Arguments::Ask(Box::new(question)))
}

/// Splits `--agent ID` off: the only option that can be given before a command.
fn agent_before(words: &[OsString]) -> (Option<String>, &[OsString]) {
    match words {
        [flag, id, rest @ ..] if flag == "--agent" => (Some(id.to_string_lossy().into_owned()), rest),
        [flag, rest @ ..] => match flag.to_str().and_then(|flag| flag.strip_prefix("--agent=")) {
            Some(id) => (Some(id.to_owned()), rest),
            None => (None, words),
        },
        [] => (None, words),
    }
}

/// Fails if the only word is a mistyped command, or a command of a similar program, because a text costs money.
fn check_word(word: &str) -> Result<()> {
    let command = command();
    let near = misspelt_verb(word, command.get_subcommands().map(clap::Command::get_name));
    let to_send = format!("to send the word: cp-ask -- {word}");
    match near {
        Some(near) => Err(Error::usage(format!("unknown command {word}"))
            .with("nearest", near)
            .hint(format!("did you mean `{near}`? {to_send}"))),
        None if FOREIGN.contains(&word) => {
            Err(Error::usage(format!("unknown command {word}")).hint(format!("see cp-ask help; {to_send}")))
        }
        None => Ok(()),
    }
}

/// Converts what the parser stopped with.
fn text_or_error(e: &clap::Error) -> Result<Arguments> {
    if e.kind() == ErrorKind::DisplayHelp {
        let own = e.to_string();
        return Ok(Arguments::Print(if own.contains("cp-ask [") { usage() } else { own }));
    }
    let message = e.to_string();
    let lines: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    Err(Error::usage(lines.join(" ").trim_start_matches("error: "))
        .hint("see cp-ask help, or write -- before a text that starts with a hyphen"))
}

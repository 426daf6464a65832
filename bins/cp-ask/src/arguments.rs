//! The command line: a question with its options, or a command as the first word.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cp_common::program::VERSION;
use cp_common::spelling::misspelt_verb;
use cp_common::{Error, Result};

use crate::environment::Rest;
use crate::{keys, logs, models};

/// The options of a question that is sent in a conversation.
const SENT: &str = "goes_on session name no_log attach file no_redact template stream usage dry_run agent prompt tools";

/// Send a text to a model and print the answer.
#[derive(Parser)]
#[command(
    name = "cp-ask",
    disable_help_subcommand = true,
    no_binary_name = true,
    args_conflicts_with_subcommands = true,
    version = VERSION,
    args_override_self = true,
    override_usage = "cp-ask [OPTIONS] [TEXT] [-]\n       cp-ask COMMAND [OPTIONS]",
    help_template = "{usage-heading} {usage}\n\n{about}\n\n{all-args}{after-help}\n",
    after_help = "Text on standard input from a pipe or a file is joined to TEXT; write </dev/null\nin a loop that \
        reads. Everything after -- is text. The current conversation is\nthe agent's, or the one that CP_SESSION names."
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
    #[command(flatten)]
    pub request: Request,
    /// Continue the conversation that was used last
    #[arg(short = 'c', long = "continue")]
    pub goes_on: bool,
    /// Continue this one: an id, a prefix or a name
    #[arg(long, allow_hyphen_values = true)]
    pub session: Option<String>,
    /// Name the conversation
    #[arg(long, allow_hyphen_values = true, conflicts_with = "session")]
    pub name: Option<String>,
    /// Keep neither the conversation nor a record of it
    #[arg(short, long, conflicts_with_all = ["goes_on", "session", "name", "tools"])]
    pub no_log: bool,
    /// Attach an image, a PDF or a text (repeatable)
    #[arg(short, long, value_name = "URL|FILE", allow_hyphen_values = true)]
    pub attach: Vec<String>,
    /// A text: file, directory, glob or URL (repeatable)
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub file: Vec<String>,
    /// Send files without removing secrets
    #[arg(long)]
    pub no_redact: bool,
    /// Begin the text with a template
    #[arg(short, long, value_name = "NAME", allow_hyphen_values = true)]
    pub template: Option<String>,
    /// A variable of the template (repeatable)
    #[arg(short, long, value_name = "NAME=VALUE", requires = "template", allow_hyphen_values = true)]
    pub param: Vec<String>,
    /// Write this line as a template, and send nothing
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = SENT.split(' '), conflicts_with = "backend")]
    pub save: Option<String>,
    /// Propose a command line, and run it if confirmed
    #[arg(short = 'C', long, conflicts_with_all = SENT.split(' '))]
    #[arg(conflicts_with_all = ["save", "system", "schema", "extract"])]
    pub command: bool,
    /// Print the answer as it comes, as at a terminal
    #[arg(long)]
    pub stream: bool,
    /// Print the tokens and the cost on standard error
    #[arg(short, long)]
    pub usage: bool,
    /// Print the request instead of sending it
    #[arg(long, conflicts_with = "tools")]
    pub dry_run: bool,
    /// The agent, with its soul.md and model
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub agent: Option<String>,
    /// Begin the system text with a governed prompt
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Let the model use these tools
    #[arg(long, value_name = "DIR|FILE", conflicts_with = "extract", allow_hyphen_values = true)]
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

/// The options of the request, which a template can have too.
#[derive(clap::Args)]
pub(crate) struct Request {
    /// More system text
    #[arg(short, long, value_name = "TEXT|FILE", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// The model
    #[arg(short, long, allow_hyphen_values = true)]
    pub model: Option<String>,
    /// A parameter of the request (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub option: Vec<String>,
    /// Answer as JSON with this schema
    #[arg(long, value_name = "SCHEMA|FILE", allow_hyphen_values = true)]
    pub schema: Option<String>,
    /// Print the first fenced code block of the answer
    #[arg(short = 'x', long)]
    pub extract: bool,
    /// How often a request that failed is repeated
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub retries: Option<String>,
    /// The longest time for a request, in seconds
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub timeout: Option<String>,
}

impl Request {
    /// Parses the words of a template, of which the first is the name of this program.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let parser = Self::augment_args(clap::Command::new("cp-ask").disable_help_flag(true)).args_override_self(true);
        let parsed = parser.try_get_matches_from(words).and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|e| Error::usage(message_of(&e)))
    }

    /// Adds those of a template that are not given here.
    pub(crate) fn complete(&mut self, template: Self) {
        let key = |option: &str| option.split('=').next().map(str::to_owned);
        let given: Vec<_> = self.option.iter().map(|option| key(option)).collect();
        self.option.extend(template.option.into_iter().filter(|option| !given.contains(&key(option))));
        self.system = self.system.take().or(template.system);
        self.model = self.model.take().or(template.model);
        self.schema = self.schema.take().or(template.schema);
        self.retries = self.retries.take().or(template.retries);
        self.timeout = self.timeout.take().or(template.timeout);
        self.extract |= template.extract;
    }

    /// The options for `cp-llm`, each with its value. The system text and the model are not among them.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let single = [("schema", &self.schema), ("retries", &self.retries), ("timeout", &self.timeout)];
        let single = single.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        self.option.iter().map(|option| ("option", option.as_str())).chain(single)
    }
}

impl Question {
    /// True if an empty text is a complete question, because a template needs none.
    pub(crate) fn takes_no_input(&self) -> bool {
        self.template.is_none() && !self.reads_input && !self.attaches_input()
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

/// Words that are commands of the other programs, or of similar ones.
const FOREIGN: &str = "agent allow append approve audit batch blob bundle call cancel changelog check check-proof \
    checkpoint clear compact connect context count create delete end export follow fork history hook keygen list load \
    login page policy prompts prove proxy query recall reference register remember rename reopen repair resume rotate \
    runs scan search serve sessions settings show start stats status tee tip tools undo update verify version";

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
    let first = words.first().and_then(|word| word.to_str()).unwrap_or_default();
    let is_verb = command().find_subcommand(first).is_some();
    if words.len() == 1 && texts.is_empty() && !is_verb {
        check_word(first)?;
    }
    let whole = [words, &arguments[end..]].concat();
    let cli = match Cli::try_parse_from(if is_verb { whole.as_slice() } else { options }) {
        Ok(cli) => cli,
        Err(e) => return text_or_error(&e),
    };
    if let Some(verb) = cli.verb {
        return Ok(Arguments::Command(verb, agent));
    }
    let mut question = cli.question;
    question.reads_input = question.text.iter().any(|word| word == "-");
    question.text.retain(|word| word != "-");
    for text in texts {
        let text = text.to_str().ok_or_else(|| Error::usage("the text is not UTF-8"))?;
        question.text.push(text.to_owned());
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
    if near.is_none() && !FOREIGN.split(' ').any(|known| known == word) {
        return Ok(());
    }
    let meant = near.map_or("see cp-ask help.".to_owned(), |near| format!("did you mean `{near}`?"));
    Err(Error::usage(format!("unknown command {word}")).hint(format!("{meant} To send the word: cp-ask -- {word}")))
}

/// Converts what the parser stopped with.
fn text_or_error(e: &clap::Error) -> Result<Arguments> {
    if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let own = e.to_string();
        return Ok(Arguments::Print(if own.contains("cp-ask [") { usage() } else { own }));
    }
    Err(Error::usage(message_of(e)).hint("see cp-ask help, or write -- before a text that starts with a hyphen"))
}

/// Returns what the parser says in one line.
fn message_of(e: &clap::Error) -> String {
    let message = e.to_string();
    let lines: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

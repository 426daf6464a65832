//! The keys of providers and endpoints, each in a file of `keys/api/` that only its owner can read. A key is never printed.

use std::path::Path;

use clap::Subcommand;
use cp_common::context::given;
use cp_common::coprocess::ask_with;
use cp_common::home::config::Config;
use cp_common::home::{Home, write_whole};
use cp_common::output::to_stderr;
use cp_common::signals::wait_readable;
use cp_common::stream::filter::text_of;
use cp_common::{Error, Result};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use serde_json::Value;

/// The providers with a key.
const PROVIDERS: [&str; 3] = ["anthropic", "openai", "gemini"];

/// The arguments of `keys`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Store the key of a provider or an endpoint, from standard input
    Set {
        /// The provider or the endpoint
        name: String,
    },
    /// List the names of keys and their sources, never the keys
    List,
}

/// Runs the command and returns the text to print.
pub(crate) fn run(args: &Args, home: &Home) -> Result<String> {
    let config = Config::load(&home.config_file())?;
    let known: Vec<&str> = PROVIDERS.into_iter().chain(config.names("endpoints")).collect();
    match &args.action {
        Some(Action::Set { name }) => {
            if !known.contains(&name.as_str()) {
                let error = Error::not_found(format!("no provider or endpoint `{name}`"));
                return Err(error.hint(format!("choose one of {}, or add [endpoints.{name}]", known.join(", "))));
            }
            let file = home.keys().join("api").join(name);
            write_whole(&file, format!("{}\n", read_key(name)?).as_bytes())?;
            Ok(format!("the key of {name} is stored in {}\n", file.display()))
        }
        Some(Action::List) | None => list(),
    }
}

/// Lists the endpoints with a key, and the source that `cp-llm` reads the key from.
fn list() -> Result<String> {
    let context: Value = ask_with("cp-llm", &["context"], b"", [])?.data()?;
    let sources = context["credentials"]["sources"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = sources.map(|source| format!("{:<16}{}\n", text(&source["provider"]), text(&source["source"])));
    Ok(lines.collect::<Vec<_>>().concat())
}

/// Reads a key from standard input, on a terminal without echo.
fn read_key(name: &str) -> Result<String> {
    let silent = isatty(stdin()).then(Silence::begin).transpose()?;
    let mut text = String::new();
    if silent.is_some() {
        to_stderr(&format!("Key of {name}: "));
        wait_readable(stdin(), None)?;
        std::io::stdin().read_line(&mut text).map_err(|e| Error::io("reading the key", e))?;
        to_stderr("\n");
    } else {
        text_of(&given::bytes(Path::new("-"), 64 << 10)?)?.clone_into(&mut text);
    }
    let key = text.trim();
    if key.is_empty() || key.contains(|c: char| !c.is_ascii_graphic()) {
        return Err(Error::validation("standard input does not hold one key").hint("a key is one word without spaces"));
    }
    Ok(key.to_owned())
}

/// Turns the echo of the terminal off until it is dropped.
struct Silence(Termios);

impl Silence {
    fn begin() -> Result<Self> {
        let failed = |e| Error::io("reading the terminal", std::io::Error::from(e));
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &silent).map_err(failed)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

//! The keys of providers and endpoints, each in a file of `keys/api/` that only its owner can read. A key is never
//! printed.

use std::path::Path;

use clap::Subcommand;
use cp_common::context::given::{self, text_of};
use cp_common::coprocess::cmd;
use cp_common::home::config::Config;
use cp_common::home::{Home, write_whole};
use cp_common::output::to_stderr;
use cp_common::signals::wait_readable;
use cp_common::{Error, Result};
use rustix::stdio::stdin;
use rustix::termios::isatty;

use crate::models::{self, PROVIDERS};

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
    let known: Vec<&str> = PROVIDERS.iter().map(|(name, _)| *name).chain(config.names("endpoints")).collect();
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
        // Each endpoint with a key, and the source that `cp-llm` reads the key from.
        Some(Action::List) | None => {
            let lines = models::keys()?.into_iter().map(|(name, source)| format!("{name:<16}{source}\n"));
            Ok(lines.collect::<Vec<_>>().concat())
        }
    }
}

/// Reads a key from standard input, on a terminal without echo.
fn read_key(name: &str) -> Result<String> {
    let text = if isatty(stdin()) {
        let _silent = Silence::begin(name)?;
        wait_readable(stdin(), None)?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(|e| Error::io("reading the key", e))?;
        to_stderr("\n");
        line
    } else {
        text_of(&given::bytes(Path::new("-"), 64 << 10)?)?.to_owned()
    };
    let key = text.trim();
    if key.is_empty() || key.contains(|c: char| !c.is_ascii_graphic()) {
        return Err(Error::validation("standard input does not hold one key").hint("a key is one word without spaces"));
    }
    Ok(key.to_owned())
}

/// Turns the echo of the terminal off until it is dropped.
struct Silence;

impl Silence {
    fn begin(name: &str) -> Result<Self> {
        cmd("stty", ["-echo"]).run().map_err(|e| Error::io("starting stty", e))?;
        to_stderr(&format!("Key of {name}: "));
        Ok(Self)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = cmd("stty", ["echo"]).run();
    }
}

//! What every program says of itself, from one implementation: `reference`, `context`, `doctor`, `changelog`, `completions`.

mod changelog;
mod doctor;
mod minimum;
mod reference;
mod settings;

use clap::{ArgMatches, CommandFactory};
use serde::Serialize;

pub use self::changelog::{Changelog, Release};
pub use self::doctor::Doctor;
pub use self::reference::Reference;
pub use self::settings::ContextAnswer;

use crate::context::Context;
use crate::program::arguments::command_of;
use crate::program::identity::Program;
use crate::wire::{Error, Reply, Result};

/// Runs one of them.
pub(super) fn run<C: CommandFactory>(
    program: &'static Program,
    verb: &str,
    matches: &ArgMatches,
    context: &mut Context,
) -> Result<()> {
    let own = matches.subcommand().map(|(_, own)| own);
    match verb {
        "reference" => context.out.answer(&reference::reference(program, command_of::<C>(program))?),
        "context" => {
            let answer = settings::settings(program, context);
            context.out.answer(&answer)
        }
        "doctor" => {
            let answer = doctor::doctor(program, context)?;
            context.out.answer(&answer)
        }
        "changelog" => {
            let since = own.and_then(|own| own.get_one::<String>("since")).map(String::as_str);
            context.out.answer(&changelog::changelog(program.name, since)?)
        }
        _ => {
            let shell = own.and_then(|own| own.get_one::<clap_complete::Shell>("shell")).copied();
            let shell = shell.ok_or_else(|| Error::usage("completions needs a shell"))?;
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command_of::<C>(program), program.name, &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            context.out.answer(&Completions { shell: shell.to_string(), script })
        }
    }
}

/// A completion script.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// Which shell it is for.
    pub shell: String,
    /// The script itself; with `--format raw` the bare bytes.
    pub script: String,
}

impl Reply for Completions {
    fn text(&self) -> String {
        self.script.trim_end().to_owned()
    }
}

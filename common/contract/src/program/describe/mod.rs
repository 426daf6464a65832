//! The verbs by which every program describes itself: `reference`, `context`, `doctor`, `changelog`, `completions`.

mod changelog;
mod doctor;
mod minimum;
mod reference;
mod settings;

use clap::{ArgMatches, CommandFactory};

pub use self::changelog::{Changelog, Release};
pub use self::doctor::Doctor;
pub use self::reference::Reference;
pub use self::settings::ContextAnswer;

use crate::context::Context;
use crate::program::arguments::command_of;
use crate::program::completion;
pub use crate::program::completion::Completions;
use crate::program::identity::Program;
use crate::wire::{Error, Result};

/// Runs one of these verbs.
pub(super) fn run<C: CommandFactory>(
    program: &'static Program,
    verb: &str,
    matches: &ArgMatches,
    context: &mut Context,
) -> Result<()> {
    let own = matches.subcommand().map(|(_, own)| own);
    if matches!(verb, "context" | "doctor") {
        context.out.notice_of_update(&context.home);
    }
    match verb {
        "reference" => {
            let whole = reference::reference(program, command_of::<C>(program))?;
            let verb = own.and_then(|own| own.get_one::<String>("verb"));
            context.out.answer(&whole.narrowed(verb.map(String::as_str))?)
        }
        "context" => {
            let answer = settings::settings(program, context);
            context.out.answer(&answer)
        }
        "doctor" => {
            for key in program.doctor {
                if let Some(value) = own.and_then(|own| own.get_one::<String>(key)) {
                    context.config.give(key, value);
                }
            }
            let answer = doctor::doctor(program, context)?;
            context.out.answer(&answer)
        }
        "changelog" => {
            let since = own.and_then(|own| own.get_one::<String>("since")).map(String::as_str);
            context.out.answer(&changelog::changelog(program.name, since)?)
        }
        _ => {
            let shell = own.and_then(|own| own.get_one::<String>("shell"));
            let shell = shell.ok_or_else(|| Error::usage("completions needs a shell"))?;
            context.out.answer(&completion::script(program, shell))
        }
    }
}

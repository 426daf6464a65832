//! The commands of the shell, each by what it does. A command that the agent has no capability for does not exist for it.

mod core;
mod hub;
mod memory;
mod tree;

use crate::interactive::learning;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::shell::Shell;
use crate::interactive::table::{Act, Command};

/// Carries a command out.
pub(crate) fn perform(shell: &mut Shell<'_>, command: &Command, argument: &str) -> Done {
    if let Some(needed) = command.needs
        && !shell.agent.capabilities().contains(&needed)
    {
        shell.tracker.denied();
        return Err(Problem::new(
            format!("Capability denied: {} on :{}", needed.name(), command.name()),
            format!("the agent `{}` has no such capability; `:agent` shows which it has", shell.agent.name()),
        ));
    }
    match command.act {
        Act::Help => core::help(shell, argument),
        Act::Quit => Ok(Outcome::default()),
        Act::Clear => Ok(core::clear(shell)),
        Act::State => core::state(shell),
        Act::Agent => core::agent(shell, argument),
        Act::Mode => core::mode(shell, argument),
        Act::Explain => Ok(core::explain(shell)),
        Act::Export => core::export(shell),
        Act::Signals => Ok(core::signals(shell)),
        Act::Trust => Ok(core::trust(shell)),
        Act::Learn => learning::learn(shell, argument),
        Act::Memory => memory::recall(shell, argument),
        Act::View => memory::view(shell, argument),
        Act::Notes => memory::notes(shell),
        Act::AddNote => memory::add(shell, "note", argument),
        Act::AddDeveloperNote => memory::add(shell, "dev_note", argument),
        Act::Plane => tree::query(shell, command.name(), argument),
        Act::Hub => hub::hub(shell, argument),
        Act::Inbox => hub::inbox(shell, argument),
    }
}

/// What is no command of the table may be the name of an operation; else it is an error with the nearest name.
pub(crate) fn unknown(shell: &mut Shell<'_>, line: &str, name: &str, near: Option<&str>) -> Done {
    if let Some(done) = tree::operation(shell, line) {
        return done;
    }
    let cure = match near {
        Some(near) => format!("did you mean `:{near}`? `:help` lists the commands"),
        None => "`:help` lists the commands; a line that begins with a blank is said as it is".to_owned(),
    };
    Err(Problem::new(format!("there is no command `{name}`"), cure))
}

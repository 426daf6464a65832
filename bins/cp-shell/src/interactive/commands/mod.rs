//! The commands of the shell, each by what it does. A command that the agent has no capability for does not exist for it.

mod answers;
pub(crate) mod asking;
mod core;
mod explain;
mod hub;
pub(crate) mod learning;
mod memory;
pub(crate) mod sessions;
pub(crate) mod system;
mod tree;

use cp_common::{Code, Error, Result};

use crate::interactive::outcome::Outcome;
use crate::interactive::state::{Standing, State};
use crate::interactive::syntax::table::{Act, Command};

/// Carries a command out.
pub(crate) fn perform(state: &mut State<'_>, command: &Command, argument: &str) -> Result<Outcome> {
    if let Some(needed) = command.needs
        && !needed.is_in(state.agent.capabilities())
    {
        state.standing.tracker.denied();
        let message = format!("Capability denied: {} on :{}", needed.name(), command.name());
        let agent = state.agent.name();
        return Err(Error::new(Code::Forbidden, message)
            .hint(format!("the agent `{agent}` has no such capability; `:agent` shows which it has")));
    }
    if command.takes.is_empty() && !argument.is_empty() {
        let message = format!(":{} takes nothing after it", command.name());
        return Err(Error::usage(message).hint("a line that begins with a blank is sent as it is"));
    }
    let State { setup, context, console, agent, ledgers, standing, hub, conversation, model } = state;
    let session = ledgers.journal.session();
    match command.act {
        Act::Help => core::help(argument, agent.capabilities()),
        Act::Quit => Ok(Outcome::default()),
        Act::Clear => Ok(core::clear(console.is_terminal())),
        Act::State => core::state(state),
        Act::Agent => core::agent(state, argument),
        Act::Mode => core::mode(argument, conversation, &mut ledgers.transcript),
        Act::Explain => Ok(explain::explain(conversation.last.as_ref(), &setup.shell_history, hub)),
        Act::Export => core::export(context),
        Act::Sessions => sessions::list(argument, session, context),
        Act::Resume => sessions::resume(state, argument),
        Act::Rename => sessions::rename(argument, session, context),
        Act::Fork => sessions::fork(state),
        Act::Undo => sessions::undo(state),
        Act::Retry => sessions::retry(state),
        Act::Compact => sessions::compact(argument, model, console, context),
        Act::Model => asking::model(state, argument),
        Act::Backend => asking::backend(state, argument),
        Act::Tools => asking::tools(model, &conversation.allowed, context),
        Act::Attach => asking::attach(conversation, argument),
        Act::Edit => asking::edit(state, argument),
        Act::Propose => asking::propose(state, argument),
        Act::Copy => answers::copy(conversation, console.is_terminal()),
        Act::Save => answers::save(argument, conversation, context),
        Act::Cost => Ok(answers::cost(conversation)),
        Act::Signals => Ok(core::signals(standing, agent.as_mut())),
        Act::Trust => Ok(core::trust(&standing.signals())),
        Act::Learn => learning::learn(state, argument),
        Act::Memory => memory::recall(argument, context),
        Act::View => memory::view(argument, session, context),
        Act::Notes => memory::notes(context),
        Act::AddNote => memory::add("note", argument, setup, context),
        Act::AddDeveloperNote => memory::add("dev_note", argument, setup, context),
        Act::Plane => tree::query(state, command.name(), argument),
        Act::Hub => hub::hub(state, argument),
        Act::Inbox => hub::inbox(argument, hub, &mut ledgers.transcript),
    }
}

/// A name that is not in the table may be the name of an operation; else it is an error with the nearest name.
pub(crate) fn unknown(standing: &mut Standing, line: &str, name: &str, near: Option<&str>) -> Result<Outcome> {
    tree::operation(standing, line).unwrap_or_else(|| {
        let hint = match near {
            Some(near) => format!("did you mean `:{near}`? `:help` lists the commands"),
            None => "`:help` lists the commands; a line that begins with a blank is sent as it is".to_owned(),
        };
        Err(Error::usage(format!("there is no command `{name}`")).hint(hint))
    })
}

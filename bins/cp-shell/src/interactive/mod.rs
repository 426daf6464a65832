//! The session with a person: a prompt, commands, and turns that go to a model. Arrows point down: the loop ([`repl`]) carries out
//! [`commands`] and takes [`turn`]s, which change the [`state`]; below it are the [`console`], the [`hub`], memory and the transcript.

mod assessment;
mod commands;
mod console;
mod hub;
mod memory;
pub(crate) mod options;
mod outcome;
mod repl;
mod settings;
mod shell_history;
pub(crate) mod state;
mod transcript;
mod turn;

use cp_common::output::Format;
use cp_common::{Context, Error, Result, signals};

use self::console::render::style;
use self::state::Request;

/// Holds a session with a person, or with a script that stands in for one, from its start to its end. What ends it before is shown as
/// text, whatever the format: a person reads here.
pub(crate) fn run(request: Request<'_>, context: &mut Context) -> Result<()> {
    // A person's session outlives an interruption, and gives the terminal back as it was.
    let _effect = signals::effect();
    let held = repl::hold(request, context).map_err(Error::without_secrets);
    if let Err(e) = &held
        && !e.is_reader_gone()
        && context.out.format() == Format::Json
    {
        context.out.raw(style().error(e.message(), e.hint_text()).as_bytes())?;
        context.out.ended_with(e.code().row().exit);
    }
    held
}

//! Questions about the control plane tree: each is an operation, and what it answers is shown for people.

use std::path::Path;

use cp_common::{Code, Error, Result};
use serde_json::{Value, json};

use crate::interactive::commands;
use crate::interactive::console::Console;
use crate::interactive::console::render::{style, value};
use crate::interactive::outcome::Outcome;
use crate::interactive::state::{Standing, State};
use crate::plane::operations::{self, Host};
use crate::plane::work_orders::{self, Applied};
use crate::plane::{Failure, Plane, query};
use crate::signals::Tracker;

/// A command of the table, by its whole name.
pub(super) fn query(state: &mut State<'_>, name: &str, argument: &str) -> Result<Outcome> {
    if let ("wo", Some(file)) = (name, argument.strip_prefix("apply ")) {
        let home = state.context.home.root();
        return apply(Path::new(file.trim()), home, &state.console, &mut state.standing.tracker);
    }
    let takes = commands::find(name).map_or("", |command| command.takes);
    if (argument.is_empty() && !takes.is_empty() && !takes.starts_with('[')) || (name, argument) == ("wo", "apply") {
        let takes = if name == "wo" { "apply FILE" } else { takes };
        return Err(Error::usage(format!("write :{name} {takes}")).hint(format!("`:help {name}` says more")));
    }
    operation(&mut state.standing, &format!("{name} {argument}")).unwrap_or_else(|| {
        Err(Error::usage(format!("`:{name}` takes {takes}")).hint(format!("`:help {name}` says more")))
    })
}

/// A line that names an operation; none if it does not.
pub(super) fn operation(standing: &mut Standing, line: &str) -> Option<Result<Outcome>> {
    let query = query::parse(line)?;
    let Standing { plane, tracker, .. } = standing;
    let answered = operations::answer(plane, &query, &mut Session { tracker });
    let style = style();
    Some(
        answered
            .map(|result| Outcome { text: value(&result, style), result, ..Outcome::default() })
            .map_err(Error::from),
    )
}

/// What an operation sees of the session.
struct Session<'a> {
    tracker: &'a Tracker,
}

impl Host for Session<'_> {
    fn signal_status(&mut self, plane: &Plane) -> Value {
        self.tracker.signals(plane).status()
    }

    fn execute(&mut self, _: &Plane, _: &str) -> std::result::Result<Value, Failure> {
        Err(Failure::handler("a command for the system is run by `:!`").hint("write :! COMMAND"))
    }
}

/// `:wo apply FILE`, after a yes: the home's ledger of work orders gets an entry.
fn apply(file: &Path, home: &Path, console: &Console, tracker: &mut Tracker) -> Result<Outcome> {
    let text = std::fs::read(file)
        .map_err(|e| Error::io("reading the work order", e).in_file(file).hint("name a JSON file that can be read"))?;
    let payload: Value = serde_json::from_slice(&text).map_err(|e| {
        Error::validation(format!("the work order is not valid JSON: {e}"))
            .in_file(file)
            .hint("correct it: `jq . FILE` shows the place")
    })?;
    if !console.agrees(&format!("Put the work order of {} on the ledger of the home? [y/N] ", file.display())) {
        tracker.denied();
        return Err(Error::new(Code::ConfirmationRequired, "cancelled: nothing was applied")
            .hint("it requires approval at a terminal"));
    }
    tracker.confirmed();
    let (id, applied) = work_orders::apply(home, &payload)?;
    let text = match applied {
        Applied::New => format!("{id} was applied\n"),
        Applied::Already => format!("{id} had been applied with the same payload: nothing was done\n"),
    };
    Ok(Outcome { result: json!({"work_order_id": id}), ..Outcome::of_text(text) })
}

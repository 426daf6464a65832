//! Questions about the control plane tree: each is an operation, and what it answers is shown for people.

use std::path::Path;

use cp_common::Error;
use serde_json::{Value, json};

use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::render::value;
use crate::interactive::shell::Shell;
use crate::interactive::style;
use crate::plane::operations::Live;
use crate::plane::work_orders::{self, Applied};
use crate::plane::{Failure, Plane, commands};
use crate::signals::{Signals, Tracker};

/// A command of the table, by its whole name.
pub(super) fn query(shell: &mut Shell<'_>, name: &str, argument: &str) -> Done {
    if let ("wo", Some(file)) = (name, argument.strip_prefix("apply ")) {
        return apply(shell, file.trim());
    }
    operation(shell, &format!("{name} {argument}")).unwrap_or_else(|| {
        Err(Problem::new(format!("`:{name}` needs something to ask about"), format!(":help {name}")))
    })
}

/// A line that names an operation; none if it does not.
pub(super) fn operation(shell: &mut Shell<'_>, line: &str) -> Option<Done> {
    let query = commands::parse(line)?;
    let Shell { plane, tracker, .. } = shell;
    let answered = commands::answer(plane, &query, &mut Session { tracker });
    let style = style();
    Some(answered.map_err(Problem::from).map(|result| Outcome {
        text: value(&result, style),
        result,
        ..Outcome::default()
    }))
}

/// What an operation sees of the session.
struct Session<'a> {
    tracker: &'a Tracker,
}

impl Live for Session<'_> {
    fn signals(&mut self, plane: &Plane) -> Signals {
        self.tracker.signals(plane)
    }

    fn execute(&mut self, _: &Plane, _: &str) -> Result<Value, Failure> {
        Err(Failure::handler("a command for the system is run by `:!`").hint("write :! COMMAND"))
    }
}

/// `:wo apply FILE`, after a yes: the home's ledger of work orders gets an entry.
fn apply(shell: &mut Shell<'_>, file: &str) -> Done {
    let failed = |e: std::io::Error| Error::io("reading the work order", e).in_file(Path::new(file));
    let text = std::fs::read(Path::new(file)).map_err(failed)?;
    let payload: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::validation(format!("the work order is not JSON: {e}")).in_file(Path::new(file)))?;
    if !shell.desk.agrees(&format!("Put the work order of {file} on the ledger of the home? [y/N] ")) {
        shell.tracker.denied();
        return Err(Problem::new("cancelled: nothing was applied", "it needs a yes at a terminal"));
    }
    shell.tracker.confirmed();
    let (id, applied) = work_orders::apply(shell.context.home.root(), &payload)?;
    let told = match applied {
        Applied::New => format!("{id} was applied\n"),
        Applied::Already => format!("{id} had been applied with the same payload: nothing was done\n"),
    };
    Ok(Outcome { result: json!({"work_order_id": id}), ..Outcome::of_text(told) })
}

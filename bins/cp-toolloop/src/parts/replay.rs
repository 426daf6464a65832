//! Replay of a recording, without a model, tools, processes or a network.

use std::collections::VecDeque;
use std::path::Path;

use cp_common::wire::{Delta, Message, ToolResult};
use cp_common::{Context, Error, Result};

use crate::state::plan::{Plan, RunFiles};
use crate::state::step::Step;
use crate::state::step_log;

/// The messages and results of a recording, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    messages: VecDeque<Played>,
    results: VecDeque<ToolResult>,
}

/// A message of the model.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    /// The deltas before it.
    pub(crate) deltas: Vec<Delta>,
    pub(crate) message: Message,
}

impl Replay {
    /// Loads a recording from a file, or of a run by its name.
    pub(crate) fn load(named: &str, context: &Context) -> Result<(Plan, Self)> {
        let path = Path::new(named);
        let (path, steps) = if path.is_file() {
            (path.to_owned(), step_log::brought(path, &context.home)?)
        } else {
            let kept = RunFiles::find(named, context)?.recording();
            if !kept.exists() {
                return Err(Error::not_found(format!("the run `{named}` was not recorded"))
                    .hint("a run that is started with --record can be replayed"));
            }
            let steps = step_log::recorded(&kept, &context.home)?;
            (kept, steps)
        };
        let (mut plan, mut replay) = (None, Self::default());
        let mut deltas = Vec::new();
        for step in steps {
            match step {
                Step::Plan(recorded) => plan = Some(*recorded),
                Step::Deltas(came) => deltas = came,
                Step::Message(message) => {
                    replay.messages.push_back(Played { deltas: std::mem::take(&mut deltas), message: *message });
                }
                Step::Finished(_, result) => replay.results.push_back(*result),
                Step::Owner(_)
                | Step::Limits(_)
                | Step::Billed(_)
                | Step::Started(_)
                | Step::Withdrawn(_)
                | Step::Shown
                | Step::Asked(..)
                | Step::Decided(..) => {}
            }
        }
        let plan = plan.ok_or_else(|| Error::validation("not the recording of a run").in_file(&path))?;
        Ok((plan, replay))
    }

    /// The next message.
    pub(crate) fn message(&mut self) -> Result<Played> {
        self.messages.pop_front().ok_or_else(|| over("message"))
    }

    /// The next result.
    pub(crate) fn result(&mut self) -> Result<ToolResult> {
        self.results.pop_front().ok_or_else(|| over("tool result"))
    }
}

fn over(what: &str) -> Error {
    Error::not_found(format!("the recording ends before the next {what}")).hint("the recorded run did not end")
}

//! Calls that wait for approval, in a run and in the runs of its agents.

use cp_common::Context;

use crate::state::conversation::Conversation;
use crate::state::files::RunFiles;

/// A call that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) run: String,
    pub(crate) call: String,
}

impl Waiting {
    /// Whether `CALL` or `RUN/CALL` on a command line is this call.
    pub(crate) fn is(&self, named: &str) -> bool {
        named == self.call || named.split_once('/').is_some_and(|(run, call)| run == self.run && call == self.call)
    }
}

/// The calls that wait in a run that is stored, and in the runs of its agents.
pub(crate) fn waiting(run: &str, context: &Context) -> Vec<Waiting> {
    let stored = RunFiles::find(run, context).and_then(|files| Conversation::stored(&files));
    stored.map(|conversation| waiting_in(run, &conversation, context)).unwrap_or_default()
}

/// The calls that wait in a run that stands there, and in the runs of its agents.
pub(crate) fn waiting_in(run: &str, conversation: &Conversation, context: &Context) -> Vec<Waiting> {
    let calls = conversation.calls.iter().filter(|call| call.result.is_none());
    calls
        .flat_map(|call| match &call.agent {
            Some(agent) => waiting(agent, context),
            None => vec![Waiting { run: run.to_owned(), call: call.asked.id.clone() }],
        })
        .collect()
}

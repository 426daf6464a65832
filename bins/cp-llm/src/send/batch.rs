//! `--jobs`: concurrent prompts of a stream. A bounded number of them is in memory.

use std::sync::Arc;

use cp_common::Result;
use cp_common::output::Place;
use cp_common::stream::jobs::Jobs;
use cp_common::wire::Message;

use crate::engine::{Engine, Listener, Work};

/// The prompts in progress: each with its place, or the error of preparing it, which is reported in order.
pub(super) type Batch = Jobs<(Place, Result<Work>), Completed>;

/// A finished prompt.
pub(super) struct Completed {
    /// The place in the input.
    pub place: Place,
    /// The message or the error.
    pub outcome: Result<Message>,
    /// Warnings about the prompt.
    pub warnings: Vec<String>,
}

/// Starts a batch with this number of threads.
pub(super) fn start(
    engine: &Arc<Engine>,
    threads: usize,
    warn: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Batch> {
    let engine = Arc::clone(engine);
    Jobs::new(threads, move |(place, work): (Place, Result<Work>)| {
        let mut listener = Collector { warn: &warn, warnings: Vec::new() };
        let outcome = work.and_then(|mut work| engine.message(&mut work, &mut listener));
        Completed { place, outcome, warnings: listener.warnings }
    })
}

/// Keeps warnings until the turn of their prompt. Text is printed with the message, because several answers arrive at
/// the same time.
struct Collector<'a> {
    warn: &'a dyn Fn(&str),
    warnings: Vec<String>,
}

impl Listener for Collector<'_> {
    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }

    fn warn_now(&mut self, message: &str) {
        (self.warn)(message);
    }
}

//! The flags of a session with a person.

use crate::interactive::hub::Reach;

/// What may be reached and read.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Open no socket
    #[arg(long, help_heading = "What it may reach")]
    pub(crate) offline: bool,
    /// Leave the hub alone
    #[arg(long, help_heading = "What it may reach")]
    pub(crate) no_hub: bool,
    /// Let the history of the person's shell be context
    #[arg(long, help_heading = "What it may reach")]
    pub(crate) with_history: bool,
}

impl Options {
    /// Whether the hub may be used.
    pub(crate) fn reach(self) -> Reach {
        match (self.offline, self.no_hub) {
            (_, true) => Reach::Left,
            (true, false) => Reach::Offline,
            (false, false) => Reach::Open,
        }
    }
}

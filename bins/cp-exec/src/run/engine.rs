//! The policy in force, and what changes while requests are answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::{Context, Result};

use super::helper::Helper;
use super::journal::Journal;
use crate::decision::Hashes;
use crate::guard::settle::settle;
use crate::policy::{Hosted, Policy};

/// What one start of the program works with.
pub(crate) struct Engine {
    pub policy: Policy,
    /// Hashes of programs already seen.
    pub hashes: Hashes,
    pub journal: Journal,
    helper: Option<Arc<Helper>>,
}

impl Engine {
    /// Reads the policy that holds here. Nothing is started and nothing written yet.
    pub(crate) fn new(context: &Context, tools: &[PathBuf], root: Option<&Path>) -> Result<Self> {
        let policy = Policy::resolve(context, tools, root)?;
        let hashes = Hashes::of_home(&policy.cp_home);
        let journal = Journal::new(&policy);
        Ok(Self { policy, hashes, journal, helper: None })
    }

    /// Undoes what killed runs left behind, and gives the paths. It comes before any decision, which would take them for the owner's.
    pub(crate) fn settle_killed_runs(&mut self) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        for killed in settle(&self.policy.cp_home, &self.policy.ledger) {
            self.journal.settle(killed.intent, &killed.quarantined)?;
            paths.extend(killed.quarantined.iter().map(|quarantined| quarantined.path.clone()));
        }
        Ok(paths)
    }

    /// Serves a tool call of another agent: every entry names it from now on.
    pub(crate) fn serve(&mut self, hosted: Hosted) {
        self.policy.actor.call = Some(hosted.call.clone());
        self.policy.actor.host = Some(hosted);
        self.journal = Journal::new(&self.policy);
    }

    /// What starts runs. To be called on the main thread.
    pub(crate) fn helper(&mut self) -> Result<Arc<Helper>> {
        match &self.helper {
            Some(helper) if helper.is_alive() => Ok(Arc::clone(helper)),
            _ => Ok(Arc::clone(self.helper.insert(Arc::new(Helper::start()?)))),
        }
    }
}

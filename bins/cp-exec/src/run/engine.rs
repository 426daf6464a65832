//! The engine: the policy in force, and the state that changes between requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::{Context, Result};

use super::helper::Helper;
use super::journal::Journal;
use crate::decision::HashCache;
use crate::guard::settle::settle;
use crate::policy::{HostCall, Policy};

/// The state of one start of the program.
pub(crate) struct Engine {
    pub policy: Policy,
    /// Hashes of known programs.
    pub hashes: HashCache,
    pub journal: Journal,
    helper: Option<Arc<Helper>>,
}

impl Engine {
    /// Reads the policy. Starts and writes nothing yet.
    pub(crate) fn new(context: &Context, tools: &[PathBuf], root: Option<&Path>) -> Result<Self> {
        let policy = Policy::resolve(context, tools, root)?;
        let hashes = HashCache::of_home(&policy.cp_home);
        let journal = Journal::new(&policy);
        Ok(Self { policy, hashes, journal, helper: None })
    }

    /// Cleans up after killed runs, and returns the quarantined paths. This happens before any decision, because
    /// decisions would attribute the files to the owner.
    pub(crate) fn settle_killed_runs(&mut self) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        for killed in settle(&self.policy.cp_home, &self.policy.ledger) {
            self.journal.settle(killed.intent, &killed.quarantined)?;
            paths.extend(killed.quarantined.iter().map(|quarantined| quarantined.path.clone()));
        }
        Ok(paths)
    }

    /// Serves a tool call of another agent. All following entries name the call.
    pub(crate) fn serve(&mut self, hosted: HostCall) {
        self.policy.actor.call = Some(hosted.call.clone());
        self.policy.actor.host = Some(hosted);
        self.journal = Journal::new(&self.policy);
    }

    /// The helper that starts runs. Must be called on the main thread.
    pub(crate) fn helper(&mut self) -> Result<Arc<Helper>> {
        match &self.helper {
            Some(helper) if helper.is_alive() => Ok(Arc::clone(helper)),
            _ => Ok(Arc::clone(self.helper.insert(Arc::new(Helper::start()?)))),
        }
    }
}

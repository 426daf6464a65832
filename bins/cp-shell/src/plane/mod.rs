//! A control plane tree, read: its packages, registries, ledgers and work orders. Nothing here writes.

mod failure;
pub(crate) mod files;
pub(crate) mod operations;
pub(crate) mod request;
pub(crate) mod table;

use std::path::Path;

use cp_common::{Error, Result};

pub(crate) use failure::Failure;
pub(crate) use files::Read;
pub(crate) use request::{Operation, Request};

use crate::signals::GateState;

/// A tree. Any of its files may be absent.
#[derive(Debug)]
pub(crate) struct Plane {
    files: files::Files,
}

impl Plane {
    /// The tree below `root`, which need not exist.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let real = root.canonicalize().or_else(|_| std::path::absolute(root))?;
        if real.exists() && !real.is_dir() {
            return Err(Error::validation("the root is no directory").in_file(root));
        }
        Ok(Self { files: files::Files::new(real) })
    }

    /// The root, a real path.
    pub(crate) fn root(&self) -> &Path {
        self.files.root()
    }

    /// What was read since this was asked last.
    pub(crate) fn take_reads(&self) -> Vec<Read> {
        self.files.take_reads()
    }

    /// The work order in force, if one is.
    pub(crate) fn active_work_order(&self) -> Option<String> {
        None
    }

    /// Whether the gates let things through.
    pub(crate) fn gate_state(&self) -> GateState {
        GateState::Open
    }
}

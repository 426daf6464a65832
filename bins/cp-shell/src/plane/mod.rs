//! Reads a control plane tree: its packages, registries, ledgers and work orders. Only work orders are written, and
//! only to the home.

mod files;
pub(crate) mod ledgers;
pub(crate) mod operations;
mod packages;
pub(crate) mod paths;
mod registries;
mod request;
mod trace;
pub(crate) mod work_orders;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result};

pub(crate) use files::{Read, hash_of};
pub(crate) use ledgers::GateState;
pub(crate) use operations::Request;
pub(crate) use request::Failure;
pub(crate) use work_orders::WorkOrder;

/// A control plane tree. Any of its files may be missing.
#[derive(Debug)]
pub(crate) struct Plane {
    /// A real path.
    root: PathBuf,
    reads: RefCell<Vec<Read>>,
}

impl Plane {
    /// Opens the named tree, which must exist, or the home. It is the governed tree of every program that is started.
    pub(crate) fn of_context(context: &mut Context) -> Result<Self> {
        let plane = match context.root()? {
            Some(root) => Self { root, reads: RefCell::default() },
            None => Self::open(context.home.root())?,
        };
        context.options.root = plane.root().is_dir().then(|| plane.root.clone());
        Ok(plane)
    }

    /// Opens the tree below `root`. A home that does not exist yet is an empty tree.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let real = root.canonicalize().or_else(|_| std::path::absolute(root))?;
        if real.exists() && !real.is_dir() {
            return Err(Error::validation("the root is not a directory").in_file(root));
        }
        Ok(Self { root: real, reads: RefCell::default() })
    }

    /// The root, a real path.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Takes the reads that were declared since the last call.
    pub(crate) fn take_reads(&self) -> Vec<Read> {
        self.reads.take()
    }

    /// The tier in `tier.json`: ho1, ho2 or ho3. Tools of the control plane also call ho3 HOT.
    pub(crate) fn tier(&self) -> Option<String> {
        let tier = self.json("tier.json").ok()??.get("tier")?.as_str()?.to_lowercase();
        Some(if tier == "hot" { "ho3".to_owned() } else { tier })
    }

    /// True if the tree has a registry of governed prompts.
    pub(crate) fn governs_prompts(&self) -> Result<bool, Failure> {
        Ok(self.parsed("registries/prompts_registry.csv", |_| Ok(()))?.is_some())
    }
}

//! A control plane tree, read: its packages, registries, ledgers and work orders. Nothing here writes to it.

mod files;
mod guidance;
mod ledgers;
pub(crate) mod operations;
mod packages;
pub(crate) mod paths;
mod registries;
mod request;
mod trace;
pub(crate) mod work_orders;

use std::ffi::OsString;
use std::path::Path;

use cp_common::{Error, Result};
use cp_policy::Table;

pub(crate) use files::{Read, hash_of};
pub(crate) use ledgers::GateState;
pub(crate) use request::{Failure, Operation, Request};
pub(crate) use work_orders::WorkOrder;

/// A tree. Any of its files may be absent.
#[derive(Debug)]
pub(crate) struct Plane {
    files: files::Files,
}

impl Plane {
    /// The tree that was named, which must be there, else the home.
    pub(crate) fn named(root: Option<&Path>, home: &Path) -> Result<Self> {
        match root {
            Some(root) if !root.exists() => {
                Err(Error::not_found("no such directory").in_file(root).hint("give --root a control plane tree"))
            }
            root => Self::open(root.unwrap_or(home)),
        }
    }

    /// The tree below `root`. A home that nobody has made yet is an empty tree.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let real = root.canonicalize().or_else(|_| std::path::absolute(root))?;
        if real.exists() && !real.is_dir() {
            return Err(Error::validation("the root is not a directory").in_file(root));
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

    /// The work orders by id.
    pub(crate) fn work_orders(&self) -> Result<Vec<WorkOrder>, Failure> {
        work_orders::all(self)
    }

    /// The work order in force, if one is.
    pub(crate) fn active_work_order(&self) -> Option<String> {
        work_orders::active(self)
    }

    /// Whether the gates let things through.
    pub(crate) fn gate_state(&self) -> GateState {
        ledgers::gate_state(self)
    }

    /// The ids that a person may want to complete: packages, frameworks, specs, work orders. What cannot be read has none.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> =
            packages::all(self).unwrap_or_default().into_iter().map(|package| package.id).collect();
        let column = |table: Result<Table, Failure>, name: &str| {
            table.unwrap_or_default().rows().map(|row| row.get(name).to_owned()).collect::<Vec<_>>()
        };
        ids.extend(column(registries::frameworks(self), "framework_id"));
        ids.extend(column(registries::specs(self), "spec_id"));
        ids.extend(self.work_orders().unwrap_or_default().into_iter().map(|order| order.id));
        ids
    }

    /// Refuses a command that the tree forbids the shell.
    pub(crate) fn check_capability(&self, argv: &[String]) -> Result<(), Failure> {
        paths::check_capability(self, argv)
    }

    /// Whether a path of the tree is pristine, or a ledger.
    pub(crate) fn governs(&self, path: &str) -> bool {
        paths::governs(self, path)
    }

    /// The option that has cp-exec hold commands to what the tree says of itself.
    pub(crate) fn root_option(&self) -> Vec<OsString> {
        if self.root().is_dir() { vec!["--root".into(), self.root().into()] } else { Vec::new() }
    }

    /// The tier in `tier.json`, as a plane: ho1, ho2 or ho3, which its own tools also call HOT.
    pub(crate) fn tier(&self) -> Option<String> {
        let tier = self.files.json("tier.json").ok()??.get("tier")?.as_str()?.to_lowercase();
        Some(if tier == "hot" { "ho3".to_owned() } else { tier })
    }

    /// Whether the tree has a registry of governed prompts.
    pub(crate) fn governs_prompts(&self) -> Result<bool, Failure> {
        Ok(self.files.parsed("registries/prompts_registry.csv", |_| Ok(()))?.is_some())
    }
}

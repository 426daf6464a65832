//! The policy: the settings of its file, the declarations of the modules of a root, and both resolved for one start
//! of the program.
//!
//! A policy does not change after it is read. Decisions and the sandbox query paths here.

mod bounds;
mod file;
mod hidden;
mod patterns;
mod resolved;
mod trust;
mod walk;

pub(crate) use self::bounds::Access;
pub(crate) use self::file::{
    ArgumentRules, Confirm, Degraded, Intent, LONGEST, Rule, RunAs, Strings, Verdict, load, parse,
};
pub(crate) use self::hidden::{Hidden, node_of, readable, visible, writable};
pub(crate) use self::patterns::{covering, escaped, expand, normal};
pub(crate) use self::resolved::{Actor, HostCall, Policy};
pub(crate) use self::trust::{check_directory, name_of, others_write};

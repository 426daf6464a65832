//! MCP servers on this machine: their policy, and how they are started.

mod launch;
mod launcher;
mod narrowed;
mod policy;

pub use self::launch::{Launcher, is_cp_mcp};
pub use self::launcher::{name_of, unavailable};
pub use self::policy::{LIFETIME, LONGEST_NAME, Sandbox, Spec, Table, is_in_names, is_name};
pub use cp_egress::Network;

//! MCP servers that run here: what the policy lets each do, and how it is started.

mod cure;
mod named;

mod launch;

mod narrowed;

mod spec;

mod config;

mod policy;

pub use self::cure::unavailable;
pub use self::launch::{Launcher, ScratchHome, is_cp_mcp, not_fatal};
pub use self::policy::{LIFETIME, Network, Sandbox, Table, matches};
pub use self::spec::{LONGEST_NAME, Spec, is_in_names, is_name};

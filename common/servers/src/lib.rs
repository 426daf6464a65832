//! MCP servers on this machine: their policy, and how they are started.

mod hints;
mod launch;
mod launcher;
mod narrowed;
mod policy;
mod spec;

pub use self::hints::unavailable;
pub use self::launch::{Launcher, is_cp_mcp};
pub use self::launcher::name_of;
pub use self::policy::{LIFETIME, Sandbox, Table, matches};
pub use self::spec::{LONGEST_NAME, Spec, is_in_names, is_name};
pub use cp_egress::Network;

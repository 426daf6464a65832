//! The policy that several programs must agree on: the classes of paths, the file `config/policy.toml` with its `[llm]` table, the registry
//! of prompts, and their templates. See cp-policy(5).

mod file;
mod paths;
pub mod prompts;
mod registry;
pub mod template;

pub use self::file::{Demand, Llm, home_of, name_of, others_write, read_policy, table};
pub use self::paths::{PathClass, ROOTS_FILE, check_writable, classify, default_roots, governed_roots, parse_roots};
pub use self::registry::{Row, Table};

//! The configuration files of other agents: their paths, and changes to them. A change is shown as a diff, confirmed,
//! recorded in the ledger, and applied atomically; in a JSON file, all other bytes are kept.

mod change;
mod file;
mod text;

pub use self::change::{Args, Changed, Check, Edit, Exclude, Host, Place, change, own, person};
pub use self::file::{After, Pending, Present, difference, open_with, remove_abandoned};
pub use self::text::{Text, pretty, uneditable};

//! The configuration files of other agents: their paths, and changes to them. A change is shown as a diff, confirmed,
//! recorded in the ledger, and applied atomically; in a JSON file, all other bytes are kept.

mod difference;

mod host;

mod open;

mod file;

mod text;

mod change;

pub use self::change::{Args, Changed, Edit, Place, change, own, person};
pub use self::difference::difference;
pub use self::file::{After, Pending, Present};
pub use self::host::{Host, named};
pub use self::open::open_with;
pub use self::text::{Text, pretty, uneditable};

//! The configuration of other agents: where each keeps it, and how such a file is changed. It is shown as a difference, confirmed, on
//! the record, and changes whole or not at all; of a JSON text every byte stays that is not meant.

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

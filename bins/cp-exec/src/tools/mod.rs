//! Requests other than commands: file operations, facts about the machine, and executable tools.

pub(crate) mod executable;
pub(crate) mod filesystem;
mod item;
pub(crate) mod machine;

pub(crate) use self::item::Item;

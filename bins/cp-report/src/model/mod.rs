//! What a page says: each line as it is shown, and what all of them together say.

mod content;
mod entry;
mod fold;
mod part;
mod shown;
mod spans;
mod table;

pub(crate) use self::content::word;
pub(crate) use self::entry::Entry;
pub(crate) use self::fold::{Overview, Run, Times, Totals};
pub(crate) use self::shown::{Fact, Shown, duration, money, shown};
pub(crate) use self::spans::{LANES, Span};

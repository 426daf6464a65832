//! The content of a page: each line as it is shown, and the sums over all lines.

mod content;
mod entry;
mod fold;
mod shown;
mod spans;

pub(crate) use self::content::{ROWS, word};
pub(crate) use self::entry::{Entry, Pairs};
pub(crate) use self::fold::{Count, Overview, Run, Times, Totals};
pub(crate) use self::shown::{Fact, Shown, duration, money, shown};
pub(crate) use self::spans::{LANES, Place, Span, Step};

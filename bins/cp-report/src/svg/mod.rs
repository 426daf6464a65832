//! Pictures: values become the text of an SVG, which has attributes only, no style and nothing that the values wrote.

mod bars;
mod timeline;

pub(crate) use self::bars::{Bar, bars};
pub(crate) use self::timeline::timeline;

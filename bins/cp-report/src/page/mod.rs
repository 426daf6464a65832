//! The page: templates filled with what the model says, a line at a time.

mod head;
mod placed;
mod text;
mod writer;

pub(crate) use self::head::{Heading, heading};
pub(crate) use self::placed::Placed;
pub(crate) use self::writer::{Input, write};

//! Records in, records out: the item loop of every program that reads a stream.

pub mod earlier;
pub mod filter;
pub mod jobs;
pub mod lines;
mod tee;

pub use self::tee::{Recorder, tee};

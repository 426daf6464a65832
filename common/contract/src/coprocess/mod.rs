//! Coprocesses: locating a program, starting it without a shell, exchanging records with it, converting its failures,
//! and stopping it within a grace period. Every program that runs another uses this module.

mod answer;
mod child;
mod find;
mod part;
mod question;

pub use self::answer::{Answer, ask, ask_each, ask_with};
pub use self::child::{Child, Grace};
pub use self::find::{command_line, command_words, find, on_path};
pub use self::part::{Part, failure, unexpected};
pub use self::question::{Said, question, reason};

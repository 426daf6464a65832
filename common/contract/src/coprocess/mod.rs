//! Programs that run programs: find one, start it without a shell, ask it in records, turn its failure into ours, and stop it within a
//! grace. Every program that runs another does it through here.

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

//! The harness of all end-to-end tests: it runs the programs as a user would, in an isolated place.
//!
//! - [`Place`] is a fresh directory with a working directory, a home for `CP_HOME` and a pinned environment; each of its
//!   parts is a [`Directory`] that can be written to and read back.
//! - [`Program`] is a command line in a place. [`Program::run`] waits until it exits and returns an [`Outcome`],
//!   [`Program::start`] a [`Background`] process that is spoken to line by line, [`Program::terminal`] a [`Terminal`].
//! - [`Outcome`] is its result: status, output, records, and assertions that show all of these when they fail.
//! - [`Server`] plays HTTP replies, byte for byte, and keeps the requests; [`server`] has the replies.
//! - [`thinker()`] is such a server, of a provider that requires its answers to be returned unchanged.
//! - [`BatchProvider`] is a provider of batch jobs.
//! - [`Fake`] replaces a program: it records its calls and prints given output.
//! - [`Sweep`] runs a command line with a fault at each of its system calls, one after the other.
//! - [`times`] and [`is_sampled`] choose a sample of many cases, or all of them where `CP_LONG` is set.
//! - [`needs`] and [`counterpart()`] are for programs of others, and [`required`] for other requirements of the machine: a
//!   test that cannot run reports that, and fails where `CI=true`.
//!
//! Pipelines are shell scripts ([`Place::sh`]), so that tests contain what users type.
//!
//! No crate of the workspace is a dependency, so that the code that reads the wire format does not share mistakes with
//! the code under test.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "only tests call this, and every error in it must fail the test"
)]

mod background;
mod batches;
mod counterpart;
mod directory;
mod events;
mod fake;
mod outcome;
mod place;
mod program;
mod sample;
mod schema;
pub mod server;
mod spawn;
mod sweep;
mod terminal;
mod thinker;
mod wait;

pub use background::Background;
pub use batches::{BatchProvider, Conduct};
pub use counterpart::{counterpart, packages, pytest_environment, required};
pub use directory::Directory;
pub use fake::Fake;
pub use outcome::{Outcome, records_of};
pub use place::Place;
pub use program::{PROGRAMS, Program, program, repository};
pub use rustix::process::Signal;
pub use sample::{is_long, is_sampled, times};
pub use schema::{of_record, same_or_update};
pub use server::Server;
pub use sweep::Sweep;
pub use terminal::Terminal;
pub use thinker::{answered, thinker, thought};
pub use wait::until;

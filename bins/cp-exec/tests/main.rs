//! What a user of cp-exec meets, and what a command in its sandbox does.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod absent;
mod approvals;
mod attempts;
mod canaries;
mod capabilities;
mod contained;
mod decisions;
mod exec;
mod files;
mod git_settings;
mod governed;
mod guard;
mod hostile;
mod hosts;
mod init;
mod leftovers;
mod links;
mod missing;
mod once;
mod options;
mod outer;
mod plans;
mod projects;
mod read_only;
mod recover_git;
mod repositories;
mod requests;
mod run;
mod search;
mod session_tmp;
mod sets;
mod shared_memory;
mod survivors;
mod terminal;
mod two_actors;

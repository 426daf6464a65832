//! What no single program owns: pipes, scripts, the manual, and the contract that all keep.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure to set up is a failed test")]

mod answers;
mod authors;
mod blocks;
mod completions;
mod confirmation;
mod conformance;
mod contract;
mod cp_ask;
mod doors;
mod endpoints;
mod help;
mod home;
mod hooks;
mod hosts;
mod install;
mod llama;
mod loop_elixir;
mod loops;
mod manual;
mod names;
mod pipelines;
mod places;
mod programs;
mod properties;
mod queries;
mod scale;
mod screens;
mod scripts_cp_eval;
mod scripts_cp_sh;
mod structure;
mod table;
mod toolloop;

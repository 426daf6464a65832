//! Commands that another program carries out.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use cp_common::coprocess::find;
use cp_common::{Error, Result};

/// Words for the program that carries out a command.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Rest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Replaces this process with a program. Returns only if the program cannot be started.
pub(crate) fn execute(program: &str, words: &[&str], rest: Rest) -> Result<u8> {
    let e = Command::new(find(program)?).args(words).args(rest.words).exec();
    Err(Error::io(format!("starting {program}"), e))
}

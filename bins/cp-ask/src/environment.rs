//! The programs that this command starts: their environment, whose variables may have other names, and commands that
//! one of them carries out.

use std::collections::BTreeMap;
use std::ffi::OsString;

use cp_common::coprocess::{find, replace};
use cp_common::{Error, Result};

/// Other names of variables; of two names for one variable the first has precedence.
const ALIASES: [(&str, &str); 8] = [
    ("SHELLCLAW_HOME", "CP_HOME"),
    ("SHELLCLAW_AGENT_ID", "CP_AGENT"),
    ("SHELLCLAW_DEFAULT_AGENT", "CP_AGENT"),
    ("SHELLCLAW_MODEL", "CP_MODEL"),
    ("SHELLCLAW_LLM_BACKEND", "CP_BACKEND"),
    ("SHELLCLAW_TOOL_BACKEND", "CP_TOOL_BACKEND"),
    ("SHELLCLAW_SKILLS_DIR", "CP_TOOLS_DIR"),
    ("SHELLCLAW_TOOLS_DIR", "CP_TOOLS_DIR"),
];

/// Returns a variable that is not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Executes this process again with the variables that only have a value under another name, if there are any, so that
/// every program that it starts has the same environment.
pub(crate) fn settle() -> Result<()> {
    let mut missing = BTreeMap::new();
    for (alias, name) in ALIASES {
        // This one names the agent of the moment, and CP_AGENT may name that of the settings.
        let is_missing = variable(name).is_none() || alias == "SHELLCLAW_AGENT_ID" && variable(name) != variable(alias);
        if let Some(value) = variable(alias).filter(|_| is_missing) {
            missing.entry(name).or_insert(value);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| Error::io("finding cp-ask", e))?;
    Err(Error::io("starting cp-ask", replace(program, std::env::args_os().skip(1), &missing)))
}

/// Words for the program that carries out a command.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Rest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Replaces this process with a program. Returns only if the program cannot be started.
pub(crate) fn execute(program: &str, words: &[&str], rest: Rest) -> Result<u8> {
    let words = words.iter().map(OsString::from).chain(rest.words);
    Err(Error::io(format!("starting {program}"), replace(find(program)?, words, &BTreeMap::new())))
}

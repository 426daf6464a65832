//! Servers on the command line, or in the file of another host.

use std::path::Path;

use cp_common::coprocess::command_words;
use cp_common::{Context, Error, Result};

use crate::config;
use crate::launch::Launcher;
use crate::spec::{Spec, is_name};

impl Spec {
    /// Parses `NAME=COMMAND`, or `NAME` of a server whose command is in the policy.
    pub fn parse(text: &str, context: &Context) -> Result<Self> {
        let (name, command) = text.split_once('=').map_or((text, None), |(name, command)| (name, Some(command)));
        if !is_name(name) {
            return Err(Error::usage(format!("--mcp {text}: the name must be 1 to 64 letters, digits, _ and -"))
                .hint("write --mcp NAME='/path/to/server arguments'"));
        }
        let given = command.map(command_words).transpose()?;
        Ok(Self { name: name.to_owned(), argv: Launcher::of(context)?.argv(name, given)?, ..Self::default() })
    }

    /// The servers of a file.
    pub fn of_file(path: &Path, context: &Context) -> Result<Vec<Self>> {
        let launcher = Launcher::of(context)?;
        let file = std::path::absolute(path)?;
        let configured = config::read(path)?.into_iter().map(|config::Configured { name, argv, env }| {
            if !is_name(&name) {
                return Err(Error::config(format!("the server `{name}`: a name is 1 to 64 letters, digits, _ and -")));
            }
            Ok(Self { argv: launcher.argv(&name, Some(argv))?, name, env, config: Some(file.clone()) })
        });
        configured.map(|spec| spec.map_err(|e: Error| e.in_file(path))).collect()
    }
}

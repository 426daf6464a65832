//! The operand that names a session.

use std::path::PathBuf;

use cp_common::home::{Session, resolved};
use cp_common::{Context, Error, Result};

/// The operand that names a session.
#[derive(clap::Args)]
pub(crate) struct SessionOperand {
    /// The session: an id, a unique prefix of one, a name, or a path
    #[arg(value_name = "SESSION")]
    named: Option<String>,
}

impl SessionOperand {
    /// The session: that of the operand, else of `--session`, else of `CP_SESSION`.
    pub(crate) fn find(&self, context: &Context) -> Result<Session> {
        find(self.named.as_deref(), context)
    }
}

/// The resolved directory of a session, to which tokens and request ids are bound.
pub(crate) fn place(session: &Session) -> PathBuf {
    resolved(&session.directory)
}

/// The session with this name, else that of `--session`, else that of `CP_SESSION`.
pub(crate) fn find(name: Option<&str>, context: &Context) -> Result<Session> {
    let name = name.map(str::to_owned).or_else(|| context.session()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| {
        Error::usage("no session specified")
            .hint("give --session S or set CP_SESSION: an id, a unique prefix of one, a name, or a path")
    })?;
    context.home.session(&name)
}

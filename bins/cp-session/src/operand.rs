//! The operand that names a session, and the names of new ones.

use std::path::Path;

use cp_common::home::Session;
use cp_common::keys::{hex, random};
use cp_common::{Code, Context, Error, Result, clock};

/// The operand that names a session.
#[derive(clap::Args)]
pub(crate) struct Named {
    /// The session: an id, a unique beginning of one, or a path
    #[arg(value_name = "S")]
    named: Option<String>,
}

impl Named {
    /// The session that is meant.
    pub(crate) fn find(&self, context: &Context) -> Result<Session> {
        find(self.named.as_deref(), context)
    }
}

/// The session that is meant: the operand, else `--session`, else `CP_SESSION`.
pub(crate) fn find(operand: Option<&str>, context: &Context) -> Result<Session> {
    let named = operand.map(str::to_owned).or_else(|| context.session());
    let named = named.filter(|name| !name.is_empty()).ok_or_else(|| {
        Error::usage("no session is named")
            .hint("give --session S or set CP_SESSION: an id, a unique beginning of one, or a path")
    })?;
    context.home.session(&named)
}

/// Makes the directory of a new session. Its name is drawn until it is nobody else's.
pub(crate) fn create(tier: &str, context: &Context) -> Result<Session> {
    let sessions = context.home.sessions(tier);
    cp_common::home::make_directory(&sessions)?;
    for _ in 0..8 {
        let id = new_id()?;
        let directory = sessions.join(&id);
        match make_private(&directory).and_then(|()| make_private(&directory.join("ledger"))) {
            Ok(()) => return Ok(Session { id, directory }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("creating the session", e).in_file(&directory).fatal()),
        }
    }
    Err(Error::new(Code::Conflict, "no free session id was found").hint("try again"))
}

fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(directory)
}

/// `SES-`, the day, and eight hex digits.
pub(crate) fn new_id() -> Result<String> {
    Ok(format!("SES-{}-{}", clock::today(), hex(&random::<4>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_id_has_the_documented_form() {
        let id = new_id().unwrap();
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("SES", 8, 8));
        assert!(parts[2].bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}

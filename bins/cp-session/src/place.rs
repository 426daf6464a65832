//! Where sessions lie, and which one a word on the command line means. Nothing here guesses "the last".

use std::path::{Path, PathBuf};

use cp_common::keys::{hex, random};
use cp_common::spelling::nearest;
use cp_common::{Code, Context, Error, Result, clock};

/// The tiers, in the order they are looked through.
pub(crate) const TIERS: [&str; 3] = ["ho1", "ho2", "ho3"];
/// The ledger of a session, in its directory.
pub(crate) const FILE: &str = "session.jsonl";

/// A session that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// Its id: the name of its directory.
    pub(crate) id: String,
    /// Where its files are.
    pub(crate) directory: PathBuf,
}

impl Session {
    /// The ledger that holds the turns.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// The tier it was made in, as its place tells; a session that was named by a path may lie elsewhere.
    pub(crate) fn tier(&self) -> Option<String> {
        let tier = self.directory.parent()?.parent()?.file_name()?.to_str()?;
        TIERS.contains(&tier).then(|| tier.to_owned())
    }
}

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
    if named.contains('/') { at_path(&named) } else { with_id(&named, context) }
}

fn at_path(named: &str) -> Result<Session> {
    if named.starts_with("SES-") {
        return Err(refused(named));
    }
    let path = Path::new(named);
    let real = path.canonicalize().map_err(|_| {
        Error::not_found(format!("no session at {named}")).with("session", named).hint("`cp-session list` shows them")
    })?;
    let file = if real.is_dir() { real.join(FILE) } else { real };
    let directory = file.parent().filter(|_| file.file_name().is_some_and(|name| name == FILE) && file.is_file());
    let id = directory.and_then(Path::file_name).and_then(|name| name.to_str());
    match (id, directory) {
        (Some(id), Some(directory)) => Ok(Session { id: id.to_owned(), directory: directory.to_owned() }),
        _ => Err(Error::validation(format!("{named} is no session"))
            .hint(format!("name the directory of one, or the {FILE} in it"))),
    }
}

fn refused(named: &str) -> Error {
    Error::validation(format!("`{named}` is not a session id: ids are letters, digits, `-` and `_`"))
        .with("session", named)
        .hint("a path to a session starts with / or ./")
}

/// Whether a name can be a directory's and nothing more.
pub(crate) fn is_id(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn with_id(named: &str, context: &Context) -> Result<Session> {
    if !is_id(named) {
        return Err(refused(named));
    }
    for tier in TIERS {
        let directory = context.home.sessions(tier).join(named);
        if directory.join(FILE).is_file() {
            return Ok(Session { id: named.to_owned(), directory });
        }
    }
    let all = all(context)?;
    let mut begins: Vec<&Session> = all.iter().filter(|session| session.id.starts_with(named)).collect();
    match begins.len() {
        1 => Ok(begins.remove(0).clone()),
        0 => Err(unknown(named, &all)),
        many => {
            let ids: Vec<String> = begins.iter().take(10).map(|session| session.id.clone()).collect();
            Err(Error::validation(format!("`{named}` is the beginning of {many} sessions: {}", ids.join(", ")))
                .with("candidates", ids)
                .hint("give more of the id"))
        }
    }
}

fn unknown(named: &str, all: &[Session]) -> Error {
    let error = Error::not_found(format!("no session `{named}`")).with("session", named);
    match nearest(named, all.iter().map(|session| session.id.as_str())) {
        Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
        None => error.hint("`cp-session list` shows them"),
    }
}

/// Every session of home, oldest id first.
pub(crate) fn all(context: &Context) -> Result<Vec<Session>> {
    let mut found = Vec::new();
    for tier in TIERS {
        let sessions = context.home.sessions(tier);
        let listing = match std::fs::read_dir(&sessions) {
            Ok(listing) => listing,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(Error::io("listing the sessions", e).in_file(&sessions)),
        };
        for entry in listing {
            let entry = entry.map_err(|e| Error::io("listing the sessions", e).in_file(&sessions))?;
            if let Ok(id) = entry.file_name().into_string()
                && is_id(&id)
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                found.push(Session { id, directory: entry.path() });
            }
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id).then_with(|| a.directory.cmp(&b.directory)));
    Ok(found)
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
    fn an_id_is_a_name_and_never_a_way() {
        for good in ["SES-20260101-00ff00ff", "a_b", "x"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "SES-1\n", "é", "~"] {
            assert!(!is_id(bad), "{bad}");
        }
    }

    #[test]
    fn a_new_id_has_the_documented_form() {
        let id = new_id().unwrap();
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("SES", 8, 8));
        assert!(parts[2].bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}

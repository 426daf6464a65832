//! Confirm tokens: proof that a dry run on this machine showed exactly what is now to be done. Bound, expiring, spent once.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::clock;
use crate::context::Context;
use crate::context::options::WriteOptions;
use crate::home::make_directory;
use crate::keys::{Key, hex};
use crate::signals;
use crate::wire::{Code, Error, Reply, Result};

/// How long a token can be used, in seconds.
pub const LIFETIME: u64 = 600;

/// How many bytes of the tag a token carries.
const TAG: usize = 16;

/// One thing that a write would do.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// delete, replace, …
    pub action: String,
    /// What kind of thing.
    pub resource: String,
    /// Which one.
    pub id: String,
    /// How it is, version included.
    pub before: serde_json::Value,
    /// How it will be; null when it will be gone.
    pub after: serde_json::Value,
}

/// What a dry run answers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    /// What would be done.
    pub preview: Changes,
    /// The token that does it.
    pub confirm_token: String,
    /// When the token expires.
    pub expires_at: String,
}

/// The list in a [`Preview`].
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changes {
    /// Each thing that would be done, in order.
    pub changes: Vec<Change>,
}

impl Reply for Preview {
    fn text(&self) -> String {
        let lines =
            self.preview.changes.iter().map(|change| format!("{} {} {}", change.action, change.resource, change.id));
        lines.chain([format!("confirm with --confirm {}", self.confirm_token)]).collect::<Vec<_>>().join("\n")
    }
}

/// Gates a write. `Ok(true)`: go on, the token is spent. `Ok(false)`: it was a dry run, the preview is the answer.
/// `dangerous` writes also need `--dangerous`, which is looked at before anything else.
pub fn gate(
    verb: &str,
    changes: Vec<Change>,
    dangerous: bool,
    options: &WriteOptions,
    context: &mut Context,
) -> Result<bool> {
    if dangerous && !options.dangerous {
        return Err(Error::new(Code::ConfirmationRequired, format!("{verb} cannot be undone"))
            .hint("add --dangerous if it is meant"));
    }
    let binding = binding(verb, &changes, context)?;
    if options.dry_run {
        let (confirm_token, expires) = issue(context.home.root(), &binding)?;
        let expires_at = clock::from_unix_seconds(expires);
        context.out.answer(&Preview { preview: Changes { changes }, confirm_token, expires_at })?;
        return Ok(false);
    }
    let Some(token) = &options.confirm else {
        return Err(Error::new(Code::ConfirmationRequired, format!("{verb} needs a confirm token"))
            .hint("run it with --dry-run, look at the preview, then repeat it with --confirm TOKEN"));
    };
    // The token is spent: what it stands for is done to its end.
    std::mem::forget(signals::effect());
    redeem(context.home.root(), token, &binding)?;
    Ok(true)
}

/// Everything a token is bound to: program, verb, the changes with what is there now, the account, the home.
fn binding(verb: &str, changes: &[Change], context: &Context) -> Result<Vec<u8>> {
    let account = rustix::process::getuid().as_raw();
    let bound = (context.program, verb, account, context.home.root(), changes);
    serde_json::to_vec(&bound).map_err(|e| Error::new(Code::Unknown, format!("binding a token: {e}")))
}

/// Makes a token for `binding`: `ct_`, the expiry in ten hexadecimal digits, and a tag of 32. Returns it with its expiry.
pub fn issue(home: &Path, binding: &[u8]) -> Result<(String, u64)> {
    let expires = clock::unix_seconds() + LIFETIME;
    Ok((token(&Key::of_home(home)?, expires, binding), expires))
}

fn token(key: &Key, expires: u64, binding: &[u8]) -> String {
    let tag = key.tag(&[&expires.to_be_bytes(), binding]);
    format!("ct_{expires:010x}{}", hex(&tag[..TAG]))
}

/// Spends a token. [`Code::Conflict`] when it is forged, stale (bound to something else), expired or replayed: `details.reason`.
pub fn redeem(home: &Path, given: &str, binding: &[u8]) -> Result<()> {
    let conflict = |reason: &str, message: &str| {
        Error::new(Code::Conflict, message.to_owned())
            .with("reason", reason)
            .hint("run it with --dry-run again for a new token")
    };
    let (expires, tag) = parts_of(given).ok_or_else(|| conflict("forged", "the confirm token is not one of ours"))?;
    if !Key::of_home(home)?.is_tag(&[&expires.to_be_bytes(), binding], &tag) {
        return Err(conflict("stale", "the confirm token does not belong to this: what it showed has changed"));
    }
    if clock::unix_seconds() > expires {
        return Err(conflict("expired", "the confirm token has expired"));
    }
    let tokens = home.join("state/tokens");
    make_directory(&tokens)?;
    sweep(&tokens);
    // Spent before the write: a crash in the middle blocks a replay instead of repeating an effect.
    let mark = tokens.join(format!("{:010x}-{}", expires, &hex(&Sha256::digest(given))[..16]));
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&mark) {
        Ok(file) => file.sync_all().map_err(|e| Error::io("recording the spent token", e)),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(conflict("replayed", "the confirm token has been used")),
        Err(e) => Err(Error::io("recording the spent token", e).in_file(&mark)),
    }
}

/// The expiry and the tag of a token, if it has the form of one.
fn parts_of(token: &str) -> Option<(u64, [u8; TAG])> {
    let (expires, tag) = token.strip_prefix("ct_")?.split_at_checked(10)?;
    let mut bytes = [0; TAG];
    base16ct::lower::decode(tag, &mut bytes).ok().filter(|tag| tag.len() == TAG)?;
    Some((u64::from_str_radix(expires, 16).ok()?, bytes))
}

/// Removes the marks of tokens that have expired, which are refused without them.
fn sweep(tokens: &Path) {
    let now = clock::unix_seconds();
    for entry in std::fs::read_dir(tokens).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let expires = name
            .to_str()
            .and_then(|name| name.split('-').next())
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if expires.is_some_and(|expires| expires + LIFETIME < now) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_for_what_it_was_made_for() {
        let home = tempfile::tempdir().unwrap();
        let (token, _) = issue(home.path(), b"delete a").unwrap();
        assert_eq!(redeem(home.path(), &token, b"delete b").unwrap_err().code(), Code::Conflict);
        redeem(home.path(), &token, b"delete a").unwrap();
        let used = redeem(home.path(), &token, b"delete a").unwrap_err();
        assert_eq!(used.to_value()["details"]["reason"], "replayed");
    }

    #[test]
    fn forged_and_expired_tokens_are_refused() {
        let home = tempfile::tempdir().unwrap();
        for forged in ["", "ct_", "ct_zzzzzzzzzz0000", "ct_00ffffffff00000000000000000000000000000000"] {
            assert_eq!(redeem(home.path(), forged, b"x").unwrap_err().code(), Code::Conflict);
        }
        let old = token(&Key::of_home(home.path()).unwrap(), clock::unix_seconds() - 1, b"x");
        assert!(redeem(home.path(), &old, b"x").unwrap_err().message().contains("expired"));
    }
}

//! Confirm tokens: proof that a dry run on this machine showed exactly what is now to be done. Bound, expiring, spent once.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::clock;
use crate::context::Context;
use crate::error::{Code, Error, Result};
use crate::home::make_directory;
use crate::options::WriteOptions;
use crate::output::Reply;

/// How long a token can be used, in seconds.
pub const LIFETIME: u64 = 600;

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
        let (confirm_token, expires) = issue(&context.home.root().join("keys"), &binding)?;
        let expires_at = clock::from_unix_seconds(expires);
        context.out.answer(&Preview { preview: Changes { changes }, confirm_token, expires_at })?;
        return Ok(false);
    }
    let Some(token) = &options.confirm else {
        return Err(Error::new(Code::ConfirmationRequired, format!("{verb} needs a confirm token"))
            .hint("run it with --dry-run, look at the preview, then repeat it with --confirm TOKEN"));
    };
    redeem(context.home.root(), token, &binding)?;
    Ok(true)
}

/// Everything a token is bound to: program, verb, the changes with what is there now, the account, the home.
fn binding(verb: &str, changes: &[Change], context: &Context) -> Result<Vec<u8>> {
    let account = rustix::process::getuid().as_raw();
    let bound = (context.program.name, verb, account, context.home.root(), changes);
    serde_json::to_vec(&bound).map_err(|e| Error::new(Code::Unknown, format!("binding a token: {e}")))
}

/// Makes a token for `binding`: `ct_`, the expiry in hex, a dot-free 32-hex tag. Returns it with its expiry.
pub fn issue(keys: &Path, binding: &[u8]) -> Result<(String, u64)> {
    let expires = clock::unix_seconds() + LIFETIME;
    Ok((token(keys, expires, binding)?, expires))
}

fn token(keys: &Path, expires: u64, binding: &[u8]) -> Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret(keys)?)
        .map_err(|_| Error::new(Code::Unknown, "the confirm key is empty"))?;
    mac.update(&expires.to_be_bytes());
    mac.update(binding);
    let tag = mac.finalize().into_bytes();
    Ok(format!("ct_{expires:010x}{}", hex(&tag[..16])))
}

/// Spends a token. [`Code::Conflict`] when it is forged, stale (bound to something else), expired or replayed: `details.reason`.
pub fn redeem(home: &Path, given: &str, binding: &[u8]) -> Result<()> {
    let conflict = |reason: &str, message: &str| {
        Error::new(Code::Conflict, message.to_owned())
            .with("reason", reason)
            .hint("run it with --dry-run again for a new token")
    };
    let expires = given
        .strip_prefix("ct_")
        .and_then(|rest| rest.get(..10))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| conflict("forged", "the confirm token is not one of ours"))?;
    let expected = token(&home.join("keys"), expires, binding)?;
    if !same(given.as_bytes(), expected.as_bytes()) {
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

/// The key of this machine's tokens, made at first use.
fn secret(keys: &Path) -> Result<Vec<u8>> {
    let path: PathBuf = keys.join("confirm.key");
    for _ in 0..2 {
        match std::fs::read(&path) {
            Ok(key) if key.len() == 32 => return Ok(key),
            Ok(_) => {
                return Err(Error::new(Code::Integrity, "the confirm key is damaged")
                    .in_file(&path)
                    .hint("remove it: tokens not yet used become void"));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => make_secret(keys, &path)?,
            Err(e) => return Err(Error::io("reading the confirm key", e).in_file(&path)),
        }
    }
    Err(Error::new(Code::Io, "the confirm key cannot be made").in_file(&path))
}

fn make_secret(keys: &Path, path: &Path) -> Result<()> {
    make_directory(keys)?;
    let temporary = keys.join(format!("confirm.{}.tmp", std::process::id()));
    let failed = |e: std::io::Error| Error::io("making the confirm key", e).in_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    file.write_all(&random::<32>()?).and_then(|()| file.sync_all()).map_err(failed)?;
    // A link, not a rename: whoever comes second must find the first key, not replace it.
    let linked = std::fs::hard_link(&temporary, path);
    let _ = std::fs::remove_file(&temporary);
    match linked {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(failed(e)),
        _ => Ok(()),
    }
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("reading random bytes", e)),
        }
    }
    Ok(bytes)
}

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

/// Equality whose time does not tell where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_for_what_it_was_made_for() {
        let home = tempfile::tempdir().unwrap();
        let keys = home.path().join("keys");
        let (token, _) = issue(&keys, b"delete a").unwrap();
        assert_eq!(redeem(home.path(), &token, b"delete b").unwrap_err().code(), Code::Conflict);
        redeem(home.path(), &token, b"delete a").unwrap();
        let used = redeem(home.path(), &token, b"delete a").unwrap_err();
        assert_eq!(used.to_value()["details"]["reason"], "replayed");
    }

    #[test]
    fn forged_and_expired_tokens_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let keys = home.path().join("keys");
        for forged in ["", "ct_", "ct_zzzzzzzzzz0000", "ct_00ffffffff00000000000000000000000000000000"] {
            assert_eq!(redeem(home.path(), forged, b"x").unwrap_err().code(), Code::Conflict);
        }
        let old = token(&keys, clock::unix_seconds() - 1, b"x").unwrap();
        assert!(redeem(home.path(), &old, b"x").unwrap_err().message().contains("expired"));
    }
}

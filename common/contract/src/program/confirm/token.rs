//! Confirm tokens: `ct_`, the expiry, a tag of the request, a tag of its target, and a seal over these three that only
//! this home can make.
//!
//! The seal distinguishes a forged token from a token for another request before anything is read.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;

use crate::clock;
use crate::home::{Home, make_directory};
use crate::keys::{Key, hex};
use crate::program::idempotency::{account, encoded, place};
use crate::wire::{Code, Error, Result};

/// Lifetime of a token, in seconds.
pub const LIFETIME: u64 = 600;

/// Seconds that the expiry of a token may exceed its lifetime, because each equal token of the same second gets another
/// one.
const AHEAD: u64 = 60;

/// Directory of marks for spent tokens, in the state of the home. A mark has the name of its token.
const MARKS: &str = "tokens";

/// The request and target that a token is bound to.
pub struct Bound {
    request: Vec<u8>,
    target: Vec<u8>,
}

impl Bound {
    /// Binds a token to the request, which the caller repeats, to the state of the target, which may change in the
    /// meantime, and to the account.
    pub fn new(request: &impl Serialize, target: &impl Serialize) -> Result<Self> {
        Ok(Self { request: encoded(&(account(), request))?, target: encoded(target)? })
    }
}

/// Makes a token. Returns it with its expiry.
pub fn issue(home: &Home, bound: &Bound) -> Result<(String, u64)> {
    let (key, marks) = (HomeKey::of(home)?, home.state(MARKS));
    let mut expires = clock::unix_seconds() + LIFETIME;
    // If an equal token was issued in the same second and used, the expiry is increased to make a different one.
    loop {
        let token = Token::of(&key, expires, bound).to_text();
        if !marks.join(&token).exists() {
            return Ok((token, expires));
        }
        expires += 1;
    }
}

/// Rejects a forged, expired or used token before the target is read.
pub fn inspect(home: &Home, given: &str) -> Result<()> {
    inspected(home, given).map(drop)
}

fn inspected(home: &Home, given: &str) -> Result<(HomeKey, Token)> {
    let key = HomeKey::of(home)?;
    let token = Token::parse(given, &key)
        .ok_or_else(|| token_error("forged", "the confirm token was not issued by this home"))?;
    // Checked before the expiry, because a mark is kept longer and gives the more precise error.
    if home.state(MARKS).join(given).exists() {
        return Err(already_used());
    }
    let (now, expires) = (clock::unix_seconds(), token.expires());
    if now > expires {
        return Err(token_error("expired", "the confirm token has expired"));
    }
    if expires > now + LIFETIME + AHEAD {
        return Err(token_error("future", "the confirm token was issued in the future, because the clock was ahead"));
    }
    Ok((key, token))
}

/// Spends a token. Fails with [`Code::Conflict`] if it is forged, expired or used, or if something has changed;
/// `details.reason` tells which.
pub fn redeem(home: &Home, given: &str, bound: &Bound) -> Result<()> {
    let (key, token) = inspected(home, given)?;
    let now = Token::of(&key, token.expires(), bound);
    let changed = |what: &str, message: &str| token_error("changed", message).with("changed", what);
    if now.0[REQUEST] != token.0[REQUEST] {
        return Err(changed("request", "the confirm token was issued for another request"));
    }
    if now.0[TARGET] != token.0[TARGET] {
        return Err(changed("target", "the target has changed since the confirm token was issued"));
    }
    let marks = home.state(MARKS);
    make_directory(&marks)?;
    sweep(&marks);
    // Spent before the write, so that a crash in the middle blocks a replay instead of repeating an effect.
    let mark = marks.join(given);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&mark) {
        Ok(file) => file.sync_all().map_err(|e| Error::io("recording the spent token", e)),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(already_used()),
        Err(e) => Err(Error::io("recording the spent token", e).in_file(&mark)),
    }
}

/// Returns a hash of a token under the home's key, which may be stored.
pub fn fingerprint(home: &Home, token: &str) -> Result<String> {
    Ok(format!("hmac-sha256:{}", hex(&HomeKey::of(home)?.tag("fingerprint", token.as_bytes()))))
}

/// Recomputes the token for `bound` with this expiry, if `kept` is its [`fingerprint`]. A grant can thus be used later
/// although no file contains its token.
pub fn recall(home: &Home, expires: u64, kept: &str, bound: &Bound) -> Result<Option<String>> {
    let token = Token::of(&HomeKey::of(home)?, expires, bound).to_text();
    Ok((fingerprint(home, &token)? == kept).then_some(token))
}

pub(super) fn token_error(reason: &str, message: &str) -> Error {
    Error::new(Code::Conflict, message.to_owned())
        .with("reason", reason)
        .hint("run it with --dry-run again for a new token")
}

fn already_used() -> Error {
    token_error("replayed", "the confirm token has been used")
}

/// The bytes of a token: expiry, request, target, seal.
struct Token(Vec<u8>);

const REQUEST: std::ops::Range<usize> = 5..17;
const TARGET: std::ops::Range<usize> = 17..29;
const SEALED: usize = TARGET.end;
const SEAL: usize = 8;

impl Token {
    fn of(key: &HomeKey, expires: u64, bound: &Bound) -> Self {
        let mut bytes = expires.to_be_bytes()[3..].to_vec();
        bytes.extend_from_slice(&key.tag("request", &bound.request)[..REQUEST.len()]);
        bytes.extend_from_slice(&key.tag("target", &bound.target)[..TARGET.len()]);
        let seal = key.tag("seal", &bytes);
        bytes.extend_from_slice(&seal[..SEAL]);
        Self(bytes)
    }

    /// Parses a token of this home; `None` if it is not one.
    fn parse(text: &str, key: &HomeKey) -> Option<Self> {
        let bytes = base16ct::lower::decode_vec(text.strip_prefix("ct_")?).ok()?;
        let (sealed, seal) = bytes.split_at_checked(SEALED).filter(|(_, seal)| seal.len() == SEAL)?;
        key.0.is_tag(&key.parts("seal", sealed), seal).then_some(Self(bytes))
    }

    fn expires(&self) -> u64 {
        self.0[..REQUEST.start].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn to_text(&self) -> String {
        format!("ct_{}", hex(&self.0))
    }
}

/// The key of a home and the home's path, so that a copy of a home accepts no tokens of the original.
struct HomeKey(Key, String);

impl HomeKey {
    fn of(home: &Home) -> Result<Self> {
        Ok(Self(Key::of_home(home)?, place(home)))
    }

    fn tag(&self, purpose: &str, message: &[u8]) -> [u8; 32] {
        self.0.tag(&self.parts(purpose, message))
    }

    fn parts<'a>(&'a self, purpose: &'a str, message: &'a [u8]) -> [&'a [u8]; 5] {
        [self.1.as_bytes(), b"\0", purpose.as_bytes(), b"\0", message]
    }
}

/// Removes the marks of tokens that expired long ago, which are rejected without them.
fn sweep(marks: &Path) {
    let now = clock::unix_seconds();
    for entry in std::fs::read_dir(marks).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("ct_")?.get(..2 * REQUEST.start));
        let expires = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if expires.is_some_and(|expires| expires + LIFETIME < now) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(request: &str, target: &str) -> Bound {
        Bound::new(&request, &target).unwrap()
    }

    fn at(place: &tempfile::TempDir) -> Home {
        Home::find(Some(place.path())).unwrap()
    }

    fn reason(outcome: Result<()>) -> (String, String) {
        let error = outcome.unwrap_err();
        assert_eq!(error.code(), Code::Conflict);
        let text = |name: &str| error.details().get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned();
        (text("reason"), text("changed"))
    }

    fn pair(reason: &str, changed: &str) -> (String, String) {
        (reason.to_owned(), changed.to_owned())
    }

    #[test]
    fn token_is_valid_once_and_only_for_its_request() {
        let home = tempfile::tempdir().unwrap();
        let (token, _) = issue(&at(&home), &bound("delete a", "v1")).unwrap();
        let redeem = |request, target| redeem(&at(&home), &token, &bound(request, target));
        assert_eq!(reason(redeem("delete b", "v1")), pair("changed", "request"));
        assert_eq!(reason(redeem("delete a", "v2")), pair("changed", "target"));
        inspect(&at(&home), &token).unwrap();
        redeem("delete a", "v1").unwrap();
        assert_eq!(reason(redeem("delete a", "v1")), pair("replayed", ""));
        assert_eq!(reason(redeem("delete a", "v2")), pair("replayed", ""), "whatever it meets");
        assert_eq!(reason(inspect(&at(&home), &token)), pair("replayed", ""));
    }

    #[test]
    fn forged_and_expired_tokens_fail() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = HomeKey::of(&at(&home)).unwrap();
        let good = Token::of(&key, clock::unix_seconds() + 5, &bound("x", "")).to_text();
        let longer = good.replacen("ct_00", "ct_01", 1);
        for forged in ["", "ct_", "ct_zz", &good[1..], &format!("{good}0"), &good.to_uppercase(), &longer] {
            assert_eq!(reason(redeem(&at(&home), forged, &bound("x", ""))), pair("forged", ""), "{forged}");
        }
        std::fs::create_dir(other.path().join("keys")).unwrap();
        std::fs::copy(home.path().join("keys/confirm.key"), other.path().join("keys/confirm.key")).unwrap();
        assert_eq!(reason(inspect(&at(&other), &good)), pair("forged", ""), "a copied home");
        let old = Token::of(&key, clock::unix_seconds() - 1, &bound("x", "")).to_text();
        assert_eq!(reason(redeem(&at(&home), &old, &bound("x", ""))), pair("expired", ""));
        redeem(&at(&home), &good, &bound("x", "")).unwrap();
        // The clock was ahead when they were issued: by a day, and by one token of the same second.
        let ahead = |by: u64| Token::of(&key, clock::unix_seconds() + LIFETIME + by, &bound("x", "")).to_text();
        assert_eq!(reason(redeem(&at(&home), &ahead(24 * 60 * 60), &bound("x", ""))), pair("future", ""));
        redeem(&at(&home), &ahead(1), &bound("x", "")).unwrap();
    }

    #[test]
    fn concurrent_redeem_succeeds_once() {
        let home = tempfile::tempdir().unwrap();
        for round in 0..40 {
            let bound = bound(&format!("round {round}"), "");
            let (token, _) = issue(&at(&home), &bound).unwrap();
            let together = std::sync::Barrier::new(4);
            let attempt = || {
                together.wait();
                redeem(&at(&home), &token, &bound).is_ok()
            };
            let won = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(attempt)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
            });
            assert_eq!(won, 1);
        }
    }

    #[test]
    fn recall_by_fingerprint_returns_token() {
        let home = tempfile::tempdir().unwrap();
        let (token, expires) = issue(&at(&home), &bound("x", "")).unwrap();
        let kept = fingerprint(&at(&home), &token).unwrap();
        assert!(!kept.contains(&token[3..20]));
        assert_eq!(recall(&at(&home), expires, &kept, &bound("x", "")).unwrap(), Some(token));
        assert_eq!(recall(&at(&home), expires, &kept, &bound("y", "")).unwrap(), None);
        assert_eq!(recall(&at(&home), expires + 1, &kept, &bound("x", "")).unwrap(), None);
    }
}

//! Grants: permission for one exact request, valid once until it expires. A caller gets the grant of a dry run as a
//! confirm token; the grant of a person stays in the home until its request starts, see [`super::approval`].
//!
//! The text of a grant is `ct_` and the hexadecimal digits of its expiry, a tag of the request, a tag of the request's
//! target, and a seal over these three that only this home can make. The seal distinguishes a forged grant from one for
//! another request before anything is read. A grant is spent as soon as a file with its name exists.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use serde::Serialize;

use crate::clock;
use crate::home::{Home, make_directory, sweep};
use crate::keys::{Key, hash, hex};
use crate::wire::{Code, Error, Result};

/// Lifetime of a grant.
pub const LIFETIME: Duration = Duration::from_mins(10);

/// Directory of marks for spent grants, in the state of the home.
const MARKS: &str = "tokens";

/// The request and target that a grant is bound to.
pub struct Bound {
    request: Vec<u8>,
    target: Vec<u8>,
}

impl Bound {
    /// Binds a grant to the request, which is repeated, to the state of its target, which may change in the meantime,
    /// and to the account.
    pub fn new(request: &impl Serialize, target: &impl Serialize) -> Result<Self> {
        Ok(Self { request: encoded(&(account(), request))?, target: encoded(target)? })
    }
}

/// Makes a grant. Returns its text, and its expiry as a printed time.
pub fn issue(home: &Home, bound: &Bound) -> Result<(String, String)> {
    let expires = clock::unix_microseconds() + in_microseconds(LIFETIME);
    let token = Token::of(&Key::of_place(home)?, expires, bound);
    Ok((format!("ct_{}", hex(&token.0)), clock::from_unix_seconds(expires / 1_000_000)))
}

/// Rejects a forged, expired or spent grant before its target is read.
pub fn inspect(home: &Home, given: &str) -> Result<()> {
    inspected(home, given).map(drop)
}

fn inspected(home: &Home, given: &str) -> Result<(Key, Token)> {
    let key = Key::of_place(home)?;
    let token =
        Token::parse(given, &key).ok_or_else(|| void("forged", "the confirm token was not issued by this home"))?;
    // Checked before the expiry, because a mark is kept longer and gives the more precise error.
    if home.state(MARKS).join(given).exists() {
        return Err(replayed());
    }
    let (now, expires) = (clock::unix_microseconds(), token.expires());
    if now > expires {
        return Err(void("expired", "the confirm token has expired"));
    }
    if expires > now + in_microseconds(LIFETIME) {
        return Err(void("future", "the confirm token was issued in the future, because the clock was ahead"));
    }
    Ok((key, token))
}

/// Spends a grant. Fails with [`Code::Conflict`] if it is forged, expired or spent, or if something has changed;
/// `details.reason` tells which. Returns the keyed hash of the grant, which may be recorded.
pub fn redeem(home: &Home, given: &str, bound: &Bound) -> Result<String> {
    let (key, token) = inspected(home, given)?;
    let now = Token::of(&key, token.expires(), bound);
    for (part, changed, message) in [
        (REQUEST, "request", "the confirm token was issued for another request"),
        (TARGET, "target", "the target has changed since the confirm token was issued"),
    ] {
        if now.0[part.clone()] != token.0[part] {
            return Err(void("changed", message).with("changed", changed));
        }
    }
    let marks = home.state(MARKS);
    make_directory(&marks)?;
    sweep(&marks, 2 * LIFETIME);
    // Spent before the effect, so that a crash in the middle blocks a replay instead of repeating an effect.
    let mark = marks.join(given);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&mark);
    match made.and_then(|file| file.sync_all()) {
        Ok(()) => Ok(format!("hmac-sha256:{}", hex(&key.tag(&[b"spent\0", given.as_bytes()])))),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(replayed()),
        Err(e) => Err(Error::io("recording the spent token", e).in_file(&mark)),
    }
}

/// The error of a grant that is not valid.
pub(super) fn void(reason: &str, message: &str) -> Error {
    Error::new(Code::Conflict, message.to_owned())
        .with("reason", reason)
        .hint("run it with --dry-run again for a new token")
}

fn replayed() -> Error {
    void("replayed", "the confirm token has been used")
}

fn in_microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The bytes of a grant. The expiry is in microseconds since 1970, so that equal requests get different grants.
struct Token([u8; SEAL.end]);

const EXPIRY: Range<usize> = 0..8;
const REQUEST: Range<usize> = 8..20;
const TARGET: Range<usize> = 20..32;
const SEAL: Range<usize> = 32..40;

impl Token {
    fn of(key: &Key, expires: u64, bound: &Bound) -> Self {
        let mut token = Self([0; SEAL.end]);
        let mut put = |part: Range<usize>, bytes: &[u8]| token.0[part.clone()].copy_from_slice(&bytes[..part.len()]);
        put(EXPIRY, &expires.to_be_bytes());
        put(REQUEST, &key.tag(&[b"request\0", &bound.request]));
        put(TARGET, &key.tag(&[b"target\0", &bound.target]));
        let seal = key.tag(&[b"seal\0", &token.0[..SEAL.start]]);
        token.0[SEAL].copy_from_slice(&seal[..SEAL.len()]);
        token
    }

    /// Parses a grant of this home; `None` if it is not one.
    fn parse(text: &str, key: &Key) -> Option<Self> {
        let token = Self(base16ct::lower::decode_vec(text.strip_prefix("ct_")?).ok()?.try_into().ok()?);
        key.is_tag(&[b"seal\0", &token.0[..SEAL.start]], &token.0[SEAL]).then_some(token)
    }

    fn expires(&self) -> u64 {
        self.0[EXPIRY].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Returns the account, as `uid@host`.
pub(super) fn account() -> String {
    let system = rustix::system::uname();
    format!("{}@{}", rustix::process::getuid().as_raw(), system.nodename().to_string_lossy())
}

/// Returns the hash of the policy file; `None` if there is no policy file.
pub fn policy_hash(home: &Home) -> Result<Option<String>> {
    let path = home.policy_file();
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(hash(&bytes))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the policy", e).in_file(&path)),
    }
}

/// Encodes a bound value as bytes.
pub(super) fn encoded(what: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(what).map_err(|e| Error::new(Code::Unknown, format!("the request cannot be encoded: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(request: &str, target: &str) -> Bound {
        Bound::new(&request, &target).unwrap()
    }

    /// The reason and the changed part of an error; empty for a grant that is accepted.
    fn reason<T>(outcome: Result<T>) -> (String, String) {
        let Err(error) = outcome else { return Default::default() };
        assert_eq!(error.code(), Code::Conflict);
        let text = |name: &str| error.details().get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned();
        (text("reason"), text("changed"))
    }

    fn pair(reason: &str, changed: &str) -> (String, String) {
        (reason.to_owned(), changed.to_owned())
    }

    fn homes() -> (tempfile::TempDir, [Home; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let homes = ["one", "copy"].map(|name| Home::find(Some(&directory.path().join(name))).unwrap());
        (directory, homes)
    }

    #[test]
    fn grant_is_valid_once_and_only_for_its_request() {
        let (_directory, [home, _]) = homes();
        let (token, _) = issue(&home, &bound("delete a", "v1")).unwrap();
        for (request, target, reason_and_change) in [
            ("delete b", "v1", pair("changed", "request")),
            ("delete a", "v2", pair("changed", "target")),
            ("delete a", "v1", pair("", "")),
            ("delete a", "v1", pair("replayed", "")),
            ("delete a", "v2", pair("replayed", "")),
        ] {
            let row = format!("{request} {target}");
            assert_eq!(reason(redeem(&home, &token, &bound(request, target))), reason_and_change, "{row}");
        }
        assert_eq!(reason(inspect(&home, &token)), pair("replayed", ""));
    }

    #[test]
    fn forged_copied_expired_and_future_grants_fail() {
        let (_directory, [home, copy]) = homes();
        let key = Key::of_place(&home).unwrap();
        let at = |expires: u64| format!("ct_{}", hex(&Token::of(&key, expires, &bound("x", "")).0));
        let (now, second) = (clock::unix_microseconds(), 1_000_000);
        let good = at(now + 60 * second);
        let outcome = |home: &Home, token: &str| {
            let inspected = reason(inspect(home, token));
            assert_eq!(inspected, reason(redeem(home, token, &bound("x", ""))), "{token}");
            inspected
        };
        let (short, long, other) = (&good[1..], format!("{good}0"), good.replacen("ct_00", "ct_01", 1));
        for forged in ["", "ct_", "ct_zz", short, &long, &good.to_uppercase(), &other] {
            assert_eq!(outcome(&home, forged), pair("forged", ""), "{forged}");
        }
        std::fs::create_dir_all(copy.keys()).unwrap();
        std::fs::copy(home.keys().join("confirm.key"), copy.keys().join("confirm.key")).unwrap();
        for (home, token, expected) in [
            (&copy, good.clone(), "forged"),
            (&home, at(now - second), "expired"),
            (&home, at(now + in_microseconds(LIFETIME) + 60 * second), "future"),
            (&home, good, ""),
        ] {
            assert_eq!(outcome(home, &token), pair(expected, ""));
        }
    }

    #[test]
    fn concurrent_redeem_succeeds_once() {
        let (_directory, [home, _]) = homes();
        for round in 0..40 {
            let bound = bound(&format!("round {round}"), "");
            let (token, _) = issue(&home, &bound).unwrap();
            let together = std::sync::Barrier::new(4);
            let attempt = || {
                together.wait();
                redeem(&home, &token, &bound).is_ok()
            };
            let won = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(attempt)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
            });
            assert_eq!(won, 1);
        }
    }
}

//! Request ids: a repeated request has no second effect and returns the first answer.
//!
//! A record under the keyed hash of program and id is kept for [`KEPT`] seconds. It is written before the effect, and
//! again with the answer. If only the first write exists, it is unknown whether the effect happened, and the error
//! reports that.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::context::options::AppendOptions;
use crate::home::{Home, locked, make_directory};
use crate::keys::{Key, hex};
use crate::wire::{Code, Error, Reply, Result};
use crate::{clock, signals};

/// Retention time of an answer, in seconds: a week.
pub const KEPT: u64 = 7 * 24 * 60 * 60;

/// Directory of the records, below `state` of the home.
const DIRECTORY: &str = "requests";

#[derive(Serialize, Deserialize)]
struct Slot {
    /// The keyed hash of the arguments, account, home and policy.
    asked: String,
    /// Start of the first attempt.
    began: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Box<RawValue>>,
    /// The `error` member of a final failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Value>,
}

/// The state of a request id.
pub enum Begun<T> {
    /// The id is new, so the effect must be performed now.
    First(Request),
    /// The request was done before, with this outcome.
    Again(Result<T>),
}

/// A request in progress. A second process with the same id waits until it is dropped.
pub struct Request(Option<Open>);

struct Open {
    file: File,
    key: Key,
    /// The arguments, account and home, without the policy.
    bound_request: Vec<u8>,
    began: String,
}

/// Returns the keyed hash of the request under the current policy.
fn request_hash(key: &Key, bound_request: &[u8], context: &Context) -> Result<String> {
    let policy = encoded(&policy(context)?)?;
    Ok(hex(&key.tag(&[b"request\0", &policy, b"\0", bound_request])))
}

/// Looks up a request id and records on disk that the request begins. Fails with [`Code::Conflict`] if the id was used
/// for another request or the first attempt did not finish; `details.reason` tells which. Without an id, nothing is
/// recorded.
pub fn begin<T: DeserializeOwned>(id: Option<&str>, arguments: &impl Serialize, context: &Context) -> Result<Begun<T>> {
    let Some(id) = id else { return Ok(Begun::First(Request(None))) };
    let home = &context.home;
    let key = Key::of_home(home)?;
    let bound_request = encoded(&(account(), place(home), context.program, arguments))?;
    let asked = request_hash(&key, &bound_request, context)?;
    let mut file = open_record(&key, id, context)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| Error::io("reading a request id", e))?;
    if !text.is_empty() {
        return first_outcome(id, &text, &asked).map(Begun::Again);
    }
    let mut open = Open { file, key, bound_request, began: clock::now() };
    open.store(asked, None, None)?;
    Ok(Begun::First(Request(Some(open))))
}

impl Request {
    /// Stores the outcome and returns it. A failure that a retry can fix is not stored, so that the id can be used
    /// again.
    pub fn keep<T: Serialize>(self, outcome: Result<T>, context: &Context) -> Result<T> {
        let Some(mut open) = self.0 else { return outcome };
        // The policy is read again, because the request may have changed it.
        let asked = request_hash(&open.key, &open.bound_request, context)?;
        match &outcome {
            Ok(answer) => open.store(asked, Some(to_raw_value(answer).map_err(|e| unencoded(&e))?), None)?,
            Err(error) if is_final(error.code()) => open.store(asked, None, Some(error.to_value()))?,
            Err(_) => open.write(b"")?,
        }
        outcome
    }

    /// Removes the record of a request that had no effect.
    pub fn release(self) -> Result<()> {
        self.0.map_or(Ok(()), |mut open| open.write(b""))
    }
}

impl Open {
    fn store(&mut self, asked: String, answer: Option<Box<RawValue>>, failure: Option<Value>) -> Result<()> {
        let text = encoded(&Slot { asked, began: self.began.clone(), answer, failure })?;
        self.write(&text)
    }

    fn write(&mut self, text: &[u8]) -> Result<()> {
        let Self { file, .. } = self;
        let stored = file
            .rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(text))
            .and_then(|()| file.sync_data());
        stored.map_err(|e| Error::io("storing a request id", e))
    }
}

/// Performs `effect`, or returns the first outcome if this request was done before. Without an id, it always performs
/// `effect`.
pub fn once<T: Serialize + DeserializeOwned>(
    id: Option<&str>,
    arguments: &impl Serialize,
    context: &mut Context,
    effect: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<T> {
    // An interruption in the middle would make the id useless.
    let _effect = id.map(|_| signals::effect());
    match begin(id, arguments, context)? {
        Begun::Again(outcome) => outcome,
        Begun::First(request) => {
            let outcome = effect(context);
            request.keep(outcome, context)
        }
    }
}

/// Prints the preview of an append on a dry run, else the answer of `effect`, performed [`once`] for its request id.
pub fn answer<T: Reply + DeserializeOwned>(
    options: &AppendOptions,
    arguments: &impl Serialize,
    context: &mut Context,
    preview: impl FnOnce() -> Result<T>,
    effect: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<()> {
    let answer =
        if options.dry_run { preview()? } else { once(options.request_id.as_deref(), arguments, context, effect)? };
    context.out.answer(&answer)
}

/// True if a failure is a final outcome of the request. Other failures depend on conditions that can be fixed, after
/// which the same request may be repeated.
const fn is_final(code: Code) -> bool {
    match code {
        Code::Validation | Code::NotFound | Code::Conflict | Code::CommandFailed | Code::Partial => true,
        Code::Usage
        | Code::Auth
        | Code::Forbidden
        | Code::Config
        | Code::ConfirmationRequired
        | Code::Network
        | Code::RateLimited
        | Code::Server
        | Code::Timeout
        | Code::HumanRequired
        | Code::BudgetExhausted
        | Code::Interrupted
        | Code::Integrity
        | Code::Io
        | Code::Unknown => false,
    }
}

fn first_outcome<T: DeserializeOwned>(id: &str, text: &str, asked: &str) -> Result<Result<T>> {
    let conflict = |reason: &str, message: String| {
        Error::new(Code::Conflict, message).with("request_id", id).with("reason", reason)
    };
    let slot: Slot = serde_json::from_str(text).map_err(|_| damaged(id))?;
    if slot.asked != asked {
        let message = format!("the request id `{id}` was used for other arguments, or under another policy or account");
        return Err(conflict("other_arguments", message).hint("use a new id for a new request"));
    }
    match (slot.answer, slot.failure) {
        (_, Some(failure)) => Ok(Err(Error::from_value(&failure))),
        (Some(answer), None) => serde_json::from_str(answer.get()).map(Ok).map_err(|_| damaged(id)),
        (None, None) => {
            let message = format!("the first attempt of request `{id}` did not finish: it may have had its effect");
            Err(conflict("unfinished", message)
                .with("began", slot.began)
                .hint("check whether the effect happened; if not, repeat the request with a new id"))
        }
    }
}

fn damaged(id: &str) -> Error {
    Error::new(Code::Conflict, format!("the record of the request id `{id}` cannot be read"))
        .with("request_id", id)
        .with("reason", "damaged")
        .hint("check whether the effect happened; if not, repeat the request with a new id")
}

/// Opens and locks the record of an id, and truncates it if it has expired.
fn open_record(key: &Key, id: &str, context: &Context) -> Result<File> {
    static SWEPT: Once = Once::new();
    let directory = context.home.state(DIRECTORY);
    make_directory(&directory)?;
    SWEPT.call_once(|| sweep(&directory));
    let path = directory.join(hex(&key.tag(&[b"request id\0", context.program.as_bytes(), b"\0", id.as_bytes()])));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = locked(&path, || options.open(&path).map_err(|e| Error::io("opening a request id", e).in_file(&path)))?;
    if file.metadata().is_ok_and(|held| is_over(&held)) {
        file.set_len(0).map_err(|e| Error::io("clearing a request id", e).in_file(&path))?;
    }
    Ok(file)
}

fn is_over(meta: &std::fs::Metadata) -> bool {
    let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > Duration::from_secs(KEPT))
}

/// Removes expired records that are not in use.
fn sweep(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.metadata().is_ok_and(|meta| is_over(&meta))
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Returns the account, as `uid@host`.
pub(super) fn account() -> String {
    let system = rustix::system::uname();
    format!("{}@{}", rustix::process::getuid().as_raw(), system.nodename().to_string_lossy())
}

/// Returns the hash of the policy file; `None` if there is no policy file.
pub(super) fn policy(context: &Context) -> Result<Option<String>> {
    let path = context.home.policy_file();
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(hex(&Sha256::digest(&bytes)))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the policy", e).in_file(&path)),
    }
}

/// Returns the home's path with symbolic links resolved.
pub(super) fn place(home: &Home) -> String {
    crate::home::resolved(home.root()).display().to_string()
}

/// Encodes a bound value as bytes.
pub(super) fn encoded(what: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(what).map_err(|e| unencoded(&e))
}

fn unencoded(e: &serde_json::Error) -> Error {
    Error::new(Code::Unknown, format!("the request cannot be encoded: {e}"))
}

//! Request ids: a repeated request has no second effect and returns the first answer.
//!
//! A record under the keyed hash of program and id is kept for [`KEPT`] seconds. It is written before the effect, and
//! again with the answer. If only the first write exists, it is unknown whether the effect happened, and the error
//! reports that.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Once;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::context::Context;
use crate::context::options::AppendOptions;
use crate::home::{locked, make_directory, sweep};
use crate::keys::{Key, hex};
use crate::program::grant::{account, encoded, policy_hash};
use crate::wire::{Code, Error, Reply, Result};
use crate::{clock, signals};

/// Retention time of an answer: a week.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// Directory of the records, below `state` of the home.
const DIRECTORY: &str = "requests";

#[derive(Serialize, Deserialize)]
struct Slot {
    /// The keyed hash of the arguments, the account and the policy.
    asked: String,
    /// Start of the first attempt.
    began: String,
    /// The answer, or the `error` member of a final failure.
    outcome: Option<std::result::Result<Box<RawValue>, Value>>,
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
    slot: Slot,
    key: Key,
    /// The arguments and the account, without the policy.
    request: Vec<u8>,
}

/// Returns the keyed hash of the request under the current policy.
fn request_hash(key: &Key, request: &[u8], context: &Context) -> Result<String> {
    let policy = encoded(&policy_hash(&context.home)?)?;
    Ok(hex(&key.tag(&[b"request of an id\0", &policy, b"\0", request])))
}

/// Looks up a request id and records on disk that the request begins. Fails with [`Code::Conflict`] if the id was used
/// for another request or the first attempt did not finish; `details.reason` tells which. Without an id, nothing is
/// recorded.
pub fn begin<T: DeserializeOwned>(id: Option<&str>, arguments: &impl Serialize, context: &Context) -> Result<Begun<T>> {
    let Some(id) = id else { return Ok(Begun::First(Request(None))) };
    let key = Key::of_place(&context.home)?;
    let request = encoded(&(account(), context.program, arguments))?;
    let asked = request_hash(&key, &request, context)?;
    let mut file = open_record(&key, id, context)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| Error::io("reading a request id", e))?;
    if !text.is_empty() {
        return first_outcome(id, &text, &asked).map(Begun::Again);
    }
    let slot = Slot { asked, began: clock::now(), outcome: None };
    let mut open = Open { file, slot, key, request };
    open.write(&encoded(&open.slot)?)?;
    Ok(Begun::First(Request(Some(open))))
}

impl Request {
    /// Stores the outcome and returns it. A failure that a retry can fix is not stored, so that the id can be used
    /// again.
    pub fn keep<T: Serialize>(self, outcome: Result<T>, context: &Context) -> Result<T> {
        let Some(mut open) = self.0 else { return outcome };
        open.slot.outcome = Some(match &outcome {
            Ok(answer) => Ok(to_raw_value(answer).map_err(|e| Error::io("storing a result", e))?),
            Err(error) if is_final(error.code()) => Err(error.to_value()),
            Err(_) => return open.write(b"").and(outcome),
        });
        // The policy is read again, because the request may have changed it.
        open.slot.asked = request_hash(&open.key, &open.request, context)?;
        open.write(&encoded(&open.slot)?)?;
        outcome
    }

    /// Removes the record of a request that had no effect.
    pub fn release(self) -> Result<()> {
        self.0.map_or(Ok(()), |mut open| open.write(b""))
    }
}

impl Open {
    /// Replaces the record. It never becomes empty in between, because an empty record is that of a new id.
    fn write(&mut self, text: &[u8]) -> Result<()> {
        let Self { file, .. } = self;
        let written = file.rewind().and_then(|()| file.write_all(text));
        let stored = written.and_then(|()| file.set_len(text.len() as u64)).and_then(|()| file.sync_data());
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
    matches!(code, Code::Validation | Code::NotFound | Code::Conflict | Code::CommandFailed | Code::Partial)
}

/// The outcome in the record of an id.
fn first_outcome<T: DeserializeOwned>(id: &str, text: &str, asked: &str) -> Result<Result<T>> {
    let conflict = |reason: &str, message: String, hint: &str| {
        Error::new(Code::Conflict, message).with("request_id", id).with("reason", reason).hint(hint)
    };
    let check = "check whether the effect happened; if not, repeat the request with a new id";
    let damaged = |_| conflict("damaged", format!("the record of the request id `{id}` cannot be read"), check);
    let slot: Slot = serde_json::from_str(text).map_err(damaged)?;
    if slot.asked != asked {
        let message = format!("the request id `{id}` was used for other arguments, or under another policy or account");
        return Err(conflict("other_arguments", message, "use a new id for a new request"));
    }
    match slot.outcome {
        Some(Ok(answer)) => serde_json::from_str(answer.get()).map(Ok).map_err(damaged),
        Some(Err(failure)) => Ok(Err(Error::from_value(&failure))),
        None => {
            let message = format!("the first attempt of request `{id}` did not finish: it may have had its effect");
            Err(conflict("unfinished", message, check).with("began", slot.began))
        }
    }
}

/// Opens and locks the record of an id.
fn open_record(key: &Key, id: &str, context: &Context) -> Result<File> {
    static SWEPT: Once = Once::new();
    let directory = context.home.state(DIRECTORY);
    make_directory(&directory)?;
    SWEPT.call_once(|| sweep(&directory, KEPT));
    let path = directory.join(hex(&key.tag(&[b"request id\0", context.program.as_bytes(), b"\0", id.as_bytes()])));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    locked(&path, || options.open(&path).map_err(|e| Error::io("opening a request id", e).in_file(&path)))
}

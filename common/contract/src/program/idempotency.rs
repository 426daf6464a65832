//! Request ids: the same request again has no second effect, and gets the first answer.
//!
//! What is kept lies under a keyed hash of program and id, for [`KEPT`] seconds. The effect comes between two writes: one that says it
//! has begun, and the answer. If only the first is found, the effect may have happened or not, and the error says so.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock;
use crate::context::Context;
use crate::context::options::AppendOptions;
use crate::home::{lock, make_directory};
use crate::keys::{Key, hex};
use crate::program::circumstances::{account, encoded, place, policy};
use crate::signals;
use crate::wire::{Code, Error, Reply, Result};

/// How long an answer is kept, in seconds: a week.
pub const KEPT: u64 = 7 * 24 * 60 * 60;

/// Where they lie, below `state` of the home.
const DIRECTORY: &str = "requests";

#[derive(Serialize, Deserialize)]
struct Slot<T> {
    /// The keyed hash of what was asked, and under what.
    asked: String,
    /// When it began.
    began: String,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    answer: Option<T>,
    /// The `error` member of a failure that is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Value>,
}

/// What is known of a request.
pub enum Begun<T> {
    /// Nothing: it is to be done now.
    First(Request),
    /// How it came out when it was done.
    Again(Result<T>),
}

/// A request that is being done. A second process with the same id waits until this is gone.
pub struct Request(Option<Open>);

struct Open {
    file: File,
    key: Key,
    /// What was asked, and where, but for the policy.
    told: Vec<u8>,
    began: String,
}

/// The keyed hash of what was asked, under the policy that is in force.
fn asked_under(key: &Key, told: &[u8], context: &Context) -> Result<String> {
    let policy = encoded(&policy(context)?)?;
    Ok(hex(&key.tag(&[b"request\0", &policy, b"\0", told])))
}

/// Looks up a request id, and says on disk that the request begins. [`Code::Conflict`] when the id was used for something else, or
/// when the first attempt never finished: `details.reason`. Without an id nothing is known and nothing kept.
pub fn begin<T: DeserializeOwned>(id: Option<&str>, arguments: &impl Serialize, context: &Context) -> Result<Begun<T>> {
    let Some(id) = id else { return Ok(Begun::First(Request(None))) };
    let home = context.home.root();
    let key = Key::of_home(home)?;
    let told = encoded(&(account(), place(home), context.program, arguments))?;
    let asked = asked_under(&key, &told, context)?;
    let mut file = opened(&key, id, context)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| Error::io("reading a request id", e))?;
    if !text.is_empty() {
        return first_outcome(id, &text, &asked).map(Begun::Again);
    }
    let mut open = Open { file, key, told, began: clock::now() };
    open.store(asked, None::<&()>, None)?;
    Ok(Begun::First(Request(Some(open))))
}

impl Request {
    /// Keeps how the request came out, and gives it back. A failure that another try can mend is not kept: the id is free again.
    pub fn keep<T: Serialize>(self, outcome: Result<T>, context: &Context) -> Result<T> {
        let Some(mut open) = self.0 else { return outcome };
        // The policy as it is now: a request may have been the one that made it.
        let asked = asked_under(&open.key, &open.told, context)?;
        match &outcome {
            Ok(answer) => open.store(asked, Some(answer), None)?,
            Err(error) if is_final(error.code()) => open.store(asked, None::<&T>, Some(error.to_value()))?,
            Err(_) => open.clear()?,
        }
        outcome
    }

    /// Forgets that the request began: it had no effect.
    pub fn release(self) -> Result<()> {
        self.0.map_or(Ok(()), |mut open| open.clear())
    }
}

impl Open {
    fn store<T: Serialize>(&mut self, asked: String, answer: Option<&T>, failure: Option<Value>) -> Result<()> {
        let text = encoded(&Slot { asked, began: self.began.clone(), answer, failure })?;
        self.write(&text)
    }

    fn clear(&mut self) -> Result<()> {
        self.write(b"")
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

/// Does `effect` unless this request was done before; then gives the first outcome. Without an id it just does it.
pub fn once<T: Serialize + DeserializeOwned>(
    id: Option<&str>,
    arguments: &impl Serialize,
    context: &mut Context,
    effect: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<T> {
    // Cut off in the middle, the id would be of no more use.
    let _effect = id.map(|_| signals::effect());
    match begin(id, arguments, context)? {
        Begun::Again(outcome) => outcome,
        Begun::First(request) => {
            let outcome = effect(context);
            request.keep(outcome, context)
        }
    }
}

/// Answers with what an append would do on a dry run, else with what `effect` did, [`once`] for its request id.
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

/// Whether a failure belongs to the request: it asks for what cannot be, or it was done and failed. The others go away when something
/// else is put right, and then the same request may be made again.
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
    let slot: Slot<Value> = serde_json::from_str(text).map_err(|_| damaged(id))?;
    if slot.asked != asked {
        let message = format!("the request id `{id}` was used for other arguments, or under another policy or account");
        return Err(conflict("other_arguments", message).hint("use a new id for a new request"));
    }
    match (slot.answer, slot.failure) {
        (_, Some(failure)) => Ok(Err(Error::from_value(&failure))),
        (Some(_), None) => {
            let slot: Slot<T> = serde_json::from_str(text).map_err(|_| damaged(id))?;
            slot.answer.map(Ok).ok_or_else(|| damaged(id))
        }
        (None, None) => {
            let message = format!("the first attempt of request `{id}` did not finish: it may have had its effect");
            Err(conflict("unfinished", message)
                .with("began", slot.began)
                .hint("look whether it had its effect; if not, repeat it with a new id"))
        }
    }
}

fn damaged(id: &str) -> Error {
    Error::new(Code::Conflict, format!("what is kept for the request id `{id}` cannot be read"))
        .with("request_id", id)
        .with("reason", "damaged")
        .hint("look whether the request had its effect; if not, repeat it with a new id")
}

/// The file of the id, locked, emptied if its time is over.
fn opened(key: &Key, id: &str, context: &Context) -> Result<File> {
    static SWEPT: Once = Once::new();
    let directory = context.home.state(DIRECTORY);
    make_directory(&directory)?;
    SWEPT.call_once(|| sweep(&directory));
    let path = directory.join(hex(&key.tag(&[b"request id\0", context.program.as_bytes(), b"\0", id.as_bytes()])));
    let failed = |e: std::io::Error| Error::io("opening a request id", e).in_file(&path);
    loop {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(failed)?;
        lock(&file).map_err(|e| e.in_file(&path))?;
        let held = file.metadata().map_err(failed)?;
        // Swept while we waited: what is written to a file without a name is lost.
        let is_named =
            std::fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino()));
        if !is_named {
            continue;
        }
        if is_over(&held) {
            file.set_len(0).map_err(failed)?;
        }
        return Ok(file);
    }
}

fn is_over(meta: &std::fs::Metadata) -> bool {
    let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > Duration::from_secs(KEPT))
}

/// Removes what is over and not in use.
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

//! Request ids: the same request again has no second effect, and gets the first answer.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::context::options::AppendOptions;
use crate::home::{lock, make_directory};
use crate::keys::hex;
use crate::signals;
use crate::wire::{Code, Error, Reply, Result};

#[derive(Serialize, Deserialize)]
struct Slot<T> {
    arguments: String,
    answer: Option<T>,
}

/// Does `effect` unless this request was done before; then gives the first answer. Without an id it just does it.
/// The same id with other arguments is a [`Code::Conflict`], and so is one whose first attempt never finished.
pub fn once<T: Serialize + DeserializeOwned>(
    id: Option<&str>,
    arguments: &impl Serialize,
    context: &mut Context,
    effect: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<T> {
    let Some(id) = id else { return effect(context) };
    let arguments =
        serde_json::to_vec(arguments).map_err(|e| Error::new(Code::Unknown, format!("naming a request: {e}")))?;
    let arguments = hex(&Sha256::digest(&arguments));
    let mut file = slot_file(id, context)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| Error::io("reading a request id", e))?;
    if !text.is_empty() {
        return first_answer(id, &text, &arguments);
    }
    // Cut off in the middle, the id would be of no more use.
    let _effect = signals::effect();
    store(&mut file, &Slot::<T> { arguments: arguments.clone(), answer: None })?;
    match effect(context) {
        Ok(answer) => {
            let slot = Slot { arguments, answer: Some(answer) };
            store(&mut file, &slot)?;
            slot.answer.ok_or_else(|| Error::new(Code::Unknown, "an answer was lost"))
        }
        Err(error) => {
            // Nothing was done: the id can be used again.
            let _ = file.set_len(0);
            Err(error)
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

fn first_answer<T: DeserializeOwned>(id: &str, text: &str, arguments: &str) -> Result<T> {
    let conflict = |message: String| Error::new(Code::Conflict, message).with("request_id", id);
    let slot: Slot<T> =
        serde_json::from_str(text).map_err(|_| conflict(format!("the request id `{id}` is damaged")))?;
    if slot.arguments != arguments {
        return Err(conflict(format!("the request id `{id}` was used for other arguments"))
            .hint("use a new id for a new request"));
    }
    slot.answer.ok_or_else(|| {
        conflict(format!("the first attempt of request `{id}` did not finish"))
            .hint("look whether it had its effect, then use a new id")
    })
}

/// The file of the id, locked: a second process with the same id waits for the first one's answer.
fn slot_file(id: &str, context: &Context) -> Result<File> {
    let directory = context.home.state("requests");
    make_directory(&directory)?;
    let name = hex(&Sha256::digest(format!("{}\n{id}", context.program)));
    let path = directory.join(name);
    let failed = |e: std::io::Error| Error::io("opening a request id", e).in_file(&path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    lock(&file).map_err(|e| e.in_file(&path))?;
    Ok(file)
}

fn store<T: Serialize>(file: &mut File, slot: &Slot<T>) -> Result<()> {
    let text = serde_json::to_vec(slot).map_err(|e| Error::new(Code::Unknown, format!("storing a request: {e}")))?;
    let stored = file
        .rewind()
        .and_then(|()| file.set_len(0))
        .and_then(|()| file.write_all(&text))
        .and_then(|()| file.sync_data());
    stored.map_err(|e| Error::io("storing a request id", e))
}

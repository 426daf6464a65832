//! `cp-log blob`, `reveal` and `forget`: the values beside a ledger that its lines name by their hash.
//!
//! `forget` deletes a sealed value for good. The line that sealed it stays, and so does the chain.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::WriteOptions;
use cp_common::home::resolved;
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::{self, vault};
use cp_ledger::{Ledger, Sync};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::ledger::{HashOperand, LedgerOption};

/// The entry of this verb in `reference`.
pub(crate) const BLOB_DOC: VerbDoc = VerbDoc {
    path: "blob",
    class: Class::Query,
    output: "blob",
    examples: &[
        "head -c 2000000 /dev/zero | tr '\\0' x | {} append && {} blob $({} query --event log --jq .message.blob --format raw)",
    ],
    ..VerbDoc::EMPTY
};

/// The arguments of `blob` and `reveal`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    #[command(flatten)]
    hash: HashOperand,
}

/// A blob. One of `text` and `base64` is there.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["text", "base64"])))]
pub(crate) struct Found {
    /// The hash of the bytes.
    blob: String,
    /// How many there are.
    len: usize,
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Reply for Found {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn raw(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

pub(crate) fn blob(args: &Args, context: &mut Context) -> Result<()> {
    let hash = args.hash.parse()?;
    let bytes = store::blob::load(&args.ledger.path(context), &hash)?;
    let text = String::from_utf8(bytes.clone()).ok();
    let base64 = text.is_none().then(|| BASE64.encode(&bytes));
    let untrusted = [if text.is_some() { "/text" } else { "/base64" }];
    context.out.answer(&Found { blob: hash.to_string(), len: bytes.len(), text, base64, untrusted, bytes })
}

/// The entry of this verb in `reference`.
pub(crate) const REVEAL_DOC: VerbDoc = VerbDoc {
    path: "reveal",
    class: Class::Query,
    output: "revealed",
    examples: &["{} append --seal message secret && {} reveal $({} query --event log --jq '.message[]' --format raw)"],
    ..VerbDoc::EMPTY
};

/// A sealed value.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["value"])))]
pub(crate) struct Revealed {
    /// The hash in the line.
    sealed: String,
    /// The value.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    value: Box<RawValue>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
}

impl Reply for Revealed {
    fn text(&self) -> String {
        cp_common::json::unquote(self.value.get().as_bytes()).unwrap_or_else(|| self.value.get().to_owned())
    }
}

pub(crate) fn reveal(args: &Args, context: &mut Context) -> Result<()> {
    let hash = args.hash.parse()?;
    let ledger = args.ledger.path(context);
    let value = vault::reveal(&ledger, &hash)?;
    let value = value
        .ok_or_else(|| Error::not_found(format!("no value for {hash}: it was forgotten, or never sealed here")))?;
    context.out.answer(&Revealed { sealed: hash.to_string(), value, untrusted: ["/value"] })
}

/// The entry of this verb in `reference`.
pub(crate) const FORGET_DOC: VerbDoc = VerbDoc {
    path: "forget",
    class: Class::Write,
    output: "forgotten",
    examples: &[
        "{} append --seal message secret && {} forget --dangerous --dry-run $({} query --event log --jq '.message[]' --format raw)",
        "{} append --seal message secret && H=$({} query --event log --jq '.message[]' --format raw) && T=$({} forget --dangerous --dry-run $H | jq -r .data.confirm_token) && {} forget --dangerous --confirm $T $H",
    ],
    dangerous: true,
    events: &["ledger.forget", "ledger.forgotten"],
    ..VerbDoc::EMPTY
};

/// Delete a sealed value for good; the chain stays intact
#[derive(Debug, clap::Args)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    ledger: LedgerOption,
    #[command(flatten)]
    write: WriteOptions,
    #[command(flatten)]
    hash: HashOperand,
}

/// A value that was forgotten.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Forgotten {
    /// The hash in the line.
    sealed: String,
    /// The entry that says so.
    receipt: Receipt,
}

impl Reply for Forgotten {
    fn text(&self) -> String {
        format!("forgot {}", self.sealed)
    }
}

pub(crate) fn forget(args: &ForgetArgs, context: &mut Context) -> Result<()> {
    let hash = args.hash.parse()?;
    let ledger = resolved(&std::path::absolute(args.ledger.path(context))?);
    context.home.check_writable(&ledger)?;
    let request = Write { verb: "forget", arguments: &(&ledger, hash.to_string()), dangerous: true };
    confirm::write(&request, &args.write, context, |gate, context| forget_value(gate, &ledger, &hash, context))
}

fn forget_value<A: Serialize>(
    gate: Gate<'_, A>,
    ledger: &Path,
    hash: &Hash,
    context: &mut Context,
) -> Result<Option<Forgotten>> {
    gate.found(held(ledger, hash))?;
    let sealed = hash.to_string();
    let change = Change {
        action: "forget".to_owned(),
        resource: "sealed value".to_owned(),
        id: sealed.clone(),
        before: json!({"ledger": ledger.display().to_string()}),
        after: json!(null),
    };
    if !gate.pass(vec![change], context)? {
        return Ok(None);
    }
    let receipt = Ledger::open_existing(ledger, Sync::Line)?.forget(hash)?.ok_or_else(|| absent(hash))?;
    Ok(Some(Forgotten { sealed, receipt }))
}

/// Fails unless there is such a value. One that is damaged can be forgotten too.
fn held(ledger: &Path, hash: &Hash) -> Result<()> {
    match vault::reveal(ledger, hash) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(absent(hash)),
        Err(error) if error.code() == Code::Integrity => Ok(()),
        Err(error) => Err(error),
    }
}

fn absent(hash: &Hash) -> Error {
    Error::not_found(format!("no value for {hash}"))
}

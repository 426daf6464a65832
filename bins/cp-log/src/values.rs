//! `cp-log blob`: the values beside a ledger that its lines name by their hash.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::blob;
use cp_ledger::format::line::Hash;
use serde::Serialize;

use crate::ledger::{LedgerOption, Named as _};

/// The entry of this verb in `reference`.
pub(crate) const BLOB_DOC: VerbDoc = VerbDoc {
    path: "blob",
    class: Class::Query,
    output: "blob",
    examples: &[
        "head -c 2000000 /dev/zero | tr '\\0' x | {} append && {} blob $({} query --event log --format raw | jq -r .message.blob)",
    ],
    ..VerbDoc::EMPTY
};

/// Print the bytes that a line names by their hash
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// The hash, as the line has it
    #[arg(value_name = "HASH")]
    hash: String,
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
    let hash = Hash::parse(&args.hash).ok_or_else(|| Error::usage(format!("`{}` is not a hash", args.hash)))?;
    let bytes = blob::load(&args.ledger.path(context)?, &hash)?;
    let text = String::from_utf8(bytes.clone()).ok();
    let base64 = text.is_none().then(|| BASE64.encode(&bytes));
    let untrusted = [if text.is_some() { "/text" } else { "/base64" }];
    context.out.answer(&Found { blob: hash.to_string(), len: bytes.len(), text, base64, untrusted, bytes })
}

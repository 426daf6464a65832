//! Records of a bundle, which cp-log writes and reads. See cp-ledger(5).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The type of the first record.
pub const BUNDLE: &str = "bundle";
/// The type of a record of a ledger.
pub const LEDGER: &str = "bundle_ledger";
/// The type of a record of a line.
pub const LINE: &str = "bundle_line";
/// The type of a record of a large value.
pub const BLOB: &str = "bundle_blob";

/// The first record: the selection, and the parts that the bundle omits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// The version of the format.
    pub version: u32,
    /// Time at which the bundle was made.
    pub made_at: String,
    /// The selection.
    pub selection: Selection,
    /// The parts that the bundle omits.
    pub left_out: Vec<LeftOut>,
}

/// The options that selected the content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Selection {
    /// The ledgers, or directories of ledgers.
    pub files: Vec<String>,
    /// The run.
    pub run: Option<String>,
    /// The session.
    pub session: Option<String>,
    /// The earliest time.
    pub since: Option<String>,
}

/// A part that the bundle omits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Description of the part.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// A ledger as of the time of the bundle; the records of its lines follow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ledger {
    /// The ledger's origin: its name in checkpoints.
    pub origin: String,
    /// The name of its file, without the directory.
    pub file: String,
    /// Number of lines in the ledger.
    pub size: u64,
    /// The root hash of the Merkle tree over these lines, in base64.
    pub root: String,
    /// Number of lines that follow in the bundle.
    pub lines: u64,
    /// True if all lines follow.
    pub whole: bool,
    /// `signed` or `unsigned`.
    pub status: String,
    /// The signed note of the checkpoint file beside the ledger.
    pub checkpoint: Option<String>,
    /// The consistency proof from the checkpoint's tree to this tree, in base64; empty if the ledger is whole.
    pub consistency: Vec<String>,
}

/// A line with its original bytes.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line<'a> {
    /// Place in the ledger, from 0.
    pub seq: u64,
    /// The bytes of the line.
    #[serde(borrow)]
    pub raw: Cow<'a, str>,
    /// True if the line was written after the checkpoint, so that no signature covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_checkpoint: bool,
    /// The inclusion proof, hashes in base64; absent if the ledger is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub proof: Option<Box<RawValue>>,
    /// The following line, if the bundle omits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// An omitted line whose existence is proved. The line before a line needs no such record, because `prev` holds its
/// hash.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Next {
    /// The hash of the omitted line.
    pub hash: String,
    /// Its inclusion proof.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub proof: Box<RawValue>,
}

/// A large value, or a part of it.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blob<'a> {
    /// The hash that lines refer to it by.
    #[serde(borrow)]
    pub hash: Cow<'a, str>,
    /// The media type.
    #[serde(borrow)]
    pub media_type: Cow<'a, str>,
    /// Total number of bytes.
    pub size: u64,
    /// Offset of this part.
    pub offset: u64,
    /// The bytes of this part.
    #[serde(borrow)]
    pub base64: Cow<'a, str>,
    /// True if the value was missing from the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// The counts of the closing line.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Closing {
    /// Number of ledgers that were examined.
    pub total: u64,
    /// Number of ledgers in the bundle.
    pub succeeded: u64,
    /// Always 0, because a failure ends the bundle.
    pub failed: u64,
    /// Number of ledgers without a selected line.
    pub skipped: u64,
    /// Equal to `succeeded`.
    pub ledgers: u64,
    /// Number of lines in the bundle.
    pub lines: u64,
    /// Number of large values in the bundle.
    pub blobs: u64,
    /// The hash of all bytes before this line.
    pub sha256: String,
    /// Equal to `meta.duration_ms`.
    pub duration_ms: u64,
}

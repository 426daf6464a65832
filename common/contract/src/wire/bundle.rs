//! The records of a bundle, which cp-log writes and cp-report reads. See cp-ledger(5).

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

/// The first record: what was asked for, and what is not in the bundle.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// The version of the format.
    pub version: u32,
    /// When the bundle was made.
    pub made_at: String,
    /// What was asked for.
    pub selection: Selection,
    /// What is not in it.
    pub left_out: Vec<LeftOut>,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Selection {
    /// Ledgers, or directories of them.
    pub files: Vec<String>,
    /// A run.
    pub run: Option<String>,
    /// A session.
    pub session: Option<String>,
    /// A time.
    pub since: Option<String>,
}

/// Something that is not in the bundle.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// What it is.
    pub what: String,
    /// Why it is not there.
    pub why: String,
}

/// A ledger, as it was when the bundle was made; its lines follow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ledger {
    /// Its own name.
    pub origin: String,
    /// The name of its file, without the directory.
    pub file: String,
    /// How many lines it had.
    pub size: u64,
    /// The root of the tree of these lines, in base 64.
    pub root: String,
    /// How many of them follow.
    pub lines: u64,
    /// Whether all do.
    pub whole: bool,
    /// `signed` or `unsigned`.
    pub status: String,
    /// The signed note, as it lies beside the ledger.
    pub checkpoint: Option<String>,
    /// The proof that the tree goes on where the checkpoint's ended, in base 64; empty if the ledger is whole.
    pub consistency: Vec<String>,
}

/// A line, exactly as it was written.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line<'a> {
    /// Its place in the ledger, from 0.
    pub seq: u64,
    /// Its bytes.
    #[serde(borrow)]
    pub raw: Cow<'a, str>,
    /// Whether it was written after the checkpoint, so that no signature covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_checkpoint: bool,
    /// The proof that it is in the tree, hashes in base 64; not in a ledger that is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub proof: Option<Box<RawValue>>,
    /// The line behind it, where that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// A line that is left out, and known to be there. That before a line is in its `prev`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Next {
    /// Its hash.
    pub hash: String,
    /// The proof that it is in the tree.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub proof: Box<RawValue>,
}

/// The bytes of a value, or a part of them.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blob<'a> {
    /// The hash that lines name it by.
    #[serde(borrow)]
    pub hash: Cow<'a, str>,
    /// What the bytes are.
    #[serde(borrow)]
    pub media_type: Cow<'a, str>,
    /// How many bytes there are in all.
    pub size: u64,
    /// Where this part begins.
    pub offset: u64,
    /// The bytes.
    #[serde(borrow)]
    pub base64: Cow<'a, str>,
    /// Whether the bytes were not there any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// The counts of the closing line.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Closing {
    /// Ledgers that were looked at.
    pub total: u64,
    /// Ledgers that are in the bundle.
    pub succeeded: u64,
    /// Always none: a failure ends the bundle.
    pub failed: u64,
    /// Ledgers without a line that was asked for.
    pub skipped: u64,
    /// The same as `succeeded`.
    pub ledgers: u64,
    /// Lines in the bundle.
    pub lines: u64,
    /// Large values in the bundle.
    pub blobs: u64,
    /// The hash of everything before this line.
    pub sha256: String,
    /// The same as in `meta`.
    pub duration_ms: u64,
}

//! Proof: the chain, the tree over it, signed checkpoints, and what lies beside.

pub mod leaves;
pub mod note;
pub mod tree;
pub mod verifier;
pub mod whole;
use serde::Serialize;

/// How many faults are listed one by one; the others are counted.
pub const FAULTS_LISTED: usize = 100;

/// The events of the ledger's own entries that refer to other lines or to files beside the ledger.
const SEAL: &str = "segment.seal";
const CHECKPOINT: &str = "ledger.checkpoint";
const RECOVERED: &str = "ledger.recovered";

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Kind {
    /// Not the shape of a stored line.
    Shape,
    /// The bytes are not those that were hashed.
    Hash,
    /// Does not follow the line before it.
    Chain,
    /// Follows the line before it, under the wrong number.
    Seq,
    /// Not JSON.
    Json,
    /// JSON in another spelling.
    NormalForm,
    /// A partial line in a complete file.
    Torn,
    /// Fewer lines than a checkpoint says there were.
    Rollback,
    /// Other lines than a checkpoint says there were.
    Fork,
    /// A signature that was demanded is not there.
    Unsigned,
    /// A signature is wrong.
    Signature,
    /// A closed segment is missing, or is not what its name or the next one says.
    Segment,
    /// A seal or the entry of a checkpoint does not say what the lines before it come to.
    Seal,
    /// A blob that a line refers to is missing or was changed.
    Blob,
    /// The bytes that were moved aside are not those that the ledger says.
    Recovered,
}

/// A fault and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// The line, from 1.
    pub line: u64,
    /// Where the line starts in the file.
    pub offset: u64,
    /// The number that the line says it has, where it can be read.
    pub seq: Option<u64>,
    /// The kind of the fault.
    pub kind: Kind,
    /// The same in words.
    pub message: String,
}

/// Something that could not be looked at, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotProved {
    /// What: a word as in `proved`.
    pub what: &'static str,
    /// Why, and what would help.
    pub why: String,
}

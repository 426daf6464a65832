//! The first line of a file that goes on from a closed segment, and the events of the ledger's own entries.

use serde::Deserialize;

use crate::format::line::Line;
use crate::proof::checkpoint::CHECKPOINT;
use crate::read::segments::number_in;
use crate::store::blob;

/// The first line of a file that goes on from a closed one.
#[derive(Debug, Deserialize)]
pub struct Opening {
    /// The name of the file before it.
    pub file: String,
    /// The length of that file.
    pub len: u64,
    /// The hash of its bytes.
    pub sha256: String,
}

impl Opening {
    /// Parses a line, if it is an opening.
    pub fn of(line: &Line<'_>) -> Option<Self> {
        let data = line.member("data").filter(|_| line.is_event("segment.open"))?;
        serde_json::from_slice(data).ok()
    }

    /// True if a file is the one before it. The stem may be another: a ledger may be copied under another name as a
    /// whole.
    pub fn follows(&self, name: &str) -> bool {
        number_in(name).map(|(_, number)| number) == number_in(&self.file).map(|(_, number)| number)
    }
}

/// The events of the ledger's own entries that refer to other lines or to files beside the ledger.
pub(super) const SEAL: &str = "segment.seal";
pub(super) const RECOVERED: &str = "ledger.recovered";

/// True if a line refers to other lines or to files beside the ledger.
pub(super) fn refers(line: &Line<'_>) -> bool {
    [SEAL, CHECKPOINT, RECOVERED].iter().any(|event| line.is_event(event)) || blob::is_referred_to(line.body())
}

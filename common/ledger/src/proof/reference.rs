//! The lines of a ledger that speak of other lines, or of what lies beside it.

use crate::format::line::Line;
use crate::store::blob;

/// The events of a ledger's own entries that do so.
pub(super) const SEAL: &str = "segment.seal";
pub(super) const CHECKPOINT: &str = "ledger.checkpoint";
pub(super) const RECOVERED: &str = "ledger.recovered";

/// Whether there is more to a line than its own bytes.
pub(super) fn refers(line: &Line<'_>) -> bool {
    [SEAL, CHECKPOINT, RECOVERED].iter().any(|event| line.is_event(event)) || blob::is_referred_to(line.body())
}

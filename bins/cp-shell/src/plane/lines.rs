//! The lines of a ledger, whoever writes it, out of the blocks that it is read in: one JSON object each.

use serde_json::{Value, json};

/// The longest line that is looked at; the rest of a longer one is not shown.
const LONGEST: usize = 16 << 20;

/// Puts lines together. A last one without its line feed is still being written: it is left out.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Takes a block, and gives the entry of each line that is not blank, with its number from 1.
    pub(super) fn feed(&mut self, block: &[u8], each: &mut dyn FnMut(u64, Value)) {
        for piece in block.split_inclusive(|byte| *byte == b'\n') {
            let (piece, is_whole) = piece.strip_suffix(b"\n").map_or((piece, false), |piece| (piece, true));
            let room = LONGEST.saturating_sub(self.line.len()).min(piece.len());
            self.line.extend_from_slice(&piece[..room]);
            if is_whole {
                self.number += 1;
                if !self.line.trim_ascii().is_empty() {
                    each(self.number, entry(self.number, &self.line));
                }
                self.line.clear();
            }
        }
    }
}

/// An entry. A line that cannot be read is reported as such, and hides no other.
pub(super) fn entry(number: u64, bytes: &[u8]) -> Value {
    match serde_json::from_slice(bytes) {
        Ok(entry @ Value::Object(_)) => entry,
        Ok(_) => json!({"line": number, "unreadable": "no JSON object"}),
        Err(e) => json!({"line": number, "unreadable": format!("not JSON: {e}")}),
    }
}

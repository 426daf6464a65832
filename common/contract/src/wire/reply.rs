//! The answer of a program.

use serde::Serialize;

/// The answer of a program.
pub trait Reply: Serialize {
    /// Returns the text for people, without the last line feed; empty if there is nothing to print.
    fn text(&self) -> String;

    /// Returns the bytes for `--format raw`.
    fn raw(&self) -> Vec<u8> {
        let mut bytes = self.text().into_bytes();
        bytes.push(b'\n');
        bytes
    }
}

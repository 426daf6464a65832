//! What a program can answer with.

use serde::Serialize;

/// What a program can answer with.
pub trait Reply: Serialize {
    /// The words for a person, without the last line feed. Empty when there is nothing to say.
    fn text(&self) -> String;

    /// The bytes for `--format raw`.
    fn raw(&self) -> Vec<u8> {
        let mut bytes = self.text().into_bytes();
        bytes.push(b'\n');
        bytes
    }
}

//! Images and documents for a model, recognized by their bytes and not by file names.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};

use super::{Block, Error, Result};

/// The largest image that models accept, in bytes.
const IMAGE_LIMIT: u64 = 5 << 20;
/// The largest document, in bytes.
pub const DOCUMENT_LIMIT: u64 = 32 << 20;

/// Returns the block of an image or a document and its media type; `None` for other bytes.
pub fn block_of(bytes: &[u8]) -> Result<Option<(Block, &'static str)>> {
    let Some((media_type, limit)) = media_type(bytes) else { return Ok(None) };
    if bytes.len() as u64 > limit {
        let message = format!("too large: {} bytes of {media_type}, the limit is {limit}", bytes.len());
        return Err(Error::validation(message).with("bytes", bytes.len()).with("limit", limit));
    }
    let block = if media_type == "application/pdf" { Block::document } else { Block::image };
    Ok(Some((block(media_type, &BASE64.encode(bytes)), media_type)))
}

fn media_type(bytes: &[u8]) -> Option<(&'static str, u64)> {
    Some(match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => ("image/png", IMAGE_LIMIT),
        [0xff, 0xd8, 0xff, ..] => ("image/jpeg", IMAGE_LIMIT),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => ("image/gif", IMAGE_LIMIT),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ("image/webp", IMAGE_LIMIT),
        [b'%', b'P', b'D', b'F', b'-', ..] => ("application/pdf", DOCUMENT_LIMIT),
        _ => return None,
    })
}

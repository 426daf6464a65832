//! Attachments: texts, images and documents, recognised by their bytes and not by their names.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::given;
use cp_common::wire::Block;
use cp_common::{Error, Result};

/// The largest image that models take.
const IMAGE_LIMIT: u64 = 5 << 20;
/// The largest document.
const DOCUMENT_LIMIT: u64 = 32 << 20;

/// An attachment.
pub(crate) enum Attachment {
    /// A text, to be put between marks.
    Text(String),
    /// Anything else, as a block.
    Block(Block, Vec<u8>),
}

/// Reads an attachment.
pub(crate) fn read(file: &Path) -> Result<Attachment> {
    let bytes = given::bytes(file, DOCUMENT_LIMIT)?;
    if bytes.is_empty() {
        return Err(Error::validation("empty, so there is nothing to attach").in_file(file));
    }
    let Some((media_type, limit)) = media_type(&bytes) else {
        return match String::from_utf8(bytes) {
            Ok(text) => Ok(Attachment::Text(text)),
            Err(_) => {
                Err(Error::validation("unknown file type: expected text, an image (PNG, JPEG, GIF, WebP) or a PDF")
                    .in_file(file))
            }
        };
    };
    if bytes.len() as u64 > limit {
        return Err(Error::validation(format!(
            "too large: {} bytes of {media_type}, the limit is {limit}",
            bytes.len()
        ))
        .in_file(file)
        .with("bytes", bytes.len())
        .with("limit", limit));
    }
    let data = BASE64.encode(&bytes);
    let block = if media_type == "application/pdf" { Block::document } else { Block::image };
    Ok(Attachment::Block(block(media_type, &data), bytes))
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

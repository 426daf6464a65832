//! Attachments: texts, images and documents, recognised by their bytes and not by their names.

use std::path::Path;

use cp_common::context::given;
use cp_common::wire::{Block, media};
use cp_common::{Error, Result};

/// An attachment.
pub(crate) enum Attachment {
    /// A text, to be put between marks.
    Text(String),
    /// Anything else, as a block.
    Block(Block, Vec<u8>),
}

/// Reads an attachment. What is named by its URL is fetched by the program that sends it, where policy permits.
pub(crate) fn read(file: &Path) -> Result<Attachment> {
    if let Some(url) =
        file.to_str().filter(|name| ["https://", "http://"].iter().any(|scheme| name.starts_with(scheme)))
    {
        return Ok(Attachment::Block(Block::linked(url), url.into()));
    }
    let bytes = given::bytes(file, media::DOCUMENT_LIMIT)?;
    if bytes.is_empty() {
        return Err(Error::validation("empty, so there is nothing to attach").in_file(file));
    }
    if let Some((block, _)) = media::block_of(&bytes).map_err(|e| e.in_file(file))? {
        return Ok(Attachment::Block(block, bytes));
    }
    String::from_utf8(bytes).map(Attachment::Text).map_err(|_| {
        Error::validation("unknown file type: expected text, an image (PNG, JPEG, GIF, WebP) or a PDF").in_file(file)
    })
}

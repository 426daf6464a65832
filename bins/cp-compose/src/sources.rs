//! Reads the files of a prompt: texts and attachments. Errors name the file.

use std::path::{Path, PathBuf};

use cp_common::context::given::{self, text_of};
use cp_common::wire::{Block, DOCUMENT_LIMIT};
use cp_common::{Error, Result};

/// The largest text file that a prompt may contain.
const LIMIT: u64 = 4 << 20;

/// Reads the text of a file that was found, not named: another one than a regular file may block.
pub(crate) fn text(file: &Path) -> Result<String> {
    if file.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Error::validation("not a regular file").in_file(file));
    }
    given(file)
}

/// Reads the text of a file or pipe that an option names.
pub(crate) fn given(file: &Path) -> Result<String> {
    let bytes = given::bytes(file, LIMIT)?;
    let hint = "attach an image or a PDF: cp-ask -a FILE, cp-compose --attach FILE";
    let hinted = |e: Error| if matches!(Block::of_media(&bytes), Ok(None)) { e } else { e.hint(hint) };
    text_of(&bytes).map(str::to_owned).map_err(|e| hinted(e).in_file(file))
}

/// Lists the `.md` files of a directory, sorted by name; none if the directory does not exist.
pub(crate) fn markdown_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let listing = match std::fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(Error::io("listing", e).in_file(directory)),
    };
    let paths = listing.map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<_> = paths.collect::<Result<_, _>>().map_err(|e| Error::io("listing", e).in_file(directory))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    Ok(files)
}

/// An attachment.
pub(crate) enum Attachment {
    /// A text, which is put between marks.
    Text(String),
    /// An image, a document or a URL, as a block.
    Block(Block, Vec<u8>),
}

/// Reads an attachment. A URL is fetched by the program that sends the prompt, if the policy permits it.
pub(crate) fn attachment(file: &Path) -> Result<Attachment> {
    if let Some(url) =
        file.to_str().filter(|name| ["https://", "http://"].iter().any(|scheme| name.starts_with(scheme)))
    {
        return Ok(Attachment::Block(Block::linked(url), url.into()));
    }
    let bytes = given::bytes(file, DOCUMENT_LIMIT)?;
    if bytes.is_empty() {
        return Err(Error::validation("empty, so there is nothing to attach").in_file(file));
    }
    if let Some((block, _)) = Block::of_media(&bytes).map_err(|e| e.in_file(file))? {
        return Ok(Attachment::Block(block, bytes));
    }
    text_of(&bytes).map(|text| Attachment::Text(text.to_owned())).map_err(|e| {
        let error = Error::validation(format!("unknown file type: {}", e.message())).in_file(file);
        error.hint("attach UTF-8 text (convert it with iconv), an image (PNG, JPEG, GIF, WebP) or a PDF")
    })
}

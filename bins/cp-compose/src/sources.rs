//! Reads the files of a prompt: texts, attachments, the instructions of the project and tool specifications. Errors
//! name the file.

use std::path::{Path, PathBuf};

use cp_common::context::given::{self, text_of};
use cp_common::wire::{Block, DOCUMENT_LIMIT, ToolSpec};
use cp_common::{Code, Context, Error, Result};
use serde::Deserialize;

/// The largest text file that a prompt may contain.
const LIMIT: u64 = 4 << 20;

/// Reads the text of a regular file. Other files are refused because they may block.
pub(crate) fn text(file: &Path) -> Result<String> {
    decoded(&bytes(file)?, file)
}

/// Reads the text of a file or pipe that an option names.
pub(crate) fn given(file: &Path) -> Result<String> {
    decoded(&given::bytes(file, LIMIT)?, file)
}

fn decoded(bytes: &[u8], file: &Path) -> Result<String> {
    text_of(bytes).map(str::to_owned).map_err(|e| e.in_file(file))
}

/// Reads a regular file of at most `LIMIT` bytes.
fn bytes(file: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such file").in_file(file),
        std::io::ErrorKind::PermissionDenied => Error::new(Code::Forbidden, "permission denied").in_file(file),
        _ => Error::io("reading", e).in_file(file),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::validation("not a regular file").in_file(file));
    }
    if metadata.len() > LIMIT {
        return Err(Error::validation(format!("too large: {} bytes, the limit is {LIMIT}", metadata.len()))
            .in_file(file)
            .with("bytes", metadata.len())
            .with("limit", LIMIT));
    }
    std::fs::read(file).map_err(failed)
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
    let mut files = Vec::new();
    for entry in listing {
        let path = entry.map_err(|e| Error::io("listing", e).in_file(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
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
    let is_utf16 = [[0xff, 0xfe], [0xfe, 0xff]].iter().any(|mark| bytes.starts_with(mark));
    String::from_utf8(bytes).map(Attachment::Text).map_err(|e| {
        let found = if is_utf16 {
            "text in UTF-16".to_owned()
        } else {
            format!("not UTF-8: byte {}", e.utf8_error().valid_up_to())
        };
        let error = Error::validation(format!("unknown file type, {found}")).in_file(file);
        error.hint("attach UTF-8 text (convert it with iconv), an image (PNG, JPEG, GIF, WebP) or a PDF")
    })
}

const NAME: &str = "AGENTS.md";

/// Returns the instructions file of the project and its text.
pub(crate) fn instructions(context: &Context) -> Result<(PathBuf, String)> {
    let base = context.base()?;
    let file = base.join(NAME);
    // A link could expose files to the model that the author of the directory cannot read.
    let leads_to = file.canonicalize().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such file")
            .in_file(&file)
            .hint("remove --agents-md, or name the directory with --base DIR"),
        _ => Error::io("reading", e).in_file(&file),
    })?;
    if !leads_to.starts_with(base.canonicalize().unwrap_or(base)) {
        return Err(Error::new(Code::Forbidden, "the file is a link that leads out of the working directory")
            .in_file(&file)
            .with("leads_to", leads_to.display().to_string())
            .hint("send it with --context if that is intended"));
    }
    let text = text(&file)?;
    Ok((file, text))
}

/// Reads the tools of all files: a list, an object with `tools`, or a tool on each line.
pub(crate) fn tools(names: &[PathBuf]) -> Result<Vec<ToolSpec>> {
    let mut tools: Vec<ToolSpec> = Vec::new();
    for file in names {
        for tool in of_file(file)? {
            check(&tool).map_err(|e| e.in_file(file))?;
            if tools.iter().any(|known| known.name == tool.name) {
                return Err(Error::validation(format!("the tool `{}` is defined twice", tool.name)).in_file(file));
            }
            tools.push(tool);
        }
    }
    Ok(tools)
}

fn of_file(file: &Path) -> Result<Vec<ToolSpec>> {
    let text = given(file)?;
    let wrong = |e: serde_json::Error| {
        Error::validation(format!("not a valid list of tools: {e}"))
            .in_file(file)
            .hint(r#"write [{"name":…,"description":…,"input_schema":{…}}]"#)
    };
    // The shape is checked first, because an untagged enum would parse and rewrite the numbers of a schema.
    let shape: serde_json::Value = match serde_json::from_str(&text) {
        Ok(shape) => shape,
        Err(_) => {
            return text
                .lines()
                .filter(|l| !l.trim().is_empty())
                .map(|l| serde_json::from_str(l).map_err(wrong))
                .collect();
        }
    };
    match shape {
        serde_json::Value::Array(_) => serde_json::from_str(&text).map_err(wrong),
        serde_json::Value::Object(members) if members.contains_key("tools") => {
            serde_json::from_str::<Wrapped>(&text).map(|wrapped| wrapped.tools).map_err(wrong)
        }
        _ => serde_json::from_str(&text).map(|tool| vec![tool]).map_err(wrong),
    }
}

#[derive(Deserialize)]
struct Wrapped {
    tools: Vec<ToolSpec>,
}

fn check(tool: &ToolSpec) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if tool.name.is_empty() || tool.name.len() > 64 || !tool.name.bytes().all(allowed) {
        return Err(Error::validation(format!(
            "`{}` is not a valid tool name: use 1 to 64 letters, digits, _ and -",
            tool.name
        )));
    }
    if !tool.input_schema.get().starts_with('{') {
        return Err(Error::validation(format!("the input_schema of `{}` is not an object", tool.name)));
    }
    Ok(())
}

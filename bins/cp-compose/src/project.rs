//! `--agents-md`: the instructions to agents in the working directory. The author of that directory wrote them, so they are context
//! and never system text, and they are read only when the option is given.

use std::path::PathBuf;

use cp_common::{Code, Context, Error, Result};

use crate::files;

const NAME: &str = "AGENTS.md";

/// The file and its text.
pub(crate) fn instructions(context: &Context) -> Result<(PathBuf, String)> {
    let base = context.base()?;
    let file = base.join(NAME);
    // A link may lead to what the directory's author cannot read and the model must not.
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
    let text = files::text(&file)?;
    Ok((file, text))
}

//! The last answer: to the clipboard, to a file; and what the answers cost.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use cp_common::{Error, Result};
use serde_json::json;

use crate::interactive::console::render::{count, harmless};
use crate::interactive::outcome::Outcome;
use crate::interactive::state::{Conversation, State};
use crate::plane::Read;

/// Terminals take about so much in one sequence.
const CLIPBOARD_LIMIT: usize = 74_994;

fn last(conversation: &Conversation) -> Result<&str> {
    let answer = conversation.answer.as_str();
    if answer.is_empty() { Err(Error::not_found("there was no answer yet")) } else { Ok(answer) }
}

/// `:copy`: the terminal puts it on the clipboard (OSC 52), also from far away.
pub(super) fn copy(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    let is_terminal = state.console.is_terminal();
    let answer = last(&state.conversation)?;
    let encoded = BASE64_STANDARD.encode(answer);
    if !is_terminal || encoded.len() > CLIPBOARD_LIMIT {
        let what = if is_terminal { "the answer is too long for a clipboard" } else { "copying needs a terminal" };
        return Err(Error::usage(what).hint("write it to a file: :save FILE"));
    }
    let text = format!("\x1b]52;c;{encoded}\x07copied: {}\n", count(answer.chars().count(), "character"));
    Ok(Outcome { text, result: json!({"characters": answer.chars().count()}), ..Outcome::default() })
}

/// `:save FILE`: never over a file that is there.
pub(super) fn save(state: &mut State<'_>, file: &str) -> Result<Outcome> {
    let answer = last(&state.conversation)?;
    if file.is_empty() {
        return Err(Error::usage("a file is needed").hint("write :save answer.md"));
    }
    let path = Path::new(file);
    state.context.home.check_writable(path)?;
    let mut created = OpenOptions::new().write(true).create_new(true).mode(0o666).open(path).map_err(|e| {
        let error = Error::io("saving the answer", e).in_file(path);
        if path.exists() { error.hint("choose a name that is free: nothing is overwritten here") } else { error }
    })?;
    let text = format!("{}\n", answer.trim_end_matches('\n'));
    created.write_all(text.as_bytes()).map_err(|e| Error::io("saving the answer", e).in_file(path))?;
    let hash = format!("sha256:{}", cp_ledger::format::line::Hash::of(text.as_bytes()).hex());
    let shown = format!("written: {}, {} bytes\n", harmless(file), text.len());
    let writes = vec![Read::whole(file.to_owned(), hash)];
    Ok(Outcome { text: shown, result: json!({"file": file, "bytes": text.len()}), writes, ..Outcome::default() })
}

/// `:cost`
pub(super) fn cost(state: &State<'_>) -> Outcome {
    let Conversation { usage, answers, .. } = &state.conversation;
    let cost = usage.cost_usd.map_or_else(|| "unpriced".to_owned(), |cost| format!("${cost:.4}"));
    let text = format!(
        "{}: {} tokens in, {} out, {} from a cache; {cost}\n",
        count(*answers, "answer"),
        usage.input_tokens + usage.cache_write_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
    );
    Outcome { text, result: json!(usage), ..Outcome::default() }
}

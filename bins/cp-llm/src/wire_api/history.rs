//! Earlier answers on their way back: each block as it came where the dialect is its own, else what everyone understands, else not at
//! all, and counted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cp_common::Result;
use cp_common::wire::{Block, BlockView, Content, Origin, Turn, raw};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Request;

/// How many blocks of each type could not go as they came.
pub(crate) type Lowered = BTreeMap<String, u64>;

/// The content of a turn as it goes out.
pub(super) enum OutgoingContent<'a> {
    Text(&'a str),
    Blocks(Vec<Outgoing<'a>>),
}

/// A block on its way out.
pub(super) enum Outgoing<'a> {
    /// The provider's own, with the type and the id that it has here.
    Passthrough {
        kind: Cow<'a, str>,
        id: Option<Cow<'a, str>>,
        raw: &'a RawValue,
    },
    Plain(Cow<'a, Block>),
}

/// What cannot go as it came when this request goes there.
pub(crate) fn lowered(request: &Request, here: &Origin) -> Result<Lowered> {
    let mut lowered = Lowered::new();
    for turn in &request.messages {
        count(turn, request, here, &mut lowered)?;
        // These dialects have no turns of the system, only its text.
        if turn.role == "system" && ["anthropic", "gemini"].contains(&here.dialect.as_str()) {
            count_but_text(&turn.content.blocks(), &mut lowered)?;
        }
    }
    Ok(lowered)
}

/// Counts the blocks that are not text, where only text goes out.
pub(crate) fn count_but_text(blocks: &[Block], lowered: &mut Lowered) -> Result<()> {
    for block in blocks {
        let kind = block.view()?.kind.into_owned();
        if kind != "text" {
            *lowered.entry(kind).or_default() += 1;
        }
    }
    Ok(())
}

/// The content of a turn as it goes out there.
pub(super) fn outgoing<'a>(turn: &'a Turn, request: &Request, here: &Origin) -> Result<OutgoingContent<'a>> {
    count(turn, request, here, &mut Lowered::new())
}

fn count<'a>(turn: &'a Turn, request: &Request, here: &Origin, lowered: &mut Lowered) -> Result<OutgoingContent<'a>> {
    let blocks = match (&turn.content, turn.blocks.as_slice()) {
        (Content::Text(text), []) => return Ok(OutgoingContent::Text(text)),
        (Content::Blocks(blocks), []) => blocks,
        (_, blocks) => blocks,
    };
    let views = blocks.iter().map(Block::view).collect::<Result<Vec<_>>>()?;
    let (is_whole, is_answer) = (is_whole(&views, request, here), turn.role == "assistant");
    let mut going = Vec::with_capacity(blocks.len());
    for (block, view) in blocks.iter().zip(views) {
        if let (Some(raw), true) = (view.raw, is_whole && goes_back(&view, request, here)) {
            going.push(Outgoing::Passthrough { kind: view.kind, id: view.id, raw });
            continue;
        }
        let plain = plain(block, &view, here, is_answer)?;
        if plain.is_none() || view.redacted {
            *lowered.entry(view.kind.into_owned()).or_default() += 1;
        }
        going.extend(plain.map(Outgoing::Plain));
    }
    Ok(OutgoingContent::Blocks(going))
}

/// What stands before the text of a tool's result where the dialect cannot say that the tool failed.
pub(super) fn tool_failure(is_error: bool) -> &'static str {
    if is_error { "The tool failed: " } else { "" }
}

/// Whether the blocks of an answer can go as they came. A server of Responses takes all its items or none: it refuses reasoning without
/// what followed it, and what followed without the reasoning.
fn is_whole(views: &[BlockView<'_>], request: &Request, here: &Origin) -> bool {
    here.dialect != "openai-responses" || views.iter().all(|view| goes_back(view, request, here))
}

fn goes_back(view: &BlockView<'_>, request: &Request, here: &Origin) -> bool {
    let (Some(origin), Some(raw)) = (&view.origin, view.raw) else { return false };
    if origin.dialect != here.dialect {
        return false;
    }
    match here.dialect.as_str() {
        // Compatible servers have members of their own, and refuse those of the others.
        "openai" => origin.endpoint == here.endpoint,
        // Where nothing is stored, reasoning is known only by what is encrypted in it.
        "openai-responses" if view.kind == "thinking" => {
            request.params.get("store") == Some(&Value::Bool(true)) || raw.get().contains("\"encrypted_content\":\"")
        }
        _ => true,
    }
}

/// What everyone understands of a block; nothing of one that means something only where it came from.
fn plain<'a>(block: &'a Block, view: &BlockView<'_>, here: &Origin, is_answer: bool) -> Result<Option<Cow<'a, Block>>> {
    let is_given = view.origin.is_none();
    Ok(match view.kind.as_ref() {
        "thinking" | "redacted_thinking" => (is_given && here.dialect == "anthropic").then_some(Cow::Borrowed(block)),
        // No other dialect has images in answers.
        "image" if is_answer && here.dialect != "gemini" => None,
        "server_tool" | "other" => None,
        _ if is_given => Some(Cow::Borrowed(block)),
        "text" => {
            let text = view.text.as_deref().unwrap_or_default();
            (!text.is_empty()).then(|| Cow::Owned(Block::text(text)))
        }
        "tool_use" => view.input.map(|input| {
            let (id, name) = (view.id.as_deref().unwrap_or_default(), view.name.as_deref().unwrap_or_default());
            Cow::Owned(Block::tool_use(id, name, input))
        }),
        "image" => Some(Cow::Owned(Block::from_raw(raw(&json!({"type": "image", "source": view.source}))?))),
        _ => None,
    })
}

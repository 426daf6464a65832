//! Blocks of earlier answers in a request. A block is sent unchanged to a server of its own API, otherwise in its plain
//! form. Blocks without a plain form are left out and counted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cp_common::Result;
use cp_common::wire::{Block, BlockView, Content, Origin, Turn, raw, record};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Request, text_of};

/// The number of blocks that could not be sent unchanged, by type.
pub(crate) type Lowered = BTreeMap<String, u64>;

/// A block in a request.
pub(super) enum Outgoing<'a> {
    /// The block of the provider, with its type and id in the turn.
    Passthrough {
        kind: Cow<'a, str>,
        id: Option<Cow<'a, str>>,
        raw: &'a RawValue,
    },
    Plain(Cow<'a, Block>),
}

/// Counts the blocks of a request that cannot be sent unchanged.
pub(crate) fn lowered(request: &Request, here: &Origin) -> Result<Lowered> {
    let mut lowered = Lowered::new();
    request.messages.iter().try_for_each(|turn| count(turn, request, here, &mut lowered).map(drop))?;
    Ok(lowered)
}

/// The content of a turn in a request to this server. A text is one block.
pub(super) fn outgoing<'a>(turn: &'a Turn, request: &Request, here: &Origin) -> Result<Vec<Outgoing<'a>>> {
    count(turn, request, here, &mut Lowered::new())
}

fn count<'a>(turn: &'a Turn, request: &Request, here: &Origin, lowered: &mut Lowered) -> Result<Vec<Outgoing<'a>>> {
    let blocks = match (&turn.content, turn.blocks.as_slice()) {
        (Content::Text(text), []) => return Ok(vec![Outgoing::Plain(Cow::Owned(Block::text(text)))]),
        (Content::Blocks(blocks), []) => blocks,
        (_, blocks) => blocks,
    };
    let views = blocks.iter().map(Block::view).collect::<Result<Vec<_>>>()?;
    let is_whole = is_whole(&views, request, here);
    let mut going = Vec::with_capacity(blocks.len());
    for (block, view) in blocks.iter().zip(views) {
        if let (Some(raw), true) = (view.raw, is_whole && goes_back(&view, request, here)) {
            going.push(Outgoing::Passthrough { kind: view.kind, id: view.id, raw });
            continue;
        }
        let plain = plain(block, &view, here, &turn.role)?;
        if plain.is_none() || view.redacted {
            *lowered.entry(view.kind.into_owned()).or_default() += 1;
        }
        going.extend(plain.map(Outgoing::Plain));
    }
    Ok(going)
}

/// The blocks of a tool result. For APIs without a member for the failure of a tool, a text says so.
pub(super) fn result(view: &BlockView<'_>, has_member: bool) -> Result<Vec<Value>> {
    let failure = (view.is_error && !has_member).then(|| Block::text("The tool failed: "));
    let other = |raw: &RawValue| Content::Text(raw.get().to_owned());
    let content = view.content.map(|raw| serde_json::from_str(raw.get()).unwrap_or_else(|_| other(raw)));
    let blocks = content.map(|content: Content| content.blocks()).unwrap_or_default();
    failure.into_iter().chain(blocks).map(|block| record::read(block.raw())).collect()
}

/// The text of the blocks of a tool result, and those that are not text.
pub(super) fn split(blocks: &[Value]) -> (String, Vec<&Value>) {
    let (texts, others): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| block["type"] == "text");
    (texts.into_iter().filter_map(|block| text_of(block, "text")).collect(), others)
}

/// True if the blocks of an answer can be sent unchanged. Responses refuses reasoning without the item that followed
/// it, and such an item without its reasoning, so all items must qualify.
fn is_whole(views: &[BlockView<'_>], request: &Request, here: &Origin) -> bool {
    here.dialect != "openai-responses" || views.iter().all(|view| goes_back(view, request, here))
}

fn goes_back(view: &BlockView<'_>, request: &Request, here: &Origin) -> bool {
    let (Some(origin), Some(raw)) = (&view.origin, view.raw) else { return false };
    if origin.dialect != here.dialect {
        return false;
    }
    match here.dialect.as_str() {
        // Compatible servers refuse members of other servers.
        "openai" => origin.endpoint == here.endpoint,
        // The server stores nothing, so reasoning needs its encrypted content.
        "openai-responses" if view.kind == "thinking" => {
            request.params.get("store") == Some(&Value::Bool(true)) || raw.get().contains("\"encrypted_content\":\"")
        }
        _ => true,
    }
}

/// The plain form of a block; `None` if it has a meaning only for its own server.
fn plain<'a>(block: &'a Block, view: &BlockView<'_>, here: &Origin, role: &str) -> Result<Option<Cow<'a, Block>>> {
    let is_given = view.origin.is_none();
    Ok(match view.kind.as_ref() {
        // These APIs have a system text instead of system turns.
        kind if role == "system" && kind != "text" && ["anthropic", "gemini"].contains(&&*here.dialect) => None,
        "thinking" | "redacted_thinking" => (is_given && here.dialect == "anthropic").then_some(Cow::Borrowed(block)),
        // Only Gemini accepts images in turns of the assistant.
        "image" if role == "assistant" && here.dialect != "gemini" => None,
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

//! Attachments that a prompt names by URL. They are fetched here, only from hosts that policy permits, and sent to the provider as bytes. The
//! URL is not sent.

use std::net::IpAddr;
use std::time::Duration;

use cp_common::wire::{Block, BlockView, Content, Turn, media};
use cp_common::{Code, Error, Result, keys};
use cp_http::client::{self, Client, Timeouts};
use cp_policy::Llm;
use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use crate::variable;
use crate::wire_api::upstream;

const TIMEOUTS: Timeouts = Timeouts { total: Duration::from_mins(1), idle: Some(Duration::from_secs(20)) };

/// Fetches attachments.
pub(crate) struct Fetch {
    /// The policy.
    pub table: Llm,
    /// The error if the network may not be used.
    pub refused: Option<Error>,
}

/// The ledger record of a fetched attachment.
#[derive(Debug, Serialize)]
pub(super) struct Fetched {
    /// The URL without its query, which may have a signature.
    url: String,
    sha256: String,
    bytes: usize,
    media_type: &'static str,
}

impl Fetch {
    /// Fetches all attachments of turns. Returns `None` if there are no URLs.
    pub(super) fn fill(&self, turns: &[Turn]) -> Result<Option<(Vec<Turn>, Vec<Fetched>)>> {
        let mut fetched = Vec::new();
        let filled = with_attachments(turns, &mut |url| {
            let (block, what) = self.get(url)?;
            fetched.push(what);
            Ok(block)
        })?;
        Ok(filled.map(|turns| (turns, fetched)))
    }

    fn get(&self, url: &str) -> Result<(Block, Fetched)> {
        permit(&self.table, url)?;
        if let Some(e) = &self.refused {
            return Err(Error::new(e.code(), e.message()).with("rule", "llm.network"));
        }
        let shown = url.split(['?', '#']).next().unwrap_or_default().to_owned();
        let failed = |e: Error| e.with("url", shown.as_str());
        let addresses = self.table.fetch.iter().flat_map(|host| addresses(host)).collect();
        let client = Client::new("cp-llm", url, TIMEOUTS, 1, variable, Some(addresses))?;
        let mut reply = client.get(url, &[], client::LIMIT).map_err(failed)?;
        if reply.status != 200 {
            let error = Error::new(upstream::code_of(reply.status, ""), format!("{shown}: status {}", reply.status));
            return Err(failed(match reply.header("location") {
                Some(to) => {
                    error.with("location", to).hint("redirects are not followed: attach the target of the redirect")
                }
                None => error,
            }));
        }
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match reply.read(&mut buffer).map_err(failed)? {
                [] => break,
                piece => bytes.extend_from_slice(piece),
            }
            if bytes.len() as u64 > media::DOCUMENT_LIMIT {
                let message = format!("{shown}: too large: the limit is {} bytes", media::DOCUMENT_LIMIT);
                return Err(failed(Error::validation(message)));
            }
        }
        let Some((block, media_type)) = media::block_of(&bytes).map_err(failed)? else {
            return Err(failed(Error::validation(format!(
                "{shown}: neither an image (PNG, JPEG, GIF, WebP) nor a PDF"
            ))));
        };
        let sha256 = keys::hash(&bytes);
        Ok((block, Fetched { url: shown, sha256, bytes: bytes.len(), media_type }))
    }
}

/// Fails if policy does not permit an attachment of these turns.
pub(crate) fn permit_all(table: &Llm, turns: &[Turn]) -> Result<()> {
    with_attachments(turns, &mut |url| permit(table, url).map(|()| Block::linked(url))).map(|_| ())
}

fn permit(table: &Llm, url: &str) -> Result<()> {
    let invalid = |what: &str| Error::validation(format!("the URL of an attachment {what}")).with("url", url);
    let uri: Uri = url.parse().map_err(|_| invalid("is not valid"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    if host.is_empty() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(invalid("names no host, or a user"));
    }
    if !table.fetches_from(&host) {
        let listed = table.fetch.iter().chain([&host]).map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ");
        return Err(Error::new(Code::Forbidden, format!("policy does not permit attachments from {host}"))
            .with("rule", "llm.fetch")
            .with("host", host)
            .hint(format!("write in [llm] of config/policy.toml: fetch = [{listed}]; or attach a file")));
    }
    let is_here = addresses(&host).any(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_here => Ok(()),
        _ => Err(invalid("must begin with https://")),
    }
}

/// The addresses that an entry of the policy names itself. They are permitted even if they are not public.
fn addresses(host: &str) -> impl Iterator<Item = IpAddr> {
    let local = if host == "localhost" { ["127.0.0.1", "::1"] } else { [host, ""] };
    local.into_iter().filter_map(|address| address.parse().ok()).collect::<Vec<_>>().into_iter()
}

/// Replaces each block with a URL. Returns `None` if there are no such blocks.
fn with_attachments(turns: &[Turn], fetch: &mut dyn FnMut(&str) -> Result<Block>) -> Result<Option<Vec<Turn>>> {
    let mut changed = None;
    for (at, turn) in turns.iter().enumerate() {
        let blocks = replace_urls(&turn.blocks, fetch)?;
        let content = match &turn.content {
            Content::Blocks(content) => replace_urls(content, fetch)?.map(Content::Blocks),
            Content::Text(_) => None,
        };
        if blocks.is_some() || content.is_some() {
            let turn = &mut changed.get_or_insert_with(|| turns.to_vec())[at];
            turn.blocks = blocks.unwrap_or_else(|| std::mem::take(&mut turn.blocks));
            turn.content = content.unwrap_or_else(|| turn.content.clone());
        }
    }
    Ok(changed)
}

fn replace_urls(blocks: &[Block], fetch: &mut dyn FnMut(&str) -> Result<Block>) -> Result<Option<Vec<Block>>> {
    let mut changed = None;
    for (at, block) in blocks.iter().enumerate() {
        let view = block.view()?;
        let new = match (url_of(&view), view.content.map(|content| serde_json::from_str(content.get()))) {
            (Some(url), _) => Some(fetch(&url)?),
            // A tool result may contain images.
            (None, Some(Ok(Content::Blocks(inner)))) => replace_urls(&inner, fetch)?.map(|inner| {
                let id = view.tool_use_id.as_deref().unwrap_or_default();
                Block::tool_result_of(id, &Content::Blocks(inner), view.is_error)
            }),
            _ => None,
        };
        if let Some(new) = new {
            changed.get_or_insert_with(|| blocks.to_vec())[at] = new;
        }
    }
    Ok(changed)
}

/// The URL of an image or a document. Blocks of a provider are excluded, because they are sent back unchanged.
fn url_of(view: &BlockView<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Source {
        r#type: String,
        url: String,
    }
    let source = view.source.filter(|_| view.raw.is_none() && matches!(&*view.kind, "image" | "document"))?;
    let source: Source = serde_json::from_str(source.get()).ok()?;
    (source.r#type == "url").then_some(source.url)
}

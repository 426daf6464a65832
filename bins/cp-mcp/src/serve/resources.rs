//! Answers that are too long for a call: kept beside the ledger by their hash, and read in pages.

use std::path::Path;

use cp_common::{Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use serde_json::{Value, json};

/// How an address begins.
const SCHEME: &str = "cp-blob:";

/// The longest page, in bytes.
const PAGE: usize = 256 << 10;

/// The address of a text from a byte on.
pub(super) fn uri_of(hash: &str, offset: usize) -> String {
    if offset == 0 { format!("{SCHEME}{hash}") } else { format!("{SCHEME}{hash}?offset={offset}") }
}

/// What `resources/templates/list` answers.
pub(super) fn templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": format!("{SCHEME}{{hash}}{{?offset}}"),
        "name": "whole output",
        "description": "The whole of an output that was too long for its call, from a byte on",
        "mimeType": "text/plain",
    }] })
}

/// A page of a text. Where more follows, a second part has the address of that.
pub(super) fn page(uri: &str, ledger: &Path) -> Result<Value> {
    let unknown = || Error::not_found(format!("there is no resource `{uri}`"));
    let named = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
    let (hash, offset) = named.split_once("?offset=").unwrap_or((named, "0"));
    let offset: usize = offset.parse().map_err(|_| unknown())?;
    let bytes = blob::load(ledger, &Hash::parse(hash).ok_or_else(unknown)?)?;
    let text = String::from_utf8(bytes).map_err(|_| unknown())?;
    if offset > text.len() || !text.is_char_boundary(offset) {
        return Err(unknown());
    }
    let end = text.floor_char_boundary(offset.saturating_add(PAGE));
    let mut contents = vec![json!({ "uri": uri, "mimeType": "text/plain", "text": &text[offset..end] })];
    if end < text.len() {
        let next = uri_of(hash, end);
        let more = format!("{} more bytes follow: read {next}", text.len() - end);
        contents.push(json!({ "uri": next, "mimeType": "text/plain", "text": more }));
    }
    Ok(json!({ "contents": contents }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_text_are_all_of_it_and_no_other_file_is_one() {
        let place = std::env::temp_dir().join(format!("cp-mcp-pages-{}", std::process::id()));
        let ledger = place.join("l.jsonl");
        let text = "aé".repeat(PAGE / 2);
        let hash = blob::store(&ledger, text.as_bytes()).unwrap().to_string();
        let (mut uri, mut read) = (uri_of(&hash, 0), String::new());
        loop {
            let page = page(&uri, &ledger).unwrap();
            read.push_str(page["contents"][0]["text"].as_str().unwrap());
            match page["contents"][1]["uri"].as_str() {
                Some(next) => uri = next.to_owned(),
                None => break,
            }
        }
        assert!(read == text, "{} of {} bytes", read.len(), text.len());
        let gone = format!("{SCHEME}sha256:{}", "0".repeat(64));
        for bad in ["file:///etc/passwd", "cp-blob:../../x", &gone, &uri_of(&hash, 2), &uri_of(&hash, usize::MAX)] {
            assert_eq!(page(bad, &ledger).unwrap_err().code(), cp_common::Code::NotFound, "{bad}");
        }
        std::fs::remove_dir_all(place).unwrap();
    }
}

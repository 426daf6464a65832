//! The answer of a call: text and data with the same content. A long text is stored next to the ledger, and cut.

use std::path::Path;

use cp_common::wire::{Approval, ToolResult, quoted};
use cp_common::{Error, Result};
use cp_ledger::blob;
use serde_json::{Map, Value, json};

/// The longest text of an answer, in bytes. A longer one is cut, and names the blob of all of it.
const LONGEST: usize = 64 << 10;

/// The member of the data that has the text, unless the text is the JSON of the data.
const OUTPUT: &str = "output";

/// The answer of a call.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The text for the model.
    pub text: String,
    /// The same content as data.
    pub data: Map<String, Value>,
    pub is_error: bool,
    /// The result that sends requests to the client.
    pub asks: Option<Value>,
    /// The images.
    pub blocks: Vec<Value>,
    /// The metadata with the receipt.
    pub meta: Option<Value>,
}

impl Answer {
    /// An answer of this text.
    pub(super) fn of_text(text: String, is_error: bool) -> Self {
        let data = Map::from_iter([(OUTPUT.to_owned(), text.clone().into())]);
        Self { text, data, is_error, ..Self::default() }
    }

    /// The answer for a result of cp-exec.
    pub(super) fn of_result(result: ToolResult) -> Self {
        let text = if result.is_error { in_our_names(&result.content) } else { result.content };
        let mut answer = Self::of_text(text, result.is_error);
        answer.data.extend(result.exit_code.map(|code| ("exit_code".to_owned(), code.into())));
        let meta = result.receipt.map(|receipt| json!({ "cp/receipt": receipt }));
        let images = result.images.iter().filter_map(|block| serde_json::to_value(block).ok());
        let blocks = images.map(|image| {
            json!({ "type": "image", "data": image["source"]["data"], "mimeType": image["source"]["media_type"] })
        });
        Self { blocks: blocks.collect(), meta, ..answer }
    }

    /// An answer of data, whose text is the JSON.
    pub(super) fn of_data(data: Value) -> Self {
        let mut data = if let Value::Object(members) = data { members } else { Map::new() };
        // The counts of a stream and empty members are left out.
        data.retain(|name, value| {
            !value.is_null()
                && !["total", "succeeded", "failed", "skipped", "truncated", "index"].contains(&name.as_str())
        });
        if let Some(Value::String(hint)) = data.get_mut("hint") {
            in_our_names(&format!("\nHint: {hint}"))["\nHint: ".len()..].clone_into(hint);
        }
        Self { text: Value::Object(data.clone()).to_string(), data, ..Self::default() }
    }

    /// The answer for a message of another model.
    pub(super) fn of_message(mut message: Value) -> Self {
        let content = message["content"].take();
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        let mut answer = Self::of_text(text, false);
        answer
            .data
            .extend(["model", "endpoint", "stop_reason", "usage"].map(|name| (name.to_owned(), message[name].take())));
        answer
    }

    /// The answer for an error, with its hint.
    pub(super) fn of_error(error: Error) -> Self {
        let error = error.without_secrets();
        let hint = error.hint_text().map(|hint| format!("\nHint: {hint}")).unwrap_or_default();
        let mut answer = Self::of_text(format!("{error}{hint}"), true);
        let mut value = error.to_value();
        if let Some(details) = value.get_mut("details").and_then(Value::as_object_mut) {
            // The text has them.
            details.retain(|name, _| !matches!(name.as_str(), "approval" | "_untrusted" | "hint"));
        }
        answer.data.insert("error".to_owned(), value);
        answer
    }

    /// A preview for a client without forms: the effect, and how to confirm it.
    pub(super) fn preview(shown: &str, done: &str, token: &str, approval: &Approval) -> Self {
        let text =
            format!("{shown}\n\n{done} If this is meant, make the same call again with \"confirm\":\"{token}\".");
        let mut answer = Self::of_text(text, true);
        answer.data.insert("confirm".to_owned(), token.into());
        answer.data.insert("approval".to_owned(), approval.id.clone().into());
        answer
    }

    /// Cuts a text that is too long, and stores all of it as a blob of the ledger. Returns the reference to the blob.
    pub(super) fn shorten(&mut self, ledger: &Path) -> Result<Option<Value>> {
        let whole = self.text.len();
        if whole <= LONGEST {
            return Ok(None);
        }
        let hash = blob::store(ledger, self.text.as_bytes())?.to_string();
        self.text.truncate(self.text.floor_char_boundary(LONGEST));
        let part = format!("the first {} of {whole} bytes", self.text.len());
        let file = quoted(&ledger.display().to_string());
        let all = format!("the owner sees all of them with: cp-log blob --ledger {file} {hash}");
        self.text = [&self.text, "\n[", &part, "; ", &all, "]"].concat();
        if !self.data.contains_key(OUTPUT) {
            self.data.clear();
        }
        self.data.insert("bytes".to_owned(), whole.into());
        self.data.insert(OUTPUT.to_owned(), self.text.clone().into());
        Ok(Some(json!({ "blob": hash, "len": whole })))
    }

    /// The result of `tools/call`.
    pub(super) fn into_value(mut self) -> Value {
        if let Some(asks) = self.asks {
            return asks;
        }
        self.blocks.insert(0, json!({ "type": "text", "text": self.text }));
        let mut value = json!({ "content": self.blocks, "structuredContent": self.data, "isError": self.is_error });
        if let Some(meta) = self.meta {
            value["_meta"] = meta;
        }
        value
    }
}

/// The hint of cp-exec at the end of a text, with the tool names of this server.
fn in_our_names(text: &str) -> String {
    const NAMES: [(&str, &str); 5] = [
        ("filesystem.", ""),
        ("read_file", "cp_read"),
        ("list_directory", "cp_read"),
        ("edit_file", "cp_edit"),
        ("write_file", "cp_write"),
    ];
    let (before, hint) = text.rfind("\nHint: ").map_or((text, ""), |at| text.split_at(at));
    before.to_owned() + &NAMES.iter().fold(hint.to_owned(), |hint, (theirs, ours)| hint.replace(theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_uses_names_of_this_server() {
        let text = "x\nHint: for a directory use filesystem.list_directory";
        assert_eq!(in_our_names(text), "x\nHint: for a directory use cp_read");
        let text = "write_file said edit_file\nHint: use edit_file to change it";
        assert_eq!(in_our_names(text), "write_file said edit_file\nHint: use cp_edit to change it");
        assert_eq!(in_our_names("edit_file"), "edit_file");
        let data = Answer::of_data(json!({"hint": "write_file creates it", "code": null, "index": 0})).data;
        assert_eq!(Value::Object(data), json!({"hint": "cp_write creates it"}));
    }
}

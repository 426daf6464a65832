//! A record is one line: the envelope around `data`. It is parsed without changing the bytes of its payload.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::{Code, Error, Result};

/// The envelope version that programs write.
pub const SCHEMA_VERSION: &str = "1.0";

/// The kind of an open record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A request for a model.
    Prompt,
    /// The response of a model.
    Message,
    /// A piece of a message that is not complete yet.
    Delta,
    /// A tool call of a model.
    ToolCall,
    /// The result of a tool call.
    ToolResult,
    /// The outcome of a command.
    ExecResult,
    /// A line of a ledger.
    Entry,
    /// A session.
    Session,
    /// An element of a list.
    Item,
    /// An item that failed.
    Error,
    /// The closing line of a stream.
    Summary,
}

impl Kind {
    /// Every kind and its name on the wire, in the order of cp-record(5).
    const NAMES: [(Self, &'static str); 11] = [
        (Self::Prompt, "prompt"),
        (Self::Message, "message"),
        (Self::Delta, "delta"),
        (Self::ToolCall, "tool_call"),
        (Self::ToolResult, "tool_result"),
        (Self::ExecResult, "exec_result"),
        (Self::Entry, "entry"),
        (Self::Session, "session"),
        (Self::Item, "item"),
        (Self::Error, "error"),
        (Self::Summary, "summary"),
    ];

    /// Returns the value of `type` on the wire.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A parsed envelope and its bytes.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The bytes of the line, without the line feed.
    pub line: &'a [u8],
    /// True if the record reports success.
    pub ok: bool,
    /// The kind, if its name is known.
    pub kind: Option<Kind>,
    /// The name of the kind as received; an answer has no kind.
    pub kind_name: Option<Cow<'a, str>>,
    /// The payload.
    pub data: Option<&'a RawValue>,
    /// The failure.
    pub error: Option<&'a RawValue>,
    /// True if the record closes its stream, because it has `meta`.
    pub closed: bool,
}

#[derive(Deserialize)]
struct Head<'a> {
    ok: Option<bool>,
    #[serde(borrow)]
    schema_version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
}

impl<'a> Record<'a> {
    /// Parses an envelope. Fails on invalid JSON, duplicate names, invalid UTF-8, an unknown major version, and JSON
    /// that is not an envelope.
    pub fn parse(line: &'a [u8]) -> Result<Self> {
        cp_json::check(line).map_err(|fault| bad_json(&fault))?;
        let head: Head<'a> = serde_json::from_slice(line).map_err(|e| {
            Error::validation(format!("not a record: {e}")).hint("each line is one envelope; see cp-record(5)")
        })?;
        let (Some(ok), Some(version)) = (head.ok, head.schema_version) else {
            return Err(Error::validation("not a record: `ok` or `schema_version` is missing")
                .hint("for bare JSON objects use --rows, for plain bytes --input text"));
        };
        if version.split('.').next() != SCHEMA_VERSION.split('.').next() {
            return Err(Error::validation(format!(
                "schema_version {version} is not understood, only {SCHEMA_VERSION}"
            ))
            .hint("use a version of cp-tools that speaks it"));
        }
        Ok(Self {
            line,
            ok,
            kind: head.kind.as_deref().and_then(Kind::from_name),
            kind_name: head.kind,
            data: head.data,
            error: head.error,
            closed: head.meta.is_some(),
        })
    }

    /// True if the line looks like an envelope, even a damaged one, so that a damaged record is never treated as text.
    pub fn looks_like_one(line: &[u8]) -> bool {
        if line.starts_with(b"{\"ok\":true,") || line.starts_with(b"{\"ok\":false,") {
            return true;
        }
        line.trim_ascii_start().starts_with(b"{")
            && serde_json::from_slice::<Head<'_>>(line).is_ok_and(|h| h.ok.is_some() && h.schema_version.is_some())
    }

    /// Returns the code of a failed record.
    pub fn code(&self) -> Code {
        self.failure().code()
    }

    /// Converts the reported failure to an error with the same code, message, hint and details, without the index in
    /// the other program's input.
    pub fn failure(&self) -> Error {
        let error: Value = self.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default();
        Error::from_value(&error)
    }

    /// Decodes the payload. Unknown members are ignored.
    pub fn read<T: Deserialize<'a>>(&self) -> Result<T> {
        let data = self.data.ok_or_else(|| Error::validation("the record has no `data`"))?;
        read(data)
    }

    /// Returns the line without `meta`, to pass a closing record on in the middle of a longer stream.
    pub fn opened(&self) -> Vec<u8> {
        if !self.closed {
            return self.line.to_vec();
        }
        let mut open = head(self.ok, self.kind_name.as_deref());
        for (name, value) in [("data", self.data), ("error", self.error)] {
            if let Some(value) = value {
                member(&mut open, name, value.get().as_bytes());
            }
        }
        open.push(b'}');
        open
    }
}

/// Decodes a payload. The error names the member.
pub fn read<'a, T: Deserialize<'a>>(data: &'a RawValue) -> Result<T> {
    serde_json::from_str(data.get()).map_err(|e| {
        let text = e.to_string();
        let reason = text.split_once(" at line").map_or(text.as_str(), |(reason, _)| reason);
        Error::validation(format!("data: {reason}")).with("column", e.column())
    })
}

/// Encodes an open record as a line, to be sent to another program.
pub fn open_line<T: Serialize + ?Sized>(kind: &str, data: &T) -> Result<Vec<u8>> {
    let mut line = with_data(Some(kind), data)?;
    line.extend_from_slice(b"}\n");
    Ok(line)
}

/// Encodes a record that closes its stream: a single request, or the last one.
pub fn closed_line<T: Serialize + ?Sized>(kind: &str, data: &T) -> Result<Vec<u8>> {
    let mut line = with_data(Some(kind), data)?;
    member(&mut line, "meta", br#"{"duration_ms":0}"#);
    line.extend_from_slice(b"}\n");
    Ok(line)
}

/// Encodes a record without its last brace. Long data are not copied.
pub(crate) fn with_data<T: Serialize + ?Sized>(kind: Option<&str>, data: &T) -> Result<Vec<u8>> {
    let mut line = head(true, kind);
    member(&mut line, "data", b"");
    serde_json::to_writer(&mut line, data).map_err(|e| Error::new(Code::Unknown, format!("encoding a record: {e}")))?;
    Ok(line)
}

/// Makes the beginning of an envelope: `{"ok":…,"schema_version":…[,"type":…]`.
pub(crate) fn head(ok: bool, kind: Option<&str>) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(format!("{{\"ok\":{ok},\"schema_version\":\"{SCHEMA_VERSION}\"").as_bytes());
    if let Some(kind) = kind {
        member(&mut line, "type", Value::from(kind).to_string().as_bytes());
    }
    line
}

/// Appends `,"name":value`.
pub(crate) fn member(line: &mut Vec<u8>, name: &str, value: &[u8]) {
    line.extend_from_slice(b",\"");
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b"\":");
    line.extend_from_slice(value);
}

/// Makes the error for a line that is not JSON.
pub(crate) fn bad_json(fault: &cp_json::Fault) -> Error {
    Error::validation(format!("not valid JSON: {} at byte {}", fault.reason, fault.offset)).with("offset", fault.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name() {
        for (kind, name) in Kind::NAMES {
            assert_eq!((kind.name(), Kind::from_name(name)), (name, Some(kind)));
        }
    }

    #[test]
    fn opened_record_keeps_data_bytes() {
        let line = br#"{"ok":true,"schema_version":"1.0","type":"item","data":{"n":1e2,"b":12345678901234567890123456789},"meta":{"duration_ms":1}}"#;
        let record = Record::parse(line).unwrap();
        assert!(record.closed);
        assert_eq!(
            String::from_utf8(record.opened()).unwrap(),
            r#"{"ok":true,"schema_version":"1.0","type":"item","data":{"n":1e2,"b":12345678901234567890123456789}}"#
        );
    }

    #[test]
    fn failure_round_trip_keeps_every_member() {
        let error = Error::not_found("no a").with("file", "a").with("index", 3).hint("make it");
        let line = format!(r#"{{"ok":false,"schema_version":"1.0","type":"error","error":{}}}"#, error.to_value());
        let back = Record::parse(line.as_bytes()).unwrap().failure();
        assert_eq!((back.code(), back.message(), back.hint_text()), (Code::NotFound, "no a", Some("make it")));
        assert_eq!(serde_json::to_string(&back.details()).unwrap(), r#"{"file":"a","hint":"make it"}"#);
    }

    #[test]
    fn records_are_encoded_as_lines() {
        assert_eq!(
            open_line("item", &[1]).unwrap(),
            b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"item\",\"data\":[1]}\n"
        );
        assert!(Record::parse(closed_line("item", &[1]).unwrap().trim_ascii_end()).unwrap().closed);
    }

    #[test]
    fn parse_of_non_envelope_fails_with_hint() {
        let e = Record::parse(br#"{"a":1}"#).unwrap_err();
        assert_eq!(e.code(), Code::Validation);
        assert!(e.hint_text().unwrap().contains("--rows"));
        assert!(
            Record::parse(br#"{"ok":true,"schema_version":"2.0","data":{}}"#).unwrap_err().message().contains("2.0")
        );
        assert!(Record::parse(br#"{"ok":true,"ok":true,"schema_version":"1.0"}"#).is_err());
    }

    #[test]
    fn damaged_record_still_looks_like_a_record() {
        assert!(Record::looks_like_one(br#"{"ok":true,"schema_ver"#));
        assert!(Record::looks_like_one(br#"{ "schema_version":"1.0", "ok":true }"#));
        assert!(!Record::looks_like_one(br#"{"a":1}"#));
        assert!(!Record::looks_like_one(b"hello"));
    }
}

//! The results of a job: lines in any order, found by the row that each names.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;

use cp_common::{Code, Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::backend::Exchange;
use crate::backend::server::Server;
use crate::digest;

/// The file of the results, and where in it each row has its line. Only these places are in memory.
pub(super) struct Results {
    file: File,
    lines: Vec<Option<(u64, u32)>>,
}

/// A line, in either protocol.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    result: Option<Inline<'a>>,
    #[serde(borrow, default)]
    response: Option<Response<'a>>,
    #[serde(default)]
    error: Option<Value>,
}

/// A result of Anthropic.
#[derive(Deserialize)]
struct Inline<'a> {
    r#type: String,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Value>,
}

/// A response of OpenAI.
#[derive(Deserialize)]
struct Response<'a> {
    status_code: u16,
    #[serde(default)]
    request_id: Option<String>,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl Results {
    /// Finds the lines of so many rows.
    pub(super) fn open(file: File, count: u64) -> Result<Self> {
        #[derive(Deserialize)]
        struct Named {
            custom_id: String,
        }
        let mut lines = vec![None; usize::try_from(count).unwrap_or(0)];
        let mut reader = BufReader::new(&file);
        let (mut line, mut at) = (Vec::new(), 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(unreadable)?;
            if length == 0 {
                break;
            }
            // What names no row of ours is nobody's answer.
            let number = serde_json::from_slice::<Named>(&line)
                .ok()
                .and_then(|named| named.custom_id.strip_prefix("row-")?.parse::<usize>().ok());
            if let Some(place) = number.and_then(|number| lines.get_mut(number)) {
                *place = u32::try_from(length).ok().map(|length| (at, length));
            }
            at += length as u64;
        }
        Ok(Self { file, lines })
    }

    /// What came of a row.
    pub(super) fn exchange(&self, number: u64, server: &Server) -> Result<Exchange> {
        let place = usize::try_from(number).ok().and_then(|number| *self.lines.get(number)?);
        let Some((at, length)) = place else {
            let missing = Error::new(Code::Server, "the batch ended without a result for this row");
            return Ok(Exchange::of(Err(missing.with("origin", "upstream").with("reason", "missing"))));
        };
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(unreadable)?;
        Ok(of_line(&bytes, server))
    }
}

fn unreadable(e: std::io::Error) -> Error {
    Error::io("reading the results", e).fatal()
}

fn of_line(bytes: &[u8], server: &Server) -> Exchange {
    let line: Line<'_> = match serde_json::from_slice(bytes) {
        Ok(line) => line,
        Err(e) => {
            let wrong = Error::new(Code::Server, format!("the result of this row cannot be read: {e}"));
            return Exchange::of(Err(wrong.with("origin", "upstream").with("reason", "invalid_json")));
        }
    };
    let answered = |body: &RawValue, status, request_id| {
        let bytes = body.get().as_bytes();
        let outcome = if status < 300 {
            server.answer(bytes)
        } else {
            Err(server.failure(&serde_json::from_slice(bytes).unwrap_or_default(), status))
        };
        Exchange { status: Some(status), request_id, hash: Some(digest::of(bytes)), ..Exchange::of(outcome) }
    };
    match (line.result, line.response, line.error.filter(|error| !error.is_null())) {
        (Some(Inline { message: Some(message), .. }), _, _) => answered(message, 200, None),
        (Some(Inline { r#type, error, .. }), _, _) => Exchange::of(Err(ended(&r#type, error, server))),
        (None, _, Some(error)) => {
            let kind = error.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
            Exchange::of(Err(ended(&kind, Some(json!({"error": error})), server)))
        }
        (None, Some(Response { status_code, request_id, body }), None) => answered(body, status_code, request_id),
        (None, None, None) => Exchange::of(Err(ended("", None, server))),
    }
}

/// The failure of a row that its provider did not answer.
fn ended(kind: &str, error: Option<Value>, server: &Server) -> Error {
    match kind {
        "expired" | "batch_expired" => Error::new(Code::Timeout, "the batch expired before this row was answered")
            .with("origin", "upstream")
            .with("reason", "expired"),
        "canceled" | "batch_cancelled" => {
            Error::new(Code::Conflict, "the batch was cancelled before this row was answered")
                .with("origin", "upstream")
                .with("reason", "cancelled")
        }
        _ => server.failure(&error.unwrap_or_default(), 200),
    }
}

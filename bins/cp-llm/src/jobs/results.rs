//! The results of a batch: lines in any order, found by the row that each names.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;

use cp_common::keys;
use cp_common::{Code, Error, Result};
use serde_json::{Value, json};

use crate::backend::Exchange;
use crate::backend::server::Server;
use crate::dialect::{bad_answer, exact, parsed, text_of};

/// The file of the results, and where in it each row has its line. Only these places are in memory.
pub(super) struct Results {
    file: File,
    lines: Vec<Option<(u64, usize)>>,
}

impl Results {
    /// Finds the lines of so many rows.
    pub(super) fn open(file: File, count: u64) -> Result<Self> {
        let mut lines = vec![None; usize::try_from(count).unwrap_or(0)];
        let mut reader = BufReader::new(&file);
        let (mut line, mut at) = (Vec::new(), 0);
        while reader.read_until(b'\n', &mut line)? > 0 {
            let id = exact(&line, "/custom_id").and_then(|id| serde_json::from_str::<String>(id.get()).ok());
            let number = id.and_then(|id| id.strip_prefix("row-")?.parse::<usize>().ok());
            // What names no row of ours is nobody's answer.
            if let Some(place) = number.and_then(|number| lines.get_mut(number)) {
                *place = Some((at, line.len()));
            }
            at += line.len() as u64;
            line.clear();
        }
        Ok(Self { file, lines })
    }

    /// What came of a row.
    pub(super) fn exchange(&self, number: u64, server: &Server) -> Result<Exchange> {
        let place = usize::try_from(number).ok().and_then(|number| *self.lines.get(number)?);
        let Some((at, length)) = place else {
            return Ok(Exchange::of(Err(bad_answer("missing", "the batch ended without a result for this row"))));
        };
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(of_line(&bytes, server))
    }
}

/// What a line says, in either protocol.
fn of_line(bytes: &[u8], server: &Server) -> Exchange {
    let line = match parsed(bytes) {
        Ok(line) => line.value,
        Err(error) => return Exchange::of(Err(error)),
    };
    let status =
        line.pointer("/response/status_code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    if let Some(body) = exact(bytes, "/result/message").or_else(|| exact(bytes, "/response/body")) {
        let (body, status) = (body.get().as_bytes(), status.unwrap_or(200));
        let outcome = match line.pointer("/response/body") {
            Some(failure) if status >= 300 => Err(server.failure(failure, status)),
            _ => server.answer(body),
        };
        let request_id = line.pointer("/response/request_id").and_then(Value::as_str).map(str::to_owned);
        return Exchange { status: Some(status), request_id, hash: Some(keys::hash(body)), ..Exchange::of(outcome) };
    }
    let result = line.get("result").unwrap_or(&Value::Null);
    let (kind, failure) = match line.get("error") {
        Some(error) if result.is_null() => (text_of(error, "code"), json!({"error": error})),
        _ => (text_of(result, "type"), result.get("error").cloned().unwrap_or_default()),
    };
    let left = |code, reason: &str| {
        let why = format!("the batch was {reason} before this row was answered");
        Error::new(code, why).with("origin", "upstream").with("reason", reason)
    };
    Exchange::of(Err(match kind.unwrap_or_default() {
        "expired" | "batch_expired" => left(Code::Timeout, "expired"),
        "canceled" | "batch_cancelled" => left(Code::Conflict, "cancelled"),
        _ => server.failure(&failure, 200),
    }))
}

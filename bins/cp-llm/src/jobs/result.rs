//! `cp-llm batch result`: the answers of batches, as the messages that a direct run would have printed.
//!
//! Each row is settled once: its outcome is on the ledger and in the state file before it is printed, and a second run
//! prints it from there.

use cp_common::output::Place;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, keys, signals};
use serde_json::{Value, json};

use super::provider::Client;
use super::state::{Batch, Event, Row};
use crate::backend::Exchange;
use crate::backend::server::Server;
use crate::engine::Work;
use crate::send::print_cut;
use crate::wire_api::ends::remark;
use crate::wire_api::{bad_answer, exact, parsed, text_of};

pub(super) fn run(ids: &[String], context: &mut Context) -> Result<()> {
    context.out.filtering();
    if ids.len() > 1 {
        context.out.streaming()?;
    }
    for id in ids {
        print_answers(Batch::find(&context.home, id)?.locked()?, context)?;
    }
    Ok(())
}

/// Prints the answers of a batch, in the order of its input.
fn print_answers(mut batch: Batch, context: &mut Context) -> Result<()> {
    if batch.rows.iter().any(|row| row.outcome.is_none()) {
        settle_all(&mut batch, context)?;
    }
    for Row { index, line, outcome, .. } in batch.rows {
        signals::check()?;
        context.out.place = Place { index, line };
        if index.is_some() {
            context.out.streaming()?;
        }
        match outcome.map(|outcome| *outcome) {
            Some(Ok(message)) => {
                if let Some(remark) = remark(&message) {
                    context.warn(remark);
                }
                context.out.record(Kind::Message, &message)?;
                context.out.item_succeeded();
            }
            failed => {
                let error = Error::from_value(&failed.and_then(Result::err).unwrap_or_default());
                print_cut(&error, context)?;
                context.out.item_failed(error)?;
            }
        }
    }
    Ok(())
}

/// Settles each row of a batch, which must have ended, as its result arrives.
fn settle_all(batch: &mut Batch, context: &Context) -> Result<()> {
    let client = Client::of_batch(batch, context)?;
    let backend = &client.ready.backend;
    let job = client.progress(batch)?;
    let id = &job.job_id;
    if !job.is_ended() {
        return Err(Error::new(Code::Conflict, format!("{id} has not ended"))
            .with("reason", "not_ended")
            .hint(format!("wait for it: cp-llm batch status --wait {id}")));
    }
    if let Some(failure) = job.failure.as_deref().filter(|_| job.done == 0) {
        return Err(Error::validation(format!("the provider rejected the batch: {failure}"))
            .with("origin", "upstream")
            .with("upstream_message", failure)
            .with("_untrusted", vec!["/upstream_message"]));
    }
    if let Some(server) = backend.server() {
        // No row of a later file is settled before the first file is whole, so all settled rows can be counted.
        for (path, least) in &job.results {
            let is_torn = settle_results(&client, server, path, batch)?;
            let settled = batch.rows.iter().filter(|row| row.outcome.is_some()).count() as u64;
            if is_torn || settled < *least {
                let message = format!("the results of {id} are incomplete: {settled} of {least} rows");
                return Err(Error::new(Code::Network, message)
                    .with("origin", "upstream")
                    .with("reason", "cut")
                    .hint("ask for them again"));
            }
        }
    }
    for number in 0..batch.rows.len() {
        let exchange = |work: &Work| match backend.server() {
            Some(_) => Exchange::of(Err(bad_answer("missing", "the batch ended without a result for this row"))),
            None => backend.exchange(&work.request, &[], &mut |_, _| Ok(())),
        };
        settle(&client, batch, number, exchange)?;
    }
    batch.sync()
}

/// Settles the rows in a file of results, whose lines are in any order. Returns true if its last line is not complete.
fn settle_results(client: &Client, server: &Server, path: &str, batch: &mut Batch) -> Result<bool> {
    let mut is_torn = false;
    server.lines(path, &mut |bytes| {
        let line = parsed(bytes).unwrap_or_default();
        is_torn |= line.is_null() && !bytes.ends_with(b"\n");
        match text_of(&line, "custom_id").and_then(|id| id.strip_prefix("row-")?.parse().ok()) {
            Some(number) => settle(client, batch, number, |_| of_line(bytes, &line, server)),
            None => Ok(()),
        }
    })?;
    Ok(is_torn)
}

/// Stores the outcome of a row, unless it is settled.
fn settle(client: &Client, batch: &mut Batch, number: usize, exchange: impl Fn(&Work) -> Exchange) -> Result<()> {
    let Some(row) = batch.rows.get(number).filter(|row| row.outcome.is_none()) else { return Ok(()) };
    let work = row.work(number, &client.endpoint);
    let exchange = exchange(&work);
    signals::check()?;
    // A signal waits until the outcome is both on the ledger and in the file of the rows.
    let _effect = signals::effect();
    let outcome = client.engine.message_of_row(&work, &batch.name_of(number), &row.request_hash, exchange)?;
    batch.note(Event::Settled(number, Box::new(outcome.map_err(|error| error.to_value()))))
}

/// Parses a line of results, of either API.
fn of_line(bytes: &[u8], line: &Value, server: &Server) -> Exchange {
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

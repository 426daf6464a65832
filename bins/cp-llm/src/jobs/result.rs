//! `cp-llm batch result`: the answers of batches, as the messages that a direct run would have printed.
//!
//! The outcome of a row is on the ledger and in the state file before it is printed, and a second run prints it from
//! there. A row without a result stays open, because a result that was lost on the way may arrive the next time.

use cp_common::context::options::StreamOptions;
use cp_common::output::Place;
use cp_common::stream::filter;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, keys, signals};
use serde_json::{Value, json};

use super::provider::Client;
use super::state::{Batch, Row};
use crate::backend::Exchange;
use crate::backend::server::Server;
use crate::send::print_cut;
use crate::wire_api::ends::remark;
use crate::wire_api::{exact, parsed, text_of};

/// Prints the answers of batches, each in the order of its input.
pub(super) fn run(ids: &[String], context: &mut Context) -> Result<()> {
    context.out.filtering();
    for id in ids {
        let (mut batch, _lock) = Batch::find(&context.home, id)?.locked()?;
        if batch.rows.iter().any(|row| row.outcome.is_none()) {
            fetch(&mut batch, context)?;
        }
        if ids.len() > 1 || batch.rows.iter().any(|row| row.index.is_some()) {
            context.out.streaming()?;
        }
        for Row { index, line, outcome, .. } in batch.rows {
            signals::check()?;
            filter::settle(Place { index, line }, StreamOptions::default(), context, |context| {
                let outcome = outcome.map_or_else(|| Err(missing()), |known| known.map_err(|e| Error::from_value(&e)));
                let message = outcome.or_else(|error| print_cut(&error, context).and(Err(error)))?;
                if let Some(remark) = remark(&message) {
                    context.warn(remark);
                }
                context.out.record(Kind::Message, &message)
            })?;
        }
    }
    Ok(())
}

/// The error of a row without a result.
fn missing() -> Error {
    Error::new(Code::Server, "the provider sent no result for this row")
        .with("origin", "upstream")
        .with("reason", "missing")
        .hint("ask for the results again, or submit the row again")
}

/// Takes the results of a batch, which must have ended, from its provider.
fn fetch(batch: &mut Batch, context: &Context) -> Result<()> {
    let client = Client::of_batch(batch, context)?;
    let (job, paths) = client.progress(batch)?;
    if !job.is_ended() {
        return Err(Error::new(Code::Conflict, format!("{} has not ended", job.job_id))
            .with("reason", "not_ended")
            .hint(format!("wait for it: cp-llm batch status --wait {}", job.job_id)));
    }
    let (all, mut results) = (0..batch.rows.len(), Vec::new());
    match (client.server(), &job.failure) {
        (None, _) => results.extend(all.map(|number| {
            let request = client.work(batch, number).request;
            (number, client.ready.backend.exchange(&request, &[], &mut |_, _| Ok(())))
        })),
        (Some(server), Some(failure)) => {
            let failed = || Exchange::of(Err(server.failure(&json!({"error": {"message": failure}}), 400)));
            results.extend(all.map(|number| (number, failed())));
        }
        (Some(server), None) => paths.iter().try_for_each(|path| {
            server.lines(path, &mut |bytes| {
                let line = parsed(bytes).unwrap_or_default();
                let number = text_of(&line, "custom_id").and_then(|id| id.strip_prefix("row-")?.parse().ok());
                results.extend(number.map(|number| (number, of_line(bytes, &line, server))));
                signals::check()
            })
        })?,
    }
    // A signal waits until the outcomes are both on the ledger and in the state file.
    let _effect = signals::effect();
    for (number, exchange) in results {
        if batch.rows.get(number).is_some_and(|row| row.outcome.is_none()) {
            let outcome = client.engine.message_of_row(&mut client.work(batch, number), exchange)?;
            batch.rows[number].outcome = Some(Box::new(outcome.map_err(|error| error.to_value())));
        }
    }
    batch.save()
}

/// Parses a line of results, of either API.
fn of_line(bytes: &[u8], line: &Value, server: &Server) -> Exchange {
    if let Some(body) = exact(bytes, "/result/message").or_else(|| exact(bytes, "/response/body")) {
        let (body, response) = (body.get().as_bytes(), &line["response"]);
        let status = response["status_code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
        let outcome = if status < 300 { server.answer(body) } else { Err(server.failure(&response["body"], status)) };
        let request_id = text_of(response, "request_id").map(str::to_owned);
        return Exchange { status: Some(status), request_id, hash: Some(keys::hash(body)), ..Exchange::of(outcome) };
    }
    let result = &line["result"];
    let left = |code, reason: &str| {
        let why = format!("the batch was {reason} before this row was answered");
        Error::new(code, why).with("origin", "upstream").with("reason", reason)
    };
    let kind = text_of(result, "type").or_else(|| text_of(&line["error"], "code")).unwrap_or_default();
    Exchange::of(Err(match kind {
        "expired" | "batch_expired" => left(Code::Timeout, "expired"),
        "canceled" | "batch_cancelled" => left(Code::Conflict, "cancelled"),
        _ => server.failure(result.get("error").unwrap_or(line), 200),
    }))
}

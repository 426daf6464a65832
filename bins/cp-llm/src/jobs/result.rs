//! `cp-llm batch result`: the answers of batches, as the messages that a direct run would have printed.
//!
//! Each row is settled once: its outcome is on the ledger and in the state file before it is printed, and a second run
//! prints it from there.

use cp_common::context::options::StreamOptions;
use cp_common::output::Place;
use cp_common::stream::filter;
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

/// Prints the answers of batches, each in the order of its input.
pub(super) fn run(ids: &[String], context: &mut Context) -> Result<()> {
    context.out.filtering();
    for id in ids {
        let mut batch = Batch::find(&context.home, id)?.locked()?;
        if batch.settled() < batch.job.count {
            settle_all(&mut batch, context)?;
        }
        if ids.len() > 1 || batch.rows.iter().any(|row| row.index.is_some()) {
            context.out.streaming()?;
        }
        for Row { index, line, outcome, .. } in batch.rows {
            signals::check()?;
            filter::settle(Place { index, line }, StreamOptions::default(), context, |context| {
                let outcome = outcome.map_or(Err(Value::Null), |outcome| *outcome);
                let message = outcome.or_else(|error| {
                    let error = Error::from_value(&error);
                    print_cut(&error, context)?;
                    Err(error)
                })?;
                if let Some(remark) = remark(&message) {
                    context.warn(remark);
                }
                context.out.record(Kind::Message, &message)
            })?;
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
    // No row of a later file is settled before the first file is whole, so all settled rows can be counted.
    for (path, least) in &job.results {
        let Some(server) = backend.server() else { break };
        let mut is_torn = false;
        server.lines(path, &mut |bytes| {
            let line = parsed(bytes).unwrap_or_default();
            is_torn |= line.is_null() && !bytes.ends_with(b"\n");
            let number = text_of(&line, "custom_id").and_then(|id| id.strip_prefix("row-")?.parse().ok());
            number.map_or(Ok(()), |number| settle(&client, batch, number, |_| of_line(bytes, &line, server)))
        })?;
        let settled = batch.settled();
        if is_torn || settled < *least {
            let message = format!("the results of {id} are incomplete: {settled} of {least} rows");
            return Err(Error::new(Code::Network, message)
                .with("origin", "upstream")
                .with("reason", "cut")
                .hint("ask for them again"));
        }
    }
    for number in 0..batch.rows.len() {
        settle(&client, batch, number, |work| match (backend.server(), &job.failure) {
            (None, _) => backend.exchange(&work.request, &[], &mut |_, _| Ok(())),
            (Some(server), Some(failure)) => {
                Exchange::of(Err(server.failure(&json!({"error": {"message": failure}}), 400)))
            }
            _ => Exchange::of(Err(bad_answer("missing", "the batch ended without a result for this row"))),
        })?;
    }
    batch.sync()
}

/// Stores the outcome of a row, unless it is settled.
fn settle(client: &Client, batch: &mut Batch, number: usize, exchange: impl Fn(&Work) -> Exchange) -> Result<()> {
    if batch.rows.get(number).is_none_or(|row| row.outcome.is_some()) {
        return Ok(());
    }
    let mut work = client.work(batch, number);
    let exchange = exchange(&work);
    signals::check()?;
    // A signal waits until the outcome is both on the ledger and in the file of the rows.
    let _effect = signals::effect();
    let outcome = client.engine.message_of_row(&mut work, exchange)?;
    batch.note(Event::Settled(number, Box::new(outcome.map_err(|error| error.to_value()))))
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

//! The batches of a provider: the protocols of Anthropic and `OpenAI`.

use std::time::Duration;

use cp_common::home::is_id;
use cp_common::{Code, Context, Error, Result, keys, signals};
use serde_json::{Value, json};

use super::state::{Batch, BatchJob, State};
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Target};
use crate::backend::server::Server;
use crate::backend::{Backends, Exchange, Ready};
use crate::engine::schema::AnswerSchema;
use crate::engine::{Engine, Work};
use crate::policy::Policy;
use crate::wire_api::{BatchApi, Request, count_of, exact, parsed, text_of};

/// The time limit of a request about a batch.
const LIMIT: Duration = Duration::from_mins(10);

/// The form (RFC 7578) around a file. Every line of the file begins with a brace, so the boundary cannot occur.
const FORM: [&str; 2] = [
    "--cp-batch\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--cp-batch\r\n\
     Content-Disposition: form-data; name=\"file\"; filename=\"cp-batch.jsonl\"\r\n\
     Content-Type: application/jsonl\r\n\r\n",
    "\r\n--cp-batch--\r\n",
];
const FORM_TYPE: &str = "multipart/form-data; boundary=cp-batch";

/// The client for a model of a server that takes batches, or of the stub, whose batches have their answers at once.
pub(super) struct Client {
    target: Target,
    ready: Ready,
}

impl Client {
    /// The client for the model of a batch. Fails if its backend has no batches.
    pub(super) fn of(batch: &Batch, context: &Context) -> Result<Self> {
        let options = BackendOptions::new(LIMIT, Policy::load(context)?.permission());
        let endpoint = Endpoints::load(context, Some(&batch.job.endpoint))?.default_for(None)?;
        let ready = Backends::new(options).of(&endpoint)?;
        let client = Self { target: Target { endpoint, model: batch.model.clone() }, ready };
        client.server().map(drop)?;
        Ok(client)
    }

    /// The server and its batch API.
    fn server(&self) -> Result<(&Server, BatchApi)> {
        let hint = "use anthropic, openai, openai-responses or stub; --jobs sends concurrent requests to any backend";
        let name = self.ready.backend.name();
        let missing = || Error::usage(format!("the backend {name} has no batches")).hint(hint).fatal();
        self.ready.backend.server().and_then(|server| Some((server, server.api.batch_api?))).ok_or_else(missing)
    }

    /// Creates the batch of these requests at the provider and keeps its id. The batch is removed after a failure,
    /// unless the provider may have created it.
    pub(super) fn create(&self, batch: &mut Batch, works: &[Work]) -> Result<()> {
        let (server, api) = self.server()?;
        // A file without a batch costs nothing.
        let body = body_of(server, api, &batch.job, works)?;
        batch.save()?;
        let mut rest = body.as_bytes();
        let made = server.post_body(api.path, "application/json", &mut rest, Some(&batch.job.job_id));
        let error = match made.and_then(|made| id_of(&made, "id")) {
            Ok(id) => {
                batch.job.provider_id = Some(id);
                return batch.save();
            }
            Err(error) => error,
        };
        let status = error.details().get("status").and_then(Value::as_u64).unwrap_or(0);
        // An incomplete body was not a complete request.
        if !rest.is_empty() || (400..500).contains(&status) && status != 408 {
            return batch.remove().and(Err(error));
        }
        Err(interrupted(&batch.job, api.console).with("cause", error.message()))
    }

    /// The path of the batch at its server. Fails if the batch was not submitted completely.
    fn path(&self, job: &BatchJob) -> Result<String> {
        let (_, api) = self.server()?;
        let id = job.provider_id.as_ref().ok_or_else(|| interrupted(job, api.console))?;
        Ok(format!("{}/{id}", api.path))
    }

    /// Asks for the state of the batch, and returns the answer.
    fn progress(&self, job: &mut BatchJob) -> Result<Value> {
        let found = self.server()?.0.resource(&self.path(job)?)?;
        update(job, &found);
        Ok(found)
    }

    /// Cancels the batch at the provider.
    pub(super) fn cancel(&self, job: &mut BatchJob) -> Result<Value> {
        let path = format!("{}/cancel", self.path(job)?);
        self.server()?.0.post_body(&path, "application/json", &mut &b"{}"[..], None)?;
        self.progress(job)
    }

    /// Takes the results of a batch, which must have ended, from its provider. An outcome is on the ledger and in the
    /// state file before it is printed.
    pub(super) fn fetch(&self, batch: &mut Batch, context: &Context) -> Result<()> {
        let (server, api) = self.server()?;
        let found = self.progress(&mut batch.job)?;
        let job = &batch.job;
        if !job.is_ended() {
            return Err(Error::new(Code::Conflict, format!("{} has not ended", job.job_id))
                .with("reason", "not_ended")
                .hint(format!("ask again later: cp-llm batch status {}", job.job_id)));
        }
        if let Some(failure) = found.pointer("/errors/data/0") {
            return Err(server.failure(&json!({"error": failure}), 400));
        }
        let files = ["output_file_id", "error_file_id"].iter().filter_map(|name| id_of(&found, name).ok());
        let files = files.map(|file| format!("/files/{file}/content"));
        let paths = if api.has_file { files.collect() } else { vec![format!("{}/results", self.path(job)?)] };
        let results = paths.iter().map(|path| server.download(path)).collect::<Result<Vec<_>>>()?;
        let mut engine = Engine::new(context, Policy::load(context)?.table.log_content)?;
        engine.fail_on.clone_from(&batch.fail_on);
        engine.schema = batch.schema.clone().map(AnswerSchema::compile).transpose()?;
        // A signal waits until the outcomes are both on the ledger and in the state file.
        let _effect = signals::effect();
        let mut receipts = engine.journal.receipts_since(&job.created_at)?;
        for bytes in results.iter().flat_map(|lines| lines.split(|byte| *byte == b'\n')) {
            let line = parsed(bytes).unwrap_or_default();
            let number = text_of(&line, "custom_id").and_then(|id| id.strip_prefix("row-")?.parse::<usize>().ok());
            let row = number.and_then(|number| batch.rows.get_mut(number));
            let (Some(number), Some(row)) = (number, row.filter(|row| row.outcome.is_none())) else { continue };
            let request = Request { params: row.params.clone(), ..Request::default() };
            let work = Work::new(row.prompt.clone(), request, self.target.clone(), self.ready.clone());
            let name = format!("{}#{number}", job.job_id);
            let receipt = receipts.remove(&name);
            let mut work = work.of_batch(name, &row.request_hash, receipt);
            row.outcome = Some(engine.outcome_of_row(&mut work, exchange_of(bytes, &line, server))?);
        }
        batch.save()
    }
}

/// Asks for the state of a batch, unless it has ended.
pub(super) fn refresh(batch: &mut Batch, context: &Context) -> Result<()> {
    if !batch.job.is_ended() {
        Client::of(batch, context)?.progress(&mut batch.job)?;
    }
    Ok(())
}

/// The body of the request that creates a batch. Its file, if it has one, is uploaded.
fn body_of(server: &Server, api: BatchApi, job: &BatchJob, works: &[Work]) -> Result<String> {
    let url = format!("/v1{}", (server.api.path)(&Request::default()));
    let members =
        if api.has_file { format!(r#""method":"POST","url":"{url}","body""#) } else { r#""params""#.to_owned() };
    let line = |(number, work): (usize, &Work)| {
        let request = work.body()?;
        Ok(format!(r#"{{"custom_id":"row-{number}",{members}:{}}}"#, String::from_utf8_lossy(&request)))
    };
    let lines = works.iter().enumerate().map(line).collect::<Result<Vec<_>>>()?;
    if !api.has_file {
        return Ok(format!(r#"{{"requests":[{}]}}"#, lines.join(",")));
    }
    let form = [FORM[0], &lines.join("\n"), FORM[1]].concat();
    let file = id_of(&server.post_body("/files", FORM_TYPE, &mut form.as_bytes(), None)?, "id")?;
    let metadata = json!({"cp_batch": job.job_id});
    let body = json!({"input_file_id": file, "endpoint": url, "completion_window": "24h", "metadata": metadata});
    Ok(body.to_string())
}

/// The error for a submission that was interrupted: only a person can see at the provider if the batch was created.
fn interrupted(job: &BatchJob, console: &str) -> Error {
    let BatchJob { job_id, count, .. } = job;
    let message = format!("the submission of {job_id} was interrupted, and the provider may have created the batch");
    let resume = format!("cp-llm batch cancel {job_id}");
    let hint = format!(
        "look for a batch of {count} requests at {console}, which you can cancel there; then {resume}, and submit again"
    );
    let error = Error::new(Code::HumanRequired, message).with("action", "resolve_unfinished_batch");
    error.with("resume", resume).with("console", console).hint(hint)
}

/// Parses a line of results, of either API.
fn exchange_of(bytes: &[u8], line: &Value, server: &Server) -> Exchange {
    if let Some(body) = exact(bytes, "/result/message").or_else(|| exact(bytes, "/response/body")) {
        let (body, response) = (body.get().as_bytes(), &line["response"]);
        let status = response["status_code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
        let outcome = if status < 300 { server.answer(body) } else { Err(server.failure(&response["body"], status)) };
        let request_id = text_of(response, "request_id").map(str::to_owned);
        return Exchange { status: Some(status), request_id, hash: Some(keys::hash(body)), ..Exchange::of(outcome) };
    }
    let result = &line["result"];
    let (code, reason) = match text_of(result, "type").or_else(|| text_of(&line["error"], "code")) {
        Some("expired" | "batch_expired") => (Code::Timeout, "expired"),
        Some("canceled" | "batch_cancelled") => (Code::Conflict, "cancelled"),
        _ => return Exchange::of(Err(server.failure(result.get("error").unwrap_or(line), 200))),
    };
    let error = Error::new(code, format!("the batch was {reason} before this row was answered"));
    Exchange::of(Err(error.with("origin", "upstream").with("reason", reason)))
}

/// A member that is an id, validated for use in a path.
fn id_of(value: &Value, name: &str) -> Result<String> {
    let id = text_of(value, name).filter(|id| is_id(id)).map(str::to_owned);
    id.ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// The state of a batch, in the members of either provider, whose names do not collide.
fn update(job: &mut BatchJob, found: &Value) {
    let count = |names: &[&str]| names.iter().map(|name| count_of(found, &format!("/request_counts/{name}"))).sum();
    let (answered, cancelled): (u64, u64) = (count(&["completed", "succeeded"]), count(&["canceled"]));
    job.done = answered + cancelled + count(&["failed", "errored", "expired"]);
    let state = text_of(found, "processing_status").or_else(|| text_of(found, "status")).unwrap_or_default();
    job.status = match state {
        "validating" => State::Pending,
        "failed" | "expired" => State::Failed,
        "cancelled" => State::Cancelled,
        "ended" if cancelled > 0 => State::Cancelled,
        "ended" | "completed" if answered == 0 && job.done > 0 => State::Failed,
        "ended" | "completed" => State::Succeeded,
        _ => State::Running,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_states_map_to_states() {
        let state = |found: &Value| {
            let mut job = BatchJob::default();
            update(&mut job, found);
            job
        };
        let all =
            ["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"];
        let ended = all.map(|status| state(&json!({"status": status})).is_ended());
        assert_eq!(ended, [false, false, false, true, true, true, false, true]);
        let ended = |counts: Value| state(&json!({"processing_status": "ended", "request_counts": counts})).status;
        assert_eq!(ended(json!({"succeeded": 1, "errored": 2})), State::Succeeded);
        assert_eq!(ended(json!({"errored": 2, "expired": 1})), State::Failed);
        assert_eq!(ended(json!({"succeeded": 1, "canceled": 2})), State::Cancelled);
    }
}

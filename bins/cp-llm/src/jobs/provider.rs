//! The batches of a provider: the protocols of Anthropic and `OpenAI`, and the stub, which has its answers at once.

use std::sync::Arc;
use std::time::Duration;

use cp_common::{Code, Context, Error, Result, keys, signals};
use serde_json::{Value, json};

use super::state::{Batch, BatchJob, Row, State};
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Target};
use crate::backend::server::Server;
use crate::backend::{Backends, Exchange, Ready};
use crate::engine::schema::AnswerSchema;
use crate::engine::{Engine, Work};
use crate::policy::Policy;
use crate::wire_api::{BatchApi, Request, count_of, exact, parsed, shortened, text_of};

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

/// The client for a model of an endpoint that takes batches.
pub(super) struct Client {
    pub target: Target,
    ready: Ready,
    api: BatchApi,
}

impl Client {
    /// The client for a model. Fails if its backend has no batches.
    pub(super) fn of(target: &Target, ready: &Ready) -> Result<Self> {
        let name = ready.backend.name();
        let api = match ready.backend.server() {
            Some(server) => server.api.batch_api,
            None => (name == "stub").then_some(BatchApi { has_file: false, path: "", console: "" }),
        };
        let hint = "use anthropic, openai, openai-responses or stub; --jobs sends concurrent requests to any backend";
        let missing = || Error::usage(format!("the backend {name} has no batches")).hint(hint).fatal();
        let api = api.ok_or_else(missing)?;
        Ok(Self { target: target.clone(), ready: ready.clone(), api })
    }

    /// The client for the model of a batch.
    pub(super) fn of_batch(batch: &Batch, context: &Context) -> Result<Self> {
        let options = BackendOptions::new(LIMIT, Policy::load(context)?.permission());
        let options = BackendOptions { stub_script: batch.stub_script.clone(), ..options };
        let endpoint = Endpoints::load(context, Some(&batch.job.endpoint))?.default_for(None)?;
        let ready = Backends::new(options).of(&endpoint)?;
        Self::of(&Target { endpoint, model: batch.model.clone() }, &ready)
    }

    /// The server; the stub has none.
    pub(super) fn server(&self) -> Option<&Server> {
        self.ready.backend.server()
    }

    /// Restores the request of a row, as far as it is needed for the answer.
    fn work(&self, batch: &Batch, number: usize) -> Work {
        let Row { params, prompt, request_hash, .. } = &batch.rows[number];
        let request = Request {
            system: prompt.system.clone().unwrap_or_default(),
            messages: prompt.messages.clone(),
            params: params.clone(),
            position: number as u64,
            ..Request::default()
        };
        let work = Work::new(prompt.clone(), request, self.target.clone(), self.ready.clone());
        work.of_batch(batch.job.row(number), request_hash)
    }

    /// Creates the batch of these requests at the provider and keeps its id. The batch is removed after a failure,
    /// unless the provider may have created it.
    pub(super) fn create(&self, batch: &mut Batch, requests: &[Arc<Vec<u8>>]) -> Result<()> {
        let Some(server) = self.server() else {
            batch.job.provider_id = Some("stub".to_owned());
            return batch.save();
        };
        // A file without a batch costs nothing.
        let body = self.body(server, batch, requests)?;
        batch.save()?;
        let mut rest = body.as_slice();
        let made = server.post_body(self.api.path, "application/json", &mut rest, Some(&batch.job.job_id));
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
        let hint = "the provider may have created the batch: submit the same input again to find out";
        Err(error.with("batch", batch.job.job_id.as_str()).hint(hint))
    }

    /// The body of the request that creates a batch. Its file, if it has one, is uploaded.
    fn body(&self, server: &Server, batch: &Batch, requests: &[Arc<Vec<u8>>]) -> Result<Vec<u8>> {
        let url = format!("/v1{}", (server.api.path)(&Request::default()));
        let members = if self.api.has_file {
            format!(r#""method":"POST","url":"{url}","body""#)
        } else {
            r#""params""#.to_owned()
        };
        let line = |(number, request): (usize, &Arc<Vec<u8>>)| {
            let head = format!(r#"{{"custom_id":"row-{number}",{members}:"#);
            [head.as_bytes(), request, b"}\n"].concat()
        };
        let lines: Vec<Vec<u8>> = requests.iter().enumerate().map(line).collect();
        if !self.api.has_file {
            return Ok([b"{\"requests\":[", &*lines.join(&b','), b"]}"].concat());
        }
        let form = [FORM[0].as_bytes(), &lines.concat(), FORM[1].as_bytes()].concat();
        let file = id_of(&server.post_body("/files", FORM_TYPE, &mut form.as_slice(), None)?, "id")?;
        let metadata = json!({"cp_batch": batch.job.job_id});
        let body = json!({"input_file_id": file, "endpoint": url, "completion_window": "24h", "metadata": metadata});
        Ok(body.to_string().into_bytes())
    }

    /// The state of the batch. Fails if it was not submitted completely.
    pub(super) fn progress(&self, batch: &Batch) -> Result<BatchJob> {
        let job = batch.job.clone();
        let Some(id) = &job.provider_id else { return Err(self.interrupted(batch)) };
        let Some(server) = self.server() else {
            return Ok(BatchJob { status: State::Succeeded, done: job.count, ..job });
        };
        let path = format!("{}/{id}", self.api.path);
        let found = server.resource(&path)?;
        let files = ["output_file_id", "error_file_id"].iter().filter_map(|name| id_of(&found, name).ok());
        let files = files.map(|file| format!("/files/{file}/content")).collect();
        let results = if self.api.has_file { files } else { vec![format!("{path}/results")] };
        Ok(BatchJob { results, ..progress(job, &found) })
    }

    /// Takes the results of a batch, which must have ended, from its provider. An outcome is on the ledger and in the
    /// state file before it is printed.
    pub(super) fn fetch(&self, batch: &mut Batch, context: &Context) -> Result<()> {
        let job = self.progress(batch)?;
        if !job.is_ended() {
            return Err(Error::new(Code::Conflict, format!("{} has not ended", job.job_id))
                .with("reason", "not_ended")
                .hint(format!("wait for it: cp-llm batch status --wait {}", job.job_id)));
        }
        let (all, mut results) = (0..batch.rows.len(), Vec::new());
        match (self.server(), &job.failure) {
            (None, _) => results.extend(all.map(|number| {
                let request = self.work(batch, number).request;
                (number, self.ready.backend.exchange(&request, &[], &mut |_, _| Ok(())))
            })),
            (Some(server), Some(failure)) => {
                let failed = || Exchange::of(Err(server.failure(&json!({"error": {"message": failure}}), 400)));
                results.extend(all.map(|number| (number, failed())));
            }
            (Some(server), None) => job.results.iter().try_for_each(|path| {
                server.lines(path, &mut |bytes| {
                    let line = parsed(bytes).unwrap_or_default();
                    let number = text_of(&line, "custom_id").and_then(|id| id.strip_prefix("row-")?.parse().ok());
                    results.extend(number.map(|number| (number, of_line(bytes, &line, server))));
                    signals::check()
                })
            })?,
        }
        let mut engine = Engine::new(context, Policy::load(context)?.table.log_content)?;
        engine.fail_on.clone_from(&batch.fail_on);
        engine.schema = batch.schema.clone().map(AnswerSchema::compile).transpose()?;
        // A signal waits until the outcomes are both on the ledger and in the state file.
        let _effect = signals::effect();
        for (number, exchange) in results {
            if batch.rows.get(number).is_some_and(|row| row.outcome.is_none()) {
                let outcome = engine.message_of_row(&mut self.work(batch, number), exchange)?;
                batch.rows[number].outcome = Some(Box::new(outcome.map_err(|error| error.to_value())));
            }
        }
        batch.save()
    }

    /// Cancels the batch with this id at the provider.
    pub(super) fn cancel(&self, id: &str) -> Result<()> {
        let Some(server) = self.server() else { return Ok(()) };
        let path = format!("{}/{id}/cancel", self.api.path);
        server.post_body(&path, "application/json", &mut &b"{}"[..], None).map(drop)
    }

    /// The error for a submission that was interrupted: only a person can see at the provider if the batch was created.
    fn interrupted(&self, batch: &Batch) -> Error {
        let (console, id, count) = (self.api.console, &batch.job.job_id, batch.job.count);
        let message = format!("the submission of {id} was interrupted, and the provider may have created the batch");
        let resume = format!("cp-llm batch cancel {id}");
        let hint = format!(
            "look for a batch of {count} requests at {console}; if it is there, take its answers or cancel it there; \
             then: {resume}, and submit again"
        );
        let error = Error::new(Code::HumanRequired, message).with("action", "resolve_unfinished_batch");
        error.with("resume", resume).with("batch", id.as_str()).with("console", console).hint(hint)
    }
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

/// A member that is an id, validated for use in a path.
fn id_of(value: &Value, name: &str) -> Result<String> {
    let is_id =
        |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let id = text_of(value, name).filter(is_id).map(str::to_owned);
    id.ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// The state of a batch, in the members of either provider, whose names do not collide.
fn progress(mut job: BatchJob, found: &Value) -> BatchJob {
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
    job.failure = found.pointer("/errors/data/0/message").and_then(Value::as_str).map(shortened);
    job.untrusted = job.failure.iter().map(|_| "/failure".to_owned()).collect();
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_states_map_to_states() {
        let state = |found: &Value| progress(BatchJob::default(), found);
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

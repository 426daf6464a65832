//! The batches of a provider: the protocols of Anthropic and `OpenAI`, and the stub, which has its answers at once.

use std::sync::Arc;
use std::time::Duration;

use cp_common::{Code, Context, Error, Result};
use serde_json::{Value, json};

use super::state::{Batch, BatchJob, State, Terms};
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Endpoint};
use crate::backend::server::Server;
use crate::backend::{Backends, Ready};
use crate::engine::Engine;
use crate::engine::retry::RetryPolicy;
use crate::engine::schema::AnswerSchema;
use crate::policy::Policy;
use crate::wire_api::{BatchApi, Request, count_of, shortened, text_of};

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

/// The client of an endpoint that takes batches.
pub(super) struct Client {
    pub engine: Engine,
    pub endpoint: Arc<Endpoint>,
    pub ready: Ready,
    api: BatchApi,
    /// The path of a single request.
    path: String,
}

/// The state of a batch at its provider.
pub(super) struct Progress {
    pub job: BatchJob,
    /// The paths of its results.
    pub results: Vec<String>,
    /// The number of rows in the first of them, and in all, as far as the provider counts them. A provider without
    /// counts has a result for each row of a batch that succeeded.
    pub recorded: (u64, u64),
}

impl Client {
    /// The client of an endpoint. Fails if its backend has no batches.
    pub(super) fn of(engine: Engine, endpoint: Arc<Endpoint>) -> Result<Self> {
        let ready = engine.backends.of(&endpoint)?;
        let name = ready.backend.name();
        let (api, path) = match ready.backend.server() {
            Some(server) => (server.api.facts().batch_api, server.api.path(&Request::default())),
            None => ((name == "stub").then_some(BatchApi { has_file: false, path: "", console: "" }), String::new()),
        };
        let Some(api) = api else {
            let error = Error::usage(format!("the backend {name} has no batches")).fatal();
            return Err(error.hint(
                "use anthropic, openai, openai-responses or stub; --jobs sends concurrent requests to any backend",
            ));
        };
        Ok(Self { engine, endpoint, ready, api, path })
    }

    /// The client that reads the answers of a batch, with the schema of its submission.
    pub(super) fn of_batch(batch: &Batch, context: &Context) -> Result<Self> {
        let Terms { endpoint, fail_on, stub_script, schema } = batch.terms.clone();
        let policy = Policy::load(context)?;
        let backends = Backends::new(BackendOptions { stub_script, ..BackendOptions::new(LIMIT, policy.permission()) });
        let endpoint = Endpoints::load(context, Some(&endpoint))?.default_for(None)?;
        let engine = Engine::new(context, backends, RetryPolicy::NONE, policy.table.log_content)?;
        let schema = schema.map(AnswerSchema::compile).transpose()?;
        let client = Self::of(Engine { fail_on, schema, ..engine }, endpoint)?;
        let [there, here] = [batch.job.endpoint.as_deref(), client.base()].map(|base| base.unwrap_or("no server"));
        if there == here {
            return Ok(client);
        }
        let message = format!("{} was submitted to {there}, and {here} is configured", batch.job.job_id);
        Err(Error::config(message).hint("set the base URL to the server of the submission").fatal())
    }

    /// The server; the stub has none.
    pub(super) fn server(&self) -> Option<&Server> {
        self.ready.backend.server()
    }

    /// The base URL of the server.
    pub(super) fn base(&self) -> Option<&str> {
        self.server().map(|server| server.base.as_str())
    }

    /// A request as a line of a batch.
    pub(super) fn line(&self, number: u64, body: &[u8]) -> Vec<u8> {
        let head = if self.api.has_file {
            format!(r#"{{"custom_id":"row-{number}","method":"POST","url":"/v1{}","body":"#, self.path)
        } else {
            format!(r#"{{"custom_id":"row-{number}","params":"#)
        };
        [head.as_bytes(), body, b"}\n"].concat()
    }

    /// Creates the batch of these lines at the provider and keeps its id. The provider may have created a batch after a
    /// failure, except if the second value is true.
    pub(super) fn create(&self, batch: &mut Batch, requests: &[Vec<u8>]) -> (Result<()>, bool) {
        let Some(server) = self.server() else {
            return (batch.ask().and_then(|()| batch.created("stub".to_owned())), false);
        };
        // A file without a batch costs nothing.
        let body = match self.body(server, batch, requests).and_then(|body| batch.ask().map(|()| body)) {
            Ok(body) => body,
            Err(error) => return (Err(error), true),
        };
        let mut rest = body.as_slice();
        let made = server.post_body(self.api.path, "application/json", &mut rest, Some(&batch.job.job_id));
        let status = made.as_ref().err().and_then(|error| error.details().get("status")?.as_u64()).unwrap_or(0);
        // An incomplete body was not a complete request.
        let is_certain = !rest.is_empty() || (400..500).contains(&status) && status != 408;
        (made.and_then(|made| batch.created(id_of(&made, "id")?)), is_certain)
    }

    /// The body of the request that creates a batch. Its file, if it has one, is uploaded.
    fn body(&self, server: &Server, batch: &Batch, requests: &[Vec<u8>]) -> Result<Vec<u8>> {
        if !self.api.has_file {
            return Ok([b"{\"requests\":[", &*requests.join(&b','), b"]}"].concat());
        }
        let form = [FORM[0].as_bytes(), &requests.concat(), FORM[1].as_bytes()].concat();
        let file = id_of(&server.post_body("/files", FORM_TYPE, &mut form.as_slice(), None)?, "id")?;
        let (endpoint, metadata) = (format!("/v1{}", self.path), json!({"cp_batch": batch.job.job_id}));
        let body =
            json!({"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", "metadata": metadata});
        Ok(body.to_string().into_bytes())
    }

    /// The state of the batch. Fails if it was not submitted completely.
    pub(super) fn progress(&self, batch: &Batch) -> Result<Progress> {
        let path = self.path(batch)?;
        let mut job = batch.job.clone();
        if let Some(server) = self.server() {
            return Ok(progress(job, &server.resource(&path)?, &path));
        }
        (job.status, job.done) = (State::Succeeded, job.count);
        Ok(Progress { job, results: Vec::new(), recorded: (0, 0) })
    }

    /// Cancels the batch.
    pub(super) fn cancel(&self, batch: &Batch) -> Result<()> {
        let path = self.path(batch)? + "/cancel";
        let Some(server) = self.server() else { return Ok(()) };
        server.post_body(&path, "application/json", &mut &b"{}"[..], None).map(drop)
    }

    /// The path of the batch.
    fn path(&self, batch: &Batch) -> Result<String> {
        let Some(id) = &batch.job.provider_id else {
            let message = format!("the submission of {} is incomplete", batch.job.job_id);
            return Err(Error::new(Code::Conflict, message)
                .with("reason", "unfinished")
                .hint("submit the same input again to continue"));
        };
        Ok(format!("{}/{id}", self.api.path))
    }

    /// The error for a submission that was interrupted: only a person can see at the provider if the batch was created.
    pub(super) fn interrupted(&self, batch: &Batch) -> Error {
        let (console, id, count) = (self.api.console, &batch.job.job_id, batch.job.count);
        let message = format!("the submission of {id} was interrupted, and the provider may have created the batch");
        Error::new(Code::HumanRequired, message)
            .with("action", "resolve_unfinished_batch")
            .with("resume", format!("cp-llm batch cancel {id}"))
            .with("batch", id.as_str())
            .with("console", console)
            .hint(format!(
                "look for a batch of {count} requests at {console}; if it is there, take its answers or cancel it \
                 there; then: cp-llm batch cancel {id}, and submit again"
            ))
            .fatal()
    }
}

/// A member that is an id, validated for use in a path.
fn id_of(value: &Value, name: &str) -> Result<String> {
    let is_id =
        |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let id = text_of(value, name).filter(is_id).map(str::to_owned);
    id.ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// The state of a batch, in the members of either provider, whose names do not collide. A batch of `OpenAI` has a file
/// of responses and a file of errors; a failed row without a line in the latter costs nothing.
fn progress(mut job: BatchJob, found: &Value, path: &str) -> Progress {
    let count = |names: &[&str]| names.iter().map(|name| count_of(found, &format!("/request_counts/{name}"))).sum();
    let (completed, cancelled): (u64, u64) = (count(&["completed"]), count(&["canceled"]));
    let answered = completed + count(&["succeeded"]);
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
    let files = ["output_file_id", "error_file_id"].iter().filter_map(|name| id_of(found, name).ok());
    let (results, first) = match found.get("processing_status") {
        Some(_) => (vec![format!("{path}/results")], job.done),
        None => (files.map(|file| format!("/files/{file}/content")).collect(), completed),
    };
    let has_counts = job.done > 0 || job.status != State::Succeeded;
    let recorded = (first, if has_counts { first } else { job.count });
    Progress { job, results, recorded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_states_map_to_states() {
        let state = |found: &Value| progress(BatchJob::default(), found, "").job;
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

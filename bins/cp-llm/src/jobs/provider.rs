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
use crate::wire_api::{BatchApi, count_of, shortened, text_of};

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
}

/// The state of a batch at its provider.
pub(super) struct Progress {
    pub job: BatchJob,
    /// The number of answers, which are paid for.
    pub answered: u64,
    /// The number of rows that the results have, by the counts of the provider.
    pub recorded: u64,
    /// The paths of its results.
    pub results: Vec<String>,
}

impl Progress {
    /// The number of rows that the results must have. A provider without counts has a result for each row of a batch
    /// that succeeded.
    pub(super) fn recorded(&self) -> u64 {
        let has_counts = self.job.done > 0 || self.job.status != State::Succeeded;
        if has_counts { self.recorded } else { self.job.count }
    }
}

impl Client {
    /// The client of an endpoint. Fails if its backend has no batches.
    pub(super) fn of(engine: Engine, endpoint: Arc<Endpoint>) -> Result<Self> {
        let ready = engine.backends.of(&endpoint)?;
        let name = ready.backend.name();
        let api = match ready.backend.server() {
            Some(server) => server.api.facts().batch_api,
            None => (name == "stub").then_some(BatchApi { has_file: false, path: "", console: "" }),
        };
        let Some(api) = api else {
            let error = Error::usage(format!("the backend {name} has no batches")).fatal();
            return Err(error.hint(
                "use anthropic, openai, openai-responses or stub; --jobs sends concurrent requests to any backend",
            ));
        };
        Ok(Self { engine, endpoint, ready, api })
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

    /// Appends a request, which has this path if it is sent alone, to those of a batch.
    pub(super) fn append(&self, requests: &mut Vec<u8>, number: u64, path: &str, body: &[u8]) {
        let head = match (self.api.has_file, number) {
            (true, _) => {
                format!("{{\"custom_id\":\"row-{number}\",\"method\":\"POST\",\"url\":\"/v1{path}\",\"body\":")
            }
            (false, 0) => "{\"custom_id\":\"row-0\",\"params\":".to_owned(),
            (false, _) => format!(",{{\"custom_id\":\"row-{number}\",\"params\":"),
        };
        requests.extend([head.as_bytes(), body, b"}\n"].concat());
    }

    /// Creates the batch at the provider and keeps its id. `path` is that of a single request. The provider may have
    /// created a batch after a failure, except if the second value is true.
    pub(super) fn create(&self, batch: &mut Batch, path: &str, requests: &[u8]) -> (Result<()>, bool) {
        let Some(server) = self.server() else {
            return (batch.ask().and_then(|()| batch.created("stub".to_owned())), false);
        };
        let body = if self.api.has_file {
            let form = [FORM[0].as_bytes(), requests, FORM[1].as_bytes()].concat();
            let file = server.post_body("/files", FORM_TYPE, &mut form.as_slice(), None).and_then(|made| id_of(&made));
            match file {
                Ok(file) => json!({"input_file_id": file, "endpoint": format!("/v1{path}"),
                    "completion_window": "24h", "metadata": {"cp_batch": batch.job.job_id}})
                .to_string()
                .into_bytes(),
                // A file without a batch costs nothing.
                Err(error) => return (Err(error), true),
            }
        } else {
            [b"{\"requests\":[", requests, b"]}"].concat()
        };
        if let Err(error) = batch.ask() {
            return (Err(error), true);
        }
        let mut rest = body.as_slice();
        let made = server.post_body(self.api.path, "application/json", &mut rest, Some(&batch.job.job_id));
        let status = made.as_ref().err().and_then(|error| error.details().get("status")?.as_u64()).unwrap_or(0);
        // An incomplete body was not a complete request.
        let is_certain = !rest.is_empty() || (400..500).contains(&status) && status != 408;
        (made.and_then(|made| batch.created(id_of(&made)?)), is_certain)
    }

    /// The state of the batch. Fails if it was not submitted completely.
    pub(super) fn progress(&self, batch: &Batch) -> Result<Progress> {
        let path = self.path(batch)?;
        let mut job = batch.job.clone();
        let Some(server) = self.server() else {
            (job.status, job.done) = (State::Succeeded, job.count);
            return Ok(Progress { job, answered: 0, recorded: 0, results: Vec::new() });
        };
        let found = server.resource(&path)?;
        let progress = if self.api.has_file { openai } else { anthropic };
        Ok(progress(job, &found, &server.base, &path))
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

/// The id of a created resource, validated for use in a path.
fn id_of(value: &Value) -> Result<String> {
    valid_id(value, "id").ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// A member that is an id, validated for use in a path.
fn valid_id(value: &Value, name: &str) -> Option<String> {
    let is_id = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    text_of(value, name).filter(|id| !id.is_empty()).filter(is_id).map(str::to_owned)
}

/// The state of a batch at Anthropic. A link to results that is not below the base URL is ignored, because the key is
/// sent with the request.
fn anthropic(mut job: BatchJob, found: &Value, base: &str, path: &str) -> Progress {
    let [answered, errored, cancelled, expired] =
        ["succeeded", "errored", "canceled", "expired"].map(|name| count_of(found, &format!("/request_counts/{name}")));
    job.done = answered + errored + cancelled + expired;
    job.status = match text_of(found, "processing_status") {
        Some("ended") if cancelled > 0 => State::Cancelled,
        Some("ended") if answered == 0 && job.done > 0 => State::Failed,
        Some("ended") => State::Succeeded,
        _ => State::Running,
    };
    let link = text_of(found, "results_url").map(|link| link.strip_prefix(base).unwrap_or(link));
    let link = link.filter(|link| link.starts_with('/') && !link.starts_with("//")).map(str::to_owned);
    let results = vec![link.unwrap_or_else(|| format!("{path}/results"))];
    Progress { answered, recorded: job.done, results, job }
}

/// The state of a batch at `OpenAI`. A failed row that has no line in the error file costs nothing.
fn openai(mut job: BatchJob, found: &Value, _: &str, _: &str) -> Progress {
    let [answered, failed] = ["completed", "failed"].map(|name| count_of(found, &format!("/request_counts/{name}")));
    job.done = answered + failed;
    job.status = match text_of(found, "status").unwrap_or_default() {
        "validating" => State::Pending,
        "completed" if answered == 0 && failed > 0 => State::Failed,
        "completed" => State::Succeeded,
        "failed" | "expired" => State::Failed,
        "cancelled" => State::Cancelled,
        _ => State::Running,
    };
    job.failure = found.pointer("/errors/data/0/message").and_then(Value::as_str).map(shortened);
    job.untrusted = job.failure.iter().map(|_| "/failure".to_owned()).collect();
    let files = ["output_file_id", "error_file_id"].into_iter().filter_map(|name| valid_id(found, name));
    let results = files.map(|file| format!("/files/{file}/content")).collect();
    Progress { job, answered, recorded: answered, results }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> BatchJob {
        BatchJob::default()
    }

    #[test]
    fn results_link_outside_base_url_is_ignored() {
        let path = |link: &str| {
            anthropic(job(), &json!({"results_url": link}), "https://api.example", "/own").results.remove(0)
        };
        assert_eq!(path("https://api.example/v1/r?x=1"), "/v1/r?x=1");
        assert_eq!(path("/v1/r"), "/v1/r");
        for elsewhere in ["https://other.example/r", "https://api.example.evil/r", "//other.example/r", "r", ""] {
            assert_eq!(path(elsewhere), "/own/results", "{elsewhere}");
        }
    }

    #[test]
    fn provider_states_map_to_states() {
        let all =
            ["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"];
        let ended = all.map(|status| openai(job(), &json!({"status": status}), "", "").job.is_ended());
        assert_eq!(ended, [false, false, false, true, true, true, false, true]);
        let ended = |counts: Value| {
            anthropic(job(), &json!({"processing_status": "ended", "request_counts": counts}), "", "").job.status
        };
        assert_eq!(ended(json!({"succeeded": 1, "errored": 2})), State::Succeeded);
        assert_eq!(ended(json!({"errored": 2, "expired": 1})), State::Failed);
        assert_eq!(ended(json!({"succeeded": 1, "canceled": 2})), State::Cancelled);
    }
}

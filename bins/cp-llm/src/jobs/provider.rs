//! The batches of a provider: the protocols of Anthropic and `OpenAI`, and the stub, which has its answers at once.

use std::sync::Arc;
use std::time::Duration;

use cp_common::{Code, Context, Error, Result};
use serde_json::{Value, json};

use super::state::{Batch, Line, Progress, State, Terms};
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Endpoint};
use crate::backend::server::Server;
use crate::backend::{Backends, Ready};
use crate::engine::Engine;
use crate::engine::retry::RetryPolicy;
use crate::engine::schema::AnswerSchema;
use crate::policy::Policy;
use crate::wire_api::{BatchApi, shortened, text_of};

/// The time limit of a request about a batch.
const LIMIT: Duration = Duration::from_mins(10);

/// What a provider takes as a batch.
pub(super) struct Protocol {
    /// The most requests and the most bytes.
    pub rows: u64,
    pub bytes: usize,
    /// The requests are uploaded as a file first, and must be to one model.
    pub has_file: bool,
    /// The texts before and after the requests.
    pub frame: [&'static str; 2],
    /// The path of all batches, and the page where a person sees them.
    pub path: &'static str,
    pub console: &'static str,
}

const ANTHROPIC: Protocol = Protocol {
    rows: 100_000,
    bytes: 255 << 20,
    has_file: false,
    frame: ["{\"requests\":[", "]}"],
    path: "/v1/messages/batches",
    console: "https://console.anthropic.com",
};
/// The file is a form (RFC 7578). Every line of it begins with a brace, so the boundary cannot occur.
const OPENAI: Protocol = Protocol {
    rows: 50_000,
    bytes: 199 << 20,
    has_file: true,
    frame: [
        "--cp-batch\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--cp-batch\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"cp-batch.jsonl\"\r\n\
         Content-Type: application/jsonl\r\n\r\n",
        "\r\n--cp-batch--\r\n",
    ],
    path: "/batches",
    console: "https://platform.openai.com/batches",
};
const STUB: Protocol = Protocol { rows: u64::MAX, bytes: usize::MAX, path: "", console: "", ..ANTHROPIC };

impl Protocol {
    /// Encodes a request, which has this path if it is sent alone, as a line of the batch.
    pub(super) fn line(&self, number: u64, path: &str, body: &[u8]) -> Vec<u8> {
        let head = if self.has_file {
            format!("{{\"custom_id\":\"row-{number}\",\"method\":\"POST\",\"url\":\"/v1{path}\",\"body\":")
        } else {
            let comma = if number == 0 { "" } else { "," };
            format!("{comma}{{\"custom_id\":\"row-{number}\",\"params\":")
        };
        [head.as_bytes(), body, b"}\n"].concat()
    }
}

/// The client of an endpoint that takes batches.
pub(super) struct Client {
    pub engine: Engine,
    pub endpoint: Arc<Endpoint>,
    pub ready: Ready,
    pub protocol: &'static Protocol,
}

impl Client {
    /// The client of an endpoint. Fails if its backend has no batches.
    pub(super) fn of(engine: Engine, endpoint: Arc<Endpoint>) -> Result<Self> {
        let ready = engine.backends.of(&endpoint)?;
        let name = ready.backend.name();
        let protocol = match ready.backend.server().map(|server| server.api.facts().batch_api) {
            Some(Some(BatchApi::Inline)) => &ANTHROPIC,
            Some(Some(BatchApi::File)) => &OPENAI,
            None if name == "stub" => &STUB,
            _ => {
                let error = Error::usage(format!("the backend {name} has no batches")).fatal();
                return Err(error.hint(
                    "use anthropic, openai, openai-responses or stub; --jobs sends concurrent requests to any backend",
                ));
            }
        };
        Ok(Self { engine, endpoint, ready, protocol })
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
        if client.base() == batch.job.endpoint.as_deref() {
            return Ok(client);
        }
        let [there, here] = [batch.job.endpoint.as_deref(), client.base()].map(|base| base.unwrap_or("no server"));
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

    /// Creates the batch at the provider and keeps its id. `path` is that of a single request. After a failure
    /// `was_asked` is false if the provider has certainly not created it.
    pub(super) fn create(&self, batch: &mut Batch, path: &str, requests: &[u8]) -> Result<()> {
        let Some(server) = self.server() else { return batch.add(&Line::Created("stub".to_owned())) };
        let made = if self.protocol.has_file {
            // A file without a batch costs nothing.
            let kind = "multipart/form-data; boundary=cp-batch";
            let file = created_id(&server.post_body("/files", kind, &mut &*requests, None)?)?;
            let body = json!({"input_file_id": file, "endpoint": format!("/v1{path}"),
                "completion_window": "24h", "metadata": {"cp_batch": batch.job.job_id}});
            self.ask(batch, server, body.to_string().as_bytes())?
        } else {
            self.ask(batch, server, requests)?
        };
        batch.add(&Line::Created(created_id(&made)?))
    }

    /// Sends the request that creates a batch, with its id as the idempotency key.
    fn ask(&self, batch: &mut Batch, server: &Server, body: &[u8]) -> Result<Value> {
        batch.add(&Line::Asked(true))?;
        let mut rest = body;
        let made = server.post_body(self.protocol.path, "application/json", &mut rest, Some(&batch.job.job_id));
        if let Err(error) = &made {
            let status = error.details().get("status").and_then(Value::as_u64).unwrap_or(0);
            // An incomplete body was not a complete request.
            if !rest.is_empty() || (400..500).contains(&status) && status != 408 {
                batch.add(&Line::Asked(false))?;
            }
        }
        made
    }

    /// The state of the batch. Fails if it was not submitted completely.
    pub(super) fn progress(&self, batch: &Batch) -> Result<Progress> {
        let path = self.path(batch)?;
        let Some(server) = self.server() else { return Ok(Progress::of(State::Succeeded, batch.job.count)) };
        let found = server.resource(&path)?;
        Ok(if self.protocol.has_file { openai(&found) } else { anthropic(&found, &server.base, &path) })
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
        Ok(format!("{}/{id}", self.protocol.path))
    }

    /// The error for a submission that was interrupted: only a person can see at the provider if the batch was created.
    pub(super) fn interrupted(&self, batch: &Batch) -> Error {
        let (console, id, count) = (self.protocol.console, &batch.job.job_id, batch.job.count);
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
fn created_id(value: &Value) -> Result<String> {
    valid_id(value, "id").ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// A member that is an id, validated for use in a path.
fn valid_id(value: &Value, name: &str) -> Option<String> {
    let is_id = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    text_of(value, name).filter(|id| !id.is_empty()).filter(is_id).map(str::to_owned)
}

fn count(found: &Value, name: &str) -> u64 {
    found.pointer(&format!("/request_counts/{name}")).and_then(Value::as_u64).unwrap_or(0)
}

/// The state of a batch at Anthropic. A link to results that is not below `base` is ignored, because the key is sent
/// with the request.
fn anthropic(found: &Value, base: &str, path: &str) -> Progress {
    let answered = count(found, "succeeded");
    let done = answered + ["errored", "canceled", "expired"].map(|name| count(found, name)).iter().sum::<u64>();
    let status = match text_of(found, "processing_status") {
        Some("ended") if count(found, "canceled") > 0 => State::Cancelled,
        Some("ended") if answered == 0 && done > 0 => State::Failed,
        Some("ended") => State::Succeeded,
        _ => State::Running,
    };
    let link = text_of(found, "results_url").map(|link| link.strip_prefix(base).unwrap_or(link));
    let link = link.filter(|link| link.starts_with('/') && !link.starts_with("//")).map(str::to_owned);
    let results = vec![link.unwrap_or_else(|| format!("{path}/results"))];
    Progress { answered, results, ..Progress::of(status, done) }
}

/// The state of a batch at `OpenAI`. A failed row that has no line in the error file costs nothing.
fn openai(found: &Value) -> Progress {
    let (answered, failed) = (count(found, "completed"), count(found, "failed"));
    let status = match text_of(found, "status").unwrap_or_default() {
        "validating" => State::Pending,
        "completed" if answered == 0 && failed > 0 => State::Failed,
        "completed" => State::Succeeded,
        "failed" | "expired" => State::Failed,
        "cancelled" => State::Cancelled,
        _ => State::Running,
    };
    let files = ["output_file_id", "error_file_id"].into_iter().filter_map(|name| valid_id(found, name));
    Progress {
        answered,
        recorded: answered,
        failure: found.pointer("/errors/data/0/message").and_then(Value::as_str).map(shortened),
        results: files.map(|file| format!("/files/{file}/content")).collect(),
        ..Progress::of(status, answered + failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_link_outside_base_url_is_ignored() {
        let path =
            |link: &str| anthropic(&json!({"results_url": link}), "https://api.example", "/own").results.remove(0);
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
        let states = all.map(|status| openai(&json!({"status": status})).status);
        assert!(states.map(State::is_ended) == [false, false, false, true, true, true, false, true], "{states:?}");
        let ended =
            |counts: Value| anthropic(&json!({"processing_status": "ended", "request_counts": counts}), "", "").status;
        assert_eq!(ended(json!({"succeeded": 1, "errored": 2})), State::Succeeded);
        assert_eq!(ended(json!({"errored": 2, "expired": 1})), State::Failed);
        assert_eq!(ended(json!({"succeeded": 1, "canceled": 2})), State::Cancelled);
    }
}

//! The batches of a provider: the protocols of Anthropic and `OpenAI`, and the stub, which has its answers at once.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Take};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::time::Duration;

use cp_common::{Code, Context, Error, Result};
use serde_json::{Value, json};

use super::state::{Batch, Job, Line, Progress, State};
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Endpoint};
use crate::backend::server::Server;
use crate::backend::{Backend, Backends, Ready};
use crate::engine::Engine;
use crate::engine::retry::RetryPolicy;
use crate::engine::schema::AnswerSchema;
use crate::policy::Policy;
use crate::wire_api::{BatchApi, Request, shortened, text_of};

/// The time limit of a request about a batch.
const LIMIT: Duration = Duration::from_mins(10);

/// The client of an endpoint that takes batches.
pub(super) struct Client {
    pub engine: Engine,
    pub endpoint: Arc<Endpoint>,
    pub ready: Ready,
}

impl Client {
    /// The client of an endpoint.
    pub(super) fn of(engine: Engine, endpoint: Arc<Endpoint>) -> Result<Self> {
        let ready = engine.backends.of(&endpoint)?;
        Ok(Self { engine, endpoint, ready })
    }

    /// The batch API of its provider.
    pub(super) fn provider(&self) -> Result<BatchProvider<'_>> {
        BatchProvider::of(self.ready.backend.as_ref())
    }

    /// The client that reads the answers of a batch, with the schema and the ledger of its submission.
    pub(super) fn of_job(job: &Job, context: &mut Context) -> Result<Self> {
        let policy = Policy::load(context)?;
        let options = BackendOptions::new(LIMIT, policy.permission());
        let backends = Backends::new(BackendOptions { stub_script: job.stub_script.clone(), ..options });
        let endpoint = Endpoints::load(context, Some(&job.endpoint))?.default_for(None)?;
        let given = context.options.clone();
        context.options.ledger = Some(OsString::from_vec(job.ledger.clone()).into());
        (context.options.session, context.options.run) = (job.session.clone(), job.run.clone());
        let engine = Engine::new(context, backends, RetryPolicy::NONE, policy.table.log_content);
        context.options = given;
        let schema = job.schema.clone().map(AnswerSchema::compile).transpose()?;
        let client = Self::of(Engine { schema, fail_on: job.fail_on.clone(), ..engine? }, endpoint)?;
        let here = client.provider()?.endpoint().map(str::to_owned);
        if here == job.server {
            return Ok(client);
        }
        let [there, here] = [&job.server, &here].map(|base| base.as_deref().unwrap_or("no server"));
        let message = format!("{} was submitted to {there}, and {here} is configured", job.id);
        Err(Error::config(message).hint("set the base URL to the server of the submission").fatal())
    }
}

/// The batch API of a server, or of the stub if there is no server.
pub(super) struct BatchProvider<'a>(pub Option<(&'a Server, BatchApi)>);

/// The path of all batches.
const fn batches_path(api: BatchApi) -> &'static str {
    match api {
        BatchApi::Inline => "/v1/messages/batches",
        BatchApi::File => "/batches",
    }
}

impl<'a> BatchProvider<'a> {
    /// The batch API of a backend. Fails if it has none.
    pub(super) fn of(backend: &'a dyn Backend) -> Result<Self> {
        let server = backend.server().and_then(|server| Some((server, server.api.facts().batch_api?)));
        if server.is_some() || backend.name() == "stub" {
            return Ok(Self(server));
        }
        Err(Error::usage(format!("the backend {} has no batches", backend.name()))
            .hint("use anthropic, openai, openai-responses or stub; --jobs sends concurrent requests to any backend")
            .fatal())
    }

    /// The base URL of its server.
    pub(super) fn endpoint(&self) -> Option<&'a str> {
        self.0.map(|(server, _)| server.base.as_str())
    }

    /// The path of a single request.
    pub(super) fn path(&self, request: &Request) -> String {
        self.0.map(|(server, _)| server.api.path(request)).unwrap_or_default()
    }

    /// The limits of a batch: requests, bytes, and whether all requests must be to one model.
    pub(super) const fn limits(&self) -> (u64, u64, bool) {
        match self.0 {
            Some((_, BatchApi::Inline)) => (100_000, 255 << 20, false),
            Some((_, BatchApi::File)) => (50_000, 199 << 20, true),
            None => (u64::MAX, u64::MAX, false),
        }
    }

    /// Encodes a request as a line of the batch.
    pub(super) fn line(&self, number: u64, path: &str, body: &[u8]) -> Vec<u8> {
        let head = match self.0 {
            Some((_, BatchApi::File)) => {
                format!("{{\"custom_id\":\"row-{number}\",\"method\":\"POST\",\"url\":\"/v1{path}\",\"body\":")
            }
            _ => format!("{}{{\"custom_id\":\"row-{number}\",\"params\":", if number == 0 { "" } else { "," }),
        };
        [head.as_bytes(), body, b"}\n"].concat()
    }

    /// Creates the batch at the provider and keeps its id. `path` is that of a single request. After a failure `was_asked` is false if the provider
    /// has certainly not created it.
    pub(super) fn create(&self, batch: &mut Batch, path: &str, requests: &[u8]) -> Result<()> {
        let made = match self.0 {
            None => json!({"id": "stub"}),
            Some((server, BatchApi::Inline)) => {
                let (mut body, length) = framed("{\"requests\":[", requests, "]}");
                create_request(batch, server, BatchApi::Inline, &mut body, length)?
            }
            Some((server, BatchApi::File)) => {
                let file = upload(&batch.job.id, requests, server)?;
                let body = json!({"input_file_id": file, "endpoint": format!("/v1{path}"),
                    "completion_window": "24h", "metadata": {"cp_batch": batch.job.id}});
                let body = body.to_string();
                let (mut body, length) = framed(&body, b"", "");
                create_request(batch, server, BatchApi::File, &mut body, length)?
            }
        };
        batch.add(&Line::Created(created_id(&made)?))
    }

    /// The state of the batch.
    pub(super) fn progress(&self, batch: &Batch) -> Result<Progress> {
        let Some((server, api)) = self.0 else { return Ok(Progress::of(State::Succeeded, "ended", batch.job.count)) };
        let found = server.resource(&resource_path(batch, api, ""))?;
        Ok(match api {
            BatchApi::Inline => anthropic_progress(&found, &server.base, &resource_path(batch, api, "/results")),
            BatchApi::File => openai_progress(&found),
        })
    }

    /// Cancels the batch.
    pub(super) fn cancel(&self, batch: &Batch) -> Result<()> {
        let Some((server, api)) = self.0 else { return Ok(()) };
        server.post_body(&resource_path(batch, api, "/cancel"), "application/json", &mut &b"{}"[..], 2, None).map(drop)
    }

    /// Downloads the results to a file.
    pub(super) fn save_results(&self, progress: &Progress, file: &mut File) -> Result<()> {
        let Some((server, _)) = self.0 else { return Ok(()) };
        progress.results.iter().try_for_each(|path| server.download(path, file))
    }

    /// The error for a submission that was interrupted: only a person can see at the provider if the batch was created.
    pub(super) fn interrupted(&self, job: &Job) -> Error {
        let console = match self.0 {
            Some((_, BatchApi::File)) => "https://platform.openai.com/batches",
            _ => "https://console.anthropic.com",
        };
        let (id, count) = (&job.id, job.count);
        let message = format!("the submission of {id} was interrupted, and the provider may have created the batch");
        Error::new(Code::HumanRequired, message)
            .with("action", "resolve_unfinished_batch")
            .with("resume", format!("cp-llm batch cancel {id}"))
            .with("batch", id.as_str())
            .with("console", console)
            .hint(format!(
                "look for a batch of {count} requests at {console}; if it is there, take its answers or cancel it there; \
                 then: cp-llm batch cancel {id}, and submit again"
            ))
            .fatal()
    }
}

/// Sends the request that creates a batch, with its id as the idempotency key.
fn create_request(
    batch: &mut Batch,
    server: &Server,
    api: BatchApi,
    body: &mut Take<impl Read>,
    length: u64,
) -> Result<Value> {
    batch.add(&Line::Asked(true))?;
    let key = batch.job.id.clone();
    let made = server.post_body(batches_path(api), "application/json", body, length, Some(&key));
    if let Err(error) = &made {
        let status = error.details().get("status").and_then(Value::as_u64).unwrap_or(0);
        // An incomplete body was not a complete request.
        if body.limit() > 0 || (400..500).contains(&status) && status != 408 {
            batch.add(&Line::Asked(false))?;
        }
    }
    made
}

/// The path of the batch, or of a resource below it.
fn resource_path(batch: &Batch, api: BatchApi, what: &str) -> String {
    format!("{}/{}{what}", batches_path(api), batch.provider_id.as_deref().unwrap_or_default())
}

/// The id of a created resource, validated for use in a path.
fn created_id(value: &Value) -> Result<String> {
    let id = text_of(value, "id").and_then(valid_id);
    id.ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// Validates an id for use in a path.
fn valid_id(id: &str) -> Option<String> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_id.then(|| id.to_owned())
}

/// Bytes between two texts, and the total length.
fn framed<'b>(before: &'b str, bytes: &'b [u8], after: &'b str) -> (Take<impl Read + use<'b>>, u64) {
    let length = (before.len() + bytes.len() + after.len()) as u64;
    (before.as_bytes().chain(bytes).chain(after.as_bytes()).take(length), length)
}

/// Uploads the requests as a file (RFC 7578) and returns its id. A file without a batch costs nothing.
fn upload(id: &str, requests: &[u8], server: &Server) -> Result<String> {
    // Every line of the file begins with a brace, so the boundary cannot occur.
    let before = format!(
        "--{id}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{id}\r\nContent-Disposition: \
         form-data; name=\"file\"; filename=\"{id}.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n"
    );
    let after = format!("\r\n--{id}--\r\n");
    let (mut body, length) = framed(&before, requests, &after);
    let made = server.post_body("/files", &format!("multipart/form-data; boundary={id}"), &mut body, length, None)?;
    created_id(&made)
}

fn count(found: &Value, name: &str) -> u64 {
    found.pointer(&format!("/request_counts/{name}")).and_then(Value::as_u64).unwrap_or(0)
}

/// The number of requests in a batch at Anthropic.
fn total(found: &Value) -> u64 {
    ["processing", "succeeded", "errored", "canceled", "expired"].iter().map(|name| count(found, name)).sum()
}

/// The state of a batch at Anthropic. A link to results that is not below `base` is ignored, because the key is sent with the request.
fn anthropic_progress(found: &Value, base: &str, results: &str) -> Progress {
    let word = text_of(found, "processing_status").unwrap_or_default();
    let succeeded = count(found, "succeeded");
    let state = match word {
        "ended" if count(found, "canceled") > 0 => State::Cancelled,
        "ended" if succeeded == 0 && total(found) > 0 => State::Failed,
        "ended" => State::Succeeded,
        _ => State::Running,
    };
    let link = text_of(found, "results_url").map(|link| link.strip_prefix(base).unwrap_or(link));
    let link = link.filter(|link| link.starts_with('/') && !link.starts_with("//")).unwrap_or(results);
    let done = total(found) - count(found, "processing");
    Progress { answered: succeeded, results: vec![link.to_owned()], ..Progress::of(state, word, done) }
}

/// The state of a batch at `OpenAI`.
fn openai_progress(found: &Value) -> Progress {
    let word = text_of(found, "status").unwrap_or_default();
    let answered = count(found, "completed");
    let state = match word {
        "validating" => State::Pending,
        "completed" if answered == 0 && count(found, "failed") > 0 => State::Failed,
        "completed" => State::Succeeded,
        "failed" | "expired" => State::Failed,
        "cancelled" => State::Cancelled,
        _ => State::Running,
    };
    let files = ["output_file_id", "error_file_id"].map(|name| text_of(found, name).and_then(valid_id));
    Progress {
        answered,
        // A failed row that has no line in the error file costs nothing.
        recorded: answered,
        failure: found.pointer("/errors/data/0/message").and_then(Value::as_str).map(shortened),
        results: files.into_iter().flatten().map(|file| format!("/files/{file}/content")).collect(),
        ..Progress::of(state, word, answered + count(found, "failed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_link_outside_base_url_is_ignored() {
        let path = |link: &str| {
            anthropic_progress(&json!({"results_url": link}), "https://api.example", "/own").results.remove(0)
        };
        assert_eq!(path("https://api.example/v1/r?x=1"), "/v1/r?x=1");
        assert_eq!(path("/v1/r"), "/v1/r");
        for elsewhere in ["https://other.example/r", "https://api.example.evil/r", "//other.example/r", "r", ""] {
            assert_eq!(path(elsewhere), "/own", "{elsewhere}");
        }
    }

    #[test]
    fn provider_states_map_to_states() {
        let all =
            ["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"];
        let states = all.map(|status| openai_progress(&json!({"status": status})).state);
        assert!(states.map(State::is_ended) == [false, false, false, true, true, true, false, true], "{states:?}");
        let ended = |counts: Value| {
            anthropic_progress(&json!({"processing_status": "ended", "request_counts": counts}), "", "").state
        };
        assert_eq!(ended(json!({"succeeded": 1, "errored": 2})), State::Succeeded);
        assert_eq!(ended(json!({"errored": 2, "expired": 1})), State::Failed);
        assert_eq!(ended(json!({"succeeded": 1, "canceled": 2})), State::Cancelled);
    }
}

//! The client of one endpoint that takes batches: the protocols of Anthropic and `OpenAI`, and the stub, which has its answers at once.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Take};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use cp_common::{Code, Context, Error, Result, clock};
use serde_json::{Value, json};

use super::job::{Job, Progress, State};
use crate::backend::endpoint::Endpoint;
use crate::backend::server::Server;
use crate::backend::{Backend, Ready};
use crate::engine::Engine;
use crate::send::{self, RequestBuilder};
use crate::wire_api::{BatchApi, Request, shortened, text_of};

/// Who makes batches of requests: one endpoint.
pub(super) struct BatchClient {
    pub engine: Engine,
    pub endpoint: Arc<Endpoint>,
    pub ready: Ready,
}

impl BatchClient {
    /// The endpoint that these requests are for.
    pub(super) fn of(engine: Engine, requests: &RequestBuilder) -> Result<Self> {
        let endpoint = requests.endpoint()?;
        let ready = engine.backends.of(&endpoint)?;
        Ok(Self { engine, endpoint, ready })
    }

    /// How it takes batches.
    pub(super) fn provider(&self) -> Result<BatchProvider<'_>> {
        BatchProvider::of(self.ready.backend.as_ref())
    }

    /// What reads the answers of a batch: as its submit said, on the ledger of its submit.
    pub(super) fn of_job(job: &Job, context: &mut Context) -> Result<Self> {
        let schema = job.file("schema.json");
        let schema = schema.exists().then(|| format!("--schema={}", schema.display()));
        let words: Vec<String> = job.words.iter().cloned().chain(schema).collect();
        let given = context.options.clone();
        context.options.ledger = Some(OsString::from_vec(job.ledger.clone()).into());
        (context.options.session, context.options.run) = (job.session.clone(), job.run.clone());
        let prepared = send::Args::from_words(&words).and_then(|args| args.prepared(context));
        context.options = given;
        let (engine, requests) = prepared?;
        let client = Self::of(engine, &requests)?;
        let here = client.ready.backend.server().map(|server| server.base.clone());
        if here == job.endpoint {
            return Ok(client);
        }
        let [there, here] = [&job.endpoint, &here].map(|base| base.as_deref().unwrap_or("no server"));
        let message = format!("{} was submitted to {there}, and {here} is configured", job.id);
        Err(Error::config(message).hint("set the base URL to where it was submitted").fatal())
    }
}

/// How long a request that was cut off may take to become a batch, in seconds.
const SETTLED: u64 = 120;
/// How far the clocks of two machines may be apart, in seconds.
const SKEW: u64 = 3600;

/// Who takes batches: a server, or else the stub.
pub(super) struct BatchProvider<'a>(pub Option<(&'a Server, BatchApi)>);

/// Where the batches of a protocol are, below the base URL.
const fn batches_path(api: BatchApi) -> &'static str {
    match api {
        BatchApi::Inline => "/v1/messages/batches",
        BatchApi::File => "/batches",
    }
}

impl<'a> BatchProvider<'a> {
    /// The provider of a backend, where it takes batches.
    pub(super) fn of(backend: &'a dyn Backend) -> Result<Self> {
        let server = backend.server().and_then(|server| Some((server, server.api.batch_api()?)));
        if server.is_some() || backend.name() == "stub" {
            return Ok(Self(server));
        }
        Err(Error::usage(format!("the backend {} has no batches", backend.name()))
            .hint("anthropic, openai, openai-responses and the stub have; --jobs asks others in parallel")
            .fatal())
    }

    /// The base URL of its server.
    pub(super) fn endpoint(&self) -> Option<&'a str> {
        self.0.map(|(server, _)| server.base.as_str())
    }

    /// Where a request would go by itself, below the base.
    pub(super) fn path(&self, request: &Request) -> String {
        self.0.map(|(server, _)| server.api.path(request)).unwrap_or_default()
    }

    /// The most requests, and bytes of them, that one batch may have, and whether all must be to one model.
    pub(super) const fn limits(&self) -> (u64, u64, bool) {
        match self.0 {
            Some((_, BatchApi::Inline)) => (100_000, 255 << 20, false),
            Some((_, BatchApi::File)) => (50_000, 199 << 20, true),
            None => (u64::MAX, u64::MAX, false),
        }
    }

    /// A request as a line of what is sent.
    pub(super) fn line(&self, number: u64, path: &str, body: &[u8]) -> Vec<u8> {
        let head = match self.0 {
            Some((_, BatchApi::File)) => {
                format!("{{\"custom_id\":\"row-{number}\",\"method\":\"POST\",\"url\":\"/v1{path}\",\"body\":")
            }
            _ => format!("{}{{\"custom_id\":\"row-{number}\",\"params\":", if number == 0 { "" } else { "," }),
        };
        [head.as_bytes(), body, b"}\n"].concat()
    }

    /// Has the provider make the batch, and keeps its id. Where the provider certainly has not made it, `asked_at` is none.
    pub(super) fn create(&self, job: &mut Job) -> Result<()> {
        let made = match self.0 {
            None => json!({"id": "stub"}),
            Some((server, BatchApi::Inline)) => {
                let (mut body, length) = framed("{\"requests\":[", job.opened("requests")?, "]}")?;
                create_request(job, server, BatchApi::Inline, &mut body, length)?
            }
            Some((server, BatchApi::File)) => {
                let file = match job.input_file.clone() {
                    Some(file) => file,
                    None => uploaded(job, server)?,
                };
                let body = json!({"input_file_id": file, "endpoint": format!("/v1{}", job.path),
                    "completion_window": "24h", "metadata": {"cp_batch": job.id}});
                let body = body.to_string();
                let length = body.len() as u64;
                create_request(job, server, BatchApi::File, &mut body.as_bytes().take(length), length)?
            }
        };
        job.provider_id = Some(created_id(&made)?);
        job.save()
    }

    /// Where the batch stands.
    pub(super) fn progress(&self, job: &Job) -> Result<Progress> {
        let Some((server, api)) = self.0 else { return Ok(Progress::of(State::Succeeded, "ended", job.count)) };
        let found = server.resource(&resource_path(job, api, ""))?;
        Ok(match api {
            BatchApi::Inline => anthropic_progress(&found, &server.base, &resource_path(job, api, "/results")),
            BatchApi::File => openai_progress(&found),
        })
    }

    /// Stops the batch.
    pub(super) fn cancel(&self, job: &Job) -> Result<()> {
        let Some((server, api)) = self.0 else { return Ok(()) };
        server.post_body(&resource_path(job, api, "/cancel"), "application/json", &mut &b"{}"[..], 2).map(drop)
    }

    /// Writes the results to a file.
    pub(super) fn save_results(&self, progress: &Progress, file: &mut File) -> Result<()> {
        let Some((server, _)) = self.0 else { return Ok(()) };
        progress.results.iter().try_for_each(|path| server.download(path, file))
    }

    /// The id of a batch that the provider was asked for without hearing of it; none where it has not made it. Fails where that cannot be
    /// known. `others` are the ids of other batches.
    pub(super) fn find_created(&self, job: &Job, others: &[String]) -> Result<Option<String>> {
        let Some((server, api)) = self.0 else { return Ok(None) };
        let asked_at = job.asked_at.unwrap_or_default();
        let page = server.resource(&format!("{}?limit=100", batches_path(api)))?;
        let listed = page.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_marked = |one: &&Value| one.pointer("/metadata/cp_batch").is_some_and(|mark| *mark == *job.id);
        if let Some(found) = listed.iter().find(is_marked) {
            return created_id(found).map(Some);
        }
        let is_recent = |one: &&Value| created_at(one) + SKEW >= asked_at;
        let has_all = page["has_more"] != true || listed.last().is_some_and(|last| !is_recent(&last));
        // Anthropic's have no mark: one of this size may be it.
        let may_be = |one: &&Value| {
            let id = text_of(one, "id").unwrap_or_default();
            api == BatchApi::Inline
                && is_recent(one)
                && total(one) == job.count
                && !others.iter().any(|other| other == id)
        };
        let candidates: Vec<&Value> = listed.iter().filter(may_be).collect();
        if !candidates.is_empty() || !has_all {
            return Err(unresolved(job, &candidates));
        }
        let left = SETTLED.saturating_sub(clock::unix_seconds().saturating_sub(asked_at));
        if left == 0 {
            return Ok(None);
        }
        Err(Error::new(Code::Conflict, format!("{}: the provider may still make what a submit asked for", job.id))
            .with("reason", "unfinished")
            .with("retry_after_ms", left * 1000)
            .hint(format!("submit it again in {left} seconds"))
            .fatal())
    }
}

/// Sends what makes a batch, and finds out, where that fails, whether one can have been made.
fn create_request(
    job: &mut Job,
    server: &Server,
    api: BatchApi,
    body: &mut Take<impl Read>,
    length: u64,
) -> Result<Value> {
    job.mark_requested(true)?;
    let made = server.post_body(batches_path(api), "application/json", body, length);
    if let Err(error) = &made {
        let status = error.details().get("status").and_then(Value::as_u64).unwrap_or(0);
        // A body that was not read to its end was not a whole request.
        if body.limit() > 0 || (400..500).contains(&status) && status != 408 {
            job.mark_requested(false)?;
        }
    }
    made
}

/// A person must say which batch of the provider's it is, if it is one.
fn unresolved(job: &Job, candidates: &[&Value]) -> Error {
    let ids: Vec<String> = candidates.iter().filter_map(|one| valid_id(text_of(one, "id")?)).collect();
    let id = &job.id;
    Error::new(Code::HumanRequired, format!("a submit of {id} was cut off, and the provider may have made the batch"))
        .with("action", "resolve_unfinished_batch")
        .with("resume", format!("cp-llm batch fetch {id} --as {}", ids.first().map_or("ID", String::as_str)))
        .with("batch", id.as_str())
        .with("candidates", ids)
        .with("_untrusted", vec!["/candidates"])
        .hint(format!("look at them at the provider; if none is it: cp-llm batch cancel {id}, and submit again"))
        .fatal()
}

/// Where the batch, or something of it, is at its provider.
fn resource_path(job: &Job, api: BatchApi, what: &str) -> String {
    format!("{}/{}{what}", batches_path(api), job.provider_id.as_deref().unwrap_or_default())
}

/// The id of what the provider made, fit to be draft of a path.
fn created_id(value: &Value) -> Result<String> {
    let id = text_of(value, "id").and_then(valid_id);
    id.ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id"))
}

/// An id, if it is one.
pub(super) fn valid_id(id: &str) -> Option<String> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_id.then(|| id.to_owned())
}

/// A file between two texts, and the length of it all.
fn framed<'b>(before: &'b str, file: File, after: &'b str) -> Result<(Take<impl Read + use<'b>>, u64)> {
    let size = file.metadata()?.len();
    let length = before.len() as u64 + size + after.len() as u64;
    Ok((before.as_bytes().chain(file).chain(after.as_bytes()).take(length), length))
}

/// Uploads the requests as a file (RFC 7578). A file without a batch costs nothing.
fn uploaded(job: &mut Job, server: &Server) -> Result<String> {
    // Every line of the file begins with a brace, so none is the boundary.
    let id = &job.id;
    let before = format!(
        "--{id}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{id}\r\nContent-Disposition: \
         form-data; name=\"file\"; filename=\"{id}.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n"
    );
    let after = format!("\r\n--{id}--\r\n");
    let (mut body, length) = framed(&before, job.opened("requests")?, &after)?;
    let made = server.post_body("/files", &format!("multipart/form-data; boundary={id}"), &mut body, length)?;
    let file = created_id(&made)?;
    job.input_file = Some(file.clone());
    job.save()?;
    Ok(file)
}

fn count(found: &Value, name: &str) -> u64 {
    found.pointer(&format!("/request_counts/{name}")).and_then(Value::as_u64).unwrap_or(0)
}

/// How many requests a batch of Anthropic has.
fn total(found: &Value) -> u64 {
    ["processing", "succeeded", "errored", "canceled", "expired"].iter().map(|name| count(found, name)).sum()
}

/// When a batch was made, in seconds since 1970.
fn created_at(found: &Value) -> u64 {
    let made = found.get("created_at");
    let time = made.and_then(Value::as_str).and_then(|time| chrono::DateTime::parse_from_rfc3339(time).ok());
    let time = time.and_then(|time| u64::try_from(time.timestamp()).ok());
    time.or_else(|| made?.as_u64()).unwrap_or(u64::MAX / 2)
}

/// A batch of Anthropic. Its results are below `base`, whatever its link says: the key goes nowhere else.
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
    Progress { results: vec![link.to_owned()], ..Progress::of(state, word, done) }
}

/// A batch of `OpenAI`.
fn openai_progress(found: &Value) -> Progress {
    let word = text_of(found, "status").unwrap_or_default();
    let state = match word {
        "validating" => State::Pending,
        "completed" => State::Succeeded,
        "failed" | "expired" => State::Failed,
        "cancelled" => State::Cancelled,
        _ => State::Running,
    };
    let files = ["output_file_id", "error_file_id"].map(|name| text_of(found, name).and_then(valid_id));
    Progress {
        failure: found.pointer("/errors/data/0/message").and_then(Value::as_str).map(shortened),
        results: files.into_iter().flatten().map(|file| format!("/files/{file}/content")).collect(),
        ..Progress::of(state, word, count(found, "completed") + count(found, "failed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_asked_for_at_the_server_that_the_key_is_for() {
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
    fn states_are_those_of_every_job() {
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

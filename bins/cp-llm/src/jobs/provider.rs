//! The two protocols of jobs, Anthropic's Message Batches and OpenAI's Batch API, and the stub, which has its answers at once.

use std::fs::File;
use std::io::Read;

use cp_common::{Code, Error, Result, clock};
use serde_json::{Value, json};

use super::job::Job;
use super::record::State;
use crate::backend::Backend;
use crate::backend::server::Server;
use crate::dialect::{JobApi, Request, text_of};

/// Where Anthropic has its batches, below the base URL.
const MESSAGES: &str = "/v1/messages/batches";
/// Where OpenAI has them.
const BATCHES: &str = "/batches";
/// How long a request that was cut off may take to become a job, in seconds.
const SETTLED: u64 = 120;
/// How far the clocks of two machines may be apart, in seconds.
const SKEW: u64 = 3600;
/// How many pages of a provider's list are read at most.
const PAGES: usize = 100;

/// Who takes jobs.
#[derive(Clone, Copy)]
pub(super) enum Provider<'a> {
    Inline(&'a Server),
    File(&'a Server),
    Stub,
}

/// Where a job stands, as its provider says.
pub(super) struct Progress {
    pub state: State,
    /// The provider's own word.
    pub word: String,
    pub done: u64,
    pub failed: u64,
    /// Why it failed as a whole.
    pub failure: Option<String>,
    /// Where its results are, below the base URL.
    results: Vec<String>,
}

/// What is known of a job that the provider was asked to make, without hearing whether it did.
pub(super) enum Made {
    /// It did: this is its id there.
    Yes(String),
    /// It did not.
    No,
    /// One of these may be it.
    Perhaps(Vec<Value>),
}

impl Progress {
    /// Where a job stands that no provider has.
    pub(super) fn never_made() -> Self {
        let word = "never made".to_owned();
        Self { state: State::Cancelled, word, done: 0, failed: 0, failure: None, results: Vec::new() }
    }
}

impl<'a> Provider<'a> {
    /// The provider of a backend, where it takes jobs.
    pub(super) fn of(backend: &'a dyn Backend) -> Result<Self> {
        let server = backend.server().and_then(|server| Some((server, server.jobs()?)));
        match server {
            Some((server, JobApi::Inline)) => Ok(Self::Inline(server)),
            Some((server, JobApi::File)) => Ok(Self::File(server)),
            None if backend.name() == "stub" => Ok(Self::Stub),
            None => Err(Error::usage(format!("the backend {} has no batches", backend.name()))
                .hint("anthropic, openai, openai-responses and the stub have; --jobs asks others in parallel")
                .fatal()),
        }
    }

    /// The base URL of its server.
    pub(super) fn endpoint(self) -> Option<&'a str> {
        match self {
            Self::Inline(server) | Self::File(server) => Some(server.base()),
            Self::Stub => None,
        }
    }

    /// Where a request would go by itself, below the base.
    pub(super) fn endpoint_path(self, request: &Request) -> String {
        match self {
            Self::Inline(server) | Self::File(server) => server.path(request),
            Self::Stub => String::new(),
        }
    }

    /// The most requests, and bytes of them, that one job may have.
    pub(super) const fn most(self) -> (u64, u64) {
        match self {
            Self::Inline(_) => (100_000, 255 << 20),
            Self::File(_) => (50_000, 199 << 20),
            Self::Stub => (u64::MAX, u64::MAX),
        }
    }

    /// Whether all requests of a job must be to one model.
    pub(super) const fn has_one_model(self) -> bool {
        matches!(self, Self::File(_))
    }

    /// A request as a line of what is sent.
    pub(super) fn line(self, number: u64, path: &str, body: &[u8]) -> Vec<u8> {
        let head = match self {
            Self::Inline(_) | Self::Stub if number == 0 => format!("{{\"custom_id\":\"row-{number}\",\"params\":"),
            Self::Inline(_) | Self::Stub => format!(",{{\"custom_id\":\"row-{number}\",\"params\":"),
            Self::File(_) => {
                format!("{{\"custom_id\":\"row-{number}\",\"method\":\"POST\",\"url\":\"/v1{path}\",\"body\":")
            }
        };
        [head.as_bytes(), body, b"}\n"].concat()
    }

    /// Has the provider make the job. What it says is kept before this returns. Where it fails before the provider can have made it,
    /// `asked_at` is none again.
    pub(super) fn make(self, job: &mut Job) -> Result<()> {
        let made = match self {
            Self::Stub => Ok(json!({"id": "stub"})),
            Self::Inline(server) => {
                let requests = job.opened("requests")?;
                let body = framed(&b"{\"requests\":["[..], requests, &b"]}"[..])?;
                self.asked(job, server, MESSAGES, body)
            }
            Self::File(server) => {
                let file = match job.input_file.clone() {
                    Some(file) => file,
                    None => uploaded(job, server)?,
                };
                let url = format!("/v1{}", job.path);
                let body = json!({"input_file_id": file, "endpoint": url, "completion_window": "24h", "metadata": {"cp_batch": job.id}});
                let body = body.to_string();
                let length = body.len() as u64;
                self.asked(job, server, BATCHES, (body.as_bytes().take(length), length))
            }
        };
        job.provider_id = Some(id_in(&made?)?);
        job.save()
    }

    /// Sends what makes a job, and finds out, where that fails, whether it can have made one.
    fn asked(self, job: &mut Job, server: &Server, path: &str, body: (std::io::Take<impl Read>, u64)) -> Result<Value> {
        let (mut body, length) = body;
        job.asking(true)?;
        let made = server.sent(path, "application/json", &mut body, length);
        if let Err(error) = &made {
            let status = error.details().get("status").and_then(Value::as_u64).unwrap_or(0);
            // A body that was not read to its end was not a whole request.
            if body.limit() > 0 || (400..500).contains(&status) && status != 408 && status != 409 {
                job.asking(false)?;
            }
        }
        made
    }

    /// Where the job stands.
    pub(super) fn progress(self, job: &Job) -> Result<Progress> {
        let id = job.provider_id.as_deref().unwrap_or_default();
        match self {
            Self::Stub => Ok(Progress {
                state: State::Succeeded,
                word: "ended".to_owned(),
                done: job.count,
                failed: 0,
                failure: None,
                results: Vec::new(),
            }),
            Self::Inline(server) => {
                server.resource(&format!("{MESSAGES}/{id}")).map(|found| inline(&found, server.base(), id))
            }
            Self::File(server) => server.resource(&format!("{BATCHES}/{id}")).map(|found| in_files(&found)),
        }
    }

    /// Stops the job.
    pub(super) fn cancel(self, job: &Job) -> Result<()> {
        let id = job.provider_id.as_deref().unwrap_or_default();
        let (server, path) = match self {
            Self::Stub => return Ok(()),
            Self::Inline(server) => (server, format!("{MESSAGES}/{id}/cancel")),
            Self::File(server) => (server, format!("{BATCHES}/{id}/cancel")),
        };
        server.sent(&path, "application/json", &mut &b"{}"[..], 2).map(drop)
    }

    /// Writes the results to a file.
    pub(super) fn save_results(self, progress: &Progress, file: &mut File) -> Result<()> {
        match self {
            Self::Stub => Ok(()),
            Self::Inline(server) | Self::File(server) => {
                progress.results.iter().try_for_each(|path| server.saved(path, file))
            }
        }
    }

    /// What became of a job that the provider was asked to make. `taken` are the ids there of other jobs.
    pub(super) fn made(self, job: &Job, taken: &[String]) -> Result<Made> {
        let (server, path, after) = match self {
            Self::Stub => return Ok(Made::No),
            Self::Inline(server) => (server, MESSAGES, "after_id"),
            Self::File(server) => (server, BATCHES, "after"),
        };
        let asked_at = job.asked_at.unwrap_or_default();
        let (mut found, mut query) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let page = server.resource(&format!("{path}?limit=100{query}"))?;
            let listed = page.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let recent: Vec<&Value> = listed.iter().filter(|one| created_at(one) + SKEW >= asked_at).collect();
            for one in &recent {
                let id = id_in(one)?;
                match self {
                    Self::File(_) if one.pointer("/metadata/cp_batch").is_some_and(|of| *of == *job.id) => {
                        return Ok(Made::Yes(id));
                    }
                    Self::Inline(_) if total(one) == job.count && !taken.contains(&id) => found.push((*one).clone()),
                    _ => {}
                }
            }
            let more = page.get("has_more").and_then(Value::as_bool).unwrap_or(false);
            let (true, Some(last)) = (more && recent.len() == listed.len(), listed.last()) else { break };
            query = format!("&{after}={}", id_in(last)?);
        }
        if !found.is_empty() {
            return Ok(Made::Perhaps(found));
        }
        let age = clock::unix_seconds().saturating_sub(asked_at);
        if age >= SETTLED {
            return Ok(Made::No);
        }
        let wait = SETTLED - age;
        Err(Error::new(Code::Conflict, format!("the submit of {} was cut off, and its provider may still make it", job.id))
            .with("reason", "unfinished")
            .with("retry_after_ms", wait * 1000)
            .hint(format!("submit it again in {wait} seconds: what the provider has by then is known"))
            .fatal())
    }
}

/// An id as the provider gave it, fit to be part of a path.
pub(super) fn id_in(value: &Value) -> Result<String> {
    let id = text_of(value, "id").unwrap_or_default();
    checked_id(id).ok_or_else(|| Error::new(Code::Server, "the provider's answer has no valid id").with("id", id))
}

/// An id, if it is one.
pub(super) fn checked_id(id: &str) -> Option<String> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_id.then(|| id.to_owned())
}

/// A file between two pieces of text, and the length of it all.
fn framed<'b>(before: &'b [u8], file: File, after: &'b [u8]) -> Result<(std::io::Take<impl Read + use<'b>>, u64)> {
    let size = file.metadata().map_err(|e| Error::io("reading the requests", e).fatal())?.len();
    let length = before.len() as u64 + size + after.len() as u64;
    Ok((before.chain(file).chain(after).take(length), length))
}

/// Uploads the requests as a file (RFC 7578). A file without a batch costs nothing, so nothing is asked before.
fn uploaded(job: &mut Job, server: &Server) -> Result<String> {
    // Every line of the file begins with a brace, so no line of it is the boundary.
    let boundary = format!("cp-llm-{}", job.id);
    let before = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}.jsonl\"\r\n\
         Content-Type: application/jsonl\r\n\r\n",
        job.id
    );
    let after = format!("\r\n--{boundary}--\r\n");
    let (mut body, length) = framed(before.as_bytes(), job.opened("requests")?, after.as_bytes())?;
    let kind = format!("multipart/form-data; boundary={boundary}");
    let id = id_in(&server.sent("/files", &kind, &mut body, length)?)?;
    job.input_file = Some(id.clone());
    job.save()?;
    Ok(id)
}

fn count(value: &Value, name: &str) -> u64 {
    value.pointer(&format!("/request_counts/{name}")).and_then(Value::as_u64).unwrap_or(0)
}

/// How many requests a batch of Anthropic has.
fn total(found: &Value) -> u64 {
    ["processing", "succeeded", "errored", "canceled", "expired"].iter().map(|name| count(found, name)).sum()
}

/// When a batch was made, in seconds since 1970.
fn created_at(found: &Value) -> u64 {
    match found.get("created_at") {
        Some(Value::String(time)) => chrono::DateTime::parse_from_rfc3339(time)
            .map_or(u64::MAX / 2, |time| u64::try_from(time.timestamp()).unwrap_or(0)),
        Some(number) => number.as_u64().unwrap_or(u64::MAX / 2),
        None => u64::MAX / 2,
    }
}

/// A batch of Anthropic.
fn inline(found: &Value, base: &str, id: &str) -> Progress {
    let (succeeded, canceled) = (count(found, "succeeded"), count(found, "canceled"));
    let failed = count(found, "errored") + count(found, "expired") + canceled;
    let word = text_of(found, "processing_status").unwrap_or_default();
    let state = match word {
        "ended" if canceled > 0 => State::Cancelled,
        "ended" if succeeded == 0 && failed > 0 => State::Failed,
        "ended" => State::Succeeded,
        _ => State::Running,
    };
    // The key goes nowhere but to the server that it is for.
    let link = text_of(found, "results_url").map(|link| link.strip_prefix(base).unwrap_or(link));
    let link = link.filter(|link| link.starts_with('/') && !link.starts_with("//"));
    Progress {
        state,
        word: word.to_owned(),
        done: succeeded + failed,
        failed,
        failure: None,
        results: vec![link.map_or_else(|| format!("{MESSAGES}/{id}/results"), str::to_owned)],
    }
}

/// A batch of OpenAI.
fn in_files(found: &Value) -> Progress {
    let word = text_of(found, "status").unwrap_or_default();
    let state = match word {
        "validating" => State::Pending,
        "completed" => State::Succeeded,
        "failed" | "expired" => State::Failed,
        "cancelled" => State::Cancelled,
        _ => State::Running,
    };
    let files = ["output_file_id", "error_file_id"].map(|name| text_of(found, name).and_then(checked_id));
    let failure = found.pointer("/errors/data/0/message").and_then(Value::as_str);
    Progress {
        state,
        word: word.to_owned(),
        done: count(found, "completed") + count(found, "failed"),
        failed: count(found, "failed"),
        failure: failure.map(crate::dialect::shortened),
        results: files.into_iter().flatten().map(|file| format!("/files/{file}/content")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_asked_for_at_the_server_that_the_key_is_for() {
        let path = |link: &str| inline(&json!({"results_url": link}), "https://api.example", "b1").results.remove(0);
        let own = format!("{MESSAGES}/b1/results");
        assert_eq!(path("https://api.example/v1/r?x=1"), "/v1/r?x=1");
        assert_eq!(path("/v1/r"), "/v1/r");
        for elsewhere in ["https://other.example/r", "https://api.example.evil/r", "//other.example/r", "r", ""] {
            assert_eq!(path(elsewhere), own, "{elsewhere}");
        }
    }

    #[test]
    fn states_are_those_of_every_job() {
        let of = |status: &str| in_files(&json!({"status": status})).state;
        let all = ["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"];
        let states = all.map(of);
        assert!(states.map(State::is_ended) == [false, false, false, true, true, true, false, true], "{states:?}");
        assert_eq!((states[0], states[5], states[7]), (State::Pending, State::Failed, State::Cancelled));
        let counted = |counts: Value| inline(&json!({"processing_status": "ended", "request_counts": counts}), "", "").state;
        assert_eq!(counted(json!({"succeeded": 1, "errored": 2})), State::Succeeded);
        assert_eq!(counted(json!({"errored": 2, "expired": 1})), State::Failed);
        assert_eq!(counted(json!({"succeeded": 1, "canceled": 2})), State::Cancelled);
    }
}

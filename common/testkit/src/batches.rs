//! A provider of batch jobs, in the protocols of Anthropic and `OpenAI`. It answers as its rows request, in reverse
//! order, after a configured number of polls.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::server::{Reply, Request, Server, Step, json as answer, reply};

/// The behavior of the provider.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// Number of polls that report a batch as in progress.
    pub rounds: usize,
    /// True if it creates a batch but never responds.
    pub is_mute: bool,
    /// True if it creates no batch and never responds.
    pub is_deaf: bool,
    /// The status with which it refuses to create batches.
    pub refuses: Option<u16>,
    /// The state that batches of `OpenAI` end in, if not `completed`.
    pub ends: Option<&'static str>,
    /// The body that answers each row, if not an echo of it.
    pub answer: Option<Value>,
}

#[derive(Debug, Default)]
struct State {
    conduct: Conduct,
    files: Vec<String>,
    batches: Vec<Batch>,
}

#[derive(Debug)]
struct Batch {
    /// The rows of the request.
    rows: Vec<Value>,
    metadata: Value,
    asked: usize,
    is_cancelled: bool,
}

/// The provider. A row whose text contains `expire`, `refuse`, `cancel` or `lose` gets that status; others are echoed.
#[derive(Debug)]
pub struct BatchProvider {
    /// Its server.
    pub server: Server,
    kept: Arc<Mutex<State>>,
}

impl BatchProvider {
    /// Makes a provider with this behavior.
    pub fn new(conduct: Conduct) -> Self {
        let kept = Arc::new(Mutex::new(State { conduct, ..State::default() }));
        let shared = Arc::clone(&kept);
        let server =
            Server::replying(move |request| shared.lock().unwrap_or_else(PoisonError::into_inner).reply(request));
        Self { server, kept }
    }

    /// Changes its behavior.
    pub fn conduct(&self, conduct: Conduct) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).conduct = conduct;
    }

    /// Returns the number of batches that it created.
    pub fn batches(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).batches.len()
    }

    /// Returns a finished batch and the lines of its results, in one of the two protocols.
    pub fn shown(&self, at: usize, is_anthropic: bool) -> (Value, String) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let line = if is_anthropic { of_anthropic } else { of_openai };
        let lines = kept.batches[at].rows.iter().map(|row| line(row, RowStatus::of(row)).to_string() + "\n");
        (if is_anthropic { kept.inline(at) } else { kept.filed(at) }, lines.collect())
    }

    /// Returns the content of an uploaded file.
    pub fn file(&self, number: usize) -> String {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).files[number].clone()
    }
}

impl State {
    fn reply(&mut self, request: &Request) -> Reply {
        let line = request.line().to_owned();
        let words: Vec<&str> = line.split([' ', '/', '?']).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            ["POST", "v1", "messages", "batches"] => {
                let rows = request.json()["requests"].as_array().cloned().unwrap_or_default();
                self.made(rows, Value::Null, Self::inline)
            }
            ["POST", "v1", "files"] => {
                self.files.push(part_of(request));
                answer(200, &json!({"id": format!("file-{}", self.files.len() - 1), "object": "file"}))
            }
            ["POST", "v1", "batches"] => {
                let body = request.json();
                let file = &self.files[number(body["input_file_id"].as_str().unwrap_or_default())];
                let rows = file.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
                self.made(rows, body["metadata"].clone(), Self::filed)
            }
            ["GET", "v1", "messages", "batches", query] if query.starts_with("limit") => self.list(Self::inline),
            ["GET", "v1", "batches", query] if query.starts_with("limit") => self.list(Self::filed),
            ["GET", "v1", "messages", "batches", id] => self.asked(number(id), Self::inline),
            ["GET", "v1", "batches", id] => self.asked(number(id), Self::filed),
            ["GET", "v1", "messages", "batches", id, "results"] => self.lines(number(id), |_| true, of_anthropic),
            ["GET", "v1", "files", id, "content"] => {
                let is_good = |status: RowStatus| status == RowStatus::Answered;
                if id.starts_with("file-good") {
                    self.lines(number(id), is_good, of_openai)
                } else {
                    self.lines(number(id), |status| !is_good(status), of_openai)
                }
            }
            ["POST", "v1", .., "batches", id, "cancel"] => {
                self.batches[number(id)].is_cancelled = true;
                answer(200, &json!({"id": id}))
            }
            _ => answer(404, &json!({"error": {"type": "not_found_error", "message": line}})),
        }
    }

    fn made(&mut self, rows: Vec<Value>, metadata: Value, show: fn(&Self, usize) -> Value) -> Reply {
        if let Some(status) = self.conduct.refuses {
            return answer(status, &json!({"error": {"type": "invalid_request_error", "message": "not these"}}));
        }
        if self.conduct.is_deaf {
            return vec![Step::Stall];
        }
        self.batches.push(Batch { rows, metadata, asked: 0, is_cancelled: false });
        if self.conduct.is_mute {
            return vec![Step::Stall];
        }
        answer(200, &show(self, self.batches.len() - 1))
    }

    fn list(&self, show: fn(&Self, usize) -> Value) -> Reply {
        let all: Vec<Value> = (0..self.batches.len()).rev().map(|at| show(self, at)).collect();
        answer(200, &json!({"data": all, "has_more": false}))
    }

    fn asked(&mut self, at: usize, show: impl Fn(&Self, usize) -> Value) -> Reply {
        self.batches[at].asked += 1;
        answer(200, &show(self, at))
    }

    fn has_ended(&self, at: usize) -> bool {
        self.batches[at].asked > self.conduct.rounds || self.batches[at].is_cancelled
    }

    fn counted(&self, at: usize, status: RowStatus) -> usize {
        self.batches[at].rows.iter().filter(|row| RowStatus::of(row) == status).count()
    }

    /// Formats a batch in Anthropic's protocol.
    fn inline(&self, at: usize) -> Value {
        let (ended, batch) = (self.has_ended(at), &self.batches[at]);
        let counts = if ended {
            json!({"processing": 0, "succeeded": self.counted(at, RowStatus::Answered), "errored": self.counted(at, RowStatus::Refused),
                "canceled": self.counted(at, RowStatus::Cancelled), "expired": self.counted(at, RowStatus::Expired)})
        } else {
            json!({"processing": batch.rows.len(), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0})
        };
        let now = "2999-01-01T00:00:00Z";
        json!({"id": format!("msgbatch_{at}"), "type": "message_batch", "request_counts": counts, "created_at": now,
            "processing_status": if ended { "ended" } else { "in_progress" }, "expires_at": now, "ended_at": null,
            "archived_at": null, "cancel_initiated_at": null})
    }

    /// Formats a batch in the protocol of `OpenAI`.
    fn filed(&self, at: usize) -> Value {
        let (ended, batch) = (self.has_ended(at), &self.batches[at]);
        let good = if ended { self.counted(at, RowStatus::Answered) } else { 0 };
        let bad = if ended { batch.rows.len() - good } else { 0 };
        let end = self.conduct.ends.unwrap_or(if batch.is_cancelled { "cancelled" } else { "completed" });
        let file = |kind: &str, count: usize| (count > 0).then(|| format!("file-{kind}-{at}"));
        json!({"id": format!("batch_{at}"), "object": "batch", "endpoint": batch.rows[0]["url"], "input_file_id": "file-0",
            "completion_window": "24h", "created_at": 32_472_144_000_u64, "metadata": batch.metadata,
            "status": if ended { end } else { "in_progress" }, "output_file_id": file("good", good), "error_file_id": file("bad", bad),
            "request_counts": {"total": batch.rows.len(), "completed": good, "failed": bad}})
    }

    /// Returns the results of a batch, the last row first.
    fn lines(&self, at: usize, wanted: impl Fn(RowStatus) -> bool, line: fn(&Value, RowStatus) -> Value) -> Reply {
        let rows = self.batches[at].rows.iter().rev().map(|row| (row, RowStatus::of(row)));
        let lines = rows.filter(|(_, status)| *status != RowStatus::Lost && wanted(*status));
        let shown = |(row, status)| {
            let mut result = line(row, status);
            for place in ["/result/message", "/response/body"] {
                if let (Some(given), Some(body)) = (&self.conduct.answer, result.pointer_mut(place)) {
                    *body = given.clone();
                }
            }
            result.to_string() + "\n"
        };
        let lines: String = lines.map(shown).collect();
        reply(200, "application/x-jsonl", "", lines.as_bytes())
    }
}

/// The outcome of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowStatus {
    Answered,
    Refused,
    Expired,
    Cancelled,
    Lost,
}

impl RowStatus {
    fn of(row: &Value) -> Self {
        let text = last_text(row);
        let statuses =
            [("expire", Self::Expired), ("refuse", Self::Refused), ("cancel", Self::Cancelled), ("lose", Self::Lost)];
        statuses.into_iter().find(|(word, _)| text.contains(word)).map_or(Self::Answered, |(_, status)| status)
    }
}

/// Returns the last text of a row's request.
fn last_text(row: &Value) -> String {
    let body = row.get("params").or_else(|| row.get("body")).unwrap_or(&Value::Null);
    let turns = body.get("messages").or_else(|| body.get("input")).and_then(Value::as_array);
    let last = turns.and_then(|turns| turns.last()).map_or(&Value::Null, |turn| &turn["content"]);
    last.as_str().or_else(|| last.pointer("/0/text").and_then(Value::as_str)).unwrap_or_default().to_owned()
}

/// Returns the number at the end of an id.
fn number(id: &str) -> usize {
    id.rsplit(['_', '-']).next().and_then(|number| number.parse().ok()).expect("an id of this provider")
}

/// Returns the file in a multipart form.
fn part_of(request: &Request) -> String {
    let kind = request.header("content-type").unwrap_or_default();
    let boundary = kind.split_once("boundary=").expect("a boundary").1;
    let body = String::from_utf8(request.body.clone()).expect("text");
    let parts: Vec<&str> = body.split(&format!("--{boundary}")).collect();
    assert_eq!((parts.len(), parts[0], parts[3]), (4, "", "--\r\n"), "{body}");
    let content =
        |part: &str| part.split_once("\r\n\r\n").expect("a part").1.strip_suffix("\r\n").expect("its end").to_owned();
    assert_eq!(content(parts[1]), "batch");
    content(parts[2])
}

fn of_anthropic(row: &Value, status: RowStatus) -> Value {
    let result = match status {
        RowStatus::Answered => {
            json!({"type": "succeeded", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1",
            "content": [{"type": "text", "text": last_text(row)}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 7, "output_tokens": 3}}})
        }
        RowStatus::Refused => json!({"type": "errored", "error": {"type": "error", "request_id": "req_1",
            "error": {"type": "invalid_request_error", "message": "not this"}}}),
        RowStatus::Expired => json!({"type": "expired"}),
        RowStatus::Cancelled | RowStatus::Lost => json!({"type": "canceled"}),
    };
    json!({"custom_id": row["custom_id"], "result": result})
}

fn of_openai(row: &Value, status: RowStatus) -> Value {
    let text = last_text(row);
    let body = if row["url"] == "/v1/responses" {
        json!({"id": "r_1", "object": "response", "created_at": 1, "model": "m-1", "status": "completed", "parallel_tool_calls": true,
            "tool_choice": "auto", "tools": [], "output": [{"id": "i_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}],
            "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 10}})
    } else {
        json!({"id": "c_1", "object": "chat.completion", "created": 1, "model": "m-1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}})
    };
    let (response, error) = match status {
        RowStatus::Answered => (json!({"status_code": 200, "request_id": "req_1", "body": body}), Value::Null),
        RowStatus::Refused => {
            let error = json!({"error": {"type": "invalid_request_error", "message": "not this"}});
            (json!({"status_code": 400, "request_id": "req_1", "body": error}), Value::Null)
        }
        RowStatus::Expired => (Value::Null, json!({"code": "batch_expired", "message": "too late"})),
        RowStatus::Cancelled | RowStatus::Lost => {
            (Value::Null, json!({"code": "batch_cancelled", "message": "stopped"}))
        }
    };
    json!({"id": "batch_req_1", "custom_id": row["custom_id"], "response": response, "error": error})
}

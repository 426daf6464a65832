//! Answers of HTTP that are no messages: what they mean, and what helps.

use cp_common::{Code, Error};
use cp_http::client::Reply;
use cp_mcp_wire::{Failure, METHOD_NOT_FOUND};
use serde::Deserialize;

use super::client_message::Said;
use super::link::{Link, failed, locked};

/// How much of a refusal is read.
const LONGEST: usize = 64 << 10;
/// How much of it is shown.
const SHOWN: usize = 300;
/// The errors of the era without sessions: a server that gives one speaks it.
const MODERN_ERRORS: std::ops::RangeInclusive<i64> = -32099..=-32020;

/// An answer with another status than one of success.
pub(super) struct Refused {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct Body {
    error: Failure,
}

impl Refused {
    /// Reads it, as far as anybody would.
    pub(super) fn read(mut reply: Reply<'_>) -> Self {
        let (mut body, mut buffer) = (Vec::new(), [0; 4096]);
        while body.len() < LONGEST {
            match reply.read(&mut buffer) {
                Ok(bytes) if !bytes.is_empty() => body.extend_from_slice(bytes),
                Ok(_) | Err(_) => break,
            }
        }
        Self { status: reply.status, location: reply.header("location"), body }
    }

    /// Whether it says that the session is over. Some servers answer 400 instead of 404.
    pub(super) fn ends_session(&self) -> bool {
        self.status == 404
            || self.status == 400 && String::from_utf8_lossy(&self.body).to_lowercase().contains("session")
    }

    /// What it is to the client.
    pub(super) fn failure(&self, said: &Said, link: &Link) -> Failure {
        let is_probe = said.method == "server/discover";
        let mut failure = match serde_json::from_slice::<Body>(&self.body) {
            Ok(body) if self.status != 401 => body.error,
            _ => failed(&self.error(said, link)),
        };
        // The client goes on with a handshake where the server does not know this question.
        if is_probe && matches!(self.status, 400 | 404..=406) && !MODERN_ERRORS.contains(&failure.code) {
            failure.code = METHOD_NOT_FOUND;
        }
        failure
    }

    fn error(&self, said: &Said, link: &Link) -> Error {
        let (name, url, status) = (&link.name, locked(&link.url).clone(), self.status);
        let text = String::from_utf8_lossy(&self.body);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(SHOWN).collect();
        let text = if text.is_empty() || text.starts_with('<') { String::new() } else { format!(": {text}") };
        let error = |code| {
            Error::new(code, format!("the server {name} answers with the status {status}{text}")).with("status", status)
        };
        match status {
            401 if link.headers.list.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) => {
                error(Code::Auth).hint("the Authorization of --header-file is not accepted")
            }
            401 => error(Code::Auth).hint(format!(
                "give it a token: --header-file; or, if it wants a login (OAuth), log in once outside with `mcp-remote-client {url}` and \
                 run `cp-mcp proxy --name {name} -- /path/to/mcp-remote {url}` with network = \"host\", env = [\"MCP_REMOTE_CONFIG_DIR\"] \
                 and write = [\"that directory\"] in [mcp.{name}] of the policy"
            )),
            300..400 => {
                let to = self.location.as_deref().unwrap_or("nowhere");
                error(Code::Config).hint(format!("redirects to other servers are not followed; it names {to}"))
            }
            403 => error(Code::Forbidden),
            404 | 405 if matches!(said.method.as_str(), "initialize" | "server/discover") => {
                error(Code::NotFound).hint(
                    "name the URL of its MCP endpoint; the transport of 2024-11-05 (HTTP+SSE) is not spoken, but by `mcp-remote URL \
                     --transport sse-only` behind cp-mcp proxy",
                )
            }
            404 | 405 => error(Code::NotFound),
            408 => error(Code::Timeout),
            429 => error(Code::RateLimited),
            400..500 => error(Code::Validation),
            _ => error(Code::Server),
        }
    }
}

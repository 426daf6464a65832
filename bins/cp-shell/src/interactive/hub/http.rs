//! The hub's requests: JSON over HTTP, each with a short deadline, no proxy and no redirect of what is posted.

use std::time::Duration;

use cp_common::program::VERSION;
use cp_common::{Code, Error, Result};
use serde_json::Value;

/// The detail of an error that says that no server answered.
pub(super) const UNREACHABLE: &str = "unreachable";
/// The largest answer that is read.
const LIMIT: u64 = 1 << 20;

/// A hub that can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    timeout: Duration,
}

impl Client {
    /// The hub at this address.
    pub(crate) fn new(base: &str, timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(format!("cp-shell/{VERSION}"))
            .build();
        Self { agent: config.into(), base: base.trim_end_matches('/').to_owned(), timeout }
    }

    /// Asks for something. The query is written out here, so that its values cannot change the path.
    pub(crate) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let url = format!("{}{path}?{}", self.base, query.join("&"));
        self.answer("GET", path, self.agent.get(&url).header("accept", "application/json").call())
    }

    /// Tells it something.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.base);
        let request =
            self.agent.post(&url).header("content-type", "application/json").header("accept", "application/json");
        self.answer("POST", path, request.send(body.to_string()))
    }

    fn answer(
        &self,
        method: &str,
        path: &str,
        response: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value> {
        let failed = |e: &ureq::Error| {
            let error = match e {
                ureq::Error::Timeout(_) => {
                    let message = format!("{method} {path}: no answer within {} ms", self.timeout.as_millis());
                    Error::new(Code::Timeout, message)
                }
                other => Error::new(Code::Network, format!("{method} {path}: {other}")),
            };
            let is_unreachable = matches!(
                e,
                ureq::Error::Timeout(_)
                    | ureq::Error::Io(_)
                    | ureq::Error::HostNotFound
                    | ureq::Error::ConnectionFailed
            );
            if is_unreachable { error.with(UNREACHABLE, true) } else { error }
        };
        let mut response = response.map_err(|e| failed(&e))?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(LIMIT).read_to_string().map_err(|e| failed(&e))?;
        if !status.is_success() {
            let code = if status.is_server_error() { Code::Server } else { Code::Network };
            return Err(Error::new(code, format!("{method} {path}: status {}", status.as_u16())));
        }
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text)
            .map_err(|_| Error::new(Code::Network, format!("{method} {path}: the answer is not valid JSON")))
    }
}

/// Text as a part of a URL.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn a_value_cannot_leave_its_place() {
        assert_eq!(encoded("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(encoded("x&y=../é"), "x%26y%3D..%2F%C3%A9");
    }
}

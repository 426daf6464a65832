//! What is printed of a job.

use cp_common::wire::Reply;
use serde::Serialize;

use super::job::Job;
use super::provider::Progress;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum State {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// It has answers.
    Succeeded,
    /// It has none, or its provider ran out of time.
    Failed,
    /// It was stopped; what was answered before can be fetched.
    Cancelled,
}

impl State {
    /// Whether nothing more comes.
    pub(super) const fn is_ended(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// A job of a provider.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["failure"])))]
pub(crate) struct BatchJob {
    /// Its id here: the same input has the same one.
    id: String,
    /// Where it stands.
    state: State,
    /// The same in the words of its provider.
    provider_state: String,
    /// Its id there; absent while it is not known whether the provider has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    /// Who answers.
    backend: String,
    /// The base URL of the server; absent for a backend without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// How many requests it has.
    count: u64,
    /// How many of them are done, those that failed among them.
    done: u64,
    /// How many of them failed.
    failed: u64,
    /// When it was submitted.
    created_at: String,
    /// The hash of the requests and of what they carry along.
    input_hash: String,
    /// The directory with what they carry along.
    directory: String,
    /// What tells where it stands.
    poll: String,
    /// What gives its answers.
    result: String,
    /// Why it failed as a whole, in the words of its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    untrusted: Vec<&'static str>,
}

impl BatchJob {
    /// A job and where it stands.
    pub(super) fn of(job: &Job, progress: Progress) -> Self {
        let untrusted = progress.failure.iter().map(|_| "/failure").collect();
        Self {
            id: job.id.clone(),
            state: progress.state,
            provider_state: progress.word,
            provider_id: job.provider_id.clone(),
            backend: job.backend.clone(),
            endpoint: job.endpoint.clone(),
            count: job.count,
            done: progress.done,
            failed: progress.failed,
            created_at: job.created_at.clone(),
            input_hash: job.input_hash.clone(),
            directory: job.directory.display().to_string(),
            poll: format!("cp-llm batch poll {}", job.id),
            result: format!("cp-llm batch fetch {}", job.id),
            failure: progress.failure,
            untrusted,
        }
    }
}

impl Reply for BatchJob {
    fn text(&self) -> String {
        let state = serde_json::to_value(self.state).unwrap_or_default();
        format!("{}  {}  {}/{}", self.id, state.as_str().unwrap_or_default(), self.done, self.count)
    }
}

//! What is printed of a batch.

use cp_common::wire::Reply;
use serde::Serialize;

use super::job::Job;

/// Where a batch stands.
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

/// Where a batch stands, as its provider says.
pub(super) struct Progress {
    pub state: State,
    /// The provider's own word.
    pub word: String,
    pub done: u64,
    /// Why it failed as a whole.
    pub failure: Option<String>,
    /// Where its results are, below the base URL.
    pub results: Vec<String>,
}

impl Progress {
    pub(super) fn of(state: State, word: &str, done: u64) -> Self {
        Self { state, word: word.to_owned(), done, failure: None, results: Vec::new() }
    }
}

/// A batch of a provider.
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
    /// Its id there; absent while the provider is not known to have it.
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
    /// When it was submitted.
    created_at: String,
    /// The hash of the requests and of what they carry along.
    input_hash: String,
    /// The directory with what they carry along.
    directory: String,
    /// The command that says where it stands.
    poll: String,
    /// The command that gives its answers.
    result: String,
    /// Why it failed as a whole, in the words of its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    untrusted: Vec<&'static str>,
}

impl BatchJob {
    /// A batch and where it stands.
    pub(super) fn of(job: &Job, progress: Progress) -> Self {
        let Job { id, provider_id, backend, endpoint, count, created_at, input_hash, directory, .. } = job.clone();
        Self {
            state: progress.state,
            provider_state: progress.word,
            provider_id,
            backend,
            endpoint,
            count,
            done: progress.done,
            created_at,
            input_hash,
            directory: directory.display().to_string(),
            poll: format!("cp-llm batch poll {id}"),
            result: format!("cp-llm batch fetch {id}"),
            untrusted: progress.failure.iter().map(|_| "/failure").collect(),
            failure: progress.failure,
            id,
        }
    }
}

impl Reply for BatchJob {
    fn text(&self) -> String {
        format!("{}  {}  {}/{}", self.id, format!("{:?}", self.state).to_lowercase(), self.done, self.count)
    }
}

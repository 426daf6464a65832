//! The record of one call of a transcript, with the entries that account for it.

use cp_common::wire::Reply;
use serde::Serialize;

/// The sign of a verdict in text.
pub(super) const fn mark(holds: Option<bool>) -> char {
    match holds {
        Some(true) => '✓',
        Some(false) => '✗',
        None => '?',
    }
}

/// The state of a call of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallState {
    /// The hook decided about it: it may run.
    Decided,
    /// The hook refused it, and it has no successful result.
    Refused,
    /// The host rejected it before its hook.
    Rejected,
    /// A decision without a call in the transcripts.
    Absent,
    /// A call without a decision.
    Unseen,
    /// The transcript contradicts the decision.
    Contradicted,
}

impl CallState {
    pub(super) const ALL: [Self; 6] =
        [Self::Decided, Self::Refused, Self::Rejected, Self::Absent, Self::Unseen, Self::Contradicted];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::Absent => "absent",
            Self::Unseen => "unseen",
            Self::Contradicted => "contradicted",
        }
    }
}

/// A call of a transcript, compared with the ledgers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "call"))]
pub(crate) struct JudgedCall {
    /// Always `call`.
    pub(super) claim: &'static str,
    pub(super) state: CallState,
    /// True if a decision accounts for it; null if nothing contradicts it.
    pub(super) holds: Option<bool>,
    /// The host: `claude`, `codex`, `gemini`, `copilot` or `opencode`.
    pub(super) host: String,
    /// The host's id of the session.
    pub(super) session: String,
    /// The host's id of the call.
    pub(super) call: String,
    /// The tool, as the hook of the host names it.
    pub(super) tool: String,
    /// The transcript; none for a decision without a call.
    pub(super) transcript: Option<String>,
    /// The place of the call in it, such as `line 3`.
    pub(super) place: Option<String>,
    /// The ledger with the decision.
    pub(super) ledger: Option<String>,
    /// The entry with the decision.
    pub(super) seq: Option<u64>,
    /// The decision: `pass`, `rewrite`, `ask`, `deny`, `refused` or `asked`.
    pub(super) decision: Option<String>,
    /// The entry with the start of its command, or with the refusal of the start.
    pub(super) run: Option<u64>,
    /// The entry with the end of its command.
    pub(super) ended: Option<u64>,
    /// The entry with its result.
    pub(super) result: Option<u64>,
    /// The hash of its result.
    pub(super) result_hash: Option<String>,
    /// True if the transcript has the same result; null if it has the result in another form.
    pub(super) same_result: Option<bool>,
    /// The reason that it does not hold, or cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<&'static str>,
}

impl JudgedCall {
    /// A call in this state, about which nothing else is known.
    pub(super) fn of(host: &str, state: CallState) -> Self {
        Self {
            claim: "call",
            state,
            holds: None,
            host: host.to_owned(),
            session: String::new(),
            call: String::new(),
            tool: String::new(),
            transcript: None,
            place: None,
            ledger: None,
            seq: None,
            decision: None,
            run: None,
            ended: None,
            result: None,
            result_hash: None,
            same_result: None,
            why: None,
        }
    }

    /// The call in words, without its verdict.
    pub(super) fn words(&self) -> String {
        let transcript = self.transcript.as_ref().map_or(String::new(), |path| format!("{path}, "));
        let place = self.place.as_ref().map_or(String::new(), |place| format!("{place}, "));
        let entry = match (&self.ledger, self.seq) {
            (Some(ledger), Some(seq)) => format!(", {ledger}, seq {seq}"),
            _ => String::new(),
        };
        let why = self.why.map_or(String::new(), |why| format!(": {why}"));
        format!("{transcript}{place}{} {}, {}{entry}{why}", self.tool, self.call, self.state.name())
    }
}

impl Reply for JudgedCall {
    fn text(&self) -> String {
        format!("{} {}", mark(self.holds), self.words())
    }
}

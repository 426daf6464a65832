//! Hooks of other agents: what their JSON says, and an answer in their words. Nothing here reads or decides.

/// An agent that runs us before its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Host {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// GitHub Copilot CLI
    Copilot,
    /// opencode
    Opencode,
}

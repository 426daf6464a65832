//! The supported agents and their configuration directories.

use std::path::{Path, PathBuf};

/// A third-party coding agent, which runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Host {
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

impl Host {
    /// Returns the name on the command line and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Opencode => "opencode",
        }
    }

    /// Returns its directory in a project, else that of the user, whose home directory is `home`.
    pub fn directory(self, project: Option<&Path>, home: &Path) -> PathBuf {
        let name = match self {
            Self::Claude => ".claude",
            Self::Codex => ".codex",
            Self::Gemini => ".gemini",
            Self::Copilot if project.is_some() => ".github",
            Self::Copilot => ".copilot",
            Self::Opencode => ".opencode",
        };
        if let Some(project) = project {
            return project.join(name);
        }
        let own = match self {
            Self::Claude => named("CLAUDE_CONFIG_DIR"),
            Self::Codex => named("CODEX_HOME"),
            Self::Gemini => named("GEMINI_CLI_HOME").map(|home| home.join(name)),
            Self::Copilot => named("COPILOT_HOME"),
            Self::Opencode => Some(named("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("opencode")),
        };
        own.unwrap_or_else(|| home.join(name))
    }
}

/// Returns the path in an environment variable; `None` if it is empty.
pub fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

//! The result of the rules about a command.

use std::path::PathBuf;

use cp_common::Result;

use crate::policy::Verdict;
use crate::refusal::refuse;

/// The harm that a command can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Risk {
    /// It reads, or writes to allowed paths.
    Low,
    /// It runs code of the repository, or reaches other systems.
    Medium,
    /// It destroys, overwrites or publishes.
    High,
}

impl Risk {
    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The result of the rules about a command.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The strictest verdict.
    pub verdict: Verdict,
    /// The rule that gave it.
    pub rule: String,
    pub reason: String,
    pub risk: Risk,
    /// The command deletes or publishes: a confirmation holds for one run.
    pub is_final: bool,
    /// The recommended alternative.
    pub hint: Option<String>,
    /// The existing file that the command destroys.
    pub target: Option<PathBuf>,
}

impl Finding {
    /// The finding for a line. Its programs are decided about when they start.
    pub(crate) fn contained(reason: &str) -> Self {
        Self { rule: "shell".to_owned(), reason: reason.to_owned(), ..Self::allowed(Risk::Medium) }
    }

    pub(crate) fn allowed(risk: Risk) -> Self {
        let reason = "allowed by allowed_commands, and no rule is against it".to_owned();
        let rule = "allowed_commands".to_owned();
        Self { verdict: Verdict::Allow, rule, reason, risk, is_final: false, hint: None, target: None }
    }

    /// The stricter of two.
    pub(crate) fn or(self, other: Self) -> Self {
        let risk = self.risk.max(other.risk);
        let is_final = self.is_final || other.is_final;
        let stricter = if other.verdict > self.verdict { other } else { self };
        Self { risk, is_final, ..stricter }
    }

    /// The finding, or the error of a denial.
    pub(crate) fn or_refused(self) -> Result<Self> {
        if self.verdict != Verdict::Deny {
            return Ok(self);
        }
        let hint = self.hint.unwrap_or_else(|| "remove the argument, or ask the owner to run it outside".to_owned());
        Err(refuse(&self.rule, self.reason).hint(hint))
    }
}

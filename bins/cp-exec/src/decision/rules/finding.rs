//! What rules find in a command.

use crate::policy::Verdict;

/// How much harm a command can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Risk {
    /// It reads, or writes what it may.
    Low,
    /// It runs code of the repository, or reaches others.
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

/// What the rules say of a command.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The strictest verdict.
    pub verdict: Verdict,
    /// The rule that gave it.
    pub rule: String,
    /// Why.
    pub reason: String,
    pub risk: Risk,
    /// Whether it deletes or publishes.
    pub is_final: bool,
}

impl Finding {
    /// A line, of which nothing is decided yet.
    pub(crate) fn contained(reason: &str) -> Self {
        Self { rule: "shell".to_owned(), reason: reason.to_owned(), ..Self::allowed(Risk::Medium) }
    }

    pub(crate) fn allowed(risk: Risk) -> Self {
        let reason = "listed in allowed_commands, and no rule is against it".to_owned();
        Self { verdict: Verdict::Allow, rule: "allowed_commands".to_owned(), reason, risk, is_final: false }
    }

    pub(super) fn denied(rule: &str, reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Deny, rule: rule.to_owned(), reason: reason.into(), risk: Risk::High, is_final: false }
    }

    /// The stricter of two.
    pub(crate) fn or(self, other: Self) -> Self {
        let risk = self.risk.max(other.risk);
        let is_final = self.is_final || other.is_final;
        let stricter = if other.verdict > self.verdict { other } else { self };
        Self { risk, is_final, ..stricter }
    }
}

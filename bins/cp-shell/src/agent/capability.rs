//! What an agent can do.

use serde::{Deserialize, Serialize};

/// A capability of the standard. It decides which optional commands exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Capability {
    /// It remembers the session.
    Memory,
    /// It asks before it acts.
    Consent,
    /// It reports its own signals.
    Signals,
    /// It keeps trust, and learns.
    Trust,
    /// It keeps commitments.
    Commitments,
    /// It reads files.
    Filesystem,
    /// It can be stopped at once.
    Emergency,
    /// It answers about the control plane.
    Governance,
    /// It reads and writes the ledger.
    Ledger,
    /// It answers about packages.
    PackageMgt,
}

impl Capability {
    /// All of them.
    pub(crate) const ALL: [Self; 10] = [
        Self::Memory,
        Self::Consent,
        Self::Signals,
        Self::Trust,
        Self::Commitments,
        Self::Filesystem,
        Self::Emergency,
        Self::Governance,
        Self::Ledger,
        Self::PackageMgt,
    ];

    /// Whether who has these has this: to govern is also to ask about packages and ledgers.
    pub(crate) fn is_in(self, capabilities: &[Self]) -> bool {
        let governed = matches!(self, Self::Ledger | Self::PackageMgt);
        capabilities.contains(&self) || governed && capabilities.contains(&Self::Governance)
    }

    /// Its name on the wire.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "MEMORY",
            Self::Consent => "CONSENT",
            Self::Signals => "SIGNALS",
            Self::Trust => "TRUST",
            Self::Commitments => "COMMITMENTS",
            Self::Filesystem => "FILESYSTEM",
            Self::Emergency => "EMERGENCY",
            Self::Governance => "GOVERNANCE",
            Self::Ledger => "LEDGER",
            Self::PackageMgt => "PACKAGE_MGT",
        }
    }
}

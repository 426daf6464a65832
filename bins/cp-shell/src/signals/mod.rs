//! The signals of a session. Each is computed from the events of the session.

mod tracker;

use std::fmt;

use cp_common::program::Class;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::tracker::Tracker;
use crate::plane::GateState;

/// The assumed context window of an unknown model, in tokens.
pub(crate) const CONTEXT_LIMIT: u64 = 200_000;

named_enum! {
    /// The stance of the session.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Stance:
    Neutral "neutral" "No turn was taken yet.",
    Grounded "grounded" "It waits for input.",
    Engaged "engaged" "It answers a turn.",
    Committed "committed" "A person has confirmed something.",
    Protective "protective" "An action was denied.",
}

impl Stance {
    pub(crate) const fn icon(self) -> char {
        match self {
            Self::Neutral => '○',
            Self::Grounded => '●',
            Self::Engaged => '◉',
            Self::Committed => '◈',
            Self::Protective => '◇',
        }
    }
}

/// The reach of a command by its class: L1 reads; L2 adds, for example a turn or a note; L3 is governed by policy, like a command or a tool;
/// L4 changes or deletes.
const fn altitude(class: Class) -> &'static str {
    match class {
        Class::Query => "L1",
        Class::Append => "L2",
        Class::Governed => "L3",
        Class::Write => "L4",
    }
}

/// The signals of a session at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Signals {
    /// The stance.
    pub(crate) stance: Stance,
    /// The altitude of the last command.
    pub(crate) altitude: &'static str,
    /// The number of turns.
    pub(crate) turn_number: u64,
    /// The share of the last ten turns that did not fail.
    pub(crate) health: f64,
    /// The increase of failures in the last five turns over the five before, from -1 to 1.
    pub(crate) drift: f64,
    /// The tier.
    pub(crate) tier: String,
    /// The active work order.
    pub(crate) active_wo: Option<String>,
    /// True if the last entry is on the disk.
    pub(crate) ledger_synced: bool,
    /// The state of the gates.
    pub(crate) gate_state: GateState,
    /// The share of tool calls that were not denied.
    pub(crate) trust: f64,
    /// True while a lesson is being captured.
    pub(crate) learning: bool,
}

impl Signals {
    /// The members that `signal_status` answers.
    pub(crate) fn to_value(&self) -> Value {
        json!({
            "stance": self.stance.name(),
            "altitude": self.altitude,
            "turn_number": self.turn_number,
            "health": self.health,
            "drift": self.drift,
            "tier": self.tier,
            "role": null,
            "active_wo": self.active_wo,
            "ledger_synced": self.ledger_synced,
            "gate_state": self.gate_state.name(),
        })
    }

    /// The result of `signal_status`.
    pub(crate) fn status(&self) -> Value {
        let strip = Strip { signals: self, used: 0, limit: CONTEXT_LIMIT };
        json!({"signals": self.to_value(), "compact_display": strip.to_string()})
    }

    /// The trust: high ●, medium ◐, low ○.
    pub(crate) fn trust_icon(&self) -> char {
        if self.trust >= 0.9 {
            '●'
        } else if self.trust >= 0.5 {
            '◐'
        } else {
            '○'
        }
    }

    /// ◉ while a lesson is being captured, or ·.
    pub(crate) fn learning_icon(&self) -> char {
        if self.learning { '◉' } else { '·' }
    }

    /// The trend of the health: ↑ → ↓.
    pub(crate) fn progress_icon(&self) -> char {
        if self.drift > 0.0 {
            '↓'
        } else if self.drift < 0.0 {
            '↑'
        } else {
            '→'
        }
    }
}

/// The health in five blocks.
pub(crate) fn health_bar(health: f64) -> String {
    let full = (1..=5).filter(|step| health * 5.0 + 1e-9 >= f64::from(*step)).count();
    format!("[{}{}]", "█".repeat(full), "░".repeat(5 - full))
}

/// The signals in one line: `engaged · L2 · [████░] · t5 | ctx:1.2k/200k (0.6%)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip<'a> {
    pub(crate) signals: &'a Signals,
    /// The tokens that the conversation takes.
    pub(crate) used: u64,
    /// The size of the model's context window.
    pub(crate) limit: u64,
}

impl fmt::Display for Strip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signals { stance, altitude, health, turn_number, .. } = self.signals;
        let (used, limit) = (thousands(self.used), thousands(self.limit));
        #[expect(clippy::cast_precision_loss, reason = "a share for people, with one digit")]
        let share = if self.limit == 0 { 0.0 } else { self.used as f64 * 100.0 / self.limit as f64 };
        let (stance, bar) = (stance.name(), health_bar(*health));
        write!(f, "{stance} · {altitude} · {bar} · t{turn_number} | ctx:{used}/{limit} ({share:.1}%)")
    }
}

/// `999`, `1.2k`, `200k`, `1.5M`.
fn thousands(count: u64) -> String {
    let tenths = |unit: u64, letter: char| {
        let tenths = (count * 10 + unit / 2) / unit;
        if tenths.is_multiple_of(10) {
            format!("{}{letter}", tenths / 10)
        } else {
            format!("{}.{}{letter}", tenths / 10, tenths % 10)
        }
    };
    match count {
        0..1_000 => count.to_string(),
        1_000..999_950 => tenths(1_000, 'k'),
        _ => tenths(1_000_000, 'M'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_strip_matches_standard() {
        let root = tempfile::tempdir().unwrap();
        let plane = crate::plane::Plane::open(root.path()).unwrap();
        let mut signals = Tracker::new("ho1".to_owned(), 0).signals(&plane);
        (signals.stance, signals.health, signals.turn_number) = (Stance::Engaged, 0.8, 5);
        let strip = |used, limit| Strip { signals: &signals, used, limit }.to_string();
        assert_eq!(strip(1234, 200_000), "engaged · L2 · [████░] · t5 | ctx:1.2k/200k (0.6%)");
        assert_eq!(strip(999, 1_000_000), "engaged · L2 · [████░] · t5 | ctx:999/1M (0.1%)");
        assert_eq!(strip(0, 0), "engaged · L2 · [████░] · t5 | ctx:0/0 (0.0%)");
        for (health, bar) in [
            (1.0, "[█████]"),
            (0.9, "[████░]"),
            (0.8, "[████░]"),
            (0.6, "[███░░]"),
            (0.4, "[██░░░]"),
            (0.2, "[█░░░░]"),
            (0.1, "[░░░░░]"),
            (0.0, "[░░░░░]"),
        ] {
            assert_eq!(health_bar(health), bar, "{health}");
        }
    }
}

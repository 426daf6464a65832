//! The signals: how a session stands. Each is computed from what happened, none is set by hand.

use std::collections::VecDeque;
use std::fmt;

use cp_common::program::Class;
use serde::Serialize;
use serde_json::{Value, json};

use crate::plane::Plane;

/// How many turns health looks back.
const WINDOW: usize = 10;
/// What a model can hold where nobody says.
pub(crate) const CONTEXT_LIMIT: u64 = 200_000;

/// What the session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stance {
    /// Nothing has happened yet.
    Neutral,
    /// It waits.
    Grounded,
    /// It answers.
    Engaged,
    /// A person has confirmed something.
    Committed,
    /// Something was denied.
    Protective,
}

impl Stance {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::Grounded => "grounded",
            Self::Engaged => "engaged",
            Self::Committed => "committed",
            Self::Protective => "protective",
        }
    }

    /// Its sign.
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

/// How far the last command reached: its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Altitude {
    /// It read.
    L1,
    /// It added: a turn of a conversation, a note.
    L2,
    /// Policy decided about it: a command, a tool.
    L3,
    /// It changed or deleted.
    L4,
}

impl Altitude {
    /// The altitude of a class of command.
    pub(crate) const fn of(class: Class) -> Self {
        match class {
            Class::Query => Self::L1,
            Class::Append => Self::L2,
            Class::Governed => Self::L3,
            Class::Write => Self::L4,
        }
    }

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L4 => "L4",
        }
    }
}

/// Whether the gates of the tree let things through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GateState {
    /// Nothing failed lately.
    Open,
    /// Something failed lately, and something has passed since.
    Degraded,
    /// The last thing that was checked failed.
    Closed,
}

impl GateState {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Degraded => "degraded",
            Self::Closed => "closed",
        }
    }
}

/// How the session stands at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Signals {
    /// What it is doing.
    pub(crate) stance: Stance,
    /// How far the last command reached.
    pub(crate) altitude: Altitude,
    /// How many turns there were.
    pub(crate) turn_number: u64,
    /// The share of the last ten turns that did not fail.
    pub(crate) health: f64,
    /// How much worse the last five turns were than the five before, from -1 to 1.
    pub(crate) drift: f64,
    /// Where it lies.
    pub(crate) tier: String,
    /// What it was given to be.
    pub(crate) role: Option<String>,
    /// The work order in force.
    pub(crate) active_wo: Option<String>,
    /// Whether the last entry is on the disk.
    pub(crate) ledger_synced: bool,
    /// Whether the gates let things through.
    pub(crate) gate_state: GateState,
    /// The share of tool calls that were not denied.
    pub(crate) trust: f64,
    /// Whether a lesson is open.
    pub(crate) learning: bool,
}

impl Signals {
    /// The members that `signal_status` answers.
    pub(crate) fn to_value(&self) -> Value {
        json!({
            "stance": self.stance.name(),
            "altitude": self.altitude.name(),
            "turn_number": self.turn_number,
            "health": self.health,
            "drift": self.drift,
            "tier": self.tier,
            "role": self.role,
            "active_wo": self.active_wo,
            "ledger_synced": self.ledger_synced,
            "gate_state": self.gate_state.name(),
        })
    }

    /// How much the session is trusted: high ●, medium ◐, low ○.
    pub(crate) fn trust_icon(&self) -> char {
        if self.trust >= 0.9 {
            '●'
        } else if self.trust >= 0.5 {
            '◐'
        } else {
            '○'
        }
    }

    /// Whether a lesson is open: ◉, or · when none is.
    pub(crate) fn learning_icon(&self) -> char {
        if self.learning { '◉' } else { '·' }
    }

    /// Where health is going: ↑ → ↓.
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

/// The one line that tells how a session stands: `engaged · L2 · [████░] · t5 | ctx:1.2k/200k (0.6%)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip<'a> {
    /// The signals.
    pub(crate) signals: &'a Signals,
    /// How many tokens the conversation takes.
    pub(crate) used: u64,
    /// How many the model can hold.
    pub(crate) limit: u64,
}

impl fmt::Display for Strip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signals { stance, altitude, health, turn_number, .. } = self.signals;
        let (used, limit) = (thousands(self.used), thousands(self.limit));
        #[expect(clippy::cast_precision_loss, reason = "a share for people, with one digit")]
        let share = if self.limit == 0 { 0.0 } else { self.used as f64 * 100.0 / self.limit as f64 };
        let (stance, altitude, bar) = (stance.name(), altitude.name(), health_bar(*health));
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

/// Watches a session, and knows its signals at any moment.
#[derive(Debug)]
pub(crate) struct Tracker {
    stance: Stance,
    altitude: Altitude,
    turns: u64,
    /// Whether each of the last turns was fine, the newest last.
    outcomes: VecDeque<bool>,
    calls: u64,
    denied: u64,
    learning: bool,
    synced: bool,
    tier: String,
    role: Option<String>,
}

impl Tracker {
    /// A session in which nothing has happened yet.
    pub(crate) fn new(tier: String, role: Option<String>, turns: u64) -> Self {
        Self {
            stance: Stance::Neutral,
            altitude: Altitude::L2,
            turns,
            outcomes: VecDeque::new(),
            calls: 0,
            denied: 0,
            learning: false,
            synced: true,
            tier,
            role,
        }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self, class: Class) {
        self.turns += 1;
        self.stance = Stance::Engaged;
        self.altitude = Altitude::of(class);
    }

    /// The turn is over. What was confirmed or denied in it stays visible until the next.
    pub(crate) fn end(&mut self, fine: bool) {
        if self.outcomes.len() == WINDOW {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(fine);
        if self.stance == Stance::Engaged {
            self.stance = Stance::Grounded;
        }
    }

    /// A person has said yes to something.
    pub(crate) fn confirmed(&mut self) {
        self.stance = Stance::Committed;
    }

    /// Policy, a gate or a person has said no.
    pub(crate) fn denied(&mut self) {
        self.stance = Stance::Protective;
    }

    /// A command or a tool was called.
    pub(crate) fn called(&mut self, was_denied: bool) {
        self.calls += 1;
        self.denied += u64::from(was_denied);
    }

    /// A lesson is opened or closed.
    pub(crate) fn learning(&mut self, open: bool) {
        self.learning = open;
    }

    /// Whether the last entry is on the disk.
    pub(crate) fn synced(&mut self, synced: bool) {
        self.synced = synced;
    }

    /// How many turns there were.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// The signals now. The work orders and the gates are those of the tree.
    pub(crate) fn signals(&self, plane: &Plane) -> Signals {
        let failed = |outcomes: &mut dyn Iterator<Item = &bool>| outcomes.filter(|fine| !**fine).count();
        let all = failed(&mut self.outcomes.iter());
        let newer = failed(&mut self.outcomes.iter().rev().take(WINDOW / 2));
        let share = |count: usize, of: usize| {
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / f64::from(u32::try_from(of).unwrap_or(1))
        };
        #[expect(clippy::cast_precision_loss, reason = "a share, not a count")]
        let trust = if self.calls == 0 { 1.0 } else { (self.calls - self.denied) as f64 / self.calls as f64 };
        Signals {
            stance: self.stance,
            altitude: self.altitude,
            turn_number: self.turns,
            health: share(WINDOW - all, WINDOW),
            drift: share(newer, WINDOW / 2) - share(all - newer, WINDOW / 2),
            tier: self.tier.clone(),
            role: self.role.clone(),
            active_wo: plane.active_work_order(),
            ledger_synced: self.synced,
            gate_state: plane.gate_state(),
            trust,
            learning: self.learning,
        }
    }
}

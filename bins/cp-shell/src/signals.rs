//! The signals of a session. Each is computed from the events of the session.

use std::collections::VecDeque;

use cp_common::program::Class;
use serde::Serialize;
use serde_json::{Value, json};

use crate::plane::{GateState, Plane, ledgers, work_orders};

/// The assumed context window of an unknown model, in tokens.
pub(crate) const CONTEXT_LIMIT: u64 = 200_000;

/// The stance of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stance {
    /// No turn was taken yet.
    Neutral,
    /// It waits for input.
    Grounded,
    /// It answers a turn.
    Engaged,
    /// A person has confirmed something.
    Committed,
    /// An action was denied.
    Protective,
}

impl Stance {
    /// The name and the icon.
    pub(crate) const fn shown(self) -> (&'static str, char) {
        match self {
            Self::Neutral => ("neutral", '○'),
            Self::Grounded => ("grounded", '●'),
            Self::Engaged => ("engaged", '◉'),
            Self::Committed => ("committed", '◈'),
            Self::Protective => ("protective", '◇'),
        }
    }
}

/// The reach of a command by its class: L1 reads; L2 adds, for example a turn or a note; L3 is governed by policy, like
/// a command or a tool; L4 changes or deletes.
const fn altitude(class: Class) -> &'static str {
    match class {
        Class::Query => "L1",
        Class::Append => "L2",
        Class::Governed => "L3",
        Class::Write => "L4",
    }
}

/// The signals of a session at one moment, and as `signal_status` answers them.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The role, which no program assigns.
    pub(crate) role: (),
    /// The active work order.
    pub(crate) active_wo: Option<String>,
    /// True if the last entry is on the disk.
    pub(crate) ledger_synced: bool,
    /// The state of the gates.
    pub(crate) gate_state: GateState,
    /// The share of tool calls that were not denied.
    #[serde(skip)]
    pub(crate) trust: f64,
    /// True while a lesson is being captured.
    #[serde(skip)]
    pub(crate) learning: bool,
}

impl Signals {
    /// The result of `signal_status`.
    pub(crate) fn status(&self) -> Value {
        json!({"signals": self, "compact_display": self.strip(0, CONTEXT_LIMIT)})
    }

    /// The signals in one line, with the tokens that the conversation takes and the size of the model's context window:
    /// `engaged · L2 · [████░] · t5 | ctx:1.2k/200k (0.6%)`.
    pub(crate) fn strip(&self, used: u64, limit: u64) -> String {
        #[expect(clippy::cast_precision_loss, reason = "a share for people, with one digit")]
        let share = if limit == 0 { 0.0 } else { used as f64 * 100.0 / limit as f64 };
        let Self { stance, altitude, health, turn_number, .. } = self;
        let (stance, bar, used, limit) = (stance.shown().0, health_bar(*health), thousands(used), thousands(limit));
        format!("{stance} · {altitude} · {bar} · t{turn_number} | ctx:{used}/{limit} ({share:.1}%)")
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

/// The number of turns that count for the health.
const WINDOW: usize = 10;

/// Tracks the events of a session.
#[derive(Debug)]
pub(crate) struct Tracker {
    stance: Stance,
    class: Class,
    /// The number of turns.
    pub(crate) turns: u64,
    /// The success of the last turns, the newest last.
    outcomes: VecDeque<bool>,
    calls: u64,
    denied: u64,
    /// True while a lesson is being captured.
    pub(crate) learning: bool,
    /// True if the last entry is on the disk.
    pub(crate) synced: bool,
    tier: String,
}

impl Tracker {
    /// A session without events.
    pub(crate) fn new(tier: String, turns: u64) -> Self {
        Self {
            stance: Stance::Neutral,
            class: Class::Append,
            turns,
            outcomes: VecDeque::new(),
            calls: 0,
            denied: 0,
            learning: false,
            synced: true,
            tier,
        }
    }

    /// Begins a turn, or a command that is not a query.
    pub(crate) fn begin(&mut self, class: Class) {
        self.stance = Stance::Engaged;
        self.class = class;
    }

    /// Ends a turn. A confirmation or denial stays visible until the next turn.
    pub(crate) fn end(&mut self, fine: bool) {
        if self.outcomes.len() == WINDOW {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(fine);
        if self.stance == Stance::Engaged {
            self.stance = Stance::Grounded;
        }
    }

    /// Records a confirmation by a person.
    pub(crate) fn confirmed(&mut self) {
        self.stance = Stance::Committed;
    }

    /// Records a denial by policy, a gate or a person.
    pub(crate) fn denied(&mut self) {
        self.stance = Stance::Protective;
    }

    /// Records a call of a command or a tool.
    pub(crate) fn called(&mut self, was_denied: bool) {
        self.calls += 1;
        if was_denied {
            self.denied += 1;
            self.denied();
        }
    }

    /// Computes the signals, with the work orders and gates of the tree.
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
            altitude: altitude(self.class),
            turn_number: self.turns,
            health: share(WINDOW - all, WINDOW),
            drift: share(newer, WINDOW / 2) - share(all - newer, WINDOW / 2),
            tier: self.tier.clone(),
            role: (),
            active_wo: work_orders::active(plane),
            ledger_synced: self.synced,
            gate_state: ledgers::gate_state(plane),
            trust,
            learning: self.learning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stance::{Committed, Engaged, Grounded, Neutral, Protective};
    use super::*;

    fn tracker() -> Tracker {
        Tracker::new("ho1".to_owned(), 0)
    }

    fn bare() -> (tempfile::TempDir, Plane) {
        let root = tempfile::tempdir().unwrap();
        let plane = Plane::open(root.path()).unwrap();
        (root, plane)
    }

    #[test]
    fn stance_follows_events() {
        let (_root, plane) = bare();
        let mut tracker = tracker();
        let mut stances = Vec::new();
        let mut look = |tracker: &Tracker| stances.push(tracker.signals(&plane).stance);
        look(&tracker);
        tracker.begin(Class::Append);
        look(&tracker);
        tracker.end(true);
        look(&tracker);
        tracker.begin(Class::Append);
        tracker.confirmed();
        tracker.end(true);
        look(&tracker);
        tracker.begin(Class::Governed);
        tracker.denied();
        tracker.end(false);
        look(&tracker);
        tracker.begin(Class::Query);
        tracker.end(true);
        look(&tracker);
        assert_eq!(stances, [Neutral, Engaged, Grounded, Committed, Protective, Grounded]);
    }

    #[test]
    fn altitude_follows_command_class() {
        let (_root, plane) = bare();
        let mut tracker = tracker();
        for (class, altitude) in
            [(Class::Query, "L1"), (Class::Append, "L2"), (Class::Governed, "L3"), (Class::Write, "L4")]
        {
            tracker.begin(class);
            assert_eq!(tracker.signals(&plane).altitude, altitude);
        }
    }

    #[test]
    fn health_and_drift_follow_failures() {
        let (_root, plane) = bare();
        let mut tracker = tracker();
        let mut turn = |fine: bool| {
            tracker.begin(Class::Query);
            tracker.end(fine);
            let signals = tracker.signals(&plane);
            (signals.health, signals.drift, signals.progress_icon())
        };
        assert_eq!(turn(true), (1.0, 0.0, '→'));
        assert_eq!(turn(false), (0.9, 0.2, '↓'));
        for _ in 0..4 {
            turn(true);
        }
        assert_eq!(turn(true), (0.9, -0.2, '↑'));
        for _ in 0..10 {
            turn(true);
        }
        assert_eq!(turn(true), (1.0, 0.0, '→'));
        for _ in 0..12 {
            turn(false);
        }
        assert_eq!(turn(false), (0.0, 0.0, '→'));
    }

    #[test]
    fn trust_learning_and_ledger_icons_follow_events() {
        let (_root, plane) = bare();
        let mut tracker = tracker();
        let icons = |tracker: &Tracker| {
            let signals = tracker.signals(&plane);
            (signals.trust_icon(), signals.learning_icon(), signals.ledger_synced)
        };
        assert_eq!(icons(&tracker), ('●', '·', true));
        tracker.called(false);
        tracker.called(true);
        assert!((tracker.signals(&plane).trust - 0.5).abs() < f64::EPSILON);
        assert_eq!(icons(&tracker).0, '◐');
        tracker.called(true);
        tracker.learning = true;
        tracker.synced = false;
        assert_eq!(icons(&tracker), ('○', '◉', false));
        tracker.learning = false;
        tracker.synced = true;
        assert_eq!(icons(&tracker), ('○', '·', true));
    }

    #[test]
    fn signal_strip_matches_standard() {
        let (_root, plane) = bare();
        let mut signals = tracker().signals(&plane);
        (signals.stance, signals.health, signals.turn_number) = (Stance::Engaged, 0.8, 5);
        for (used, limit, shown) in
            [(1234, 200_000, "1.2k/200k (0.6%)"), (999, 1_000_000, "999/1M (0.1%)"), (0, 0, "0/0 (0.0%)")]
        {
            let strip = signals.strip(used, limit);
            assert_eq!(strip, format!("engaged · L2 · [████░] · t5 | ctx:{shown}"));
        }
        let bars = [1.0, 0.9, 0.6, 0.4, 0.2, 0.1, 0.0].map(|health| health_bar(health).matches('█').count());
        assert_eq!(bars, [5, 4, 3, 2, 1, 0, 0]);
    }
}

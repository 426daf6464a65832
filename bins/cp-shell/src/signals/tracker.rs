//! Tracks the events of a session from which the signals are computed.

use std::collections::VecDeque;

use cp_common::program::Class;

use crate::plane::{Plane, ledgers, work_orders};
use crate::signals::{Signals, Stance, altitude};

/// The number of turns that count for the health.
const WINDOW: usize = 10;

/// Tracks the events of a session.
#[derive(Debug)]
pub(crate) struct Tracker {
    stance: Stance,
    class: Class,
    turns: u64,
    /// The success of the last turns, the newest last.
    outcomes: VecDeque<bool>,
    calls: u64,
    denied: u64,
    learning: bool,
    synced: bool,
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

    /// Counts a turn.
    pub(crate) fn count_turn(&mut self) {
        self.turns += 1;
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
        self.denied += u64::from(was_denied);
    }

    /// Opens or closes a lesson.
    pub(crate) fn learning(&mut self, open: bool) {
        self.learning = open;
    }

    /// True if the last entry is on the disk.
    pub(crate) fn synced(&mut self, synced: bool) {
        self.synced = synced;
    }

    /// The number of turns.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
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
    use serde_json::json;

    use super::*;
    use crate::plane::work_orders;
    use crate::signals::GateState;
    use crate::signals::Stance::{Committed, Engaged, Grounded, Neutral, Protective};

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
        assert_eq!(tracker.signals(&plane).turn_number, 0);
        tracker.count_turn();
        assert_eq!(tracker.signals(&plane).turn_number, 1);
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
        tracker.learning(true);
        tracker.synced(false);
        assert_eq!(icons(&tracker), ('○', '◉', false));
        tracker.learning(false);
        tracker.synced(true);
        assert_eq!(icons(&tracker), ('○', '·', true));
    }

    #[test]
    fn signals_read_gates_and_work_orders_of_tree() {
        let (root, plane) = bare();
        let tracker = tracker();
        std::fs::create_dir(root.path().join("ledger")).unwrap();
        let mut ledger = String::new();
        for (event, state) in
            [("GATE_FAILED", GateState::Closed), ("GATE_PASSED", GateState::Degraded), ("G1_FAIL", GateState::Closed)]
        {
            ledger.push_str(&json!({"event_type": event}).to_string());
            ledger.push('\n');
            std::fs::write(root.path().join("ledger/governance.jsonl"), &ledger).unwrap();
            assert_eq!(tracker.signals(&plane).gate_state, state, "{event}");
        }
        assert_eq!(tracker.signals(&plane).active_wo, None);
        for id in ["WO-20260203-001", "WO-20260203-002"] {
            work_orders::apply(root.path(), &json!({"work_order_id": id})).unwrap();
            assert_eq!(tracker.signals(&plane).active_wo.as_deref(), Some(id));
        }
    }
}

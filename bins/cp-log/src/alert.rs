//! Alerts of `cp-log follow`: a rule in jq that is true of an entry writes to standard error, or runs a command under
//! policy.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use chrono::DateTime;
use cp_common::output::line_to_stderr;
use cp_common::wire::quoted;
use cp_common::{Context, Result, clock, coprocess, json, keys, signals};
use cp_ledger::format::line::{inside, member};
use cp_ledger::usage::UsageTotals;

use crate::reading::{Program, Target, View};

/// The window of `count_per_minute`, in seconds.
const WINDOW: i64 = 60;
/// The most events that are counted, and the most runs that are known as those of alerts.
const KEPT: usize = 1000;

/// Alert on entries
#[derive(Debug, clap::Args)]
pub(crate) struct AlertOptions {
    /// Alert if this jq program is true of an entry (repeatable)
    #[arg(long, value_name = "RULE")]
    alert: Vec<String>,
    /// Run this command line through cp-exec for an alert, which is its standard input, instead of writing to standard error
    #[arg(long, value_name = "COMMAND", requires = "alert")]
    alert_run: Option<String>,
    /// Alert once in so many seconds at most, with the number of entries
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    alert_every: u64,
}

/// The rules, with what they count.
pub(crate) struct Alerts {
    rules: Vec<Rule>,
    command: Option<String>,
    every: Duration,
    rates: Rates,
    cost_usd: f64,
    /// The runs of alerts as JSON, each with the time of its end.
    runs: VecDeque<(Vec<u8>, String)>,
}

struct Rule {
    text: String,
    program: Program,
    /// The time of the last alert.
    last: Option<Instant>,
    /// The entries since the last alert for which the rule is true.
    pending: u64,
    /// The newest of them.
    entry: Vec<u8>,
    /// The text of the newest of them.
    shown: String,
    /// True if a failure of the rule was reported.
    has_failed: bool,
}

impl Alerts {
    pub(crate) fn new(options: &AlertOptions) -> Result<Self> {
        let rule = |text: &String| {
            let program = Program::new(text, "--alert")?;
            let (text, entry, shown) = (text.clone(), Vec::new(), String::new());
            Ok(Rule { text, program, last: None, pending: 0, entry, shown, has_failed: false })
        };
        Ok(Self {
            rules: options.alert.iter().map(rule).collect::<Result<_>>()?,
            command: options.alert_run.clone(),
            every: Duration::from_secs(options.alert_every),
            rates: Rates::default(),
            cost_usd: 0.0,
            runs: VecDeque::new(),
        })
    }

    /// Applies the rules to an entry. An entry of an alert's own run is ignored.
    pub(crate) fn observe(&mut self, target: &Target, view: &View<'_>, context: &mut Context) {
        if self.rules.is_empty() || self.is_own(view) {
            return;
        }
        let event = view.member("event").unwrap_or_default();
        let count = self.rates.add(event, view.ts);
        let usage = view.member("data").and_then(|data| member(inside(data)?, "usage"));
        let name = json::unquote(event).unwrap_or_default();
        let usage = usage.and_then(|usage| UsageTotals::of_entry(&name, usage));
        self.cost_usd += usage.and_then(|usage| usage.cost_usd).unwrap_or(0.0);
        let added = format!(",\"count_per_minute\":{count},\"cost_usd_total\":{}", self.cost_usd);
        let entry = [&view.entry[..view.entry.len() - 1], added.as_bytes(), &target.mark()].concat();
        for rule in &mut self.rules {
            match rule.program.holds(&entry) {
                Ok(true) => {
                    rule.pending += 1;
                    rule.entry.clone_from(&entry);
                    rule.shown = format!("seq {} {}", view.seq, json::unquote(event).unwrap_or_default());
                }
                Err(error) if !rule.has_failed => {
                    rule.has_failed = true;
                    line_to_stderr(&format!("cp-log: alert {}: seq {}: {error}", quoted(&rule.text), view.seq));
                }
                Ok(false) | Err(_) => {}
            }
        }
        self.send_due(false, context);
    }

    fn is_own(&self, view: &View<'_>) -> bool {
        view.member("run").is_some_and(|run| self.runs.iter().any(|(own, end)| own == run && view.ts <= end.as_str()))
    }

    /// Sends the alerts whose interval has passed, or all that wait when the reading ends.
    pub(crate) fn send_due(&mut self, ends: bool, context: &mut Context) {
        for at in 0..self.rules.len() {
            let rule = &self.rules[at];
            if rule.pending > 0 && (ends || rule.last.is_none_or(|last| last.elapsed() >= self.every)) {
                self.send(at, context);
            }
        }
    }

    fn send(&mut self, at: usize, context: &mut Context) {
        let rule = &mut self.rules[at];
        let count = std::mem::take(&mut rule.pending);
        rule.last = Some(Instant::now());
        let entries = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
        let line = format!("cp-log: alert {}: {entries}, last {}", quoted(&rule.text), rule.shown);
        let Some(command) = self.command.clone().filter(|_| !signals::interrupted()) else {
            return line_to_stderr(&line);
        };
        let mut input = b"{\"alert\":".to_vec();
        json::string(&rule.text, &mut input);
        input.extend_from_slice(format!(",\"count\":{count},\"entry\":").as_bytes());
        input.extend_from_slice(&rule.entry);
        input.extend_from_slice(b"}\n");
        if let Err(error) = self.run(&command, &input, context) {
            line_to_stderr(&line);
            line_to_stderr(&format!("cp-log: alert: {}: {error}", quoted(&command)));
        }
    }

    /// Runs a command under policy, in a run of its own that no other process can name in advance.
    fn run(&mut self, command: &str, input: &[u8], context: &mut Context) -> Result<()> {
        let id = u64::from_ne_bytes(keys::random()?);
        let before = context.options.run.replace(format!("alert-{id:016x}"));
        let flags = context.handed_on();
        let run = std::mem::replace(&mut context.options.run, before).unwrap_or_default();
        let ran = coprocess::ask_with("cp-exec", &["--stdin", "-", "-c", command], input, flags);
        let mut own = Vec::new();
        json::string(&run, &mut own);
        self.runs.push_back((own, clock::now()));
        self.runs.drain(..self.runs.len().saturating_sub(KEPT));
        ran.map(drop)
    }
}

/// The entries of each event in the last minute, by the times of the entries.
#[derive(Default)]
struct Rates(BTreeMap<Vec<u8>, VecDeque<(i64, u64)>>);

impl Rates {
    /// Counts an entry. Returns the number of entries of its event in the minute that it ends.
    fn add(&mut self, event: &[u8], ts: &str) -> u64 {
        let second = DateTime::parse_from_rfc3339(ts).map_or(0, |time| time.timestamp());
        if self.0.len() >= KEPT && !self.0.contains_key(event) {
            self.0.retain(|_, seconds| seconds.back().is_some_and(|(last, _)| *last > second - WINDOW));
            if self.0.len() >= KEPT {
                self.0.pop_first();
            }
        }
        let seconds = self.0.entry(event.to_vec()).or_default();
        match seconds.back_mut() {
            // A clock that was set back does not remove what was counted.
            Some((last, count)) if *last >= second => *count += 1,
            _ => seconds.push_back((second, 1)),
        }
        let newest = seconds.back().map_or(second, |(last, _)| *last);
        while seconds.front().is_some_and(|(first, _)| *first <= newest - WINDOW) {
            seconds.pop_front();
        }
        seconds.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_entries_of_event_in_the_last_minute() {
        let mut rates = Rates::default();
        let at = |second: u64| clock::from_unix_seconds(1_000_000 + second);
        let expected = |second: u64| (0..=second).filter(|earlier| earlier + 60 > second).count() as u64;
        for second in 0..200 {
            assert_eq!(rates.add(b"a", &at(second)), expected(second), "{second}");
            if second % 50 == 0 {
                assert_eq!(rates.add(b"b", &at(second)), if second < 50 { 1 } else { 2 });
            }
        }
        assert!(rates.0.values().all(|seconds| seconds.len() <= 60));
    }

    #[test]
    fn rates_of_many_events_stay_bounded() {
        let mut rates = Rates::default();
        for event in 0..5 * KEPT {
            rates.add(event.to_string().as_bytes(), &clock::from_unix_seconds(1_000_000 + event as u64 / 100));
        }
        assert!(rates.0.len() <= KEPT);
    }
}

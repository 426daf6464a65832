//! `cp-log stats`: how much happened, what it cost and how long it took; by event, agent, model and session.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Context, Result, json};
use cp_ledger::format::line::{inside, member};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::reading::{Beginning, Direction, Filters, Reader, Select, Step, beginnings, check_run, to_read};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc =
    VerbDoc { examples: &["{} append hello && {} stats"], ..VerbDoc::new("stats", Class::Query, "stats") };

/// Sum up events, tokens, cost and latency
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Ledgers, bundles, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Sums over entries: in total, and by event, agent, model and session.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Stats {
    /// How many files were read to their ends.
    files: u64,
    /// How many lines were counted.
    entries: u64,
    /// How many entries were left out because a copy of their ledger was read, too.
    repeated: u64,
    /// The earliest time in them.
    from: Option<String>,
    /// The latest time in them.
    until: Option<String>,
    /// The sums over all entries.
    total: Row,
    /// By event.
    by_event: Vec<Row>,
    /// By agent.
    by_agent: Vec<Row>,
    /// By model.
    by_model: Vec<Row>,
    /// By session.
    by_session: Vec<Row>,
}

/// One row of the sums.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Row {
    /// The event, agent, model or session; null for entries without one.
    name: Option<String>,
    /// How many entries.
    count: u64,
    #[serde(flatten)]
    usage: UsageTotals,
    /// How many entries say how long they took.
    timed: u64,
    /// The mean of these times.
    mean_ms: Option<f64>,
    /// The longest of these times.
    max_ms: Option<f64>,
}

/// Tokens and cost, summed over entries. Sums of tokens saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UsageTotals {
    /// Tokens read, those from and into a cache included.
    input_tokens: u64,
    /// Tokens written.
    output_tokens: u64,
    /// US dollars, as far as prices were known; null if none was.
    cost_usd: Option<f64>,
}

impl UsageTotals {
    /// Parses the `usage` member of an entry's data. A member that is missing or has another type counts as zero.
    fn parse(usage: &[u8]) -> Option<Self> {
        let usage: Map<String, Value> = serde_json::from_slice(usage).ok()?;
        let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
        let input = ["input_tokens", "cache_read_tokens", "cache_write_tokens"].map(tokens);
        Some(Self {
            input_tokens: input.into_iter().fold(0, u64::saturating_add),
            output_tokens: tokens("output_tokens"),
            cost_usd: usage.get("cost_usd").and_then(Value::as_f64),
        })
    }

    /// Adds other totals to these.
    fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd =
            self.cost_usd.zip(other.cost_usd).map(|(one, other)| one + other).or(self.cost_usd).or(other.cost_usd);
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let select = Select::over(&args.filters, &args.files, context)?;
    let groups = to_read(&args.files, context)?;
    let beginnings = beginnings(&groups, context);
    let (mut sums, mut stats, mut failures) = (Sums::default(), Stats::default(), Vec::new());
    // The line up to which a file was read that begins so: an entry that copies of a ledger have counts once.
    let mut read = HashMap::<&Beginning, u64>::new();
    for target in groups.iter().flat_map(|group| &group.files) {
        let beginning = beginnings.get(&target.path);
        let from = beginning.and_then(|beginning| read.get(beginning)).copied().unwrap_or_default();
        let mut to = from;
        let mut step = |step: Step<'_>| {
            match step {
                Step::Entry(view) if view.seq < from => stats.repeated += 1,
                Step::Entry(view) => {
                    to = view.seq.saturating_add(1);
                    stats.count(view.ts);
                    sums.add(view.body);
                }
                Step::Fault(error) => failures.push(error),
                Step::Wait => {}
            }
            Ok(ControlFlow::Continue(()))
        };
        let opened = Reader::open(target, Direction::Forward, None);
        let outcome = opened.and_then(|mut reader| reader.each(&select, &mut step));
        read.extend(beginning.map(|beginning| (beginning, to)));
        match outcome {
            Ok(_) => stats.files += 1,
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => failures.push(e),
        }
    }
    if stats.entries == 0 && failures.is_empty() {
        check_run(context)?;
    }
    stats.total = sums.total.row(None);
    [stats.by_event, stats.by_agent, stats.by_model, stats.by_session] = sums.by.map(rows);
    if failures.is_empty() {
        return context.out.answer(&stats);
    }
    context.out.streaming()?;
    failures.into_iter().try_for_each(|error| context.out.item_failed(error))?;
    if stats.files > 0 {
        context.out.record(Kind::Item, &stats)?;
        context.out.item_succeeded();
    }
    Ok(())
}

impl Stats {
    fn count(&mut self, ts: &str) {
        self.entries += 1;
        if self.from.as_deref().is_none_or(|from| ts < from) {
            self.from = Some(ts.to_owned());
        }
        if self.until.as_deref().is_none_or(|until| ts > until) {
            self.until = Some(ts.to_owned());
        }
    }
}

#[derive(Default)]
struct Sums {
    total: Sum,
    /// By event, agent, model and session.
    by: [BTreeMap<Option<String>, Sum>; 4],
}

#[derive(Default)]
struct Sum {
    count: u64,
    usage: UsageTotals,
    timed: u64,
    took: f64,
    longest: f64,
}

impl Sums {
    /// Adds an entry, given as its members. A member of another type counts as one that is not there.
    fn add(&mut self, body: &[u8]) {
        let data = member(body, "data").and_then(inside).unwrap_or_default();
        let text = |object, name| member(object, name).and_then(json::unquote);
        let (event, model) = (text(body, "event"), text(data, "model"));
        // Messages and ends of runs repeat it.
        let usage = member(data, "usage").filter(|_| event.as_deref() == Some("llm.response"));
        let usage = usage.and_then(UsageTotals::parse).unwrap_or_default();
        let took = member(data, "duration_ms").and_then(|took| serde_json::from_slice(took).ok());
        self.total.add(&usage, took);
        let has_model = model.is_some();
        for (at, name) in [event, text(body, "agent"), model, text(body, "session")].into_iter().enumerate() {
            if at != 2 || has_model {
                self.by[at].entry(name).or_default().add(&usage, took);
            }
        }
    }
}

impl Sum {
    fn add(&mut self, usage: &UsageTotals, took: Option<f64>) {
        self.count += 1;
        self.usage.add(usage);
        if let Some(took) = took.filter(|took| *took >= 0.0) {
            self.timed += 1;
            self.took += took;
            self.longest = self.longest.max(took);
        }
    }

    fn row(&self, name: Option<String>) -> Row {
        let Self { count, usage, timed, took, longest } = *self;
        #[expect(clippy::cast_precision_loss, reason = "a mean of more than 2^52 times is not exact")]
        let mean_ms = (timed > 0).then(|| (took / timed as f64 * 1000.0).round() / 1000.0);
        Row { name, count, usage, timed, mean_ms, max_ms: mean_ms.map(|_| longest) }
    }
}

fn rows(sums: BTreeMap<Option<String>, Sum>) -> Vec<Row> {
    let mut rows: Vec<Row> = sums.into_iter().map(|(name, sum)| sum.row(name)).collect();
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    rows
}

impl Reply for Stats {
    fn text(&self) -> String {
        let span = match (&self.from, &self.until) {
            (Some(from), Some(until)) => format!(", {from} to {until}"),
            _ => String::new(),
        };
        let mut text = format!("{} entries in {} files{span}\n", self.entries, self.files);
        for (title, rows) in [
            ("event", &self.by_event),
            ("agent", &self.by_agent),
            ("model", &self.by_model),
            ("session", &self.by_session),
        ] {
            if rows.iter().any(|row| row.name.is_some()) {
                text.push('\n');
                text.push_str(&table(title, rows));
            }
        }
        text.trim_end().to_owned()
    }
}

fn table(title: &str, rows: &[Row]) -> String {
    let head = [title, "count", "input", "output", "usd", "mean ms", "max ms"].map(str::to_owned);
    let mut cells = vec![head];
    for row in rows {
        let time = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"));
        let number = |number: u64| if number == 0 { "-".to_owned() } else { number.to_string() };
        let usd = row.usage.cost_usd.map_or_else(|| "-".to_owned(), |usd| format!("{usd:.4}"));
        cells.push([
            row.name.clone().unwrap_or_else(|| "-".to_owned()),
            row.count.to_string(),
            number(row.usage.input_tokens),
            number(row.usage.output_tokens),
            usd,
            time(row.mean_ms),
            time(row.max_ms),
        ]);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = String::new();
    for row in &cells {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths[column] - cell.chars().count());
            // Names begin at the left, numbers end at the right.
            line.extend(if column == 0 { [cell, space.as_str(), "  "] } else { [space.as_str(), cell, "  "] });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_mean_and_longest() {
        let mut sum = Sum::default();
        for took in 1..=1000 {
            sum.add(&UsageTotals::default(), Some(f64::from(took)));
        }
        let row = sum.row(None);
        assert_eq!((row.timed, row.mean_ms, row.max_ms), (1000, Some(500.5), Some(1000.0)));
        assert!(Sum::default().row(None).mean_ms.is_none());
    }

    #[test]
    fn stats_ignores_members_of_another_type() {
        let line = br#","data":{"model":7,"usage":"none","duration_ms":"long","x":1}"#;
        let mut sums = Sums::default();
        sums.add(line);
        assert_eq!((sums.total.count, sums.total.timed, sums.by[2].len()), (1, 0, 0));
    }

    #[test]
    fn parse_counts_cached_input_and_skips_members_of_another_type() {
        let usage =
            UsageTotals::parse(br#"{"input_tokens":1,"cache_read_tokens":2,"output_tokens":"x","cost_usd":0.5}"#);
        assert_eq!(usage, Some(UsageTotals { input_tokens: 3, output_tokens: 0, cost_usd: Some(0.5) }));
        assert_eq!(UsageTotals::parse(b"\"none\""), None);
    }
}

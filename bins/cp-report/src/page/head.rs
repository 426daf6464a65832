//! The heading above the lines: facts, sums, tables and pictures.

use serde::Serialize;

use super::{Placed, id_of};
use crate::bundle::{Head, LeftOut};
use crate::model::{Count, Fact, Overview, Place, Step, Totals, duration, money, word};
use crate::svg::{Bar, bars, timeline};

/// The heading above the lines.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Heading {
    /// The subject of the page: a run, a session, a batch, an overview, or ledgers.
    kind: &'static str,
    /// Its name.
    name: String,
    /// The task.
    task: String,
    /// Facts beside the name.
    facts: Vec<Fact>,
    /// How far each limit is used up.
    limits: Vec<Limit>,
    /// Sums, as tables.
    pub(crate) tables: Vec<Table>,
    /// The values of the bars, as a table.
    pub(crate) turns: Option<Table>,
    /// The command that checks the same.
    command: String,
    /// When the bundle was made.
    made_at: String,
    /// Parts that are not in the bundle, and why.
    left_out: Vec<LeftOut>,
    /// The version of this program.
    version: &'static str,
    /// The groups that lines are filtered by.
    groups: [&'static str; 9],
    /// The caption of the bars of tokens.
    tokens_text: String,
    /// The caption of the bars of cost.
    cost_text: String,
    #[serde(skip)]
    pub(crate) timeline: Option<String>,
    #[serde(skip)]
    pub(crate) tokens: Option<String>,
    #[serde(skip)]
    pub(crate) costs: Option<String>,
}

/// A limit.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Limit {
    name: String,
    used: f64,
    most: f64,
    /// From where on it is nearly used up.
    high: f64,
    text: String,
}

/// A table.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The id of the line that each row is about; empty where there is none.
    pub(crate) links: Vec<String>,
    #[serde(skip)]
    pub(crate) picture: Option<String>,
}

const GROUPS: [&str; 9] = ["message", "model", "tool", "command", "person", "session", "program", "ledger", "other"];

fn fact(name: &str, value: impl Into<String>) -> Fact {
    Fact { name: name.to_owned(), value: value.into(), line: None }
}

/// A moment without its fraction.
fn moment(time: Option<&str>) -> String {
    time.and_then(|time| time.get(..19)).unwrap_or_default().replace('T', " ")
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn span(milliseconds: i64) -> String {
    duration(milliseconds.max(0) as f64)
}

/// The heading above the lines of these ledgers.
pub(crate) fn heading(head: &Head, ledgers: &[Placed], overview: &Overview, is_overview: bool) -> Heading {
    let run = match (is_overview, overview.runs.as_slice()) {
        (false, [run]) if head.selection.session.is_none() => Some(run),
        _ => None,
    };
    let files = || ledgers.iter().map(|placed| placed.ledger.file.as_str()).collect::<Vec<_>>();
    let session = head.selection.session.as_ref().or_else(|| overview.sessions.keys().next());
    let (kind, name) = match (is_overview, run, session) {
        (true, ..) => (
            "Overview",
            head.selection.since.as_ref().map_or_else(|| "of all ledgers".to_owned(), |since| format!("since {since}")),
        ),
        (_, Some(run), _) => ("Run", run.id.clone()),
        (_, None, Some(session)) if overview.runs.is_empty() || overview.sessions.len() == 1 => {
            ("Session", session.clone())
        }
        _ if overview.totals.answers > 1 && overview.runs.is_empty() => ("Batch", files().join(", ")),
        _ => ("Ledgers", files().join(", ")),
    };
    let totals = &overview.totals;
    let has_tables = matches!(kind, "Overview" | "Batch" | "Ledgers");
    let used = format!("{} read, {} written", totals.usage.input_tokens, totals.usage.output_tokens);
    let is_used = totals.usage.input_tokens + totals.usage.output_tokens > 0;
    let steps = &overview.turns;
    let (one, many) =
        if steps.iter().any(|step| step.turn.is_some()) { ("turn", "turns") } else { ("answer", "answers") };
    let width = steps.first().map_or(1, |step| step.count);
    let each = if width == 1 { format!("a bar for each {one}") } else { format!("a bar for {width} {many}") };
    let id = |place: Place| id_of(ledgers, place);
    let bar = |own: &'static str, value: &dyn Fn(&Step) -> ([u64; 2], String)| -> Vec<Bar> {
        let bar = |(at, step): (usize, &Step)| {
            let (values, label_text) = value(step);
            let label_text = format!("{one} {}: {label_text}", which(at, step, width));
            Bar { values, label_text, place: (!is_overview).then(|| (own, id(step.place))) }
        };
        steps.iter().enumerate().map(bar).collect()
    };
    let tokens = bar("c", &|step| {
        let values = [step.usage.input_tokens, step.usage.output_tokens];
        (values, format!("{} tokens read, {} written", values[0], values[1]))
    });
    let costs = bar("d", &|step| ([millionths(step.usage.dollars()), 0], money(step.usage.dollars())));
    Heading {
        kind,
        name,
        task: run.map(|run| run.task.clone()).unwrap_or_default(),
        facts: facts(overview, run, &id),
        limits: run.map(|run| run.limits.iter().map(limit).collect()).unwrap_or_default(),
        tables: if has_tables { tables(overview, &id) } else { runs(overview, &id).into_iter().collect() },
        turns: turns(steps, one, &id),
        command: command(head),
        made_at: moment(Some(&head.made_at)),
        left_out: head.left_out.clone(),
        version: env!("CARGO_PKG_VERSION"),
        groups: GROUPS,
        // One value is a sentence, not a chart.
        tokens_text: if steps.len() > 1 { format!("{used}; {each}") } else { used }.repeat(usize::from(is_used)),
        cost_text: if totals.usage.dollars() > 0.0 { money(totals.usage.dollars()) } else { String::new() },
        timeline: if is_overview { None } else { timeline(&overview.lanes, id, span) },
        tokens: bars(&format!("Tokens of each of the {many}"), &tokens),
        costs: bars(&format!("Cost of each of the {many}"), &costs),
    }
}

fn facts(overview: &Overview, run: Option<&crate::model::Run>, id: &dyn Fn(Place) -> String) -> Vec<Fact> {
    let totals = &overview.totals;
    let mut facts = Vec::new();
    if let Some(run) = run {
        facts.push(fact("outcome", &run.status));
        facts.extend([fact("agent", &run.agent), fact("in", &run.base), fact("took", span(run.ended - run.started))]);
    }
    facts.push(fact("from", moment(overview.from.as_deref())));
    facts.push(fact("until", format!("{} UTC", moment(overview.until.as_deref().or(overview.from.as_deref())))));
    let models: Vec<&str> = overview.models.keys().take(5).map(String::as_str).collect();
    if !models.is_empty() {
        facts.push(fact("model", models.join(", ")));
    }
    facts.push(fact(
        "cost",
        if totals.usage.dollars() > 0.0 { money(totals.usage.dollars()) } else { "unknown or none".to_owned() },
    ));
    facts.push(fact("tokens", format!("{} read, {} written", totals.usage.input_tokens, totals.usage.output_tokens)));
    let counted = |(name, count): (&str, u64)| Fact {
        line: overview.firsts.get(name).map(|place| id(*place)),
        ..fact(name, count.to_string())
    };
    facts.extend(totals.counts().map(counted));
    facts.push(fact("lines", overview.lines.to_string()));
    facts
}

fn turns(steps: &[Step], one: &'static str, id: &dyn Fn(Place) -> String) -> Option<Table> {
    let row = |(at, step): (usize, &Step)| {
        let name = which(at, step, steps[0].count);
        let cost = if step.usage.dollars() > 0.0 { money(step.usage.dollars()) } else { "-".to_owned() };
        (
            vec![name, step.usage.input_tokens.to_string(), step.usage.output_tokens.to_string(), cost],
            Some(id(step.place)),
        )
    };
    table("Turns", one, &SUMS[4..], steps.iter().enumerate().map(row).collect())
}

fn millionths(usd: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a price, to be drawn")]
    let millionths = (usd.max(0.0) * 1e6) as u64;
    millionths
}

/// Which turns or answers a step has.
fn which(at: usize, step: &Step, width: u64) -> String {
    let first = step.turn.unwrap_or(at as u64 * width + 1);
    if step.count > 1 { format!("{first} to {}", first.saturating_add(step.count - 1)) } else { first.to_string() }
}

fn limit((name, used, most): &(String, f64, f64)) -> Limit {
    let text = match name.as_str() {
        "usd" => format!("{} of {}", money(*used), money(*most)),
        "deadline" => format!("{} of {}", duration(used * 1000.0), duration(most * 1000.0)),
        _ => format!("{used} of {most}"),
    };
    let name = match name.as_str() {
        "max_iterations" => "turns".to_owned(),
        "usd" => "cost".to_owned(),
        "deadline" => "time".to_owned(),
        name => name.to_owned(),
    };
    Limit { name, used: *used, most: *most, high: most * 0.8, text }
}

/// The columns of sums, and a row of them.
const SUMS: [&str; 7] = ["answers", "calls", "refusals", "failures", "tokens read", "tokens written", "cost"];

fn sums(name: &str, totals: &Totals) -> Vec<String> {
    let numbers = [
        totals.answers,
        totals.calls,
        totals.refusals,
        totals.failures,
        totals.usage.input_tokens,
        totals.usage.output_tokens,
    ];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(if totals.usage.dollars() > 0.0 { money(totals.usage.dollars()) } else { "-".to_owned() });
    row
}

/// A table of rows, each with the id of the line that it is about.
fn table(
    name: &'static str,
    first: &'static str,
    columns: &[&'static str],
    rows: Vec<(Vec<String>, Option<String>)>,
) -> Option<Table> {
    let columns = [&[first], columns].concat();
    let (rows, links): (_, Vec<_>) = rows.into_iter().map(|(row, link)| (row, link.unwrap_or_default())).unzip();
    Some(Table { name, columns, rows, links, picture: None }).filter(|table: &Table| !table.rows.is_empty())
}

/// The runs, where there is more than one.
fn runs(overview: &Overview, id: &dyn Fn(Place) -> String) -> Option<Table> {
    let row = |run: &crate::model::Run| {
        let took = span(run.ended - run.started);
        let row = [
            vec![run.id.clone(), run.task.chars().take(80).collect(), run.status.clone(), took],
            sums("", &run.totals)[1..].to_vec(),
        ];
        (row.concat(), run.totals.first.map(id))
    };
    let rows: Vec<_> = overview.runs.iter().map(row).collect();
    let columns = [&["task", "outcome", "took"], &SUMS[..]].concat();
    table("Runs", "run", &columns, rows).filter(|table| table.rows.len() > 1)
}

fn tables(overview: &Overview, id: &dyn Fn(Place) -> String) -> Vec<Table> {
    let counted = |counts: &std::collections::BTreeMap<String, Count>| {
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(count.times));
        counts
            .into_iter()
            .map(|(name, count)| (vec![name.clone(), count.times.to_string()], Some(id(count.first))))
            .collect::<Vec<_>>()
    };
    let mut tools: Vec<_> = overview.tools.iter().collect();
    tools.sort_by(|a, b| b.1.total_ms.total_cmp(&a.1.total_ms));
    #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
    let tool = |(name, times): (&String, &crate::model::Times)| {
        let mean = times.total_ms / times.count.max(1) as f64;
        let row = [
            name.clone(),
            times.count.to_string(),
            duration(mean),
            duration(times.longest_ms),
            duration(times.total_ms),
        ];
        (row.to_vec(), Some(id(times.longest)))
    };
    let latency = |(step, count): (usize, &u64)| {
        let row =
            vec![format!("at most {}", duration(2_f64.powi(i32::try_from(step).unwrap_or(0) + 1))), count.to_string()];
        (row, None)
    };
    let rows = |sums_of: &std::collections::BTreeMap<String, Totals>| {
        sums_of.iter().map(|(name, totals)| (sums(name, totals), totals.first.map(id))).collect()
    };
    let latencies = overview.latencies.iter().enumerate().filter(|(_, count)| **count > 0).map(latency).collect();
    let picture: Vec<Bar> = overview.latencies.iter().map(|count| [*count, 0].into()).collect();
    let latencies = table("How long answers took", "time", &["answers"], latencies).map(|table| Table {
        picture: bars("How long answers took, each bar twice as long as the one before", &picture),
        ..table
    });
    let days: Vec<Bar> =
        overview.days.values().map(|day| [day.usage.input_tokens, day.usage.output_tokens].into()).collect();
    let days = table("By day", "day", &SUMS, rows(&overview.days))
        .map(|table| Table { picture: bars("Tokens by day", &days), ..table });
    [
        runs(overview, id),
        days,
        table("By model", "model", &SUMS, rows(&overview.models)),
        table("Refusals by rule", "rule", &["times"], counted(&overview.refusals)),
        table("Failures by code", "code", &["times"], counted(&overview.failures)),
        table(
            "Tools, those that took longest first",
            "tool",
            &["calls", "mean", "longest", "in all"],
            tools.into_iter().map(tool).collect(),
        ),
        latencies,
        table("Sessions", "session", &["messages"], counted(&overview.sessions)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The command that makes the bundle again and checks it.
fn command(head: &Head) -> String {
    let selection = &head.selection;
    let mut words = "cp-log bundle".to_owned();
    let options = [("--run", &selection.run), ("--session", &selection.session), ("--since", &selection.since)];
    for (option, value) in options.into_iter().filter_map(|(option, value)| Some((option, value.as_ref()?))) {
        words = format!("{words} {option} {}", word(value));
    }
    for file in &selection.files {
        words = format!("{words} {}", word(file));
    }
    words + " | cp-log verify --trust K.pub -"
}

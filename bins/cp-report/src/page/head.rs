//! What stands above the lines.

use serde::Serialize;

use crate::bundle::{Head, Ledger};
use crate::model::{Fact, Overview, Totals, duration, money, word};
use crate::svg::{bars, timeline};

/// What stands above the lines.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Heading {
    /// What the page is about: a run, a session, a batch, an overview, or ledgers.
    kind: &'static str,
    /// Its name.
    name: String,
    /// What was asked.
    task: String,
    /// What is named beside it.
    facts: Vec<Fact>,
    /// How far each limit is used up.
    limits: Vec<Limit>,
    /// Sums, as tables.
    pub(crate) tables: Vec<Table>,
    /// The command that checks the same.
    command: String,
    /// When the bundle was made.
    made_at: String,
    /// The version of this program.
    version: &'static str,
    /// What lines are filtered by.
    groups: [&'static str; 9],
    /// What the bars of tokens say.
    tokens_text: String,
    #[serde(skip)]
    pub(crate) timeline: Option<String>,
    #[serde(skip)]
    pub(crate) tokens: Option<String>,
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    #[serde(skip)]
    pub(crate) picture: Option<String>,
}

const GROUPS: [&str; 9] = ["message", "model", "tool", "command", "person", "session", "program", "ledger", "other"];

fn fact(name: &str, value: impl Into<String>) -> Fact {
    Fact { name: name.to_owned(), value: value.into() }
}

/// A moment without its fraction.
fn moment(time: Option<&str>) -> String {
    time.and_then(|time| time.get(..19)).unwrap_or_default().replace('T', " ")
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn span(milliseconds: i64) -> String {
    duration(milliseconds.max(0) as f64)
}

/// What stands above the lines of these ledgers.
pub(crate) fn heading(head: &Head, ledgers: &[Ledger], overview: &Overview, is_overview: bool) -> Heading {
    let roots: Vec<_> = overview.runs.iter().filter(|run| !overview.children.contains(&run.id)).collect();
    let run = match (is_overview, roots.as_slice()) {
        (false, [run]) if head.selection.session.is_none() => Some(*run),
        _ => None,
    };
    let files = || ledgers.iter().map(|ledger| ledger.file.as_str()).collect::<Vec<_>>();
    let session = head.selection.session.as_ref().or_else(|| overview.sessions.keys().next());
    let (kind, name) = match (is_overview, run, session) {
        (true, ..) => (
            "Overview",
            head.selection.since.as_ref().map_or_else(|| "of all ledgers".to_owned(), |since| format!("since {since}")),
        ),
        (_, Some(run), _) => ("Run", run.id.clone()),
        (_, None, Some(session)) if roots.is_empty() || overview.sessions.len() == 1 => ("Session", session.clone()),
        _ if overview.totals.answers > 1 && roots.is_empty() => ("Batch", files().join(", ")),
        _ => ("Ledgers", files().join(", ")),
    };
    let totals = &overview.totals;
    let has_tables = matches!(kind, "Overview" | "Batch" | "Ledgers");
    let used = format!("{} read, {} written", totals.input_tokens, totals.output_tokens);
    let step = overview.tokens.width;
    let each = if step == 1 { "a bar for each answer".to_owned() } else { format!("a bar for {step} answers") };
    Heading {
        kind,
        name,
        task: run.map(|run| run.task.clone()).unwrap_or_default(),
        facts: facts(overview, run),
        limits: run.map(|run| run.limits.iter().map(limit).collect()).unwrap_or_default(),
        tables: if has_tables { tables(overview) } else { runs(overview).into_iter().collect() },
        command: command(head),
        made_at: moment(Some(&head.made_at)),
        version: env!("CARGO_PKG_VERSION"),
        groups: GROUPS,
        tokens_text: format!("{used}; {each}"),
        timeline: if is_overview { None } else { timeline(&overview.lanes, span) },
        tokens: bars("Tokens, in the order of the answers", &overview.tokens.sums),
    }
}

fn facts(overview: &Overview, run: Option<&crate::model::Run>) -> Vec<Fact> {
    let totals = &overview.totals;
    let mut facts = Vec::new();
    if let Some(run) = run {
        facts.push(fact("outcome", &run.status));
        facts.extend([fact("agent", &run.agent), fact("in", &run.base), fact("took", span(run.ended - run.started))]);
        facts.extend(run.parent.as_ref().map(|parent| fact("part of", parent)));
    }
    facts.push(fact("from", moment(overview.from.as_deref())));
    facts.push(fact("until", format!("{} UTC", moment(overview.until.as_deref()))));
    let models: Vec<&str> = overview.models.keys().take(5).map(String::as_str).collect();
    if !models.is_empty() {
        facts.push(fact("model", models.join(", ")));
    }
    facts.push(fact("cost", if totals.cost_usd > 0.0 { money(totals.cost_usd) } else { "unknown or none".to_owned() }));
    facts.push(fact("tokens", format!("{} read, {} written", totals.input_tokens, totals.output_tokens)));
    let counts = [
        ("turns", totals.turns),
        ("answers", totals.answers),
        ("retries", totals.retries),
        ("calls", totals.calls),
        ("commands", totals.commands),
        ("refusals", totals.refusals),
        ("approvals", totals.approvals),
        ("failures", totals.failures),
        ("lines", overview.lines),
    ];
    facts.extend(counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| fact(name, count.to_string())));
    facts
}

fn limit((name, used, most): &(String, f64, f64)) -> Limit {
    let text = match name.as_str() {
        "usd" => format!("{} of {}", money(*used), money(*most)),
        _ => format!("{used} of {most}"),
    };
    let name = match name.as_str() {
        "max_iterations" => "turns".to_owned(),
        "usd" => "cost".to_owned(),
        name => name.to_owned(),
    };
    Limit { name, used: *used, most: *most, high: most * 0.8, text }
}

/// The columns of sums, and a row of them.
const SUMS: [&str; 7] = ["answers", "calls", "refusals", "failures", "tokens read", "tokens written", "cost"];

fn sums(name: &str, totals: &Totals) -> Vec<String> {
    let numbers =
        [totals.answers, totals.calls, totals.refusals, totals.failures, totals.input_tokens, totals.output_tokens];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(if totals.cost_usd > 0.0 { money(totals.cost_usd) } else { "-".to_owned() });
    row
}

fn table(name: &'static str, first: &'static str, columns: &[&'static str], rows: Vec<Vec<String>>) -> Option<Table> {
    let columns = [&[first], columns].concat();
    (!rows.is_empty()).then_some(Table { name, columns, rows, picture: None })
}

/// The runs, where there is more than one.
fn runs(overview: &Overview) -> Option<Table> {
    let row = |run: &crate::model::Run| {
        let took = span(run.ended - run.started);
        [
            vec![run.id.clone(), run.task.chars().take(80).collect(), run.status.clone(), took],
            sums("", &run.totals)[1..].to_vec(),
        ]
        .concat()
    };
    let rows: Vec<_> = overview.runs.iter().map(row).collect();
    let columns = [&["task", "outcome", "took"], &SUMS[..]].concat();
    table("Runs", "run", &columns, rows).filter(|table| table.rows.len() > 1)
}

fn tables(overview: &Overview) -> Vec<Table> {
    let counted = |counts: &std::collections::BTreeMap<String, u64>| {
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_by(|a, b| b.1.cmp(a.1));
        counts.into_iter().map(|(name, count)| vec![name.clone(), count.to_string()]).collect::<Vec<_>>()
    };
    let mut tools: Vec<_> = overview.tools.iter().collect();
    tools.sort_by(|a, b| b.1.total_ms.total_cmp(&a.1.total_ms));
    #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
    let tool = |(name, times): (&String, &crate::model::Times)| {
        let mean = times.total_ms / times.count.max(1) as f64;
        vec![
            name.clone(),
            times.count.to_string(),
            duration(mean),
            duration(times.longest_ms),
            duration(times.total_ms),
        ]
    };
    let latency = |(step, count): (usize, &u64)| {
        vec![format!("at most {}", duration(2_f64.powi(i32::try_from(step).unwrap_or(0) + 1))), count.to_string()]
    };
    let rows = |sums_of: &std::collections::BTreeMap<String, Totals>| {
        sums_of.iter().map(|(name, totals)| sums(name, totals)).collect()
    };
    let latencies = overview.latencies.iter().enumerate().filter(|(_, count)| **count > 0).map(latency).collect();
    let picture: Vec<[u64; 2]> = overview.latencies.iter().map(|count| [*count, 0]).collect();
    let latencies = table("How long answers took", "time", &["answers"], latencies).map(|table| Table {
        picture: bars("How long answers took, each bar twice as long as the one before", &picture),
        ..table
    });
    let days: Vec<[u64; 2]> =
        overview.days.values().map(|totals| [totals.input_tokens, totals.output_tokens]).collect();
    let days = table("By day", "day", &SUMS, rows(&overview.days))
        .map(|table| Table { picture: bars("Tokens by day", &days).filter(|_| days.len() > 1), ..table });
    [
        runs(overview),
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
    words + " | cp-log check-bundle --key K.pub -"
}

//! `cp-log export`: entries for other tools. OpenTelemetry JSON, a request a record; with `--format raw` bare lines, as a collector's
//! file receiver reads them. Or a signed statement about the ledgers, see [`crate::statement`].

use std::collections::HashMap;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use chrono::DateTime;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::record::Kind;
use cp_common::{Context, Result, wire};
use cp_ledger::format::line::Hash;
use serde_json::{Map, Value, json};

use crate::reading::{Filters, Origins, Select, View, each_entry, to_read};
use crate::statement;

/// The semantic conventions that the names are from, which may change in the next version. A name of ours begins with `cp.`.
const CONVENTIONS: &str = "https://opentelemetry.io/schemas/gen-ai/1.42.0";

/// The most runs whose start is remembered.
const RUNS: usize = 10_000;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "export",
    class: Class::Query,
    output: "otlp",
    also: &["dsse", "summary"],
    examples: &[
        "{} append hello && {} export",
        "{} append hello && {} keygen X && {} export --as in-toto --sign-with X --format raw >statement.json",
    ],
    ..VerbDoc::EMPTY
};

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum As {
    /// OpenTelemetry JSON: spans and log records
    Otlp,
    /// An in-toto statement about whole ledgers or bundles, in a signed DSSE envelope
    InToto,
}

/// Write entries as OpenTelemetry JSON, or sign a statement about ledgers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The format
    #[arg(long = "as", value_name = "FORMAT", default_value = "otlp")]
    target: As,
    /// The key that signs a statement, one of keygen
    #[arg(long = "sign-with", value_name = "KEY", required_if_eq("target", "in-toto"))]
    key: Option<PathBuf>,
    #[command(flatten)]
    filters: Filters,
    /// Up to so many spans, or log records, in a request; they come later than those of the other kind then
    #[arg(long = "batch-size", alias = "batch", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Ledgers, other files of JSON lines, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if let (As::InToto, Some(key)) = (args.target, &args.key) {
        return statement::write(&args.files, key, context);
    }
    let select = Select::over(&args.filters, &args.files, context)?;
    context.out.streaming()?;
    let targets = to_read(&args.files, context)?;
    let mut origins = Origins::of(&targets, context);
    let (mut unread, most, mut runs) = (Vec::new(), args.batch as usize, HashMap::new());
    let mut batches = [Signal::Span, Signal::Log].map(|signal| Batch { signal, items: Vec::new() });
    let mut each = |view: &View<'_>, origin: Option<&str>| {
        let Ok(entry) = serde_json::from_slice::<Map<String, Value>>(view.entry) else { return Ok(()) };
        let (signal, item) = otlp(&entry, view.written, &mut runs);
        let batch = &mut batches[usize::from(signal == Signal::Log)];
        batch.items.push((origin.map(str::to_owned), item));
        if batch.items.len() >= most { batch.send(context) } else { Ok(()) }
    };
    each_entry(&targets, &mut origins, &select, &mut each, &mut |_, _, error| unread.push(error))?;
    batches.iter_mut().try_for_each(|batch| batch.send(context))?;
    unread.into_iter().try_for_each(|error| context.out.item_failed(error))
}

/// The signal that an entry becomes in OpenTelemetry. A request has one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Span,
    Log,
}

/// The items of one request, each with the name of its ledger.
struct Batch {
    signal: Signal,
    items: Vec<(Option<String>, Value)>,
}

impl Batch {
    /// Writes the request, if there is one.
    fn send(&mut self, context: &mut Context) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let (resources, scopes, name) = match self.signal {
            Signal::Span => ("resourceSpans", "scopeSpans", "spans"),
            Signal::Log => ("resourceLogs", "scopeLogs", "logRecords"),
        };
        let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let of = self.items.chunk_by(|(one, _), (next, _)| one == next).map(|items| {
            // Two hosts never write one ledger, so its name distinguishes them.
            let origin = items[0].0.iter().map(|origin| attribute("service.instance.id", origin));
            let attributes: Vec<_> = iter::once(attribute("service.name", "cp-tools")).chain(origin).collect();
            let items: Vec<_> = items.iter().map(|(_, item)| item).collect();
            let scope = json!({"name": "cp-log", "version": env!("CARGO_PKG_VERSION")});
            json!({"resource": {"attributes": attributes}, scopes: [{"scope": scope, "schemaUrl": CONVENTIONS, name: items}]})
        });
        let request = json!({resources: of.collect::<Vec<_>>()});
        context.out.record_raw(Kind::Item, &wire::raw(&request)?)?;
        self.items.drain(..).for_each(|_| context.out.item_succeeded());
        Ok(())
    }
}

/// The span or log record of an entry. A whole run becomes the span of an agent.
fn otlp(entry: &Map<String, Value>, written: &[u8], runs: &mut HashMap<String, u64>) -> (Signal, Value) {
    let empty = Map::new();
    let data = entry.get("data").and_then(Value::as_object).unwrap_or(&empty);
    // A line that no ledger holds has none of its own.
    let hash = text(entry, "hash").map_or_else(|| Hash::of(written).to_string(), str::to_owned);
    let hash = hash.strip_prefix("sha256:").unwrap_or(&hash);
    let end = nanoseconds(text(entry, "ts").unwrap_or_default());
    // The entries of a run, else of a session, are one trace; any other entry is a trace of its own.
    let group = text(entry, "run").or_else(|| text(entry, "session")).unwrap_or(hash);
    let trace = Hash::of(group.as_bytes()).hex()[..32].to_owned();
    let name = text(entry, "event").unwrap_or("entry");
    let run = text(entry, "run");
    if let ("run_start", Some(run), true) = (name, run, runs.len() < RUNS) {
        runs.insert(run.to_owned(), end);
    }
    let began = run.filter(|_| name == "run_end").and_then(|run| runs.remove(run));
    let operation = if began.is_some() { Some(Operation::InvokeAgent) } else { Operation::of(name, data) };
    let attributes = attributes(operation, entry, data);
    // The span of the run, in which all its other entries are. Its end comes last, so its name does not depend on that line.
    let of_run = run.map(|run| Hash::of(format!("invoke_agent {run}").as_bytes()).hex()[..16].to_owned());
    let Some(start) = began.or_else(|| Some(end.saturating_sub(took(data)?))) else {
        let mut record = json!({
            "timeUnixNano": end.to_string(), "severityNumber": if error_type(data).is_some() { 17 } else { 9 },
            "eventName": name, "attributes": attributes, "traceId": trace, "spanId": of_run.unwrap_or_default(),
        });
        if let Some(body) = text(entry, "message").or_else(|| text(entry, "content")) {
            record["body"] = json!({"stringValue": body});
        }
        return (Signal::Log, record);
    };
    let name = operation.and_then(|operation| operation.span_name(entry, data)).unwrap_or_else(|| name.to_owned());
    // A model answers elsewhere; all else is done here.
    let kind = if operation == Some(Operation::Chat) { 3 } else { 1 };
    let own = Some(hash[..16.min(hash.len())].to_owned());
    let (id, parent) = if began.is_some() { (of_run, None) } else { (own, of_run) };
    let span = json!({
        "traceId": trace, "spanId": id, "parentSpanId": parent.unwrap_or_default(), "name": name, "kind": kind,
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(), "attributes": attributes,
        "status": if error_type(data).is_some() { json!({"code": 2, "message": text(entry, "message")}) } else { json!({}) },
    });
    (Signal::Span, span)
}

/// The operation, as the semantic conventions name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Chat,
    ExecuteTool,
    InvokeAgent,
}

impl Operation {
    fn of(event: &str, data: &Map<String, Value>) -> Option<Self> {
        if data.contains_key("model") {
            Some(Self::Chat)
        } else if matches!(event, "tool_call" | "tool_result") || data.contains_key("tool") {
            Some(Self::ExecuteTool)
        } else {
            None
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::ExecuteTool => "execute_tool",
            Self::InvokeAgent => "invoke_agent",
        }
    }

    fn span_name(self, entry: &Map<String, Value>, data: &Map<String, Value>) -> Option<String> {
        let object = match self {
            Self::Chat => text(data, "model"),
            Self::ExecuteTool => tool(data).and_then(Value::as_str),
            Self::InvokeAgent => {
                return Some(iter::once(self.name()).chain(text(entry, "agent")).collect::<Vec<_>>().join(" "));
            }
        };
        object.map(|object| format!("{} {object}", self.name()))
    }
}

fn tool(data: &Map<String, Value>) -> Option<&Value> {
    data.get("tool").or_else(|| data.get("name"))
}

/// The class of an error; `_OTHER` is the conventions' word for one without a name.
fn error_type(data: &Map<String, Value>) -> Option<Value> {
    let is_error = data.get("is_error").and_then(Value::as_bool).unwrap_or(false);
    // Of a run that ended, which has a tally.
    let status = data.get("status").filter(|_| data.contains_key("tally")).and_then(Value::as_str);
    let is_error = is_error || status.is_some_and(|status| status != "completed");
    data.get("code").filter(|code| !code.is_null()).cloned().or_else(|| is_error.then(|| json!("_OTHER")))
}

/// How long it took, in nanoseconds. Milliseconds may have a fraction.
fn took(data: &Map<String, Value>) -> Option<u64> {
    let given = data.get("duration_ms").or_else(|| data.get("latency_ms"))?;
    if let Some(whole) = given.as_u64() {
        return Some(whole.saturating_mul(1_000_000));
    }
    let spent = Duration::try_from_secs_f64(given.as_f64()? / 1e3).ok()?;
    u64::try_from(spent.as_nanos()).ok()
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

fn nanoseconds(ts: &str) -> u64 {
    DateTime::parse_from_rfc3339(ts).ok().and_then(|time| u64::try_from(time.timestamp_nanos_opt()?).ok()).unwrap_or(0)
}

fn attributes(operation: Option<Operation>, entry: &Map<String, Value>, data: &Map<String, Value>) -> Vec<Value> {
    let empty = Map::new();
    let usage =
        data.get("usage").or_else(|| data.get("tally")?.get("usage")).and_then(Value::as_object).unwrap_or(&empty);
    let finish = data.get("stop_reason").filter(|reason| reason.is_string()).map(|reason| json!([reason]));
    let (name, error) = (operation.map(|operation| Value::from(operation.name())), error_type(data));
    // Other entries have such members, too, about something else.
    let chat = |member: &str| data.get(member).filter(|_| operation == Some(Operation::Chat));
    let is_tool = operation == Some(Operation::ExecuteTool);
    let call = data.get("call_id").or_else(|| data.get("id").filter(|_| is_tool));
    let first = chat("first_token_ms").and_then(Value::as_f64).map(|first| Value::from(first / 1e3));
    let exit = data.get("exit_code").or_else(|| data.get("return_code"));
    let named: [(&str, Option<&Value>); 24] = [
        ("gen_ai.operation.name", name.as_ref()),
        ("gen_ai.provider.name", chat("backend")),
        ("gen_ai.request.model", chat("model")),
        ("gen_ai.response.model", chat("answered_by")),
        ("gen_ai.response.id", chat("id")),
        ("gen_ai.response.finish_reasons", finish.as_ref()),
        ("gen_ai.request.stream", chat("stream")),
        ("gen_ai.response.time_to_first_chunk", first.as_ref()),
        ("gen_ai.usage.input_tokens", usage.get("input_tokens")),
        ("gen_ai.usage.output_tokens", usage.get("output_tokens")),
        ("gen_ai.usage.cache_read.input_tokens", usage.get("cache_read_tokens")),
        ("gen_ai.usage.cache_creation.input_tokens", usage.get("cache_write_tokens")),
        ("gen_ai.tool.name", tool(data).filter(|_| is_tool)),
        ("gen_ai.tool.call.id", call),
        ("gen_ai.conversation.id", entry.get("session")),
        ("gen_ai.agent.name", entry.get("agent")),
        ("process.exit.code", exit),
        ("error.type", error.as_ref()),
        ("cp.duration_ms", data.get("duration_ms")),
        ("cp.latency_ms", data.get("latency_ms")),
        ("cp.exit_code", data.get("exit_code")),
        ("cp.run", entry.get("run")),
        ("cp.ledger.seq", entry.get("seq")),
        ("cp.ledger.hash", entry.get("hash")),
    ];
    let given = named.into_iter().filter_map(|(key, value)| Some(json!({"key": key, "value": any_value(value?)?})));
    given.collect()
}

/// A value in the spelling of OpenTelemetry; integers are strings there.
fn any_value(value: &Value) -> Option<Value> {
    Some(match value {
        Value::String(text) => json!({"stringValue": text}),
        Value::Bool(truth) => json!({"boolValue": truth}),
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Array(values) => {
            json!({"arrayValue": {"values": values.iter().filter_map(any_value).collect::<Vec<_>>()}})
        }
        Value::Null | Value::Object(_) => return None,
    })
}

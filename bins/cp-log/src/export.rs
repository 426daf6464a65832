//! `cp-log export`: entries for other tools. OpenTelemetry JSON, a request a record;
//! with `--format raw` bare lines, as a collector's file receiver reads them.

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

/// The version of the semantic conventions that the names are from. The generative ones may change in the next. What they do not name
/// begins with `cp.`.
const CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.41.0";

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "export",
    class: Class::Query,
    output: "otlp",
    also: &["summary"],
    examples: &["{} append hello && {} export"],
    ..VerbDoc::EMPTY
};

/// Write entries as OpenTelemetry JSON
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Up to so many spans, or log records, in a request; they come later than those of the other kind then
    #[arg(long = "batch-size", alias = "batch", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Ledgers, other files of JSON lines, archives of them, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let select = Select::over(&args.filters, &args.files, context)?;
    context.out.streaming()?;
    let targets = to_read(&args.files, context)?;
    let mut origins = Origins::of(&targets, context);
    let (mut unread, most) = (Vec::new(), args.batch as usize);
    let mut batches = [Signal::Span, Signal::Log].map(|signal| Batch { signal, items: Vec::new() });
    let mut each = |view: &View<'_>, origin: Option<&str>| {
        let Ok(entry) = serde_json::from_slice::<Map<String, Value>>(view.entry) else { return Ok(()) };
        let (signal, item) = otlp(&entry, view.written);
        let batch = &mut batches[usize::from(signal == Signal::Log)];
        batch.items.push((origin.map(str::to_owned), item));
        if batch.items.len() >= most { batch.send(context) } else { Ok(()) }
    };
    each_entry(&targets, &mut origins, &select, &mut each, &mut |_, error| {
        unread.push(error);
        Ok(())
    })?;
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

/// The span or log record that an entry is.
fn otlp(entry: &Map<String, Value>, written: &[u8]) -> (Signal, Value) {
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
    let operation = Operation::of(name, data);
    let attributes = attributes(operation, entry, data);
    let Some(took) = took(data) else {
        let body = text(entry, "message").or_else(|| text(entry, "content")).map(|text| json!({"stringValue": text}));
        let record = json!({
            "timeUnixNano": end.to_string(), "severityNumber": if error_type(data).is_some() { 17 } else { 9 },
            "eventName": name, "body": body, "attributes": attributes, "traceId": trace, "spanId": "",
        });
        return (Signal::Log, record);
    };
    let start = end.saturating_sub(took);
    let name = operation.and_then(|operation| operation.span_name(data)).unwrap_or_else(|| name.to_owned());
    // A model answers elsewhere; all else is done here.
    let kind = if operation == Some(Operation::Chat) { 3 } else { 1 };
    let span = json!({
        "traceId": trace, "spanId": hash.get(..16), "name": name, "kind": kind,
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
        }
    }

    fn span_name(self, data: &Map<String, Value>) -> Option<String> {
        let object = match self {
            Self::Chat => text(data, "model"),
            Self::ExecuteTool => tool(data).and_then(Value::as_str),
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
    data.get("code").cloned().or_else(|| is_error.then(|| json!("_OTHER")))
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
    let usage = data.get("usage").and_then(Value::as_object).unwrap_or(&empty);
    let finish = data.get("stop_reason").filter(|reason| reason.is_string()).map(|reason| json!([reason]));
    let (name, error) = (operation.map(|operation| Value::from(operation.name())), error_type(data));
    // Other entries have such members, too, about something else.
    let chat = |member: &str| data.get(member).filter(|_| operation == Some(Operation::Chat));
    let is_tool = operation == Some(Operation::ExecuteTool);
    let call = data.get("call_id").or_else(|| data.get("id").filter(|_| is_tool));
    let named: [(&str, Option<&Value>); 21] = [
        ("gen_ai.operation.name", name.as_ref()),
        ("gen_ai.provider.name", chat("backend")),
        ("gen_ai.request.model", chat("model")),
        ("gen_ai.response.model", chat("answered_by")),
        ("gen_ai.response.id", chat("id")),
        ("gen_ai.response.finish_reasons", finish.as_ref()),
        ("gen_ai.usage.input_tokens", usage.get("input_tokens")),
        ("gen_ai.usage.output_tokens", usage.get("output_tokens")),
        ("gen_ai.usage.cache_read.input_tokens", usage.get("cache_read_tokens")),
        ("gen_ai.usage.cache_creation.input_tokens", usage.get("cache_write_tokens")),
        ("gen_ai.tool.name", tool(data).filter(|_| is_tool)),
        ("gen_ai.tool.call.id", call),
        ("gen_ai.conversation.id", entry.get("session")),
        ("gen_ai.agent.name", entry.get("agent")),
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

//! The refused requests of the ledgers, and the numbers of refusals, questions and approvals of each rule.

use std::collections::BTreeMap;

use cp_common::output::Severity;
use cp_common::{Code, Context, Result, coprocess};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::request::{Form, Request, of_call, of_row};

/// The most distinct requests, and the most open questions and intents, that are kept in memory.
const KEPT: usize = 10_000;
/// The longest request that is kept, in bytes.
const LONGEST: usize = 4096;
/// The most references and spellings that are evidence.
const REFERENCES: usize = 3;

const EVENTS: [&str; 6] =
    ["exec.refused", "exec.step", "exec.connection", "exec.intent", "host.intent", "approval.spent"];

/// A request that was refused.
#[derive(Clone, Debug, Serialize)]
pub(super) enum Asked {
    Command {
        form: Form,
        cwd: Option<String>,
        /// The names of its variables.
        env: Vec<String>,
        /// True if a rule about read-only commands does not apply, because the command is part of a line, or
        /// of another agent or a person.
        exempt: bool,
    },
    /// A file operation: `read` or `write`, and the path.
    File(String, String),
    /// The name of a tool.
    Tool(String),
    /// The destination of a connection, and the command if it is not a line.
    Connection(String, Option<Vec<String>>),
}

/// A distinct request with its evidence.
pub(super) struct Refused {
    pub asked: Asked,
    pub rule: String,
    pub count: u64,
    /// The newest entries, as LEDGER#SEQ.
    pub entries: Vec<String>,
    pub last: String,
}

/// The decisions of a rule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RuleCount {
    /// The rule.
    pub(super) rule: String,
    /// Refused requests.
    pub(super) refused: u64,
    /// Requests that needed confirmation or approval.
    pub(super) asked: u64,
    /// Requests among them that were confirmed or approved.
    pub(super) approved: u64,
}

/// The refusals since a time.
#[derive(Default)]
pub(super) struct History {
    pub refused: Vec<Refused>,
    rules: BTreeMap<String, RuleCount>,
    /// The place of each request, by its JSON.
    places: BTreeMap<String, usize>,
    /// The commands of intents; `None` for lines.
    intents: BTreeMap<(String, u64), Option<Vec<String>>>,
    /// The rules of approvals, by their ids.
    approvals: BTreeMap<String, String>,
}

/// An entry, as `cp-log query` prints it.
#[derive(Deserialize)]
struct Entry {
    event: String,
    seq: u64,
    #[serde(default)]
    ts: String,
    #[serde(default)]
    ledger: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

impl History {
    /// Reads the ledgers of the session, or else of the home.
    pub(super) fn read(since: Option<&str>, context: &mut Context) -> Result<Self> {
        let mut words = vec!["query"];
        words.extend(EVENTS.iter().flat_map(|event| ["--event", event]));
        words.extend(since.iter().flat_map(|since| ["--since", since]));
        let mut history = Self::default();
        let mut add = |line: Option<&[u8]>| {
            let record = line.and_then(|line| serde_json::from_slice::<BTreeMap<&str, &RawValue>>(line).ok());
            let entry = record.and_then(|record| serde_json::from_str(record.get("data")?.get()).ok());
            if let Some(entry) = entry {
                history.add(&entry);
            }
            Ok(())
        };
        match coprocess::ask_each("cp-log", &words, b"", context.handed_on(), &mut add) {
            Err(error) if error.code() == Code::Partial => {
                context.out.notice("unread", Severity::Warning, format!("entries were not read: {error}"));
            }
            outcome => drop(outcome?),
        }
        Ok(history)
    }

    /// The rules, the most frequent first.
    pub(super) fn rules(&self) -> Vec<RuleCount> {
        let mut rules: Vec<RuleCount> = self.rules.values().cloned().collect();
        // The dry run that gives a token is not recorded.
        for rule in &mut rules {
            rule.asked = rule.asked.max(rule.approved);
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.refused + rule.asked));
        rules
    }

    fn count(&mut self, rule: &str) -> &mut RuleCount {
        let new = || RuleCount { rule: rule.to_owned(), ..RuleCount::default() };
        self.rules.entry(rule.to_owned()).or_insert_with(new)
    }

    fn add(&mut self, entry: &Entry) {
        let data = &entry.data;
        let text = |name: &str| data[name].as_str().unwrap_or_default();
        let (decision, rule) = (text("decision"), text("rule"));
        match entry.event.as_str() {
            "exec.refused" if matches!(text("code"), "E_CONFIRMATION_REQUIRED" | "E_HUMAN_REQUIRED") => {
                self.count(rule).asked += 1;
            }
            "exec.refused" => {
                self.count(rule).refused += 1;
                if let Some(asked) = refused(entry, rule) {
                    self.keep(asked, rule, 1, entry);
                }
            }
            "exec.step" if decision == "deny" => {
                self.count(rule).refused += 1;
                let (argv, cwd) = (words(&data["argv_as_asked"]), Some(text("cwd").to_owned()));
                let asked = Asked::Command { form: Form::Words(argv), cwd, env: Vec::new(), exempt: true };
                self.keep(asked, rule, 1, entry);
            }
            "exec.step" if decision == "ask" => {
                self.count(rule).asked += 1;
                bounded(&mut self.approvals).insert(text("approval").to_owned(), rule.to_owned());
            }
            "exec.intent" => {
                let argv = data["line"].is_null().then(|| words(&data["argv"]));
                bounded(&mut self.intents).insert((entry.ledger.clone(), entry.seq), argv);
                if !data["requires"].is_null() {
                    self.count(rule).approved += 1;
                }
            }
            "host.intent" if matches!(decision, "ask" | "defer") => self.count(rule).asked += 1,
            "approval.spent" => {
                if let Some(rule) = self.approvals.remove(text("id")) {
                    self.count(&rule).approved += 1;
                }
            }
            "exec.connection" if decision == "deny" => {
                let count = data["count"].as_u64().unwrap_or(1);
                self.count(rule).refused += count;
                let intent = (entry.ledger.clone(), data["intent"].as_u64().unwrap_or(0));
                let argv = self.intents.get(&intent).cloned().flatten();
                let port =
                    data["port"].as_u64().filter(|port| !cp_egress::PORTS.iter().any(|p| u64::from(*p) == *port));
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                if let Some(name) = data["name"].as_str() {
                    self.keep(Asked::Connection(format!("{name}{port}"), argv), rule, count, entry);
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, asked: Asked, rule: &str, count: u64, entry: &Entry) {
        let Ok(key) = serde_json::to_string(&asked) else { return };
        if key.len() > LONGEST {
            return;
        }
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None if self.refused.len() >= KEPT => return,
            None => {
                let (rule, last) = (rule.to_owned(), String::new());
                self.refused.push(Refused { asked, rule, count: 0, entries: Vec::new(), last });
                self.places.insert(key, self.refused.len() - 1);
                self.refused.len() - 1
            }
        };
        let refused = &mut self.refused[place];
        refused.count += count;
        refused.last = refused.last.clone().max(entry.ts.clone());
        refused.entries.push(format!("{}#{}", entry.ledger, entry.seq));
        let more = refused.entries.len().saturating_sub(REFERENCES);
        refused.entries.drain(..more);
    }
}

/// A map with room for one more key. The smallest key is removed from a full map.
fn bounded<K: Ord, V>(map: &mut BTreeMap<K, V>) -> &mut BTreeMap<K, V> {
    if map.len() >= KEPT {
        map.pop_first();
    }
    map
}

/// The request of a refusal, if it can be repeated.
fn refused(entry: &Entry, rule: &str) -> Option<Asked> {
    if let Some(tool) = entry.message.strip_prefix("Tool not permitted: ") {
        return Some(Asked::Tool(tool.to_owned()));
    }
    let denied = entry.message.strip_prefix("Capability denied: ").and_then(|denied| denied.split_once(" on "));
    if let Some((operation, path)) = denied.filter(|_| rule.starts_with("paths.")) {
        return Some(Asked::File(operation.to_owned(), path.to_owned()));
    }
    let asked = &entry.data["asked"];
    let exempt = entry.data.get("host").is_some() || entry.data["origin"] == "person";
    let line = |line: &Value| Some((Form::Line(line.as_str()?.to_owned()), None, Vec::new()));
    let (form, cwd, env) = match asked {
        Value::Array(form) => match form.as_slice() {
            [Value::Array(argv), _] if !argv.is_empty() => (Form::Words(words(&form[0])), None, Vec::new()),
            [_, string] => line(string)?,
            _ => return None,
        },
        asked if asked.get("input_hash").is_some() => line(&asked["command"])?,
        asked => {
            let raw = |value: &Value| serde_json::value::to_raw_value(value).ok();
            let request = match asked.get("input") {
                Some(input) => of_call(asked["name"].as_str()?, &raw(input)?),
                None => of_row(&raw(asked)?),
            };
            let Ok(Request::Command(command)) = request else { return None };
            (command.form, command.cwd, command.env.into_keys().collect())
        }
    };
    let cwd = denied.filter(|_| rule == "cwd").map(|(_, path)| path.to_owned()).or(cwd);
    Some(Asked::Command { form, cwd, env, exempt })
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

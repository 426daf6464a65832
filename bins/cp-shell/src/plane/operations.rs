//! The operations: a table with their names, parameters and functions; and the query commands for them.

use cp_common::wire::{nearest, without_secrets};
use cp_common::{Error, Result};
use serde_json::{Map, Value, json};

use crate::plane::{Plane, fault, files, ledgers, packages, registries, trace, type_of, work_orders};

/// The session in which an operation runs.
pub(crate) trait Host {
    /// The result of `signal_status`.
    fn signal_status(&mut self, plane: &Plane) -> Value;

    /// Runs a command under policy, and returns the result of the execution.
    fn execute(&mut self, command: &str) -> Result<Value>;
}

/// An operation of the control plane.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Its short names in commands, separated by blanks.
    short: &'static str,
    /// The parameters that can follow the name in a command, separated by blanks.
    words: &'static str,
    run: fn(&Plane, &Request, &mut dyn Host) -> Result<Value>,
}

macro_rules! operations {
    ($($name:literal $short:literal $words:literal $run:expr;)*) => {
        &[$(Operation { name: $name, short: $short, words: $words, run: $run }),*]
    };
}

/// All operations, in the order of the standard.
static OPERATIONS: &[Operation] = operations! {
    "pkg_list" "" "plane" |plane, given, _| packages::rows(plane, given.optional("plane")?);
    "pkg_info" "" "package_id" |plane, given, _| packages::info(plane, given.required("package_id")?);
    "ledger_query" "ledger" "type event_filter" |plane, given, _| ledgers::query(plane, given);
    "gate_status" "gate gates" "gate" |plane, given, _| ledgers::gate_status(plane, given.optional("gate")?);
    "compliance" "" "" |plane, _, _| compliance(plane);
    "trace" "" "artifact_id" |plane, given, _| trace::trace(plane, given.required("artifact_id")?);
    "signal_status" "sig signals" "" |plane, _, host| Ok(host.signal_status(plane));
    "execute_command" "" "" |plane, given, host| execute(plane, given.required("command")?, host);
    "manifest_requirements" "" "" |_, _, _| ledgers::built_in(MANIFEST_REQUIREMENTS);
    "packaging_workflow" "" "" |_, _, _| ledgers::built_in(PACKAGING_WORKFLOW);
    "troubleshoot" "" "error_type" |_, given, _| troubleshoot(given.optional("error_type")?);
    "example_manifest" "" "package_type" |_, given, _| example_manifest(given.optional("package_type")?);
    "list_frameworks" "frameworks" "" |plane, _, _| registries::list_frameworks(plane);
    "list_specs" "specs" "framework_id" |plane, given, _| registries::list_specs(plane, given.optional("framework_id")?);
    "spec_info" "spec" "spec_id" |plane, given, _| registries::spec_info(plane, given.required("spec_id")?);
    "governed_roots" "roots" "" |plane, _, _| files::governed_roots(plane);
    "explain_path" "path" "path" |plane, given, _| files::explain(plane, given.required("path")?);
};

/// The query of work orders, which is a command only.
static WORK_ORDERS: &[Operation] = operations! {
    "wo" "" "work_order_id" |plane, given, _| work_orders::query(plane, given.optional("work_order_id")?);
};

/// An operation and its parameters, including unknown ones.
#[derive(Debug)]
pub(crate) struct Request {
    operation: &'static Operation,
    members: Map<String, Value>,
}

impl Request {
    /// Parses a request. The default operation is `pkg_list`.
    pub(crate) fn from_value(value: &Value) -> Result<Self> {
        let Value::Object(object) = value else {
            return Err(fault("INVALID_REQUEST", format!("a request must be a JSON object, not {}", type_of(value)))
                .hint("write {\"operation\":\"pkg_list\"}"));
        };
        let operation = match object.get("operation") {
            None => &OPERATIONS[0],
            Some(Value::String(name)) => find(name).ok_or_else(|| unknown(name))?,
            Some(other) => {
                return Err(fault("INVALID_REQUEST", format!("`operation` must be a string, not {}", type_of(other)))
                    .with("field", "operation"));
            }
        };
        let mut members = object.clone();
        members.shift_remove("operation");
        // Answers repeat parameters, and none of them is a secret. A command to run must stay exact.
        for value in members.values_mut().filter(|_| operation.name != "execute_command") {
            if let Value::String(text) = value {
                *text = without_secrets(text);
            }
        }
        Ok(Self { operation, members })
    }

    /// Parses a query command, with or without `:` or `/` before it. `None` if the text is not a query command.
    pub(crate) fn of_command(command: &str) -> Option<Self> {
        let command = command.trim();
        let mut words = command.strip_prefix([':', '/']).unwrap_or(command).split_whitespace().peekable();
        let name = words.next()?;
        let verbs =
            if ["pkg", "ledger", "gate", "gates", "wo"].contains(&name) { "list info show status query" } else { "" };
        let verb = words.next_if(|word| verbs.split(' ').any(|verb| verb == *word));
        let operation = match (name, verb) {
            ("wo", _) => &WORK_ORDERS[0],
            ("pkg", Some("list")) => find("pkg_list")?,
            ("pkg", None) if words.peek().is_none() => find("pkg_list")?,
            ("pkg", _) => find("pkg_info")?,
            _ => {
                let is_named =
                    |operation: &&Operation| operation.name == name || operation.short.split(' ').any(|it| it == name);
                OPERATIONS.iter().find(is_named).filter(|operation| operation.name != "execute_command")?
            }
        };
        let (mut members, mut names) = (Map::new(), operation.words.split_whitespace());
        for word in words {
            match word.parse::<u64>() {
                Ok(limit) if operation.name == "ledger_query" => drop(members.insert("limit".to_owned(), limit.into())),
                _ => members.extend(names.next().map(|name| (name.to_owned(), word.into()))),
            }
        }
        Some(Self { operation, members })
    }

    /// Runs the operation.
    pub(crate) fn run(&self, plane: &Plane, host: &mut dyn Host) -> Result<Value> {
        (self.operation.run)(plane, self, host)
    }

    /// A parameter of a type; `null` is the same as none.
    fn member<'a, T>(&'a self, name: &str, kind: &str, as_type: fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let given = self.members.get(name).filter(|value| !value.is_null());
        let typed = |value: &'a Value| {
            let found = if value.is_number() { value.to_string() } else { type_of(value).to_owned() };
            let wrong = || fault("INVALID_REQUEST", format!("`{name}` must be {kind}, not {found}"));
            as_type(value).ok_or_else(|| wrong().with("field", name))
        };
        given.map(typed).transpose()
    }

    /// A required text.
    fn required(&self, name: &str) -> Result<&str> {
        let missing = || fault("MISSING_FIELD", format!("{} needs `{name}`", self.operation.name)).with("field", name);
        self.optional(name)?.filter(|text| !text.is_empty()).ok_or_else(missing)
    }

    /// An optional text.
    pub(super) fn optional(&self, name: &str) -> Result<Option<&str>> {
        self.member(name, "a string", Value::as_str)
    }

    /// An optional count.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>> {
        let positive =
            |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|it| *it > 0);
        self.member(name, "a positive integer", positive)
    }
}

fn find(name: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.name == name)
}

fn names() -> Vec<&'static str> {
    OPERATIONS.iter().map(|operation| operation.name).collect()
}

fn unknown(name: &str) -> Error {
    let failure = fault("UNKNOWN_OPERATION", format!("unknown operation `{name}`"))
        .with("operation", name)
        .with("valid_operations", names());
    match nearest(name, names()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure,
    }
}

/// Runs a query command, or a command of the system after `!`. Other text is not run.
fn execute(plane: &Plane, command: &str, host: &mut dyn Host) -> Result<Value> {
    let text = command.trim();
    let text = text.strip_prefix(':').unwrap_or(text);
    if let Some(command_line) = text.strip_prefix('!') {
        return host.execute(command_line.trim());
    }
    let command = without_secrets(command);
    if let Some(query) = Request::of_command(&command) {
        return query.run(plane, host);
    }
    Ok(json!({
        "command": command,
        "executed": false,
        "note": "Not a query command. `! COMMAND` runs a command of the system under policy; conversation is for interactive mode.",
        "available_operations": names(),
    }))
}

/// `compliance`
fn compliance(plane: &Plane) -> Result<Value> {
    let stats = registries::stats(plane)?;
    let count = |file: &str| stats["by_registry"][file.trim_start_matches("registries/")].as_u64().unwrap_or_default();
    let [frameworks, specs] = [registries::FRAMEWORKS, registries::SPECS].map(count);
    Ok(json!({
        "governance_chain": ledgers::built_in::<Value>(CHAIN)?,
        "gates": ledgers::gates()?,
        "registry_stats": stats,
        "frameworks_count": frameworks,
        "specs_count": specs,
        "quick_reference": ledgers::built_in::<Value>(QUICK_REFERENCE)?,
    }))
}

/// The chain of governance that ends in a package.
const CHAIN: &str = include_str!("guidance/chain.json");
const EXAMPLE_AGENT: &str = include_str!("guidance/example_agent.json");
const EXAMPLE_LIBRARY: &str = include_str!("guidance/example_library.json");
/// The requirements for a manifest.
const MANIFEST_REQUIREMENTS: &str = include_str!("guidance/manifest_requirements.json");
/// The seven steps to a package.
const PACKAGING_WORKFLOW: &str = include_str!("guidance/packaging_workflow.json");
/// The four most common commands.
const QUICK_REFERENCE: &str = include_str!("guidance/quick_reference.json");
const TROUBLESHOOT: &str = include_str!("guidance/troubleshoot.json");

/// The meaning of gate errors. All are listed if none matches, so that a wrong guess still gets an answer.
fn troubleshoot(error_type: Option<&str>) -> Result<Value> {
    let mut guide: Map<String, Value> = ledgers::built_in(TROUBLESHOOT)?;
    if let Some(wanted) = error_type.map(str::to_uppercase) {
        let matches = |name: &str| name.to_uppercase().contains(&wanted);
        if guide.keys().any(|name| matches(name)) {
            guide.retain(|name, _| matches(name));
        }
    }
    Ok(json!({"troubleshooting": guide}))
}

/// A manifest to start from.
fn example_manifest(package_type: Option<&str>) -> Result<Value> {
    let package_type = package_type.unwrap_or("library");
    let text = if package_type == "agent" { EXAMPLE_AGENT } else { EXAMPLE_LIBRARY };
    let mut example: Map<String, Value> = ledgers::built_in(text)?;
    example.insert("package_type".to_owned(), package_type.into());
    Ok(json!({"example": example, "note": "Put the SHA-256 of each file in the place of <64 hex>."}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(command: &str) -> Option<(&'static str, Value)> {
        Request::of_command(command).map(|request| (request.operation.name, request.members.into()))
    }

    #[test]
    fn query_command_maps_to_operation() {
        for (command, name, parameters) in [
            (":pkg", "pkg_list", json!({})),
            ("pkg list ho1", "pkg_list", json!({"plane": "ho1"})),
            ("/pkg info PKG-A", "pkg_info", json!({"package_id": "PKG-A"})),
            ("pkg PKG-A", "pkg_info", json!({"package_id": "PKG-A"})),
            ("ledger", "ledger_query", json!({})),
            ("ledger index 3 fail", "ledger_query", json!({"type": "index", "limit": 3, "event_filter": "fail"})),
            (":gate G1", "gate_status", json!({"gate": "G1"})),
            ("signals", "signal_status", json!({})),
            ("trace FMWK-1", "trace", json!({"artifact_id": "FMWK-1"})),
            ("explain_path lib/x", "explain_path", json!({"path": "lib/x"})),
            ("governed_roots", "governed_roots", json!({})),
            ("wo list", "wo", json!({})),
            ("wo WO-20260203-001", "wo", json!({"work_order_id": "WO-20260203-001"})),
        ] {
            assert_eq!(asked(command), Some((name, parameters)), "{command}");
        }
        for command in ["", ":", "ls", "help me", "execute_command ls", "!ls"] {
            assert_eq!(asked(command), None, "{command}");
        }
    }

    #[test]
    fn guidance_texts_are_valid_json() {
        for text in [
            CHAIN,
            EXAMPLE_AGENT,
            EXAMPLE_LIBRARY,
            MANIFEST_REQUIREMENTS,
            PACKAGING_WORKFLOW,
            QUICK_REFERENCE,
            TROUBLESHOOT,
        ] {
            assert!(ledgers::built_in::<Map<String, Value>>(text).is_ok_and(|object| !object.is_empty()));
        }
    }
}

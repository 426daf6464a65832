//! Runs the operations, and parses the query commands for them.

use serde_json::{Map, Value, json};

use crate::plane::{
    Failure, Operation, Plane, Request, WorkOrder, ledgers, packages, paths, registries, trace, work_orders,
};

/// The session in which an operation runs.
pub(crate) trait Host {
    /// The result of `signal_status`.
    fn signal_status(&mut self, plane: &Plane) -> Value;

    /// Runs a command under policy, and returns the result of the execution.
    fn execute(&mut self, command: &str) -> Result<Value, Failure>;
}

/// Runs the operation of a request.
pub(crate) fn run(plane: &Plane, request: &Request, host: &mut dyn Host) -> Result<Value, Failure> {
    match request.operation {
        Operation::PkgList => {
            let packages = packages::list(plane, request.optional("plane")?)?;
            let rows: Vec<Value> = packages.iter().map(packages::Package::row).collect();
            Ok(json!({"packages": rows, "count": rows.len()}))
        }
        Operation::PkgInfo => {
            let id = request.required("package_id")?;
            packages::find(plane, id)?.map(|package| package.info()).ok_or_else(|| {
                Failure::new("PACKAGE_NOT_FOUND", format!("the package `{id}` is not installed"))
                    .with("package_id", id)
                    .hint("`pkg_list` lists the installed packages")
            })
        }
        Operation::LedgerQuery => ledgers::query(plane, request),
        Operation::GateStatus => ledgers::gate_status(plane, request.optional("gate")?),
        Operation::Compliance => Ok(json!({
            "governance_chain": ledgers::built_in::<Value>(CHAIN)?,
            "gates": ledgers::gates()?,
            "registry_stats": registries::stats(plane)?,
            "frameworks_count": plane.table(registries::FRAMEWORKS)?.len(),
            "specs_count": plane.table(registries::SPECS)?.len(),
            "quick_reference": ledgers::built_in::<Value>(QUICK_REFERENCE)?,
        })),
        Operation::Trace => trace::trace(plane, request.required("artifact_id")?),
        Operation::SignalStatus => Ok(host.signal_status(plane)),
        Operation::ExecuteCommand => execute(plane, request.required("command")?, host),
        Operation::ManifestRequirements => ledgers::built_in(MANIFEST_REQUIREMENTS),
        Operation::PackagingWorkflow => ledgers::built_in(PACKAGING_WORKFLOW),
        Operation::Troubleshoot => troubleshoot(request.optional("error_type")?),
        Operation::ExampleManifest => example_manifest(request.optional("package_type")?),
        Operation::ListFrameworks => registries::list_frameworks(plane),
        Operation::ListSpecs => registries::list_specs(plane, request.optional("framework_id")?),
        Operation::SpecInfo => registries::spec_info(plane, request.required("spec_id")?),
        Operation::GovernedRoots => paths::governed_roots(plane),
        Operation::ExplainPath => paths::explain(plane, request.required("path")?),
    }
}

/// Runs a query command, or a command of the system after `!`. Other text is not run.
fn execute(plane: &Plane, command: &str, host: &mut dyn Host) -> Result<Value, Failure> {
    let text = command.trim();
    let text = text.strip_prefix(':').unwrap_or(text);
    if let Some(command_line) = text.strip_prefix('!') {
        return host.execute(command_line.trim());
    }
    if let Some(query) = parse(command) {
        return answer(plane, &query, host);
    }
    Ok(json!({
        "command": command,
        "executed": false,
        "note": "Not a query command. `! COMMAND` runs a command of the system under policy; conversation is for interactive mode.",
        "available_operations": Operation::ALL.map(Operation::name).to_vec(),
    }))
}

/// Answers a query command.
pub(crate) fn answer(plane: &Plane, query: &Query, host: &mut dyn Host) -> Result<Value, Failure> {
    match query {
        Query::Ask(request) => run(plane, request, host),
        Query::WorkOrders(None) => {
            let orders = work_orders::all(plane)?;
            let rows: Vec<Value> = orders.iter().map(WorkOrder::to_value).collect();
            Ok(json!({"work_orders": rows, "count": rows.len(), "active": work_orders::active(plane)}))
        }
        Query::WorkOrders(Some(id)) => {
            let order = work_orders::all(plane)?.into_iter().find(|order| order.id == *id);
            let order = order.ok_or_else(|| {
                Failure::new("WORK_ORDER_NOT_FOUND", format!("no work order `{id}`"))
                    .with("work_order_id", id.as_str())
                    .hint("`wo` lists them")
            })?;
            let mut answer = order.to_value();
            answer["payload"] = order.payload.clone();
            Ok(answer)
        }
    }
}

/// A query command.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    /// An operation.
    Ask(Request),
    /// All work orders, or one of them.
    WorkOrders(Option<String>),
}

/// Parses a query command, with or without `:` or `/` before it. `None` if the text is not a query command.
pub(crate) fn parse(command: &str) -> Option<Query> {
    use Operation::{
        ExecuteCommand, ExplainPath, GateStatus, GovernedRoots, ListFrameworks, ListSpecs, PkgInfo, PkgList,
        SignalStatus, SpecInfo,
    };
    let command = command.trim();
    let command = command.strip_prefix([':', '/']).unwrap_or(command);
    let words: Vec<&str> = command.split_whitespace().collect();
    let (name, rest) = words.split_first()?;
    let (operation, rest) = match (*name, rest) {
        ("wo", [] | ["list"]) => return Some(Query::WorkOrders(None)),
        ("wo", ["show", id, ..] | [id, ..]) => return Some(Query::WorkOrders(Some((*id).to_owned()))),
        ("ledger", rest) => return Some(Query::Ask(ledger(rest))),
        ("pkg" | "packages", []) | ("packages", ["list"]) => (PkgList, &[][..]),
        ("packages", _) | ("path", []) => return None,
        ("pkg", ["list", rest @ ..]) => (PkgList, rest),
        ("pkg", ["info" | "show", rest @ ..] | rest) => (PkgInfo, rest),
        ("gate" | "gates", ["status", rest @ ..] | rest) => (GateStatus, rest),
        ("sig" | "signals", rest) => (SignalStatus, rest),
        ("frameworks", rest) => (ListFrameworks, rest),
        ("specs", rest) => (ListSpecs, rest),
        ("spec", rest) => (SpecInfo, rest),
        ("roots", rest) => (GovernedRoots, rest),
        ("path", rest) => (ExplainPath, rest),
        (name, rest) => (Operation::from_name(name).filter(|operation| *operation != ExecuteCommand)?, rest),
    };
    let request = Request::new(operation);
    Some(Query::Ask(match (parameter_of(operation), rest) {
        (Some(parameter), [value, ..]) => request.with(parameter, *value),
        _ => request,
    }))
}

/// `ledger [TYPE] [LIMIT] [FILTER]`, in any unambiguous order.
fn ledger(words: &[&str]) -> Request {
    let mut request = Request::new(Operation::LedgerQuery);
    let mut texts = ["type", "event_filter"].into_iter();
    for word in words.iter().filter(|word| **word != "query") {
        request = match word.parse::<u64>() {
            Ok(limit) => request.with("limit", limit),
            Err(_) => match texts.next() {
                Some(name) => request.with(name, *word),
                None => request,
            },
        };
    }
    request
}

/// The parameter that can follow the name of an operation.
fn parameter_of(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::PkgList => Some("plane"),
        Operation::PkgInfo => Some("package_id"),
        Operation::LedgerQuery => Some("type"),
        Operation::GateStatus => Some("gate"),
        Operation::Trace => Some("artifact_id"),
        Operation::Troubleshoot => Some("error_type"),
        Operation::ExampleManifest => Some("package_type"),
        Operation::ListSpecs => Some("framework_id"),
        Operation::SpecInfo => Some("spec_id"),
        Operation::ExplainPath => Some("path"),
        Operation::Compliance
        | Operation::SignalStatus
        | Operation::ExecuteCommand
        | Operation::ManifestRequirements
        | Operation::PackagingWorkflow
        | Operation::ListFrameworks
        | Operation::GovernedRoots => None,
    }
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
fn troubleshoot(error_type: Option<&str>) -> Result<Value, Failure> {
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
fn example_manifest(package_type: Option<&str>) -> Result<Value, Failure> {
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
        match parse(command)? {
            Query::Ask(request) => Some((request.operation.name(), request.parameters.into())),
            Query::WorkOrders(id) => Some(("wo", json!(id))),
        }
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
            ("wo", "wo", Value::Null),
            ("wo WO-20260203-001", "wo", json!("WO-20260203-001")),
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

//! The shell's own query commands, as people type them: each is an operation.

use crate::plane::{Operation, Request};

/// What a command asks for.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    /// An operation.
    Ask(Request),
    /// The work orders, or one of them.
    WorkOrders(Option<String>),
}

/// What a command asks for, with or without the `:` or `/` before it; none if it is not a query command.
pub(crate) fn parse(command: &str) -> Option<Query> {
    let command = command.trim();
    let command = command.strip_prefix([':', '/']).unwrap_or(command);
    let words: Vec<&str> = command.split_whitespace().collect();
    let (name, rest) = words.split_first()?;
    if let Some(query) = known(name, rest) {
        return Some(query);
    }
    let operation = Operation::from_name(name).filter(|operation| *operation != Operation::ExecuteCommand)?;
    let request = Request::new(operation);
    Some(Query::Ask(match (parameter_of(operation), rest) {
        (Some(parameter), [value, ..]) => request.with(parameter, *value),
        _ => request,
    }))
}

fn known(name: &str, rest: &[&str]) -> Option<Query> {
    use Operation::{
        Compliance, ExplainPath, GateStatus, GovernedRoots, ListFrameworks, ListSpecs, PkgInfo, PkgList, SignalStatus,
        SpecInfo, Trace,
    };
    let ask = |operation| Request::new(operation);
    Some(Query::Ask(match (name, rest) {
        ("pkg" | "packages", [] | ["list"]) => ask(PkgList),
        ("pkg", ["list", plane, ..]) => ask(PkgList).with("plane", *plane),
        ("pkg", ["info" | "show"]) => ask(PkgInfo),
        ("pkg", ["info" | "show", id, ..] | [id, ..]) => ask(PkgInfo).with("package_id", *id),
        ("ledger", rest) => ledger(rest),
        ("gate" | "gates", [] | ["status"]) => ask(GateStatus),
        ("gate" | "gates", ["status", gate, ..] | [gate, ..]) => ask(GateStatus).with("gate", *gate),
        ("compliance", _) => ask(Compliance),
        ("trace", []) => ask(Trace),
        ("trace", [id, ..]) => ask(Trace).with("artifact_id", *id),
        ("sig" | "signals", _) => ask(SignalStatus),
        ("frameworks", _) => ask(ListFrameworks),
        ("specs", []) => ask(ListSpecs),
        ("specs", [framework, ..]) => ask(ListSpecs).with("framework_id", *framework),
        ("spec", []) => ask(SpecInfo),
        ("spec", [id, ..]) => ask(SpecInfo).with("spec_id", *id),
        ("roots", _) => ask(GovernedRoots),
        ("path", [path, ..]) => ask(ExplainPath).with("path", *path),
        ("wo", [] | ["list"]) => return Some(Query::WorkOrders(None)),
        ("wo", ["show", id, ..] | [id, ..]) => return Some(Query::WorkOrders(Some((*id).to_owned()))),
        _ => return None,
    }))
}

/// `ledger [TYPE] [LIMIT] [FILTER]`, in any order that is unambiguous.
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

/// The one parameter that can follow the name of an operation.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(command: &str) -> Option<(&'static str, Value)> {
        match parse(command)? {
            Query::Ask(request) => Some((request.operation.name(), request.parameters.into())),
            Query::WorkOrders(id) => Some(("wo", json!(id))),
        }
    }

    #[test]
    fn a_command_is_an_operation_with_its_parameters() {
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
}

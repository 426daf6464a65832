//! The operations: what each answers.

use serde_json::{Value, json};

use crate::plane::{
    Failure, Operation, Plane, Request, commands, gates, guidance, ledgers, packages, paths, registries, trace,
};
use crate::signals::{CONTEXT_LIMIT, Signals, Strip};

/// What an operation needs of the session that it is asked in.
pub(crate) trait Live {
    /// How the session stands.
    fn signals(&mut self, plane: &Plane) -> Signals;

    /// Runs a command through policy, and gives the result of the execution.
    fn execute(&mut self, plane: &Plane, command: &str) -> Result<Value, Failure>;
}

/// Answers a request.
pub(crate) fn run(plane: &Plane, request: &Request, live: &mut dyn Live) -> Result<Value, Failure> {
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
                    .hint("pkg_list tells the installed ones")
            })
        }
        Operation::LedgerQuery => ledgers::query(plane, request),
        Operation::GateStatus => gates::status(plane, request.optional("gate")?),
        Operation::Compliance => Ok(json!({
            "governance_chain": guidance::chain()?,
            "gates": guidance::gates()?,
            "registry_stats": registries::stats(plane)?,
            "frameworks_count": registries::frameworks(plane)?.len(),
            "specs_count": registries::specs(plane)?.len(),
            "quick_reference": guidance::quick_reference()?,
        })),
        Operation::Trace => trace::trace(plane, request.required("artifact_id")?),
        Operation::SignalStatus => {
            let signals = live.signals(plane);
            let strip = Strip { signals: &signals, used: 0, limit: CONTEXT_LIMIT };
            Ok(json!({"signals": signals.to_value(), "compact_display": strip.to_string()}))
        }
        Operation::ExecuteCommand => execute(plane, request.required("command")?, live),
        Operation::ManifestRequirements => guidance::manifest_requirements(),
        Operation::PackagingWorkflow => guidance::packaging_workflow(),
        Operation::Troubleshoot => guidance::troubleshoot(request.optional("error_type")?),
        Operation::ExampleManifest => guidance::example_manifest(request.optional("package_type")?),
        Operation::ListFrameworks => registries::list_frameworks(plane),
        Operation::ListSpecs => registries::list_specs(plane, request.optional("framework_id")?),
        Operation::SpecInfo => registries::spec_info(plane, request.required("spec_id")?),
        Operation::GovernedRoots => paths::governed_roots(plane),
        Operation::ExplainPath => paths::explain(plane, request.required("path")?),
    }
}

/// A command: a query of the shell's own, or one for the system after `!`. Nothing else is run.
fn execute(plane: &Plane, command: &str, live: &mut dyn Live) -> Result<Value, Failure> {
    let text = command.trim();
    let text = text.strip_prefix(':').unwrap_or(text);
    if let Some(command_line) = text.strip_prefix('!') {
        let result = live.execute(plane, command_line.trim())?;
        return Ok(json!({"command": command, "executed": true, "result": result}));
    }
    if let Some(query) = commands::parse(command) {
        let result = commands::answer(plane, &query, live)?;
        return Ok(json!({"command": command, "executed": true, "result": result}));
    }
    Ok(json!({
        "command": command,
        "executed": false,
        "note": "Not a query command. `! COMMAND` runs a command of the system under policy; conversation is for interactive mode.",
        "available_operations": Operation::ALL.map(Operation::name).to_vec(),
    }))
}

//! The operations: what each answers.

use serde_json::{Value, json};

use crate::plane::query::{self, Query};
use crate::plane::{
    Failure, Operation, Plane, Request, WorkOrder, gates, guidance, ledgers, packages, paths, registries, trace,
};

/// The session that an operation is asked in.
pub(crate) trait Host {
    /// The result of `signal_status`.
    fn signal_status(&mut self, plane: &Plane) -> Value;

    /// Runs a command through policy, and gives the result of the execution.
    fn execute(&mut self, plane: &Plane, command: &str) -> Result<Value, Failure>;
}

/// Answers a request.
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
                    .hint("pkg_list lists the installed ones")
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
        Operation::SignalStatus => Ok(host.signal_status(plane)),
        Operation::ExecuteCommand => execute(plane, request.required("command")?, host),
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
fn execute(plane: &Plane, command: &str, host: &mut dyn Host) -> Result<Value, Failure> {
    let text = command.trim();
    let text = text.strip_prefix(':').unwrap_or(text);
    if let Some(command_line) = text.strip_prefix('!') {
        return host.execute(plane, command_line.trim());
    }
    if let Some(query) = query::parse(command) {
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
            let orders = plane.work_orders()?;
            let rows: Vec<Value> = orders.iter().map(WorkOrder::to_value).collect();
            Ok(json!({"work_orders": rows, "count": rows.len(), "active": plane.active_work_order()}))
        }
        Query::WorkOrders(Some(id)) => {
            let order = plane.work_orders()?.into_iter().find(|order| order.id == *id);
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

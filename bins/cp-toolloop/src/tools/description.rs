//! Descriptions of tools, from the tool itself, a sidecar, a JSON catalogue or a server; and the tools that they describe.

use cp_common::json;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::{Offer, is_name};
use crate::tools::candidate::Candidate;
use crate::tools::tool::{Hints, Origin, Tool};
use crate::tools::{arguments, builtin};

/// The schema of a tool that names none.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;
/// A description, as a tool, a sidecar or a JSON catalogue gives it.
#[derive(Clone, Debug, Deserialize)]
struct Described {
    name: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(alias = "input_schema")]
    parameters: Option<Box<RawValue>>,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    approve: bool,
    #[serde(default)]
    timeout: Option<f64>,
}

/// The name in a description.
pub(super) fn name_of(text: &str) -> Option<String> {
    serde_json::from_str::<Described>(text).ok()?.name
}

/// The tool that a candidate is, by its description.
pub(super) fn of_candidate(text: &str, candidate: &Candidate) -> Result<Tool, String> {
    json::check(text.as_bytes()).map_err(|fault| format!("its description is not JSON: {fault}"))?;
    let described: Described = serde_json::from_str(text)
        .map_err(|e| format!("its description is not {{name, description, parameters}}: {e}"))?;
    let stem =
        candidate.link.as_ref().unwrap_or(&candidate.path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = described.name.or(stem).unwrap_or_default();
    if !is_name(&name) {
        return Err(format!("`{name}` is not a valid name for a tool: 1 to 64 letters, digits, _ and -"));
    }
    if builtin::NAMES.contains(&name.as_str()) || builtin::NAMES.contains(&candidate.file_name().as_str()) {
        return Err("its name is that of a built-in tool".to_owned());
    }
    let input_schema = checked(described.parameters.as_deref())?;
    let Candidate { path, link, sha256, .. } = candidate;
    let origin = Origin::Executable { path: path.clone(), link: link.clone(), sha256: sha256.clone() };
    let timeout =
        described.timeout.filter(|seconds| seconds.is_finite() && *seconds > 0.0).map(|seconds| seconds.min(86_400.0));
    let hints = Hints { idempotent: described.idempotent, approve: described.approve, timeout };
    Ok(Tool { name, description: described.description, input_schema, origin, hints })
}

/// A tool of a server, under a name of ours. The error is why it is left out.
pub(super) fn of_offer(name: String, offer: Offer, server: &str) -> Result<Tool, String> {
    if !is_name(&name) {
        return Err("not a valid name for a tool: 1 to 64 letters, digits, _ and -".to_owned());
    }
    let input_schema = checked(offer.input_schema.as_deref())?;
    let origin = Origin::Mcp { server: server.to_owned(), tool: offer.name };
    Ok(Tool { name, description: offer.description, input_schema, origin, hints: Hints::default() })
}

/// A schema that compiles, on one line.
fn checked(schema: Option<&RawValue>) -> Result<Box<RawValue>, String> {
    let schema = on_one_line(schema.map_or(NO_ARGUMENTS, RawValue::get))?;
    arguments::compile(&schema).map_err(|e| e.message().to_owned())?;
    Ok(schema)
}

/// A schema in normal form: people write theirs over several lines, and a record is one.
fn on_one_line(schema: &str) -> Result<Box<RawValue>, String> {
    let mut text = Vec::with_capacity(schema.len());
    json::normalize(schema.as_bytes(), &mut text).map_err(|fault| format!("its schema is not JSON: {fault}"))?;
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    RawValue::from_string(text).map_err(|e| e.to_string())
}

//! Descriptions of tools, by the tool itself, a sidecar, a JSON catalogue or a server.

use std::path::Path;

use cp_common::json;
use cp_ledger::format::line::Hash;
use cp_servers::{LONGEST_NAME, is_in_names, is_name};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools::tool::{Executable, Origin, Tool};
use crate::tools::{arguments, builtin};
use cp_mcp_wire::{Hints, Offer};

/// The schema of a tool without one.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

/// A description by a tool, a sidecar or a JSON catalogue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Described {
    name: Option<String>,
    description: String,
    #[serde(alias = "input_schema")]
    parameters: Option<Box<RawValue>>,
    idempotent: bool,
    approve: bool,
    read_only: bool,
    timeout: Option<f64>,
}

/// The name in a description.
pub(super) fn name_of(text: &str) -> Option<String> {
    serde_json::from_str::<Described>(text).ok()?.name
}

/// The tool of an executable and its description.
pub(super) fn of_file(text: &str, file: &Executable) -> Result<Tool, String> {
    json::check(text.as_bytes()).map_err(|fault| format!("its description is not JSON: {fault}"))?;
    let described: Described = serde_json::from_str(text)
        .map_err(|e| format!("its description is not {{name, description, parameters}}: {e}"))?;
    let file_name = file.name();
    let stem = || Path::new(&file_name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = described.name.or_else(stem).unwrap_or_default();
    if !is_name(&name) {
        return Err(format!("`{name}` is not a valid name for a tool: 1 to 64 letters, digits, _ and -"));
    }
    if builtin::NAMES.contains(&name.as_str()) || builtin::NAMES.contains(&file_name.as_str()) {
        return Err("its name is that of a built-in tool".to_owned());
    }
    let input_schema = on_one_line(described.parameters.as_deref().map_or(NO_ARGUMENTS, RawValue::get))?;
    arguments::compile(&input_schema).map_err(|e| e.message().to_owned())?;
    if described.timeout.is_some_and(|seconds| seconds <= 0.0) {
        return Err("its `timeout` is not more than 0 seconds".to_owned());
    }
    let origin = Origin::Executable(file.clone());
    let timeout = described.timeout.map(|seconds| seconds.min(86_400.0));
    let Described { idempotent, approve, read_only, .. } = described;
    let hints = Hints { idempotent, approve, read_only, timeout };
    Ok(Tool { name, description: described.description, input_schema, origin, hints })
}

/// A tool of a server under this name, and the patterns of its schema that are not checked. The error is the reason to
/// leave it out.
pub(super) fn of_offer(name: String, offer: &Offer) -> Result<(Tool, Vec<String>), String> {
    let input_schema = on_one_line(offer.input_schema.get())?;
    let (_, unchecked) = arguments::compile_lenient(&input_schema).map_err(|e| e.message().to_owned())?;
    let origin = Origin::Mcp { server: offer.server.clone(), tool: offer.name.clone() };
    Ok((Tool { name, description: offer.description.clone(), input_schema, origin, hints: offer.hints }, unchecked))
}

/// The name of a tool for the model: its own name, with an underscore for each byte that providers do not accept. A
/// long name, and a name that equals the mapped name of another tool, ends with a hash. The server gets the original
/// name.
pub(super) fn offered_name(name: &str, others: &[&Offer]) -> String {
    let mapped = |name: &str| -> String {
        name.bytes().map(|byte| if is_in_names(byte) { char::from(byte) } else { '_' }).collect()
    };
    let own = mapped(name);
    let is_unclear = || own != name && others.iter().any(|other| other.name != name && mapped(&other.name) == own);
    if own.len() <= LONGEST_NAME && !is_unclear() {
        return own;
    }
    let beginning = &own[..own.len().min(LONGEST_NAME - 9)];
    format!("{beginning}_{}", &Hash::of(name.as_bytes()).hex()[..8])
}

/// A schema in normal form, because a record must be one line.
fn on_one_line(schema: &str) -> Result<Box<RawValue>, String> {
    let mut text = Vec::with_capacity(schema.len());
    json::normalize(schema.as_bytes(), &mut text).map_err(|fault| format!("its schema is not JSON: {fault}"))?;
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    RawValue::from_string(text).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_name_is_mapped_to_one_that_providers_accept() {
        let mapped = ["files.read", "a/b:c", "ok-1_x", "ä"].map(|name| offered_name(name, &[]));
        assert_eq!(mapped, ["files_read", "a_b_c", "ok-1_x", "__"]);
        let long =
            ["x".repeat(65), "x".repeat(66), format!("{}.", "x".repeat(64))].map(|name| offered_name(&name, &[]));
        assert!(long.iter().all(|name| is_name(name) && name.len() == 64), "{long:?}");
        assert!(long[0] != long[1] && long[1] != long[2], "{long:?}");
        let offer =
            |name| serde_json::json!({"server": "s", "name": name, "description": "", "input_schema": {}, "hints": {}});
        let all = ["a.b", "a/b", "a_b"].map(|name| serde_json::from_str::<Offer>(&offer(name).to_string()).unwrap());
        let [dot, slash, plain] = ["a.b", "a/b", "a_b"].map(|name| offered_name(name, &all.each_ref()));
        assert!(
            plain == "a_b" && dot.starts_with("a_b_") && slash.starts_with("a_b_") && dot != slash,
            "{dot} {slash}"
        );
    }
}

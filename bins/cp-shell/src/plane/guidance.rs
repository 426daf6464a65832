//! The guidance of the control plane for authors of packages: fixed texts, as JSON.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::plane::Failure;

/// The chain of governance that ends in a package.
pub(super) const CHAIN: &str = include_str!("guidance/chain.json");
const EXAMPLE_AGENT: &str = include_str!("guidance/example_agent.json");
const EXAMPLE_LIBRARY: &str = include_str!("guidance/example_library.json");
const GATES: &str = include_str!("guidance/gates.json");
/// The requirements for a manifest.
pub(super) const MANIFEST_REQUIREMENTS: &str = include_str!("guidance/manifest_requirements.json");
/// The seven steps to a package.
pub(super) const PACKAGING_WORKFLOW: &str = include_str!("guidance/packaging_workflow.json");
/// The four most common commands.
pub(super) const QUICK_REFERENCE: &str = include_str!("guidance/quick_reference.json");
const TROUBLESHOOT: &str = include_str!("guidance/troubleshoot.json");

/// Parses a built-in text.
pub(super) fn built_in<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|e| Failure::handler(format!("a built-in text: {e}")))
}

/// The gates by name: phase and description.
pub(super) fn gates() -> Result<Map<String, Value>, Failure> {
    built_in(GATES)
}

/// The meaning of gate errors. All are listed if none matches, so that a wrong guess still gets an answer.
pub(super) fn troubleshoot(error_type: Option<&str>) -> Result<Value, Failure> {
    let mut guide: Map<String, Value> = built_in(TROUBLESHOOT)?;
    if let Some(wanted) = error_type.map(str::to_uppercase) {
        let matches = |name: &str| name.to_uppercase().contains(&wanted);
        if guide.keys().any(|name| matches(name)) {
            guide.retain(|name, _| matches(name));
        }
    }
    Ok(json!({"troubleshooting": guide}))
}

/// A manifest to start from.
pub(super) fn example_manifest(package_type: Option<&str>) -> Result<Value, Failure> {
    let package_type = package_type.unwrap_or("library");
    let text = if package_type == "agent" { EXAMPLE_AGENT } else { EXAMPLE_LIBRARY };
    let mut example: Map<String, Value> = built_in(text)?;
    example.insert("package_type".to_owned(), package_type.into());
    Ok(json!({"example": example, "note": "Put the SHA-256 of each file in the place of <64 hex>."}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guidance_texts_are_valid_json() {
        for text in [
            CHAIN,
            EXAMPLE_AGENT,
            EXAMPLE_LIBRARY,
            GATES,
            MANIFEST_REQUIREMENTS,
            PACKAGING_WORKFLOW,
            QUICK_REFERENCE,
            TROUBLESHOOT,
        ] {
            assert!(built_in::<Map<String, Value>>(text).is_ok_and(|object| !object.is_empty()));
        }
    }

    #[test]
    fn troubleshoot_filters_by_known_error_type() {
        let names = |wanted| {
            troubleshoot(wanted).unwrap()["troubleshooting"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(Some("g0a")), ["G0A_UNDECLARED", "G0A_HASH_MISMATCH"]);
        assert_eq!(names(Some("nothing like it")).len(), 8);
        assert_eq!(names(None).len(), 8);
    }
}

//! The tools that a model may call: specifications from files.

use std::path::{Path, PathBuf};

use cp_common::wire::ToolSpec;
use cp_common::{Error, Result};
use serde::Deserialize;

use crate::files;

/// The tools of all files: a list, an object with `tools`, or a tool a line.
pub(crate) fn load(names: &[PathBuf]) -> Result<Vec<ToolSpec>> {
    let mut tools: Vec<ToolSpec> = Vec::new();
    for file in names {
        for tool in of_file(file)? {
            check(&tool).map_err(|e| e.in_file(file))?;
            if tools.iter().any(|known| known.name == tool.name) {
                return Err(Error::validation(format!("the tool `{}` is defined twice", tool.name)).in_file(file));
            }
            tools.push(tool);
        }
    }
    Ok(tools)
}

fn of_file(file: &Path) -> Result<Vec<ToolSpec>> {
    let text = files::given(file)?;
    let wrong = |e: serde_json::Error| {
        Error::validation(format!("not a valid list of tools: {e}"))
            .in_file(file)
            .hint(r#"write [{"name":…,"description":…,"input_schema":{…}}]"#)
    };
    // An untagged enum would re-read the numbers of a schema: the shape is looked at first.
    let shape: serde_json::Value = match serde_json::from_str(&text) {
        Ok(shape) => shape,
        Err(_) => {
            return text
                .lines()
                .filter(|l| !l.trim().is_empty())
                .map(|l| serde_json::from_str(l).map_err(wrong))
                .collect();
        }
    };
    match shape {
        serde_json::Value::Array(_) => serde_json::from_str(&text).map_err(wrong),
        serde_json::Value::Object(members) if members.contains_key("tools") => {
            serde_json::from_str::<Wrapped>(&text).map(|wrapped| wrapped.tools).map_err(wrong)
        }
        _ => serde_json::from_str(&text).map(|tool| vec![tool]).map_err(wrong),
    }
}

#[derive(Deserialize)]
struct Wrapped {
    tools: Vec<ToolSpec>,
}

fn check(tool: &ToolSpec) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if tool.name.is_empty() || tool.name.len() > 64 || !tool.name.bytes().all(allowed) {
        return Err(Error::validation(format!(
            "`{}` is not a valid tool name: use 1 to 64 letters, digits, _ and -",
            tool.name
        )));
    }
    if !tool.input_schema.get().starts_with('{') {
        return Err(Error::validation(format!("the input_schema of `{}` is not an object", tool.name)));
    }
    Ok(())
}

//! The tools of `--tools`: a directory as it is, or a JSON list, whose tools are the only ones that the model may call.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::{Error, Result};
use serde_json::{Value, json};

use crate::environment::variable;

/// The longest list of tools, in bytes.
const LONGEST: u64 = 4 << 20;

/// Returns the options of the loop. A list is rewritten to a directory, beside links to the executables of its tools.
pub(crate) fn words(path: &Path, scratch: &Path) -> Result<Vec<String>> {
    if path.extension().is_none_or(|end| end != "json") {
        return Ok(vec![format!("--tools={}", path.display())]);
    }
    let wrong = |what: String| {
        let error = Error::usage(format!("not a list of tools: {what}")).in_file(path);
        error.hint(r#"each is {"name", "description", "parameters"}"#)
    };
    let listed: Value = serde_json::from_slice(&given::bytes(path, LONGEST)?).map_err(|e| wrong(e.to_string()))?;
    let listed = listed.get("tools").unwrap_or(&listed).as_array().ok_or_else(|| wrong("no array".to_owned()))?;
    let tools: Vec<&Value> = listed.iter().map(|tool| tool.get("function").unwrap_or(tool)).collect();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let list = scratch.join("tools.json");
    let write = || -> std::io::Result<()> {
        std::fs::create_dir(scratch.join("bin"))?;
        for name in &names {
            if let Some(file) = executable(name, path.parent().unwrap_or(Path::new(""))) {
                symlink(file.canonicalize()?, scratch.join("bin").join(name))?;
            }
        }
        std::fs::write(&list, json!(tools).to_string())
    };
    write().map_err(|e| Error::io("writing the list of tools", e))?;
    // An empty name allows no tool.
    Ok(vec![format!("--tools={}", list.display()), format!("--allow={}", names.join(","))])
}

/// Returns the executable of a tool: in `CP_TOOLS_DIR`, else in `bin` beside the list, else beside the list.
fn executable(name: &str, beside: &Path) -> Option<PathBuf> {
    let directory = variable("CP_TOOLS_DIR").map_or_else(|| beside.join("bin"), PathBuf::from);
    let places =
        [directory.join(name), directory.join(format!("{name}.sh")), beside.join("bin").join(name), beside.join(name)];
    let is_executable =
        |file: &PathBuf| file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    places.into_iter().find(is_executable)
}

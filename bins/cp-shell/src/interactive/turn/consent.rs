//! What a person is asked before a turn is sent: whether they mean it, and whether the model may use tools, by their names.

use std::path::PathBuf;

use cp_common::{Context, Result};

use crate::interactive::assessment::risk::{Level, Risk};
use crate::parts::ask;

/// The question that must be answered with yes first, if there is one. The names of the tools are looked up once, into `known`.
pub(super) fn question(
    tools: &[PathBuf],
    known: &mut Option<String>,
    risk: &Risk,
    context: &Context,
) -> Result<Option<String>> {
    if known.is_none() && !tools.is_empty() {
        *known = Some(names(tools, context)?);
    }
    let level = risk.level.name();
    Ok(match (risk.level > Level::Safe, known) {
        (false, None) => None,
        (true, None) => Some(format!("Send this {level} turn?")),
        (false, Some(tools)) => Some(format!("Let the model use {tools} in this turn?")),
        (true, Some(tools)) => Some(format!("Send this {level} turn, and let the model use {tools} in it?")),
    })
}

/// The names of the tools in these directories.
fn names(directories: &[PathBuf], context: &Context) -> Result<String> {
    let directories: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
    let flags = directories.iter().flat_map(|directory| ["--tools", directory.as_str()]);
    let found = ask(context, "cp-toolloop", &["tools"].into_iter().chain(flags).collect::<Vec<_>>())?;
    let items = found["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>().join(", "))
}

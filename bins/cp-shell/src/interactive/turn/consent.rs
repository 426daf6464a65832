//! What a person is asked before a turn is sent: whether they mean it, and whether the model may use tools, by their names.

use crate::interactive::outcome::Problem;
use crate::interactive::risk::{Level, Risk};
use crate::interactive::shell::Shell;
use crate::parts::ask;

/// The question that must be answered with yes first, if there is one.
pub(crate) fn question(shell: &mut Shell<'_>, risk: &Risk) -> Result<Option<String>, Problem> {
    let tools = tools(shell)?;
    Ok(match (risk.level > Level::Safe, tools) {
        (false, None) => None,
        (true, None) => Some(format!("Send this {} turn?", risk.level.name())),
        (false, Some(tools)) => Some(format!("Let the model use {tools} in this turn?")),
        (true, Some(tools)) => {
            Some(format!("Send this {} turn, and let the model use {tools} in it?", risk.level.name()))
        }
    })
}

/// The tools that the model could call, where the person named some. They are looked up once.
fn tools(shell: &mut Shell<'_>) -> Result<Option<String>, Problem> {
    if shell.args.tools.is_empty() {
        return Ok(None);
    }
    if shell.tools.is_none() {
        let places: Vec<String> = shell.args.tools.iter().map(|place| place.display().to_string()).collect();
        let words: Vec<&str> =
            ["tools"].into_iter().chain(places.iter().flat_map(|place| ["--tools", place.as_str()])).collect();
        let found = ask(shell.context, "cp-toolloop", &words)?;
        let items = found["items"].as_array().into_iter().flatten();
        let names: Vec<&str> = items.filter_map(|tool| tool["name"].as_str()).collect();
        shell.tools = Some(names.join(", "));
    }
    Ok(shell.tools.clone())
}

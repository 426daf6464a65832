//! The prompts of this server: the system texts of the home's agents, and registered prompts.

use std::collections::BTreeMap;

use cp_common::{Code, Context, Error, Result, coprocess};
use cp_policy::prompts::Prompts;
use cp_policy::template;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The prefix of an agent's name.
const AGENT: &str = "agent-";

/// The result of `prompts/list`.
pub(super) fn listed_prompts(context: &Context) -> Result<Value> {
    let agents = context.home.agents::<IgnoredAny>()?;
    let mut prompts: Vec<Value> = agents
        .keys()
        .map(
            |id| json!({ "name": format!("{AGENT}{id}"), "description": format!("the system text of the agent {id}") }),
        )
        .collect();
    let registered = match Prompts::load(context) {
        Ok(registered) => registered,
        Err(error) if error.code() == Code::NotFound => return Ok(json!({ "prompts": prompts })),
        Err(error) => return Err(error),
    };
    for row in registered.table.rows() {
        let id = row.get("prompt_id");
        // A prompt that cannot be used is not offered.
        let Ok(text) = registered.text(id) else { continue };
        let argument = |name: &str| json!({ "name": name, "required": true });
        let arguments: Vec<Value> = template::variables(&text).into_iter().map(argument).collect();
        prompts.push(json!({ "name": id, "description": row.get("title"), "arguments": arguments }));
    }
    Ok(json!({ "prompts": prompts }))
}

/// The result of `prompts/get`.
pub(super) fn prompt_text(name: &str, arguments: &BTreeMap<String, String>, context: &Context) -> Result<Value> {
    let named = match name.strip_prefix(AGENT) {
        Some(agent) => format!("--agent={agent}"),
        None if name.starts_with("PRM-") => format!("--prompt={name}"),
        None => return Err(Error::not_found(format!("there is no prompt `{name}`"))),
    };
    let variables = arguments.iter().map(|(name, value)| format!("--var={name}={value}"));
    let words: Vec<String> = ["system".to_owned(), named].into_iter().chain(variables).collect();
    let system: Value = coprocess::ask("cp-compose", &words, b"", context)?;
    let text = system["system"].as_str().unwrap_or_default();
    Ok(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] }))
}

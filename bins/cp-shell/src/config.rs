//! `cp-shell config`: the effective settings and their origins.

use clap::Subcommand;
use cp_common::home::config::{Origin, SETTINGS};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::Serialize;
use serde_json::Value;

use crate::agent::Agents;

pub(crate) const DOC: VerbDoc =
    VerbDoc { examples: &["cp-shell config"], ..VerbDoc::new("config", Class::Query, "config") };

pub(crate) const DOC_GET: VerbDoc =
    VerbDoc { path: "config get", output: "setting", examples: &["cp-shell config get tier"], ..DOC };

pub(crate) const DOC_AGENT: VerbDoc = VerbDoc {
    path: "config agent",
    output: "agent_setting",
    examples: &["cp-shell init | jq -c .ok; cp-shell config agent default soul"],
    ..DOC
};

/// Print the effective settings and their origins
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Print one setting
    Get {
        /// Its name
        key: String,
    },
    /// Print a member of an agent in config/agents.json
    Agent {
        /// The agent
        id: String,
        /// The member
        key: String,
    },
}

/// Every setting.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct All {
    /// The file of the settings.
    file: String,
    /// The settings, in the order of the manual.
    items: Vec<One>,
    /// The number of settings.
    count: usize,
}

/// A setting.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct One {
    /// Its name.
    key: &'static str,
    /// The value; null if it is not set.
    value: Option<String>,
    /// The origin of the value; null without a value.
    origin: Option<Origin>,
    /// The environment variable that sets it.
    variable: Option<&'static str>,
    /// The meaning of the setting.
    meaning: &'static str,
}

/// A member of an agent.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AgentSetting {
    /// The agent.
    agent: String,
    /// The member.
    key: String,
    /// The value in the file.
    value: Value,
}

impl Reply for All {
    fn text(&self) -> String {
        self.items.iter().map(|one| format!("{} = {}", one.key, one.text())).collect::<Vec<_>>().join("\n")
    }
}

impl Reply for One {
    fn text(&self) -> String {
        self.value.clone().unwrap_or_default()
    }
}

impl Reply for AgentSetting {
    fn text(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.what {
        None => {
            let items: Vec<One> = SETTINGS.iter().map(|setting| one(setting.key, context)).collect::<Result<_>>()?;
            let file = context.config.file().display().to_string();
            context.out.answer(&All { file, count: items.len(), items })
        }
        Some(What::Get { key }) => {
            let answer = one(key, context)?;
            context.out.answer(&answer)
        }
        Some(What::Agent { id, key }) => {
            let answer = agent(id, key, context)?;
            context.out.answer(&answer)
        }
    }
}

fn one(key: &str, context: &Context) -> Result<One> {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
        let known = SETTINGS.iter().map(|setting| setting.key);
        return Err(Error::not_found(format!("no setting `{key}`")).nearest(
            key,
            known,
            "`cp-shell config` lists them",
        ));
    };
    let value = context.config.get(key, None);
    Ok(One {
        key: setting.key,
        origin: value.as_ref().map(|value| value.origin),
        value: value.map(|value| value.text),
        variable: setting.variable,
        meaning: setting.meaning,
    })
}

fn agent(id: &str, key: &str, context: &Context) -> Result<AgentSetting> {
    let file = context.home.agents_file();
    let agents: Agents = context.home.agents()?;
    let missing = |what: String, known: Vec<&str>, name: &str| {
        let otherwise = if known.is_empty() { "`cp-shell init` makes a first agent" } else { &known.join(", ") };
        Error::not_found(what).in_file(&file).nearest(name, known.iter().copied(), otherwise)
    };
    let ids = || agents.keys().map(String::as_str).collect();
    let members = agents.get(id).ok_or_else(|| missing(format!("no agent `{id}`"), ids(), id))?;
    let names = || members.keys().map(String::as_str).collect();
    let value = members.get(key).ok_or_else(|| missing(format!("the agent `{id}` has no `{key}`"), names(), key))?;
    Ok(AgentSetting { agent: id.to_owned(), key: key.to_owned(), value: value.clone() })
}

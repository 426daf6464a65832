//! The servers of the command line: `--mcp`, and the files of `--mcp-config` in the form of `.mcp.json`.

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::coprocess::command_words;
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::launch::Launcher;
use crate::policy::is_key_of_model;
use crate::spec::{Spec, expanded, is_name, refused};

impl Spec {
    /// Parses `NAME=COMMAND`, or `NAME` of a server whose command is in the policy.
    pub fn parse(text: &str, launcher: &Launcher) -> Result<Self> {
        let (name, command) = text.split_once('=').map_or((text, None), |(name, command)| (name, Some(command)));
        if !is_name(name) {
            return Err(Error::usage(format!("--mcp {text}: the name must be 1 to 64 letters, digits, _ and -"))
                .hint("write --mcp NAME='/path/to/server arguments'"));
        }
        let given = command.map(command_words).transpose()?;
        Ok(Self { name: name.to_owned(), argv: launcher.argv(name, given)?, ..Self::default() })
    }

    /// The servers of a file.
    pub fn of_file(path: &Path, launcher: &Launcher) -> Result<Vec<Self>> {
        let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("the file of MCP servers does not exist").in_file(path),
            _ => Error::io("reading the MCP servers", e).in_file(path),
        })?;
        let file: File = serde_json::from_str(&text).map_err(|e| {
            Error::config(format!("not a list of MCP servers: {e}"))
                .in_file(path)
                .hint("write {\"mcpServers\":{\"NAME\":{\"command\":\"/path/to/server\",\"args\":[]}}}")
        })?;
        let enabled = file.servers.into_iter().filter(|(_, listed)| !listed.disabled);
        enabled.map(|(name, listed)| listed.spec(name, launcher).map_err(|e| e.in_file(path))).collect()
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers", alias = "servers")]
    servers: BTreeMap<String, Listed>,
}

/// A server in the file.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    transport: Option<String>,
    url: Option<Value>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

impl Listed {
    /// The server. Its variables are not expanded, because records must not have their values.
    fn spec(self, name: String, launcher: &Launcher) -> Result<Spec> {
        let Self { transport, url, command, args, env, disabled: _ } = self;
        let transport = transport.as_deref().unwrap_or(if url.is_some() { "http" } else { "stdio" });
        if !matches!(transport, "stdio" | "local") {
            let message = format!("the server {name} has the type {transport}, which is not supported: only stdio is");
            let hint = "a bridge such as mcp-remote makes it a command";
            return Err(Error::config(message).with("server", name).hint(hint));
        }
        let Some(command) = command else {
            return Err(Error::config(format!("the server {name} has no command")).with("server", name));
        };
        let mut argv = vec![expanded(&command)?];
        argv.extend(args);
        for word in argv.iter().chain(env.values()) {
            expanded(word).map_err(|e| Error::new(e.code(), format!("the server {name}: {}", e.message())))?;
        }
        if let Some(key) = env.keys().find(|variable| is_key_of_model(variable)) {
            return Err(refused(key).with("server", name));
        }
        if !is_name(&name) {
            return Err(Error::config(format!("the server `{name}`: a name is 1 to 64 letters, digits, _ and -")));
        }
        Ok(Spec { argv: launcher.argv(&name, Some(argv))?, name, env, is_of_file: true })
    }
}

//! A server on the command line, or in a file in the form of `.mcp.json` (`--mcp-config`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::is_key_of_model;

/// The longest tool name that every provider accepts.
pub const LONGEST_NAME: usize = 64;

/// A server on the command line or in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// The variables in its file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its file, if it is from one. Variables in its command and environment are not expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

/// True if a server or tool can have this name, which every provider accepts, and which is not a path.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_in_names)
}

/// True if a byte can be in a name.
pub fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

impl Spec {
    /// This server, with its variables expanded.
    pub(crate) fn expanded(&self) -> Result<Self> {
        if self.config.is_none() {
            return Ok(self.clone());
        }
        let argv = self.argv.iter().map(|word| expanded(word)).collect::<Result<_>>()?;
        let env = self.env.iter().map(|(name, value)| Ok((name.clone(), expanded(value)?)));
        Ok(Self { argv, env: env.collect::<Result<_>>()?, ..self.clone() })
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

/// The command of a server in the file. Variables are not expanded, because records must not have their values.
pub(crate) struct Configured {
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

/// Reads the servers of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Configured>> {
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
    enabled.map(|(name, listed)| configured(name, listed).map_err(|e| e.in_file(path))).collect()
}

fn configured(name: String, listed: Listed) -> Result<Configured> {
    let Listed { transport, url, command, args, env, disabled: _ } = listed;
    let transport = transport.as_deref().unwrap_or(if url.is_some() { "http" } else { "stdio" });
    if !matches!(transport, "stdio" | "local") {
        let message = format!("the server {name} has the type {transport}, which is not supported: only stdio is");
        return Err(Error::config(message).with("server", name).hint("a bridge such as mcp-remote makes it a command"));
    }
    let Some(command) = command else {
        return Err(Error::config(format!("the server {name} has no command")).with("server", name));
    };
    let mut argv = vec![expanded(&command)?];
    argv.extend(args);
    for word in argv.iter().chain(env.values()) {
        expanded(word).map_err(|e| Error::new(e.code(), format!("the server {name}: {}", e.message())))?;
    }
    match env.keys().find(|variable| is_key_of_model(variable)) {
        Some(key) => Err(refused(key).with("server", name)),
        None => Ok(Configured { name, argv, env }),
    }
}

/// Expands variables in a text: `${NAME}`, `${env:NAME}`, or `${NAME:-default}`.
pub(crate) fn expanded(text: &str) -> Result<String> {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((named, behind)) = after.split_once('}') else { break };
        let named = named.strip_prefix("env:").unwrap_or(named);
        let (name, otherwise) = named.split_once(":-").map_or((named, None), |(name, text)| (name, Some(text)));
        if is_key_of_model(name) {
            return Err(refused(name));
        }
        done.push_str(before);
        match (std::env::var(name).ok().filter(|value| !value.is_empty()), otherwise) {
            (Some(value), _) => done.push_str(&value),
            (None, Some(otherwise)) => done.push_str(otherwise),
            (None, None) => {
                return Err(Error::config(format!("the variable {name} is not set"))
                    .hint(format!("set it, or write ${{{name}:-VALUE}}")));
            }
        }
        rest = behind;
    }
    Ok(done + rest)
}

fn refused(variable: &str) -> Error {
    Error::new(Code::Forbidden, format!("{variable} is not given: servers must not get the keys of model providers"))
        .hint("give the server a key of its own under another name")
}

#[cfg(test)]
mod tests {
    use super::{is_name, *};

    #[test]
    fn name_is_letters_digits_underscores_and_hyphens() {
        for good in ["a", "word_count", "mcp-files_read", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "../x", "a.b", "a b", "ä", "a/b", "a\n", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn variables_are_expanded_and_model_keys_refused() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(expanded("a${PATH}b${NOT_SET_HERE:-c}$PATH${").unwrap(), format!("a{path}bc$PATH${{"));
        assert_eq!(expanded("${env:PATH}").unwrap(), path);
        assert!(expanded("${NOT_SET_HERE}").unwrap_err().message().contains("NOT_SET_HERE is not set"));
        assert_eq!(expanded("x ${OPENAI_API_KEY:-y}").unwrap_err().code(), Code::Forbidden);
    }
}

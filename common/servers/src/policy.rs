//! A server: its name, its command, and its permissions in `[mcp.NAME]` of the policy.

use std::collections::BTreeMap;
use std::time::Duration;

use cp_common::glob::name_matches;
use cp_common::home::config::explain;
use cp_common::home::expand;
use cp_common::{Context, Error, Result};
use cp_egress::Network;
use cp_policy::{home_of, read_policy};
use serde::Deserialize;

/// How long a server may run in the sandbox, which is the limit of cp-exec.
pub const LIFETIME: Duration = Duration::from_hours(24);
/// The default time limit of a call.
const CALL: Duration = Duration::from_mins(1);
/// The default time limit for starting and listing tools.
const START: Duration = Duration::from_secs(30);
/// The prefixes of variables with the keys of model providers.
const KEYS_OF_MODELS: [&str; 4] = ["ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_API"];

/// The table of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// The command line of the server.
    pub command: Option<String>,
    /// The URL of a server over HTTP.
    pub url: Option<String>,
    /// Where the server runs.
    pub sandbox: Sandbox,
    /// The network of the server.
    pub network: Network,
    /// The variables that are passed on.
    pub env: Vec<String>,
    /// Readable paths, in addition to those of the policy.
    pub read: Vec<String>,
    /// Writable paths, in addition to those of the policy.
    pub write: Vec<String>,
    /// The time limit of a call, in seconds.
    pub timeout: Option<f64>,
    /// The time limit for starting and listing tools, in seconds.
    pub start_timeout: Option<f64>,
    /// True if each call requires approval. The default is true only for destructive tools.
    pub approve: Option<bool>,
    /// The patterns of allowed tools, in which `*` matches any characters. The default is all tools.
    pub tools: Option<Vec<String>>,
}

impl Table {
    /// The time limit of a call.
    pub fn call_limit(&self) -> Duration {
        self.timeout.map_or(CALL, Duration::from_secs_f64)
    }

    /// The time limit for starting and listing tools.
    pub fn start_limit(&self) -> Duration {
        self.start_timeout.map_or(START, Duration::from_secs_f64)
    }

    /// True if a tool is allowed.
    pub fn allows(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|pattern| name_matches(pattern, tool)))
    }

    /// Refuses time limits that no server can have, and the keys of model providers.
    fn check(&self, name: &str) -> Result<()> {
        let wrong = |what: String| Error::config(format!("[mcp.{name}] {what}"));
        let most = LIFETIME.as_secs_f64();
        let mut times = [("timeout", self.timeout), ("start_timeout", self.start_timeout)].into_iter();
        if let Some((key, _)) = times.find(|(_, time)| time.is_some_and(|time| !(time > 0.0 && time <= most))) {
            return Err(wrong(format!("{key} must be more than 0 and at most {most} seconds")));
        }
        let is_of_model = |variable: &&String| KEYS_OF_MODELS.iter().any(|prefix| variable.starts_with(prefix));
        match self.env.iter().find(is_of_model) {
            Some(key) => Err(wrong(format!("env lists {key}, and servers must not get the keys of model providers"))
                .hint("give the server a key of its own under another name")),
            None => Ok(()),
        }
    }
}

/// The longest tool name that every provider accepts.
pub const LONGEST_NAME: usize = 64;

/// A server.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// Its table of the policy.
    pub table: Table,
}

/// True if a server or tool can have this name, which every provider accepts, and which is not a path.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_in_names)
}

/// True if a byte can be in a name.
pub fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// In the sandbox of tools.
    #[default]
    Tool,
    /// Outside.
    None,
}

/// The part of the policy that concerns servers. The tables of other programs are copied.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Policy {
    mcp: BTreeMap<String, Table>,
    pub(crate) exec: toml::Table,
    pub(crate) paths: toml::Table,
    pub(crate) project: toml::Table,
    pub(crate) tools: toml::Table,
    /// The home directory of the policy's owner.
    #[serde(skip)]
    pub(crate) tilde: Option<String>,
}

impl Policy {
    /// Reads the policy. Without a file the built-in policy applies.
    pub(crate) fn load(context: &Context) -> Result<Self> {
        let file = context.home.policy_file();
        let Some((text, owner)) = read_policy(&file)? else { return Ok(Self::default()) };
        let parsed = toml::from_str(&text).map_err(|e| explain(&text, &e));
        let checked = parsed.and_then(|policy: Self| {
            policy.mcp.iter().try_for_each(|(name, table)| table.check(name)).map(|()| policy)
        });
        let policy = checked.map_err(|e| e.in_file(&file).fatal())?;
        Ok(Self { tilde: Some(home_of(owner).display().to_string()), ..policy })
    }

    /// Expands a leading `~`, because it would later mean the home of another user.
    pub(crate) fn expanded(&self, text: &str) -> String {
        self.tilde.as_ref().map_or_else(|| text.to_owned(), |home| expand(text, home))
    }

    /// The table of a server. The default is the sandbox, without a name of the network.
    pub(crate) fn table(&self, name: &str) -> Table {
        self.mcp.get(name).cloned().unwrap_or_default()
    }
}

/// The texts of a list in the table of another program.
pub(crate) fn list<'a>(table: &'a toml::Table, key: &str) -> impl Iterator<Item = &'a str> {
    table.get(key).and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn name_is_letters_digits_underscores_and_hyphens() {
        for good in ["a", "word_count", "mcp-files_read", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "../x", "a.b", "a b", "ä", "a/b", "a\n", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}

//! `[mcp.NAME]` of the policy: what the server of that name is, and what it may do.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::spelling::nearest;
use cp_common::{Context, Error, Result};
use serde::Deserialize;

/// How long a server may run in the sandbox: the longest that cp-exec gives one.
pub const LIFETIME: Duration = Duration::from_hours(24);
/// The keys of a table.
const KEYS: [&str; 13] = [
    "command",
    "url",
    "sandbox",
    "network",
    "env",
    "read",
    "write",
    "timeout",
    "start_timeout",
    "parallel",
    "approve",
    "tools",
    "sampling",
];
/// How long a call of a tool may take.
const CALL: Duration = Duration::from_mins(1);
/// How long a server has to start and to list its tools: some take seconds.
const START: Duration = Duration::from_secs(30);
/// Variables with the keys of models begin with one of these.
const KEYS_OF_MODELS: [&str; 4] = ["ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_API"];
/// The table of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// What starts it, as on a command line.
    pub command: Option<String>,
    /// Where it is, if it is reached over HTTP.
    pub url: Option<String>,
    /// Where it runs.
    pub sandbox: Sandbox,
    /// The network that it sees.
    pub network: Network,
    /// The variables of ours that it is given.
    pub env: Vec<String>,
    /// What it may read beside what everything may.
    pub read: Vec<String>,
    /// What it may write beside what everything may.
    pub write: Vec<String>,
    /// How many seconds a call may take.
    pub timeout: Option<f64>,
    /// How many it has to start and to list its tools.
    pub start_timeout: Option<f64>,
    /// Whether all its tools may be called at the same time, and not only those that it calls read-only.
    pub parallel: bool,
    /// Whether its calls require approval; where this is not given, those of tools that it calls destructive do.
    pub approve: Option<bool>,
    /// The names of its tools that may be called; `*` stands for any run of characters. Where this is not given, all may.
    pub tools: Option<Vec<String>>,
    /// Whether it may ask the model of its client.
    pub sampling: bool,
}

impl Table {
    /// How long a call may take.
    pub fn call_limit(&self) -> Duration {
        self.timeout.map_or(CALL, Duration::from_secs_f64)
    }

    /// How long the server has to start and to list its tools.
    pub fn start_limit(&self) -> Duration {
        self.start_timeout.map_or(START, Duration::from_secs_f64)
    }

    /// Whether a tool of it may be called.
    pub fn allows(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|pattern| matches(pattern, tool)))
    }

    /// What is wrong with its times.
    fn wrong_time(&self) -> Option<String> {
        let most = LIFETIME.as_secs_f64();
        let times = [("timeout", self.timeout), ("start_timeout", self.start_timeout)];
        let wrong = times.into_iter().find(|(_, time)| time.is_some_and(|time| !(time > 0.0 && time <= most)));
        wrong.map(|(key, _)| format!("{key} must be more than 0 and at most {most} seconds"))
    }
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

/// The network that a server sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// None at all.
    #[default]
    None,
    /// This machine.
    Loopback,
    /// Everything.
    Host,
}

impl Network {
    /// As the policy has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Host => "host",
        }
    }
}

/// The policy of a home, as far as servers are concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    file: PathBuf,
    pub(crate) whole: toml::Table,
    /// The home directory that `~` means there, where it is not that of whoever runs this.
    pub(crate) tilde: Option<String>,
}

impl Policy {
    /// Reads the policy. Without a file the built-in one holds.
    pub(crate) fn load(context: &Context) -> Result<Self> {
        let file = context.home.policy_file();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return Ok(Self { file, ..Self::default() });
            }
            Err(e) => return Err(Error::config(format!("cannot read: {e}")).in_file(&file).fatal()),
        };
        let whole = toml::from_str(&text).map_err(|e| Error::config(e.message()).in_file(&file).fatal())?;
        let meta = file.metadata().map_err(|e| Error::io("reading the policy", e).in_file(&file).fatal())?;
        let owner = meta.uid();
        // A group with its owner's own number is the owner's private group.
        let shared = meta.mode() & 0o020 != 0 && meta.gid() != 0 && meta.gid() != owner;
        if meta.mode() & 0o002 != 0 || shared {
            let fix = format!("chmod go-w {}", file.display());
            return Err(Error::config("others can write the policy").in_file(&file).hint(fix).fatal());
        }
        let tilde = if owner == rustix::process::getuid().as_raw() { None } else { home_of(owner) };
        Ok(Self { file, whole, tilde })
    }

    /// A policy of a test.
    #[cfg(test)]
    pub(crate) fn of_text(text: &str) -> Self {
        Self { whole: toml::from_str(text).unwrap_or_default(), ..Self::default() }
    }

    /// The table of a server. One that has none is sandboxed, without a network.
    pub(crate) fn table(&self, name: &str) -> Result<Table> {
        let Some(found) = self.whole.get("mcp").and_then(|mcp| mcp.get(name)) else { return Ok(Table::default()) };
        let wrong = |what: String| Error::config(format!("[mcp.{name}] {what}")).in_file(&self.file).fatal();
        if let Some(unknown) = found.as_table().and_then(|table| table.keys().find(|key| !KEYS.contains(&key.as_str())))
        {
            let near = nearest(unknown, KEYS).map(|near| format!("did you mean `{near}`?"));
            return Err(wrong(format!("unknown key `{unknown}`"))
                .with("key", unknown.as_str())
                .hint(near.unwrap_or_else(|| format!("valid keys: {}", KEYS.join(", ")))));
        }
        let table: Table = found.clone().try_into().map_err(|e: toml::de::Error| wrong(e.message().to_owned()))?;
        if let Some(what) = table.wrong_time() {
            return Err(wrong(what));
        }
        match table.env.iter().find(|variable| is_key_of_model(variable)) {
            Some(key) => Err(wrong(format!("env lists {key}, and servers must not get the keys of model providers"))
                .hint("give the server a key of its own under another name")),
            None => Ok(table),
        }
    }
}

/// Whether a name fits a pattern, in which `*` stands for any run of characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

/// Whether a variable holds the key of a provider of models: no server is given one.
pub(crate) fn is_key_of_model(variable: &str) -> bool {
    KEYS_OF_MODELS.iter().any(|prefix| variable.starts_with(prefix))
}

/// The home directory of a user, as the password file has it.
fn home_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)? == &uid.to_string()).then(|| fields.get(5).map(|&home| home.to_owned())).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("*", "x") && matches("de*y", "deploy") && matches("deploy", "deploy"));
        assert!(!matches("deploy", "deploy_all") && !matches("*_all", "deploy") && matches("a*b*c", "aXbYc"));
    }
}

//! `[mcp.NAME]` of the policy: what the server of that name is, and what it may do.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::spelling::nearest;
use cp_common::{Context, Error, Result};
use serde::Deserialize;

/// How long a server may run in the sandbox: the longest that cp-exec gives.
pub(super) const LIFETIME: Duration = Duration::from_mins(10);
/// The keys of a table.
const KEYS: [&str; 6] = ["command", "sandbox", "network", "env", "read", "write"];
/// Variables with the keys of models begin with one of these.
const KEYS_OF_MODELS: [&str; 4] = ["ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_API"];
/// The table of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Table {
    /// What starts it, as on a command line.
    pub(super) command: Option<String>,
    pub(super) sandbox: Sandbox,
    pub(super) network: Network,
    /// The variables of ours that it is given.
    pub(super) env: Vec<String>,
    /// What it may read beside what everything may.
    pub(super) read: Vec<String>,
    /// What it may write beside what everything may.
    pub(super) write: Vec<String>,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sandbox {
    /// In the sandbox of tools.
    #[default]
    Tool,
    /// Outside.
    None,
}

/// The network that a server sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Network {
    /// None at all.
    #[default]
    None,
    /// This machine.
    Loopback,
    /// Everything.
    Host,
}

impl Network {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Host => "host",
        }
    }
}

/// The policy of a home, as far as servers are concerned.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    file: PathBuf,
    pub(super) whole: toml::Table,
    /// The home directory that `~` means there, where it is not that of whoever runs this.
    pub(super) tilde: Option<String>,
}

impl Policy {
    /// Reads the policy. Without a file the built-in one holds.
    pub(super) fn load(context: &Context) -> Result<Self> {
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
    pub(super) fn of_text(text: &str) -> Self {
        Self { whole: toml::from_str(text).unwrap_or_default(), ..Self::default() }
    }

    /// The table of a server. One that has none is sandboxed, without a network.
    pub(super) fn table(&self, name: &str) -> Result<Table> {
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
        let is_key = |variable: &&String| KEYS_OF_MODELS.iter().any(|prefix| variable.starts_with(prefix));
        match table.env.iter().find(is_key) {
            Some(key) => Err(wrong(format!("env lists {key}, and servers must not get the keys of model providers"))
                .hint("give the server a key of its own under another name")),
            None => Ok(table),
        }
    }
}

/// The home directory of a user, as the password file has it.
fn home_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)? == &uid.to_string()).then(|| fields.get(5).map(|&home| home.to_owned())).flatten()
    })
}

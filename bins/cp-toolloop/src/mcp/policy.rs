//! `[mcp.NAME]` of the policy: what the server of that name is, and what it may do.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::home::resolved;
use cp_common::spelling::nearest;
use cp_common::{Context, Error, Result};
use serde::Deserialize;

/// How long a server may run in the sandbox: the longest that cp-exec gives.
pub(super) const LIFETIME: Duration = Duration::from_mins(10);
/// The keys of a table.
const KEYS: [&str; 6] = ["command", "sandbox", "network", "env", "read", "write"];
/// Variables with the keys of models begin with one of these.
const KEYS_OF_MODELS: [&str; 4] = ["ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_API"];
/// What of our home no server sees.
const HOME_PARTS: [&str; 8] = ["config", "keys", "ledger", "state", "planes", "memory", "agents", "tmp"];

/// One table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Table {
    /// What starts it, as on a command line.
    pub(crate) command: Option<String>,
    /// Where it runs.
    pub(crate) sandbox: Sandbox,
    /// The network that it sees.
    pub(crate) network: Network,
    /// The variables of ours that it is given.
    pub(crate) env: Vec<String>,
    /// What it may read beside what everything may.
    pub(crate) read: Vec<String>,
    /// What it may write beside what everything may.
    pub(crate) write: Vec<String>,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sandbox {
    /// Where tools run.
    #[default]
    Tool,
    /// Outside.
    None,
}

/// The network that a server sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    /// None at all.
    #[default]
    None,
    /// This machine.
    Loopback,
    /// Everything.
    Host,
}

impl Network {
    const fn name(self) -> &'static str {
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
    whole: toml::Table,
    /// The home directory that `~` means there, where it is not that of whoever runs this.
    tilde: Option<String>,
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
    pub(super) fn of_text(text: &str) -> Self {
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
        let is_key = |variable: &&String| KEYS_OF_MODELS.iter().any(|prefix| variable.starts_with(prefix));
        match table.env.iter().find(is_key) {
            Some(key) => Err(wrong(format!("env lists {key}, and servers must not get the keys of model providers"))
                .hint("give the server a key of its own under another name")),
            None => Ok(table),
        }
    }

    /// The policy under which this server, and nothing else, may run: the same paths and limits, its own network and variables.
    pub(crate) fn narrowed(&self, table: &Table, argv: &[String], home: &Path) -> String {
        let mut exec = self.section("exec");
        for gone in ["output_limit", "env_allow"] {
            exec.remove(gone);
        }
        let program = argv.first().cloned().unwrap_or_default();
        exec.insert("allowed_commands".to_owned(), toml::Value::from(vec![program.clone()]));
        exec.insert("network".to_owned(), table.network.name().into());
        exec.insert("timeout".to_owned(), LIFETIME.as_secs_f64().into());
        // Whoever named the server named its arguments.
        exec.insert("argument_rules".to_owned(), "off".into());
        exec.insert("intent".to_owned(), "off".into());
        let mut env = exec.remove("env_set").and_then(|set| set.try_into::<toml::Table>().ok()).unwrap_or_default();
        for name in &table.env {
            if let Ok(value) = std::env::var(name) {
                env.insert(name.clone(), value.into());
            }
        }
        exec.insert("env_set".to_owned(), self.expanded(toml::Value::Table(env)));

        let mut paths = self.section("paths");
        let mut add = |key: &str, absent: &[&str], more: Vec<String>| {
            let listed = paths.remove(key).and_then(|list| list.try_into::<Vec<String>>().ok());
            let mut all = listed.unwrap_or_else(|| absent.iter().map(|&path| path.to_owned()).collect());
            all.extend(more);
            paths.insert(key.to_owned(), self.expanded(toml::Value::from(all)));
        };
        let its_own = argv.iter().filter_map(|word| program_files(word, home)).collect::<Vec<_>>();
        add("read", &["."], [table.read.clone(), table.write.clone(), its_own].concat());
        add("write", &["."], table.write.clone());
        add("execute", &[], vec![program]);
        add("forbidden", &[], HOME_PARTS.iter().map(|part| format!("{}/**", home.join(part).display())).collect());
        let whole = toml::Table::from_iter([
            ("exec".to_owned(), toml::Value::Table(exec)),
            ("paths".to_owned(), toml::Value::Table(paths)),
        ]);
        whole.iter().map(|(name, value)| format!("{name} = {}\n", inline(value))).collect::<Vec<_>>().concat()
    }

    fn section(&self, name: &str) -> toml::Table {
        self.whole.get(name).and_then(toml::Value::as_table).cloned().unwrap_or_default()
    }

    /// A value with each leading `~` replaced, where it would mean the home of another user later.
    fn expanded(&self, value: toml::Value) -> toml::Value {
        let Some(home) = &self.tilde else { return value };
        match value {
            toml::Value::String(text) => match text.strip_prefix('~') {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}").into(),
                _ => text.into(),
            },
            toml::Value::Array(list) => list.into_iter().map(|value| self.expanded(value)).collect::<Vec<_>>().into(),
            toml::Value::Table(table) => {
                toml::Value::Table(table.into_iter().map(|(name, value)| (name, self.expanded(value))).collect())
            }
            other => other,
        }
    }
}

/// A value as TOML has it on one line.
fn inline(value: &toml::Value) -> String {
    let word = |text: &str| serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    match value {
        toml::Value::String(text) => word(text),
        toml::Value::Integer(number) => number.to_string(),
        // With its point, or it would be another type.
        toml::Value::Float(number) => format!("{number:?}"),
        toml::Value::Boolean(yes) => yes.to_string(),
        toml::Value::Datetime(time) => time.to_string(),
        toml::Value::Array(list) => format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", ")),
        toml::Value::Table(table) => {
            let members = table.iter().map(|(name, value)| format!("{} = {}", word(name), inline(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The directory of the file that a word of a server's command names: naming it in a command allows reading it.
fn program_files(word: &str, home: &Path) -> Option<String> {
    let path = Path::new(word);
    if !path.is_absolute() || !path.is_file() {
        return None;
    }
    let modules = path.ancestors().filter(|place| place.file_name().is_some_and(|name| name == "node_modules")).last();
    let beside = path.parent()?;
    let above = beside.parent().filter(|_| beside.file_name().is_some_and(|name| name == "bin"));
    let root = modules.or(above).unwrap_or(beside);
    // Not the whole home of a user, and not what holds our own keys.
    let person = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let is_too_much = root.parent().is_none() || root == person || resolved(home).starts_with(resolved(root));
    Some(if is_too_much { path } else { root }.display().to_string())
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
    use super::*;

    #[test]
    fn a_server_has_the_paths_of_the_policy_and_its_own_and_nothing_else_may_run() {
        let policy = Policy::of_text(
            "[exec]\nallowed_commands = [\"git\", \"rm\"]\nrestricted_commands = [\"dd\"]\ntimeout = 5\nnetwork = \"host\"\n\
             [[exec.rule]]\ncommand = \"x\"\ndecision = \"deny\"\nmatch = [\"x a\"]\n\
             [paths]\nread = [\".\", \"~/a \\\"b\\\"\"]\nforbidden = [\"**/.env\"]\n\
             [mcp.s]\nnetwork = \"loopback\"\nwrite = [\"/data\"]\n",
        );
        let table = policy.table("s").unwrap();
        let text = policy.narrowed(&table, &["/opt/x/server".to_owned(), "--all".to_owned()], Path::new("/home/me/cp"));
        let narrowed: toml::Table = toml::from_str(&text).unwrap();
        let list = |section: &str, key: &str| -> Vec<String> { narrowed[section][key].clone().try_into().unwrap() };
        assert_eq!(list("exec", "allowed_commands"), ["/opt/x/server"]);
        assert_eq!(list("exec", "restricted_commands"), ["dd"]);
        assert_eq!(narrowed["exec"]["network"].as_str(), Some("loopback"));
        assert_eq!(narrowed["exec"]["timeout"].as_float(), Some(600.0));
        assert_eq!(narrowed["exec"]["rule"][0]["match"][0].as_str(), Some("x a"));
        assert_eq!(list("paths", "read"), [".", "~/a \"b\"", "/data"]);
        assert_eq!(list("paths", "write"), [".", "/data"]);
        assert_eq!(list("paths", "execute"), ["/opt/x/server"]);
        let forbidden = list("paths", "forbidden");
        assert!(forbidden.contains(&"**/.env".to_owned()) && forbidden.contains(&"/home/me/cp/keys/**".to_owned()));
        assert!(narrowed.get("mcp").is_none());
    }

    #[test]
    fn the_home_of_another_owner_is_written_out() {
        let policy =
            Policy { tilde: Some("/root".to_owned()), ..Policy::of_text("[paths]\nread = [\"~/a\", \"~b\"]\n") };
        let text = policy.narrowed(&Table::default(), &["/bin/cat".to_owned()], Path::new("/home/me/cp"));
        let narrowed: toml::Table = toml::from_str(&text).unwrap();
        let read: Vec<String> = narrowed["paths"]["read"].clone().try_into().unwrap();
        assert_eq!(read[..2], ["/root/a", "~b"]);
    }

    #[test]
    fn naming_a_file_lets_read_what_it_is_part_of_but_never_what_holds_our_home() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let home = root.join("data/cp");
        let named = |below: &str| {
            let file = root.join(below);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            program_files(file.to_str().unwrap(), &home)
        };
        let at = |below: &str| Some(root.join(below).display().to_string());
        assert_eq!(named("p/node_modules/@a/b/node_modules/c/i.js"), at("p/node_modules"));
        assert_eq!(named("venv/bin/server"), at("venv"));
        assert_eq!(named("s/server.py"), at("s"));
        std::fs::create_dir_all(&home).unwrap();
        assert_eq!(named("data/server.py"), at("data/server.py"));
        assert_eq!(named("bin/server"), at("bin/server"), "what is above holds the home");
        assert_eq!((program_files("server.py", &home), program_files("/nowhere/x", &home)), (None, None));
    }
}

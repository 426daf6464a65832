//! Requests other than commands: file operations, facts about the machine, and executable tools: files in a `--tools`
//! directory that are called with JSON, and that can describe themselves.

pub(crate) mod filesystem;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::wire::{Block, Receipt, Reply};
use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::json;

use crate::decision::{Decision, HashCache, Ruling, check_modules, pin, plan, resolve, timeout_of};
use crate::digest::sha256;
use crate::glob::name_matches;
use crate::policy::{LONGEST, Policy, Verdict, name_of};
use crate::refusal::refuse;
use crate::request::{SystemOperation, ToolCall};
use crate::rules::Finding;
use crate::run::{Engine, streams};
use crate::sandbox;
use crate::sandbox::plan::{Operation, Place, Profile};

/// The answer of an operation without a process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["value"])))]
pub(crate) struct Item {
    /// The operation, `tool.name`.
    pub operation: &'static str,
    /// The result of the operation.
    pub value: serde_json::Value,
    /// The receipt of its entry on the ledger.
    pub receipt: Receipt,
    /// JSON Pointers to untrusted values.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
    /// The same answer as text, if it has a text form.
    #[serde(skip)]
    text: Option<Box<str>>,
    /// Images for a model, in addition to the text.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub images: Vec<Block>,
}

impl Item {
    /// Creates an answer with a JSON Pointer to its untrusted part.
    pub(crate) fn new(operation: &'static str, value: serde_json::Value, receipt: Receipt, untrusted: &str) -> Self {
        Self { operation, value, receipt, untrusted: vec![untrusted.to_owned()], text: None, images: Vec::new() }
    }

    /// Sets the text form for models and people.
    pub(crate) fn shown_as(self, text: String) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// The content for a model: the text of the answer or the content of a file, otherwise JSON.
    pub(crate) fn content(&self) -> String {
        let content = || self.value.get("content").and_then(serde_json::Value::as_str).map(str::to_owned);
        self.text.clone().map(String::from).or_else(content).unwrap_or_else(|| self.value.to_string())
    }
}

impl Reply for Item {
    fn text(&self) -> String {
        self.content()
    }
}

/// Answers an operation about this machine, and records it.
pub(crate) fn answer_system(engine: &mut Engine, operation: SystemOperation) -> Result<Item> {
    let (name, value) = match operation {
        SystemOperation::GetInfo {} => ("system.get_info", info(&engine.policy)),
        SystemOperation::GetStatus {} => ("system.get_status", status(&engine.policy)),
    };
    let receipt = engine.journal.operation(name, &json!({}))?;
    Ok(Item::new(name, value, receipt, "/value"))
}

fn info(policy: &Policy) -> serde_json::Value {
    let name = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let uid = rustix::process::getuid().as_raw();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let distribution = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    json!({
        "os": word(name.sysname()).to_lowercase(),
        "kernel": word(name.release()),
        "architecture": word(name.machine()),
        "hostname": word(name.nodename()),
        "distribution": distribution.map(|name| name.trim_matches('"')),
        "processors": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "user": name_of(uid),
        "uid": uid,
        "python_version": python_version(policy),
        "version": cp_common::program::VERSION,
    })
}

/// The version of Python for commands, from the name of its file. No process is started.
fn python_version(policy: &Policy) -> Option<String> {
    let file = resolve(policy, "python3").ok()?;
    let version = file.file_name()?.to_str()?.strip_prefix("python")?.to_owned();
    version.contains('.').then_some(version)
}

fn status(policy: &Policy) -> serde_json::Value {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = memory.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let first = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    let space = rustix::fs::statvfs(&policy.base).ok();
    json!({
        "load_1m": first(&load),
        "uptime_s": first(&uptime),
        "memory_total_bytes": kilobytes("MemTotal:").map(|kb| kb * 1024),
        "memory_available_bytes": kilobytes("MemAvailable:").map(|kb| kb * 1024),
        "disk_free_bytes": space.map(|space| space.f_bavail * space.f_frsize),
        "policy": policy.loaded.file.as_ref().map(|file| file.display().to_string()),
        "landlock_abi": sandbox::landlock_abi(),
    })
}

/// The most bytes of arguments that are also passed in argv.
const ARGUMENT: usize = 32 * 1024;
/// The time limit for a description.
const DESCRIBE: Duration = Duration::from_secs(2);

/// Decides about a call of a tool, and prepares its standard input.
pub(crate) fn rule(policy: &Policy, hashes: &mut HashCache, call: &ToolCall) -> Result<(Ruling, OwnedFd)> {
    let path = find(policy, &call.name)?;
    permitted(policy, &call.name, true)?;
    let pinned = pin(policy, &path, hashes)?;

    let arguments = call.arguments.get();
    let mut argv = vec![path.display().to_string()];
    if call.describe {
        argv.push("--describe".to_owned());
    } else if arguments.len() <= ARGUMENT {
        argv.push(arguments.to_owned());
    }
    policy.check_base()?;
    let timeout =
        if call.describe { DESCRIBE } else { timeout_of(policy, call.timeout.map(|seconds| seconds.min(LONGEST)))? };
    check_modules(policy, &policy.base, &path, &[])?;
    let input: &[u8] = if call.describe { b"" } else { arguments.as_bytes() };
    let asks = !call.describe && requires_approval(policy, &call.name);
    let finding = Finding {
        verdict: if asks { Verdict::Ask } else { Verdict::Allow },
        rule: if asks { "tools.approve" } else { "tools.allow" }.to_owned(),
        reason: format!("tools.approve of the policy lists `{}`", call.name),
        ..Finding::allowed()
    };
    let decision = Decision::of(argv, finding, pinned, policy.base.clone(), timeout);
    let mut ruling = plan(policy, Decision { stdin: Some(sha256(input)), ..decision })?;
    let plan = &mut ruling.plan;
    // A tool must not write to its own directory. A description needs neither network nor files.
    let stays = |place: &Place| !call.describe && !policy.tools.contains(&place.path);
    plan.view.places.retain(|place| place.operation != Operation::Write || stays(place));
    if call.describe {
        plan.profile = if plan.script.is_none() { Profile::Strict } else { plan.profile };
        plan.sockets = false;
    }
    ruling.watched.only_in(&plan.view);
    Ok((ruling, streams::stdin_from_bytes(input)?))
}

/// The file of a tool. A tool name is one path component, so it cannot name a file outside of the directories.
fn find(policy: &Policy, name: &str) -> Result<PathBuf> {
    let plain = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
    let found = policy.tools.iter().map(|tools| tools.join(name)).find(|path| plain && path.is_file());
    match found.filter(|_| !name.starts_with('.')) {
        Some(path) => path.canonicalize().map_err(|e| Error::io("the tool", e).in_file(&path)),
        None => Err(Error::new(Code::NotFound, format!("no tool `{name}`"))
            .with("rule", "tool")
            .hint("the tools are shell, filesystem, system, and the executables of each --tools DIR")),
    }
}

/// The word in `tools.allow` for the tools that pass without this key.
pub(crate) const BY_DEFAULT: &str = "@default";

/// Refuses a tool that the policy does not allow. Without `tools.allow`, `by_default` decides.
pub(crate) fn permitted(policy: &Policy, name: &str, by_default: bool) -> Result<()> {
    let allow = policy.loaded.settings.tools.allow.as_ref();
    if allow.map_or(by_default, |allow| {
        allow.iter().any(|pattern| name_matches(pattern, name) || (by_default && pattern == BY_DEFAULT))
    }) {
        return Ok(());
    }
    Err(refuse("tools.allow", format!("Tool not permitted: {name}")).hint(policy.setting_hint("tools.allow")))
}

/// True if the policy requires approval of a tool.
pub(crate) fn requires_approval(policy: &Policy, name: &str) -> bool {
    policy.loaded.settings.tools.approve.iter().any(|pattern| name_matches(pattern, name))
}

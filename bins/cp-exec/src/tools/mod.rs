//! Requests other than commands: file operations, facts about the machine, and executable tools.

pub(crate) mod executable;
pub(crate) mod filesystem;

use cp_common::Result;
use cp_common::wire::{Block, Receipt, Reply};
use serde::Serialize;
use serde_json::json;

use crate::policy::{Policy, name_of};
use crate::request::SystemOperation;
use crate::run::Engine;

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
        SystemOperation::GetInfo {} => ("system.get_info", info()),
        SystemOperation::GetStatus {} => ("system.get_status", status(&engine.policy)),
    };
    let receipt = filesystem::record(engine, name, json!({}))?;
    Ok(Item::new(name, value, receipt, "/value"))
}

fn info() -> serde_json::Value {
    let name = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let uid = rustix::process::getuid().as_raw();
    json!({
        "os": word(name.sysname()).to_lowercase(),
        "kernel": word(name.release()),
        "architecture": word(name.machine()),
        "hostname": word(name.nodename()),
        "user": name_of(uid),
        "uid": uid,
    })
}

fn status(policy: &Policy) -> serde_json::Value {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = memory.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let space = rustix::fs::statvfs(&policy.base).ok();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<f64> = load.split(' ').take(3).filter_map(|average| average.parse().ok()).collect();
    json!({
        "load": load,
        "memory_total_bytes": kilobytes("MemTotal:").map(|kb| kb * 1024),
        "memory_available_bytes": kilobytes("MemAvailable:").map(|kb| kb * 1024),
        "disk_free_bytes": space.map(|space| space.f_bavail * space.f_frsize),
    })
}

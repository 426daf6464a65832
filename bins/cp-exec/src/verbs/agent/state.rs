//! The private state of an agent: one directory for each host in the home of the cp programs, so that its user logs in
//! once. A new state gets the settings of the user that hold no credentials and run no programs, and the hook, with
//! which the supervisor records tool calls.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::home::{make_directory, write_whole};
use cp_common::{Context, Error, Result};
use serde_json::{Map, Value};

use crate::hosts::{Command, Host, Seed, text_of, with_hook};
use crate::policy::Policy;
use crate::verbs::edit::of_text;

/// The state of a host.
pub(super) struct State {
    host: Host,
    pub directory: PathBuf,
}

impl State {
    pub(super) fn of(host: Host, policy: &Policy) -> Self {
        Self { host, directory: policy.cp_home.path("hosts").join(host.name()) }
    }

    /// Creates what is missing. Returns messages about settings that could not be copied,
    /// and at the first start about those that never are.
    pub(super) fn create(&self, context: &Context) -> Result<Vec<String>> {
        let (facts, is_new) = (&self.host.facts().agent, !self.directory.exists());
        make_directory(&self.directory)?;
        for below in facts.state.values() {
            make_directory(&self.directory.join(below))?;
        }
        let own = self.host.directory(None);
        let mut notes = Vec::new();
        for seed in &facts.seed {
            let to = self.directory.join(&seed.to);
            // A file of the state is the agent's own, and may be a link that the agent made.
            if fs::symlink_metadata(&to).is_ok() || !self.holds(&to) {
                continue;
            }
            let mut from = seed.from.iter().map(|name| beside(&own, name));
            let Some(from) = from.find(|path| path.exists()) else { continue };
            let text = fs::read_to_string(&from);
            let text = text.map_err(|e| Error::io("the agent's own settings", e).in_file(&from))?;
            match selected(&from, &text, seed, &mut notes) {
                Ok(text) => write_whole(&to, text.as_bytes())?,
                Err(why) => notes.push(format!("{} was not copied to the agent's state: {why}", from.display())),
            }
        }
        let hooked = if Host::HOOKED.contains(&self.host) { self.add_hook(context) } else { Ok(()) };
        notes.extend(hooked.err().map(|why| format!("tool calls are not counted, because the hook is missing: {why}")));
        if is_new {
            notes.extend(facts.left_out.iter().filter_map(|part| left_out(&own, part)));
        }
        Ok(notes)
    }

    /// Puts the hook into the configuration in the state, which the agent may have changed.
    fn add_hook(&self, context: &Context) -> Result<()> {
        let command = Command { is_inside: true, ..Command::of(self.host, context)? };
        let file = self.directory.join(&self.host.facts().hook.file);
        // A link of the agent is refused, because it would lead to a file that it must not read.
        let made = |text: Option<&str>| with_hook(self.host, text.unwrap_or_default(), Some(&command));
        let change = of_text(&file, Some(0o600), made)?;
        if change.is_change() { change.carry_out() } else { Ok(()) }
    }

    /// True if the directory of a file is in the state, and is not behind a link that the agent made.
    fn holds(&self, file: &Path) -> bool {
        let directory = file.parent().unwrap_or(file);
        let real = make_directory(directory).ok().and_then(|()| directory.canonicalize().ok());
        real.zip(self.directory.canonicalize().ok()).is_some_and(|(real, state)| real.starts_with(state))
    }

    /// The variables that name the state.
    pub(super) fn variables(&self) -> Result<Vec<(String, String)>> {
        let path = |below: &String| self.directory.join(below).components().collect::<PathBuf>();
        let named = self.host.facts().agent.state.iter();
        named.map(|(name, below)| Ok((name.clone(), text_of(&path(below))?))).collect()
    }
}

/// A message about settings of the user that a new state does not get: the entries of a directory, or of the member of
/// a file, which is named after `#`.
fn left_out(own: &Path, part: &str) -> Option<String> {
    let (file, member) = part.split_once('#').map_or((part, None), |(file, member)| (file, Some(member)));
    let path = beside(own, file);
    let names: Vec<String> = match member {
        None => fs::read_dir(&path).ok()?.flatten().map(|entry| entry.file_name().display().to_string()).collect(),
        Some(member) => {
            let all = members(&path, &fs::read_to_string(&path).ok()?).ok()?;
            all.get(member)?.as_object()?.keys().cloned().collect()
        }
    };
    let what = member.map(|member| format!("{member} of ")).unwrap_or_default();
    let shown = format!("not in the agent's private state: {what}{}: {}", path.display(), names.join(", "));
    Some(shown).filter(|_| !names.is_empty())
}

/// A file in the user's own directory of a host, or beside the directory.
fn beside(own: &Path, name: &str) -> PathBuf {
    // The directory itself need not exist.
    name.strip_prefix("../").map_or_else(|| own.join(name), |beside| own.with_file_name(beside))
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// The members of a JSON or TOML file.
fn members(path: &Path, text: &str) -> std::result::Result<Map<String, Value>, String> {
    let read = || serde_json::from_str(text).map_err(|e| e.to_string());
    if is_toml(path) { toml::from_str(text).map_err(|e| e.to_string()) } else { read() }
}

/// The listed members of a JSON or TOML file; without a list the whole text. A definition is copied as a whole or not
/// at all, because one without its secrets would not work.
fn selected(path: &Path, text: &str, seed: &Seed, notes: &mut Vec<String>) -> std::result::Result<String, String> {
    if seed.members.is_empty() {
        return Ok(text.to_owned());
    }
    let all = members(path, text)?;
    let patterns: Vec<Vec<&str>> = seed.members.iter().map(|member| member.split('.').collect()).collect();
    let mut kept = listed(&all, &patterns.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (name, table) in &seed.definitions {
        if let Some(Value::Object(definitions)) = kept.get_mut(table) {
            definitions.retain(|name, copied| all[table][name] == *copied && !holds_secret(copied));
        }
        let chosen = kept.get(name).and_then(|value| value.as_str()?.split('/').next()).unwrap_or_default().to_owned();
        let has = |members: &Map<String, Value>| members.get(table).is_some_and(|table| table.get(&chosen).is_some());
        if has(&all) && !has(&kept) {
            kept.remove(name);
            notes.push(format!(
                "{name} = {chosen} was not copied to the agent's state: [{table}.{chosen}] of {} holds more than names, \
                 addresses and models; write it into the state without secrets, whose variable --env NAME passes",
                path.display()
            ));
        }
    }
    if is_toml(path) {
        toml::to_string(&kept).map_err(|e| e.to_string())
    } else {
        Ok(format!("{:#}", Value::from(kept)))
    }
}

/// The members of an object that one of the patterns names; `*` stands for any name.
fn listed(object: &Map<String, Value>, patterns: &[&[&str]]) -> Map<String, Value> {
    let kept = object.iter().filter_map(|(name, value)| {
        let matching = patterns.iter().filter_map(|pattern| pattern.split_first());
        let rest: Vec<&[&str]> =
            matching.filter(|(first, _)| **first == "*" || *first == name).map(|(_, rest)| rest).collect();
        match value {
            _ if rest.iter().any(|rest| rest.is_empty()) => Some((name.clone(), value.clone())),
            Value::Object(below) => {
                Some(listed(below, &rest)).filter(|below| !below.is_empty()).map(|below| (name.clone(), below.into()))
            }
            _ => None,
        }
    });
    kept.collect()
}

/// True if an address has a user, or a key is not the name of a variable.
fn holds_secret(definition: &Value) -> bool {
    match definition {
        Value::String(text) => text.contains("://") && text.contains(['@', '?']),
        Value::Object(members) => members.iter().any(|(name, value)| {
            let is_key = name == "apiKey" && !value.as_str().is_some_and(|key| key.starts_with("{env:"));
            is_key || holds_secret(value)
        }),
        Value::Array(values) => values.iter().any(holds_secret),
        _ => false,
    }
}

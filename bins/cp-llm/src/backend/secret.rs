//! API keys. They come from an environment variable, a file or the output of a command, never from an option, and are
//! removed from all output.

use std::path::PathBuf;

use cp_common::coprocess::{self, Child, ChildOptions, cmd};
use cp_common::wire::{raw, record};
use cp_common::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::wire_api::{Answer, OnText, TextKind};

/// Shorter keys are not redacted: they are words such as `none`, for servers without keys, and occur in normal text.
const MIN_LENGTH: usize = 8;

/// A key. It has no `Debug` and no `Display`.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    /// The key itself, for a request header.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Removes the key from a text. Some servers repeat it in their errors.
    fn redact(&self, text: &str) -> String {
        if self.0.len() < MIN_LENGTH { text.to_owned() } else { text.replace(&self.0, "[REDACTED]") }
    }

    /// Removes the key from all text of an answer.
    pub(super) fn redact_answer(&self, answer: &mut Answer) -> Result<()> {
        for block in &mut answer.blocks {
            // The signature of the provider no longer fits the block.
            if self.redact_json(block)? {
                *block = block.redacted();
            }
        }
        answer.calls.iter_mut().try_for_each(|call| self.redact_json(call).map(drop))?;
        self.redact_json(&mut answer.content)?;
        self.redact_json(&mut answer.id)?;
        self.redact_json(&mut answer.model)?;
        self.redact_json(&mut answer.stop).map(drop)
    }

    /// Removes the key from the JSON of a value. Returns true if it occurred.
    fn redact_json<T: Serialize + DeserializeOwned>(&self, given: &mut T) -> Result<bool> {
        let json = raw(given)?;
        if !json.get().contains('\\') && !json.get().contains(&self.0) {
            return Ok(false);
        }
        let before: Value = record::read(&json)?;
        let mut clean = before.clone();
        self.redact_value(&mut clean);
        let is_found = clean != before;
        if is_found {
            *given = record::read(&raw(&clean)?)?;
        }
        Ok(is_found)
    }

    /// Removes the key from the strings of a value.
    pub(super) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact_value(value)),
            Value::Object(members) => {
                for (name, mut value) in std::mem::take(members) {
                    self.redact_value(&mut value);
                    members.insert(self.redact(&name), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Removes a key from streamed text. Text that may be the beginning of the key is held back until more text arrives.
pub(super) struct StreamRedactor<'a> {
    key: Option<&'a Secret>,
    /// The kind of the text that is held back.
    last: TextKind,
    held: String,
}

impl<'a> StreamRedactor<'a> {
    /// A redactor for a key. Without a key, or with a key that is too short to match safely, text passes unchanged.
    pub(super) fn of(key: Option<&'a Secret>) -> Self {
        Self { key: key.filter(|key| key.0.len() >= MIN_LENGTH), last: TextKind::Answer, held: String::new() }
    }

    /// Passes on the text that cannot be part of the key.
    pub(super) fn show(&mut self, kind: TextKind, text: &str, show: &mut OnText<'_>) -> Result<()> {
        let Some(key) = self.key else { return show(kind, text) };
        if self.last != kind {
            self.finish(show)?;
            self.last = kind;
        }
        self.held.push_str(text);
        let clean = key.redact(&self.held);
        let begins = |at: &usize| key.0.starts_with(&clean[*at..]);
        let from = clean.len().saturating_sub(key.0.len() - 1);
        let end = (from..clean.len()).filter(|at| clean.is_char_boundary(*at)).find(begins).unwrap_or(clean.len());
        clean[end..].clone_into(&mut self.held);
        if end > 0 { show(kind, &clean[..end]) } else { Ok(()) }
    }

    /// Passes on the text that was held back.
    pub(super) fn finish(&mut self, show: &mut OnText<'_>) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() { Ok(()) } else { show(self.last, &held) }
    }
}

/// Where a key comes from, with the name of the setting for errors: the key itself, its file, or a command that prints
/// it.
pub(super) enum Source {
    Text(String, String),
    File(String, PathBuf),
    Command(String, String),
}

impl Source {
    /// The variable `name`, `name_FILE` or `name_COMMAND`: the first that is set.
    pub(super) fn of_variables(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let [text, file, command] = ["", "_FILE", "_COMMAND"].map(|end| {
            let name = format!("{name}{end}");
            variable(&name).filter(|value| !value.is_empty()).map(|value| (name, value))
        });
        let file = || file.map(|(name, file)| Self::File(name, file.into()));
        let command = || command.map(|(name, command)| Self::Command(name, command));
        text.map(|(name, text)| Self::Text(name, text)).or_else(file).or_else(command)
    }

    /// The name of the setting.
    pub(super) fn name(self) -> String {
        let (Self::Text(name, _) | Self::File(name, _) | Self::Command(name, _)) = self;
        name
    }

    /// Reads the key.
    pub(super) fn key(&self) -> Result<Secret> {
        match self {
            Self::Text(name, text) => parse_key(name, text),
            Self::File(name, file) => {
                let failed = |e| Error::config(format!("{name}: {}", Error::from(e).message())).in_file(file).fatal();
                parse_key(name, &std::fs::read_to_string(file).map_err(failed)?)
            }
            Self::Command(name, command) => parse_key(name, &command_output(name, command)?),
        }
    }
}

fn parse_key(source: &str, text: &str) -> Result<Secret> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::config(format!("{source} does not hold one valid key"))
            .hint("a key is one word of ASCII characters, without spaces and without a byte order mark")
            .fatal());
    }
    Ok(Secret(text.to_owned()))
}

/// Runs a command by its path, without a shell, and returns its output.
fn command_output(source: &str, command: &str) -> Result<String> {
    let wrong = |what: &str| Error::config(format!("{source}: {what}")).fatal();
    let argv = coprocess::command_line(command).map_err(|e| wrong(e.message()))?;
    let started = Child::start(&argv[0], &cmd(&argv[0], &argv[1..]), ChildOptions::DEFAULT);
    // The user may have to unlock a key store, so only a signal ends the wait.
    let ended = started.map_err(|e| wrong(e.message()))?.output(None, &mut |_| Ok(()))?;
    let (status, printed) = ended.unwrap_or_default();
    if !status.success() {
        return Err(wrong(&format!("the command ended with {status}")));
    }
    String::from_utf8(printed).map_err(|_| wrong("the command printed bytes that are not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_redacted_and_short_word_is_kept() {
        let scrubbed = |key: &str, text: &str| Secret(key.to_owned()).redact(text);
        assert_eq!(scrubbed("sk-0123456789", "no sk-0123456789, no"), "no [REDACTED], no");
        assert_eq!(scrubbed("none", "there is none"), "there is none");
    }

    #[test]
    fn key_command_is_run() {
        let helper = |command: &'static str| move |name: &str| (name == "K_COMMAND").then(|| command.to_owned());
        let key = |command| Source::of_variables("K", helper(command)).unwrap().key();
        assert_eq!(key("/bin/echo 'from-helper'").unwrap().reveal(), "from-helper");
        assert!(key("/bin/false").is_err());
        assert!(key("/bin/echo x; rm y").is_err());
        assert!(key("echo x").is_err());
    }

    #[test]
    fn invalid_key_error_has_no_key() {
        let key = |text: &str| parse_key("K", text);
        for text in ["", "sk-secret\nX-Other: 1", "sk-secrét", "\u{feff}sk-secret", "sk-secret\u{a0}x", "sk-secret\0"]
        {
            let e = key(text).err().unwrap();
            assert_eq!(e.code(), cp_common::Code::Config, "{text}");
            assert!(!format!("{e:?}{:?}", e.details()).contains("sk-secr"));
        }
        assert_eq!(key(" sk-secret\r\n").unwrap().reveal(), "sk-secret", "the control");
    }
}

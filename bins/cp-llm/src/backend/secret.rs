//! Keys: read from the environment, from a file or the output of a command that it names, never from an option, and never shown.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cp_common::coprocess::{self, Child, Grace};
use cp_common::wire::{Block, raw, record};
use cp_common::{Error, Result};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::dialect::{Answer, Show, Shown};

/// What is shorter is a word for a server that needs no key, such as `none`, and is in many texts.
const SHORTEST: usize = 8;

/// A key. It has no `Debug` and no `Display`.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    /// The key, for the header that needs it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// The text with the key taken out: servers are known to repeat it in their errors.
    pub(super) fn scrub(&self, text: &str) -> String {
        if self.0.len() < SHORTEST { text.to_owned() } else { text.replace(&self.0, "[REDACTED]") }
    }

    /// The answer with the key taken out of all that it says.
    pub(super) fn without(&self, answer: Answer) -> Result<Answer> {
        if self.0.len() < SHORTEST {
            return Ok(answer);
        }
        let text = |text: Option<String>| text.map(|text| self.scrub(&text));
        let mut blocks = Vec::with_capacity(answer.blocks.len());
        for block in answer.blocks {
            // What the provider signed is no longer there.
            blocks.push(self.clean(block.raw())?.map_or(block, |clean| Block::from_raw(clean).redacted()));
        }
        let mut calls = answer.calls;
        for call in &mut calls {
            (call.id, call.name) = (self.scrub(&call.id), self.scrub(&call.name));
            if let Some(clean) = self.clean(&call.input)? {
                call.input = clean;
            }
        }
        let content = match self.clean(raw(&answer.content)?.as_ref())? {
            Some(clean) => record::read(&clean)?,
            None => answer.content,
        };
        let (id, model, stop) = (text(answer.id), text(answer.model), self.scrub(&answer.stop));
        Ok(Answer { id, model, content, calls, blocks, stop, usage: answer.usage })
    }

    /// JSON with the key taken out of its strings; none where it is in none.
    fn clean(&self, json: &RawValue) -> Result<Option<Box<RawValue>>> {
        if !json.get().contains('\\') && !json.get().contains(&self.0) {
            return Ok(None);
        }
        let value: Value = record::read(json)?;
        let clean = self.cleaned(value.clone());
        if clean == value { Ok(None) } else { raw(&clean).map(Some) }
    }

    fn cleaned(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.scrub(&text).into(),
            Value::Array(values) => values.into_iter().map(|value| self.cleaned(value)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (self.scrub(&name), self.cleaned(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}

/// Takes a key out of text that is shown as it comes: what may be the beginning of the key waits for the rest.
pub(super) struct Veil<'a> {
    key: Option<&'a Secret>,
    /// What was shown last, which the text that waits belongs to.
    last: Shown,
    held: String,
}

impl<'a> Veil<'a> {
    /// A veil over a key, if there is one that can be told from a word.
    pub(super) fn of(key: Option<&'a Secret>) -> Self {
        Self { key: key.filter(|key| key.0.len() >= SHORTEST), last: Shown::Words, held: String::new() }
    }

    /// Shows what can be shown now.
    pub(super) fn show(&mut self, kind: Shown, text: &str, show: &mut Show<'_>) -> Result<()> {
        let Some(key) = self.key else { return show(kind, text) };
        if self.last != kind {
            self.finish(show)?;
            self.last = kind;
        }
        self.held.push_str(text);
        let clean = key.scrub(&self.held);
        let begins = |at: &usize| key.0.starts_with(&clean[*at..]);
        let from = clean.len().saturating_sub(key.0.len() - 1);
        let end = (from..clean.len()).filter(|at| clean.is_char_boundary(*at)).find(begins).unwrap_or(clean.len());
        clean[end..].clone_into(&mut self.held);
        if end > 0 { show(kind, &clean[..end]) } else { Ok(()) }
    }

    /// Shows what waits.
    pub(super) fn finish(&mut self, show: &mut Show<'_>) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() { Ok(()) } else { show(self.last, &held) }
    }
}

/// Where a key is, if it is anywhere.
pub(super) fn source_of(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    [name.to_owned(), format!("{name}_FILE"), format!("{name}_COMMAND")]
        .into_iter()
        .find(|name| variable(name).is_some_and(|value| !value.is_empty()))
}

/// The key in the variable `name`, else in the file that `name_FILE` names, else what the command in `name_COMMAND` prints.
pub(super) fn key(name: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Secret>> {
    let Some(source) = source_of(name, &variable) else { return Ok(None) };
    let value = variable(&source).unwrap_or_default();
    if source == name {
        one_word(&source, &value)
    } else if source.ends_with("_COMMAND") {
        printed_by(&source, &value)
    } else {
        in_file(&source, Path::new(&value))
    }
    .map(Some)
}

/// The key in a file that `source` names.
pub(super) fn in_file(source: &str, file: &Path) -> Result<Secret> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::config(format!("{source}: {}", Error::from(e).message())).in_file(file).fatal())?;
    one_word(source, &text)
}

/// The key that a command prints, which `source` names.
pub(super) fn printed_by(source: &str, command: &str) -> Result<Secret> {
    one_word(source, &printed(source, command)?)
}

fn one_word(source: &str, text: &str) -> Result<Secret> {
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Err(Error::config(format!("{source} does not hold one valid key"))
            .hint("a key is one word without spaces")
            .fatal());
    }
    Ok(Secret(text.to_owned()))
}

/// What a helper prints. It is started without a shell, by its path.
fn printed(source: &str, command: &str) -> Result<String> {
    let wrong = |what: &str| Error::config(format!("{source}: {what}")).fatal();
    let argv = coprocess::command_line(command).map_err(|e| wrong(e.message()))?;
    let (program, arguments) = argv.split_first().ok_or_else(|| wrong("the command is empty"))?;
    let started = Child::start(Command::new(program).args(arguments), Grace::default());
    let mut child = started.map_err(|e| wrong(e.message()))?;
    child.close_input();
    let mut printed = Vec::new();
    // A person may have to unlock the store of keys: only a signal ends the wait.
    while child.read_some(&mut printed, Duration::MAX)?.is_some_and(|count| count > 0) {}
    let status = child.wait()?;
    if !status.success() {
        return Err(wrong(&format!("the command ended with {status}")));
    }
    String::from_utf8(printed).map_err(|_| wrong("the command printed bytes that are not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_variable_wins_over_the_file_and_ends_are_trimmed() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b" from-file\n").unwrap();
        let path = file.path().display().to_string();
        let in_file = |name: &str| (name == "K_FILE").then(|| path.clone());
        assert_eq!(key("K", in_file).unwrap().unwrap().reveal(), "from-file");
        assert_eq!(source_of("K", in_file).unwrap(), "K_FILE");
        let both = |name: &str| Some(if name == "K" { "direct".to_owned() } else { path.clone() });
        assert_eq!(key("K", both).unwrap().unwrap().reveal(), "direct");
        assert!(key("K", |_| None).unwrap().is_none());
    }

    #[test]
    fn a_key_is_taken_out_of_texts_and_a_mere_word_stays() {
        let scrubbed = |key: &str, text: &str| Secret(key.to_owned()).scrub(text);
        assert_eq!(scrubbed("sk-0123456789", "no sk-0123456789, no"), "no [REDACTED], no");
        assert_eq!(scrubbed("none", "there is none"), "there is none");
    }

    #[test]
    fn a_helper_prints_the_key() {
        let helper = |command: &'static str| move |name: &str| (name == "K_COMMAND").then(|| command.to_owned());
        assert_eq!(key("K", helper("/bin/echo 'from-helper'")).unwrap().unwrap().reveal(), "from-helper");
        assert!(key("K", helper("/bin/false")).is_err());
        assert!(key("K", helper("/bin/echo x; rm y")).is_err());
        assert!(key("K", helper("echo x")).is_err());
    }

    #[test]
    fn a_key_of_more_than_one_word_is_refused_without_being_shown() {
        let e = key("K", |name| (name == "K").then(|| "sk-secret\nX-Other: 1".to_owned())).err().unwrap();
        assert!(!format!("{e:?}{:?}", e.details()).contains("sk-secret"));
    }
}

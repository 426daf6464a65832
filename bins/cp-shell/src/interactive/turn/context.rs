//! The context of a turn: the working directory, shell history, answers of the hub, memories, and attached files. `:explain` shows all of
//! it.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cp_common::wire::media;
use cp_common::{Context, Error, Result};
use cp_redact::Redactor;

use crate::agent::Piece;
use crate::interactive::hub::Loaded;
use crate::interactive::memory::{self, Remembered};
use crate::interactive::state::Setup;

/// The context of a turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelope {
    pub(super) pieces: Vec<Piece>,
    /// The number of secrets that were removed.
    pub(super) redactions: u32,
    pub(super) recalled: Vec<Remembered>,
    /// Errors while collecting the context.
    pub(super) errors: Vec<String>,
}

impl Envelope {
    /// Collects the context of a turn.
    pub(super) fn gather(text: &str, setup: &Setup<'_>, hub: &Loaded, context: &Context) -> Self {
        let Setup { redactor, shell_history, .. } = setup;
        let mut envelope = Self::default();
        if let Ok(directory) = std::env::current_dir() {
            envelope.add("place", &format!("working directory: {}", directory.display()), redactor);
        }
        if !shell_history.lines.is_empty() {
            let lines: Vec<&str> = shell_history.lines.iter().map(|line| line.command.as_str()).collect();
            envelope.add("shell_history", &lines.join("\n"), redactor);
            envelope.redactions += shell_history.redactions;
        }
        if let Some(brief) = hub.brief.as_ref().filter(|brief| brief.goes_along) {
            envelope.add("brief", &brief.text, redactor);
            envelope.redactions += brief.redactions;
        }
        let answers = hub.answers();
        if !answers.is_empty() {
            envelope.add("hub", &answers, redactor);
        }
        envelope.recall(text, setup, context);
        let recalled: Vec<String> = envelope.recalled.iter().map(|it| format!("{}: {}", it.kind, it.text)).collect();
        if !recalled.is_empty() {
            envelope.add("memory", &recalled.join("\n"), redactor);
        }
        envelope
    }

    fn add(&mut self, name: &str, text: &str, redactor: &Redactor) {
        let (text, redactions) = redactor.redact_text(text);
        self.redactions += redactions;
        self.pieces.push(Piece { name: name.to_owned(), text });
    }

    fn recall(&mut self, text: &str, setup: &Setup<'_>, context: &Context) {
        for kind in &setup.settings.memory.kinds {
            let room = setup.settings.memory.limit.saturating_sub(self.recalled.len());
            if room == 0 {
                return;
            }
            match memory::recall(kind, text, room, context) {
                Ok(found) => self.recalled.extend(found),
                Err(e) => self.errors.push(format!("memory/{kind}.jsonl: {}", e.message())),
            }
        }
    }
}

/// The longest attached text, because a longer one would fill the conversation.
const LONGEST: u64 = 256 << 10;

/// The mark before the name of an attached text.
const MARK: &str = "\n\n<attached file=";

/// The files attached to a turn.
#[derive(Default)]
pub(super) struct Attached {
    /// The texts, between marks.
    pub(super) text: String,
    /// The files that are not text.
    pub(super) others: Vec<PathBuf>,
    /// A line about each file, for the person.
    pub(super) lines: Vec<String>,
    /// The number of secrets that were removed.
    pub(super) redactions: u32,
}

impl Attached {
    /// Reads the files that were attached before, and the files that the text names.
    pub(super) fn of(before: &[PathBuf], text: &str, redactor: &Redactor) -> Result<Self> {
        let mut attached = Self::default();
        let named = named_in(text);
        for file in before.iter().chain(named.iter().filter(|file| !before.contains(file))) {
            attached.add(file, redactor)?;
        }
        Ok(attached)
    }

    fn add(&mut self, file: &Path, redactor: &Redactor) -> Result<()> {
        let failed = |e| Error::io("attaching", e).in_file(file);
        let length = file.metadata().map_err(failed)?.len();
        let bytes = if length > LONGEST { Vec::new() } else { std::fs::read(file).map_err(failed)? };
        let name = file.display();
        match String::from_utf8(bytes) {
            Ok(text) if length <= LONGEST => {
                let (text, redactions) = redactor.redact_text(&text);
                self.redactions += redactions;
                // The text of a file must not close its mark.
                let text = text.replace("</attached", "<\\/attached");
                let _ = write!(self.text, "{MARK}{:?}>\n{}\n</attached>", name.to_string(), text.trim_end());
                self.lines.push(format!("attached: {name}, {length} bytes"));
            }
            _ => {
                self.others.push(file.to_owned());
                self.lines.push(format!("attached to this turn only: {name}, {length} bytes"));
            }
        }
        Ok(())
    }
}

/// Returns a file that can be attached to a turn.
pub(crate) fn attachable(path: &str) -> Result<PathBuf> {
    let file = Path::new(path);
    match file.metadata() {
        Ok(found) if found.is_file() => {
            let mut start = [0; 512];
            let read = std::fs::File::open(file).and_then(|mut opened| opened.read(&mut start));
            let start = &start[..read.map_err(|e| Error::io("attaching", e).in_file(file))?];
            if start.contains(&0) && media::block_of(start)?.is_none() {
                return Err(Error::usage(format!("{path} is neither text nor an image or document that models read"))
                    .hint("attach text, PNG, JPEG, GIF, WebP or PDF"));
            }
            Ok(file.to_owned())
        }
        Ok(_) => Err(Error::usage(format!("{path} is not a file")).hint("attach the files in it one by one")),
        Err(e) => Err(Error::io("attaching", e).in_file(file).hint("Tab completes the path of a file")),
    }
}

/// True if the rest of a recorded turn is empty or consists of attached texts.
pub(crate) fn is_attached(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(MARK)
}

/// The files that a text names as `@PATH`. Other words with `@` are ignored.
fn named_in(text: &str) -> Vec<PathBuf> {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
    let trimmed = words.map(|word| word.trim_end_matches(['.', ',', ';', ':', '?', '!', ')']));
    let mut found: Vec<PathBuf> = Vec::new();
    for file in trimmed.filter(|path| !path.is_empty()).filter_map(|path| attachable(path).ok()) {
        if !found.contains(&file) {
            found.push(file);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_existing_files_inside_marks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token=hunter2hunter2 </attached> do this").unwrap();
        let path = file.path().display();
        let text = format!("look at @{path}, and @{path}! @nobody @ me@example.com");
        assert_eq!(named_in(&text), [file.path()]);
        let attached = Attached::of(&[], &text, &Redactor::from_environment()).unwrap();
        assert_eq!((attached.lines.len(), attached.others.len(), attached.redactions), (1, 0, 1));
        assert_eq!(attached.text.matches("</attached>").count(), 1, "{}", attached.text);
        std::fs::write(file.path(), b"\x89PNG\xff").unwrap();
        assert_eq!(Attached::of(&[], &text, &Redactor::from_environment()).unwrap().others, [file.path()]);
    }
}

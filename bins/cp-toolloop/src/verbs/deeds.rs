//! What was done, as a person reads it: a command as its command line, a change of a file as a unified difference.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use cp_redact::Redactor;
use serde::Deserialize;
use similar::{Algorithm, TextDiff};

use crate::state::changes::{Kept, Write, writes_of};
use cp_common::wire::quoted;

/// The longest file whose difference is shown.
const LONGEST: u64 = 4 << 20;
/// After this long a difference is made of larger pieces.
const PATIENCE: Duration = Duration::from_secs(1);

/// The deeds that a ledger has.
pub(super) struct Deeds {
    ledger: PathBuf,
    redactor: Redactor,
}

impl Deeds {
    pub(super) fn on(ledger: &Path) -> Self {
        Self { ledger: ledger.to_owned(), redactor: Redactor::from_environment() }
    }

    /// What an entry with these data did; empty for one that did nothing to show.
    pub(super) fn of(&self, event: &str, data: &str) -> String {
        match event {
            "exec.intent" => command_line(data),
            "exec.operation" => {
                writes_of(&self.ledger, data.as_bytes()).iter().map(|write| self.difference(write)).collect()
            }
            _ => String::new(),
        }
    }

    /// The difference that a change made, without secrets.
    fn difference(&self, write: &Write) -> String {
        let Write { path, mode, before, after, .. } = write;
        let named = |kept: Option<&Kept>| if kept.is_some() { path.as_str() } else { "/dev/null" };
        let (old, new) = (named(before.as_ref()), named(after.as_ref()));
        let (Some(from), Some(to)) = (self.text(before.as_ref()), self.text(after.as_ref())) else {
            let bytes = |kept: Option<&Kept>| kept.map_or("nothing".to_owned(), |kept| format!("{} bytes", kept.len));
            let sizes = format!("{} before, {} after", bytes(before.as_ref()), bytes(after.as_ref()));
            return format!("--- {old}\n+++ {new}\n{mode}: no difference in lines can be shown; {sizes}\n");
        };
        let mut differ = TextDiff::configure();
        let difference = differ.algorithm(Algorithm::Myers).timeout(PATIENCE).diff_lines(from.as_str(), to.as_str());
        let shown = difference.unified_diff().header(old, new).to_string();
        // An empty file that came or went has no line that differs.
        let shown = if shown.is_empty() { format!("--- {old}\n+++ {new}\n") } else { shown };
        self.redactor.redact_text(&shown).0
    }

    /// What a file held, if it is text of lines that is still kept; empty where there was no file.
    fn text(&self, kept: Option<&Kept>) -> Option<String> {
        let Some(kept) = kept else { return Some(String::new()) };
        let hash = Hash::parse(&kept.blob).filter(|_| kept.len <= LONGEST)?;
        let bytes = blob::load(&self.ledger, &hash).ok().filter(|bytes| !bytes.contains(&0))?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn command_line(data: &str) -> String {
    #[derive(Deserialize)]
    struct Intent {
        #[serde(default)]
        argv: Vec<String>,
        line: Option<String>,
    }
    let Ok(Intent { argv, line }) = serde_json::from_str(data) else { return "$ ".to_owned() };
    let words = || argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    format!("$ {}", line.unwrap_or_else(words))
}

//! The claims of an entry and the verdicts on them: the entry with its blobs resolved, one claim, and the stream of claims.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::output::Format;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, json};
use cp_ledger::format::line::{Line, inside, members};
use cp_ledger::store::blob;
use serde::Serialize;
use serde_json::{Map, Value};

/// A claim of an entry, computed again.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Judged {
    /// The kind of claim: `chain`, `blob`, `command_hash` and others; see cp-ledger(5).
    claim: &'static str,
    /// The ledger with the entry.
    ledger: String,
    /// The entry that claims it; none for a ledger without lines.
    seq: Option<u64>,
    /// True if it holds; null where that cannot be found out any more.
    holds: Option<bool>,
    /// Why it does not hold, or cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Judged {
    /// The claim in words, without its verdict.
    pub(super) fn words(&self) -> String {
        let seq = self.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
        let why = self.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        format!("{}{seq}, {}{why}", self.ledger, self.claim)
    }
}

impl Reply for Judged {
    fn text(&self) -> String {
        let mark = match self.holds {
            Some(true) => '✓',
            Some(false) => '✗',
            None => '?',
        };
        format!("{mark} {}", self.words())
    }
}

/// The ledger and the entry of a claim.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) ledger: PathBuf,
    pub(super) seq: Option<u64>,
}

/// The verdict on a claim.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Holds,
    Broken(String),
    /// Cannot be judged any more, for this reason.
    Unknown(String),
}

impl Verdict {
    /// True if a hash that was computed again is the one that was claimed.
    pub(super) fn same(computed: &str, claimed: &str) -> Self {
        if computed == claimed { Self::Holds } else { Self::Broken(format!("it is {computed}, not {claimed}")) }
    }

    /// Holds, or is broken for this reason.
    pub(super) fn when(holds: bool, why: impl FnOnce() -> String) -> Self {
        if holds { Self::Holds } else { Self::Broken(why()) }
    }
}

/// The stream of claims, counted.
pub(super) struct Claims<'a> {
    context: &'a mut Context,
    pub(super) ledgers: u64,
    /// The names of the ledgers of bundles, and whether lines of them are left out.
    names: BTreeMap<PathBuf, (PathBuf, bool)>,
    bundles: Vec<PathBuf>,
    held: u64,
    broken: u64,
    unknown: u64,
    /// The first claim that does not hold, in words.
    first: Option<String>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(context: &'a mut Context) -> Self {
        Self {
            context,
            ledgers: 0,
            names: BTreeMap::new(),
            bundles: Vec::new(),
            held: 0,
            broken: 0,
            unknown: 0,
            first: None,
        }
    }

    /// Takes the name of a ledger of a bundle. True if it is the first of its bundle.
    pub(super) fn name_ledger(&mut self, ledger: &Path, name: &Path, is_part: bool, bundle: &Path) -> bool {
        self.names.insert(ledger.to_owned(), (name.to_owned(), is_part));
        let is_first = !self.bundles.iter().any(|known| known == bundle);
        self.bundles.extend(is_first.then(|| bundle.to_owned()));
        is_first
    }

    pub(super) fn record(&mut self, at: Source, claim: &'static str, verdict: Verdict) -> Result<()> {
        let (holds, why) = match verdict {
            Verdict::Holds => (Some(true), None),
            Verdict::Broken(why) => (Some(false), Some(why)),
            Verdict::Unknown(why) => (None, Some(why)),
        };
        let Source { ledger, seq } = at;
        let (ledger, is_part) = self.names.get(&ledger).cloned().unwrap_or((ledger, false));
        let (holds, why) = match (holds, why) {
            (Some(false), Some(why)) if is_part => (None, Some(format!("{why}; or lines that the bundle leaves out"))),
            verdict => verdict,
        };
        let claim = Judged { claim, ledger: ledger.display().to_string(), seq, holds, why };
        if holds == Some(false) {
            self.first.get_or_insert_with(|| claim.words());
        }
        // For a person the sum at the end stands for the claims that hold.
        let is_shown = holds != Some(true) || self.context.out.format() != Format::Text;
        self.count(holds, Some(&claim).filter(|_| is_shown))
    }

    fn count(&mut self, holds: Option<bool>, record: Option<&impl Reply>) -> Result<()> {
        match holds {
            Some(true) => self.held += 1,
            Some(false) => self.broken += 1,
            None => self.unknown += 1,
        }
        if let Some(record) = record {
            self.context.out.record(Kind::Item, record)?;
        }
        self.context.out.item_succeeded();
        Ok(())
    }

    /// Ends the stream: with a failure if a claim does not hold.
    pub(super) fn close(self) -> Result<()> {
        let out = &mut self.context.out;
        for (name, count) in
            [("ledgers", self.ledgers), ("held", self.held), ("broken", self.broken), ("unknown", self.unknown)]
        {
            out.extra(name, count);
        }
        if out.format() == Format::Text {
            let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            let (ledgers, held) = (counted(self.ledgers, "ledger"), counted(self.held, "claim"));
            out.piece(&format!("{ledgers}: {held} true, {} unknown, {} false\n", self.unknown, self.broken))?;
        }
        let (count, all) = (self.broken, self.held + self.broken + self.unknown);
        match &self.first {
            Some(first) => Err(super::broken(count, all, first)),
            None => Ok(()),
        }
    }
}

/// An entry that is judged.
pub(super) struct Entry<'a> {
    pub(super) seq: u64,
    pub(super) event: String,
    pub(super) hash: String,
    pub(super) run: Option<String>,
    pub(super) turn: Option<u64>,
    /// The content of the response of a model; null for others.
    pub(super) content: Value,
    /// Everything that belongs to the event, blobs resolved.
    pub(super) data: Map<String, Value>,
    pub(super) ledger: &'a Path,
    /// The values that were moved to blobs, and whether each is there.
    blobs: Vec<Option<Error>>,
}

impl<'a> Entry<'a> {
    /// The entry of a line; none if the line is not JSON.
    pub(super) fn of(line: &Line<'_>, ledger: &'a Path) -> Result<Option<Self>> {
        if json::check(line.bytes()).is_err() {
            return Ok(None);
        }
        let mut entry = Self {
            seq: line.seq(),
            event: String::new(),
            hash: line.hash().to_string(),
            run: None,
            turn: None,
            content: Value::Null,
            data: Map::new(),
            ledger,
            blobs: Vec::new(),
        };
        for (name, value) in line.members() {
            match name {
                b"event" => entry.event = json::unquote(value).unwrap_or_default(),
                b"run" => entry.run = json::unquote(value),
                b"turn" => entry.turn = serde_json::from_slice(value).ok(),
                b"content" if entry.event == "llm.response" => {
                    let resolved = entry.resolved(value)?;
                    entry.content = serde_json::from_slice(resolved.as_deref().unwrap_or(value)).unwrap_or_default();
                }
                b"message" | b"content" => drop(entry.resolved(value)?),
                b"data" => entry.read_data(value)?,
                _ => {}
            }
        }
        Ok(Some(entry))
    }

    fn read_data(&mut self, data: &[u8]) -> Result<()> {
        let whole = self.resolved(data)?.unwrap_or_else(|| data.to_vec());
        for (name, value) in members(inside(&whole).unwrap_or_default()) {
            let name = json::unquote(&[b"\"", name, b"\""].concat()).unwrap_or_default();
            // The bytes of a text that was not UTF-8 are not JSON.
            let resolved = if name == "original" { self.checked(value)? } else { self.resolved(value)? };
            let value = resolved.as_deref().unwrap_or(value);
            self.data.insert(name, serde_json::from_slice(value).unwrap_or_default());
        }
        Ok(())
    }

    /// The value that a blob stands for; none if it is not a blob, or one that cannot be had.
    fn resolved(&mut self, value: &[u8]) -> Result<Option<Vec<u8>>> {
        match blob::resolve(self.ledger, value) {
            Ok(None) => Ok(None),
            Ok(found) => {
                self.blobs.push(None);
                Ok(found)
            }
            Err(e) if matches!(e.code(), Code::NotFound | Code::Integrity | Code::Validation) => {
                self.blobs.push(Some(e));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Takes note of a blob whose bytes are not looked into.
    fn checked(&mut self, value: &[u8]) -> Result<Option<Vec<u8>>> {
        match blob::resolve(self.ledger, value) {
            Err(e) if e.code() == Code::Validation => self.blobs.push(None),
            _ => return self.resolved(value),
        }
        Ok(None)
    }

    /// Judges each blob that the entry names: it must exist, and its bytes must have that hash.
    pub(super) fn blobs(&self, claims: &mut Claims<'_>) -> Result<()> {
        for missing in &self.blobs {
            let verdict = missing.as_ref().map_or(Verdict::Holds, |e| Verdict::Broken(e.message().to_owned()));
            claims.record(self.source(), "blob", verdict)?;
        }
        Ok(())
    }

    pub(super) fn source(&self) -> Source {
        Source { ledger: self.ledger.to_owned(), seq: Some(self.seq) }
    }

    /// A text of the data.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.data.get(name).and_then(Value::as_str)
    }

    /// A number of the data.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.data.get(name).and_then(Value::as_u64)
    }

    /// True if a secret was taken out of it.
    pub(super) fn is_redacted(&self) -> bool {
        self.number("redactions").is_some_and(|count| count > 0)
    }
}

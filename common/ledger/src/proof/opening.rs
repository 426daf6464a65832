//! The first line of a file and the summary of the lines before it, by which the file is proved where closed segments are absent.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::Result;
use serde::Deserialize;

use crate::format::Entry;
use crate::format::line::Line;
use crate::proof::keys::{CHECKPOINT, Signed};
use crate::proof::tree::{Tree, leaf, parse_node};
use crate::read::segments::number_in;
use crate::read::source::lines_of;
use crate::store::blob;

/// The summary of all lines before a seal, which the seal and the line after it have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Summary {
    /// The right edge of their tree in base 64: the roots of its full subtrees, the largest first.
    edge: Vec<String>,
    /// The ledger's name.
    pub origin: String,
    /// The key that line 0 names.
    pub verifier: Option<String>,
    /// The entries that announced other keys.
    #[serde(default)]
    pub keys: Vec<Signed>,
}

impl Summary {
    /// The summary of the lines of this tree.
    pub fn of(tree: &Tree, origin: String, verifier: Option<String>, keys: Vec<Signed>) -> Self {
        Self { edge: tree.edge().iter().map(|node| BASE64.encode(node)).collect(), origin, verifier, keys }
    }

    /// Adds the summary to an entry.
    pub fn add_to(&self, entry: Entry) -> Entry {
        let entry = entry.with("edge", &self.edge).with("origin", &self.origin);
        let entry = self.verifier.iter().fold(entry, |entry, verifier| entry.with("verifier", verifier));
        if self.keys.is_empty() { entry } else { entry.with("keys", &self.keys) }
    }

    /// The tree of so many lines that has this edge, if there can be one.
    pub fn tree(&self, size: u64) -> Option<Tree> {
        Tree::with_edge(size, self.edge.iter().map(|node| parse_node(node)).collect::<Option<_>>()?)
    }
}

/// The first line of a file that goes on from a closed one.
#[derive(Debug, Deserialize)]
pub struct Opening {
    /// The name of the file before it.
    pub file: String,
    /// The length of that file.
    pub len: u64,
    /// The hash of its bytes.
    pub sha256: String,
    /// The summary of the lines before; older versions did not write it.
    #[serde(flatten)]
    pub summary: Option<Summary>,
    /// The tree of all lines before this one, the seal included, if there is a summary.
    #[serde(skip)]
    pub tree: Option<Tree>,
    /// The number of this line.
    #[serde(skip)]
    pub seq: u64,
}

impl Opening {
    /// Parses a line, if it is an opening.
    pub fn of(line: &Line<'_>) -> Option<Self> {
        let data = line.member("data").filter(|_| line.is_event("segment.open"))?;
        let mut opening: Self = serde_json::from_slice(data).ok()?;
        opening.seq = line.seq();
        opening.tree = line.seq().checked_sub(1).and_then(|seal| opening.summary.as_ref()?.tree(seal));
        if let Some(tree) = &mut opening.tree {
            tree.push(leaf(&line.prev().raw()));
        }
        Some(opening)
    }

    /// The opening of a file, if it begins with one.
    pub fn of_file(path: &Path) -> Result<Option<Self>> {
        Ok(lines_of(path)?.next()?.and_then(|raw| Self::of(&raw.stored()?)))
    }

    /// The number of the first line in the file before it.
    pub fn before(&self) -> Option<u64> {
        number_in(&self.file).map(|(_, number)| number)
    }

    /// True if a file is the one before it. The stem may be another: a ledger may be copied under another name as a whole.
    pub fn follows(&self, name: &str) -> bool {
        number_in(name).map(|(_, number)| number) == self.before()
    }
}

/// The events of the ledger's own entries that refer to other lines or to files beside the ledger.
pub(super) const SEAL: &str = "segment.seal";
pub(super) const RECOVERED: &str = "ledger.recovered";

/// True if a line refers to other lines or to files beside the ledger.
pub(super) fn refers(line: &Line<'_>) -> bool {
    [SEAL, CHECKPOINT, RECOVERED].iter().any(|event| line.is_event(event)) || blob::is_referred_to(line.body())
}

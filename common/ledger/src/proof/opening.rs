//! What a file says of the lines before it: with that it is proved where closed segments are absent.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::Result;
use serde::Deserialize;

use crate::format::Entry;
use crate::format::line::Line;
use crate::proof::tree::{Node, Tree, leaf};
use crate::read::segments::number_in;
use crate::read::source::lines_of;
use crate::store::blob;

/// What a seal and the line after it say of all lines before the seal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Past {
    /// The right edge of their tree in base 64: the roots of its full subtrees, the largest first.
    edge: Vec<String>,
    /// The ledger's name.
    pub origin: String,
    /// The key that line 0 names.
    pub verifier: Option<String>,
}

impl Past {
    /// What is to be said of the lines of this tree.
    pub fn of(tree: &Tree, origin: String, verifier: Option<String>) -> Self {
        Self { edge: tree.edge().iter().map(|node| BASE64.encode(node)).collect(), origin, verifier }
    }

    /// Puts it into an entry.
    pub fn tell(&self, entry: Entry) -> Entry {
        let entry = entry.with("edge", &self.edge).with("origin", &self.origin);
        self.verifier.iter().fold(entry, |entry, verifier| entry.with("verifier", verifier))
    }

    /// The tree of so many lines that has this edge, if there can be one.
    pub fn tree(&self, size: u64) -> Option<Tree> {
        let node = |text: &String| -> Option<Node> { BASE64.decode(text).ok()?.try_into().ok() };
        Tree::with_edge(size, self.edge.iter().map(node).collect::<Option<_>>()?)
    }
}

/// The first line of a file that goes on from a closed one.
#[derive(Debug, Deserialize)]
pub struct Opening {
    /// The name of the file before it.
    pub file: String,
    /// How long that is.
    pub len: u64,
    /// The hash of its bytes.
    pub sha256: String,
    /// What is said of the lines before; older versions did not say it.
    #[serde(flatten)]
    pub past: Option<Past>,
    /// The tree of all lines before this one, the seal included, as far as that is said.
    #[serde(skip)]
    pub tree: Option<Tree>,
    /// The number of this line.
    #[serde(skip)]
    pub seq: u64,
}

impl Opening {
    /// What a line says, if it is one.
    pub fn of(line: &Line<'_>) -> Option<Self> {
        let data = line.member("data").filter(|_| line.is_event("segment.open"))?;
        let mut opening: Self = serde_json::from_slice(data).ok()?;
        opening.seq = line.seq();
        opening.tree = line.seq().checked_sub(1).and_then(|seal| opening.past.as_ref()?.tree(seal));
        if let Some(tree) = &mut opening.tree {
            tree.push(leaf(&line.prev().raw()));
        }
        Some(opening)
    }

    /// What a file begins with.
    pub fn of_file(path: &Path) -> Result<Option<Self>> {
        Ok(lines_of(path)?.next()?.and_then(|raw| Self::of(&raw.stored()?)))
    }

    /// The number of the first line in the file before it.
    pub fn before(&self) -> Option<u64> {
        number_in(&self.file).map(|(_, number)| number)
    }

    /// Whether a file is the one before it. The stem may be another: a ledger may be copied under another name as a whole.
    pub fn follows(&self, name: &str) -> bool {
        number_in(name).map(|(_, number)| number) == self.before()
    }
}

/// The events of a ledger's own entries that do so.
pub(super) const SEAL: &str = "segment.seal";
pub(super) const CHECKPOINT: &str = "ledger.checkpoint";
pub(super) const RECOVERED: &str = "ledger.recovered";

/// Whether there is more to a line than its own bytes.
pub(super) fn refers(line: &Line<'_>) -> bool {
    [SEAL, CHECKPOINT, RECOVERED].iter().any(|event| line.is_event(event)) || blob::is_referred_to(line.body())
}

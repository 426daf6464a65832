//! The nodes of a ledger's tree in temporary files, so that a proof for each of many lines needs no memory and no second reading.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;

use cp_common::{Error, Result};
use cp_ledger::proof::tree::{Node, Tree};
use cp_ledger::read::read_at;

/// How long a node is.
const NODE: u64 = 32;

/// The nodes of the full subtrees, a file for each height.
#[derive(Default)]
pub(super) struct Levels {
    files: Vec<BufWriter<File>>,
    /// The left node of each height that waits for its right one.
    waiting: Vec<Option<Node>>,
}

fn failed(e: std::io::Error) -> Error {
    Error::io("cannot keep the tree in a temporary file", e)
}

fn parent(left: Node, right: Node) -> Node {
    let mut tree = Tree::default();
    tree.push(left);
    tree.push(right);
    tree.root()
}

impl Levels {
    /// Adds the next leaf.
    pub(super) fn push(&mut self, leaf: Node) -> Result<()> {
        let mut node = leaf;
        for level in 0.. {
            if level == self.files.len() {
                self.files.push(BufWriter::new(tempfile::tempfile().map_err(failed)?));
                self.waiting.push(None);
            }
            self.files[level].write_all(&node).map_err(failed)?;
            let Some(left) = self.waiting[level].take() else {
                self.waiting[level] = Some(node);
                break;
            };
            node = parent(left, node);
        }
        Ok(())
    }

    /// The hashes of these ranges of leaves, each as RFC 6962 divides a tree.
    pub(super) fn hashes(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Node>> {
        for file in &mut self.files {
            file.flush().map_err(failed)?;
        }
        ranges.iter().map(|range| self.root(range.start, range.end)).collect()
    }

    fn root(&self, start: u64, end: u64) -> Result<Node> {
        let length = end - start;
        if length.is_power_of_two() && start.is_multiple_of(length) {
            let level = length.ilog2();
            let mut node = [0; 32];
            let file = self.files.get(level as usize).map(BufWriter::get_ref);
            let read = file.map_or(Ok(0), |file| read_at(file, &mut node, (start >> level) * NODE)).map_err(failed)?;
            return if read == node.len() { Ok(node) } else { Err(failed(std::io::ErrorKind::UnexpectedEof.into())) };
        }
        let middle = start + (1 << (length - 1).ilog2());
        Ok(parent(self.root(start, middle)?, self.root(middle, end)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cp_ledger::proof::tree::{Ranges, consistency, inclusion, leaf};

    #[test]
    fn proofs_are_those_that_are_taken_in_memory() {
        for size in 1..40_u64 {
            let mut levels = Levels::default();
            (0..size).for_each(|n| levels.push(leaf(&n.to_be_bytes())).unwrap());
            for at in 0..size {
                for ranges in [inclusion(at, size), consistency(at, size)] {
                    let mut expected = Ranges::new(ranges.clone());
                    (0..size).for_each(|n| expected.push(leaf(&n.to_be_bytes())));
                    assert_eq!(levels.hashes(&ranges).unwrap(), expected.hashes(), "{at} of {size}");
                }
            }
        }
    }
}

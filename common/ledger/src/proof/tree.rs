//! The Merkle tree of RFC 6962 over the lines of a ledger, in memory that grows with its height only.

use std::ops::Range;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use sha2::{Digest, Sha256};

/// The hash of a leaf, a node or a whole tree.
pub type Node = [u8; 32];

/// The hash of a leaf: its data is the 32 bytes of a line's hash.
pub fn leaf(data: &[u8]) -> Node {
    Sha256::new().chain_update([0]).chain_update(data).finalize().into()
}

/// Parses a node in base 64.
pub fn parse_node(text: &str) -> Option<Node> {
    BASE64.decode(text).ok()?.try_into().ok()
}

/// The hash of the node above two nodes.
pub fn parent(left: &Node, right: &Node) -> Node {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// A tree that grows leaf by leaf and forgets what it does not need.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    size: u64,
    /// The roots of the full subtrees, largest first; one for each bit that is set in `size`.
    full: Vec<Node>,
}

impl Tree {
    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf.
    pub fn push(&mut self, leaf: Node) {
        let mut node = leaf;
        let mut size = self.size;
        while size & 1 == 1 {
            let Some(left) = self.full.pop() else { break };
            node = parent(&left, &node);
            size >>= 1;
        }
        self.full.push(node);
        self.size += 1;
    }

    /// The root; that of no leaves is the hash of nothing.
    pub fn root(&self) -> Node {
        let mut nodes = self.full.iter().rev();
        let Some(last) = nodes.next() else { return Sha256::digest([]).into() };
        nodes.fold(*last, |right, left| parent(left, &right))
    }
}

/// The largest power of two below `n`, which must be above 1.
fn split(n: u64) -> u64 {
    1 << (n - 1).ilog2()
}

/// The ranges of leaves below the hashes of the proof that leaf `index` is in a tree of `size`, from the leaf up.
pub fn inclusion(index: u64, size: u64) -> Vec<Range<u64>> {
    let (mut start, mut end) = (0, size);
    let mut ranges = Vec::new();
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            ranges.push(middle..end);
            end = middle;
        } else {
            ranges.push(start..middle);
            start = middle;
        }
    }
    ranges.reverse();
    ranges
}

/// Hashes of ranges of leaves that do not overlap, taken while the leaves pass by in order.
pub struct Ranges {
    parts: Vec<(Range<u64>, Tree)>,
    next: u64,
}

impl Ranges {
    /// Gathers the hash of each of these ranges of leaves.
    pub fn new(ranges: Vec<Range<u64>>) -> Self {
        Self { parts: ranges.into_iter().map(|range| (range, Tree::default())).collect(), next: 0 }
    }

    /// Adds the next leaf.
    pub fn push(&mut self, leaf: Node) {
        if let Some((_, tree)) = self.parts.iter_mut().find(|(range, _)| range.contains(&self.next)) {
            tree.push(leaf);
        }
        self.next += 1;
    }

    /// The hash of each range, in the order they were given.
    pub fn hashes(&self) -> Vec<Node> {
        self.parts.iter().map(|(_, tree)| tree.root()).collect()
    }
}

/// The root that follows from a leaf and its proof; `None` if the proof does not fit the numbers.
pub fn root_of_inclusion(leaf: Node, index: u64, size: u64, proof: &[Node]) -> Option<Node> {
    let ranges = if index < size { inclusion(index, size) } else { return None };
    if ranges.len() != proof.len() {
        return None;
    }
    // A sibling whose leaves come before ours is on the left.
    let join = |node, (range, sibling): (&Range<u64>, &Node)| {
        if range.start > index { parent(&node, sibling) } else { parent(sibling, &node) }
    };
    Some(ranges.iter().zip(proof).fold(leaf, join))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use proptest::prelude::*;

    fn hex(node: &Node) -> String {
        crate::format::line::Hash::from_raw(node).hex().to_owned()
    }

    #[test]
    fn roots_are_the_known_ones() {
        let leaves: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let mut tree = Tree::default();
        assert_eq!(hex(&tree.root()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        for data in leaves {
            tree.push(leaf(data));
        }
        assert_eq!(hex(&tree.root()), "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
    }

    fn data(n: u64) -> [u8; 32] {
        Sha256::digest(n.to_be_bytes()).into()
    }

    fn hashes(ranges: Vec<Range<u64>>, size: u64) -> Vec<Node> {
        let mut ranges = Ranges::new(ranges);
        (0..size).for_each(|n| ranges.push(leaf(&data(n))));
        ranges.hashes()
    }

    fn ours(size: u64) -> Tree {
        let mut tree = Tree::default();
        (0..size).for_each(|n| tree.push(leaf(&data(n))));
        tree
    }

    fn theirs(size: u64) -> MemoryBackedTree<Sha256, [u8; 32]> {
        let mut tree = MemoryBackedTree::new();
        (0..size).for_each(|n| tree.push(data(n)));
        tree
    }

    #[test]
    fn proofs_are_those_of_another_implementation() {
        for size in 1..=40 {
            let (tree, oracle) = (ours(size), theirs(size));
            assert_eq!(tree.root()[..], oracle.root().as_bytes()[..]);
            for index in 0..size {
                let proof = hashes(inclusion(index, size), size);
                let there = oracle.prove_inclusion(usize::try_from(index).unwrap());
                assert_eq!(proof.concat(), there.as_bytes());
                assert_eq!(root_of_inclusion(leaf(&data(index)), index, size, &proof), Some(tree.root()));
            }
        }
    }

    proptest! {
        #[test]
        fn a_changed_proof_proves_nothing(size in 2_u64..200, index in 0_u64..200, at in 0_usize..8, bit in 0_usize..256) {
            let index = index % size;
            let mut proof = hashes(inclusion(index, size), size);
            let at = at % proof.len();
            proof[at][bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(root_of_inclusion(leaf(&data(index)), index, size, &proof), Some(ours(size).root()));
            proof.pop();
            prop_assert_eq!(root_of_inclusion(leaf(&data(index)), index, size, &proof), None);
        }
    }
}

//! A bound: the checkpoints of many ledgers as the leaves of one signed tree.
//!
//! The text is a first line, for each ledger the body of its checkpoint with the file it was found in, a blank line, and the signed note. A
//! bound tree does not grow: the next one is another tree, with another name.

use std::path::Path;

use cp_common::{Code, Error, Result};

use super::note::{Checkpoint, Note, Signer, Verifier, is_key_name};
use super::tree::{Node, Ranges, Tree, inclusion, leaf};
use crate::format::line::Hash;

const HEADER: &str = "cp-ledger/bound@v1\n";
/// The lines of a member's text.
const LINES: usize = 4;

/// The member of a bound for one ledger: a checkpoint whose only extension line names the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Origin, size and root.
    pub checkpoint: Checkpoint,
    /// The path of the ledger below the operand.
    pub file: String,
}

impl Member {
    /// Refuses an origin that cannot be written to a line.
    pub fn new(checkpoint: Checkpoint, file: &Path) -> Result<Self> {
        if !is_key_name(&checkpoint.origin) {
            let message = format!("the origin {:?} has spaces, control characters or a plus sign", checkpoint.origin);
            return Err(Error::validation(message).in_file(file).hint("leave that ledger out"));
        }
        let file = file.to_string_lossy().replace(char::is_control, "\u{fffd}");
        Ok(Self { checkpoint, file })
    }

    /// The text that is the data of the leaf.
    pub fn to_text(&self) -> String {
        format!("{}file {}\n", self.checkpoint.to_text(), self.file)
    }

    /// Reads what [`Member::to_text`] wrote, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let checkpoint = Checkpoint::parse(text)?;
        let file = text.split('\n').nth(LINES - 1)?.strip_prefix("file ")?.to_owned();
        let member = Self { checkpoint, file };
        (is_key_name(&member.checkpoint.origin) && member.to_text() == text).then_some(member)
    }

    /// The leaf. Its data is longer than the 32 bytes of a line's hash, so it is never taken for a line of a ledger.
    pub fn leaf(&self) -> Node {
        leaf(self.to_text().as_bytes())
    }
}

/// The checkpoints of many ledgers, each origin once and in order, under one signed root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    note: Note,
    checkpoint: Checkpoint,
    members: Vec<Member>,
}

impl Bound {
    /// Puts the ledgers in order. Two of one origin are refused.
    pub fn order(members: &mut [Member]) -> Result<()> {
        members.sort_by(|a, b| a.checkpoint.origin.cmp(&b.checkpoint.origin));
        let Some([one, other]) = members.array_windows().find(|[one, other]| is_twice(one, other)) else {
            return Ok(());
        };
        let message = format!("{} and {} have the same origin {}", one.file, other.file, one.checkpoint.origin);
        Err(Error::new(Code::Conflict, message)
            .with("origin", one.checkpoint.origin.as_str())
            .with("files", serde_json::json!([one.file, other.file]))
            .hint("one is a copy of the other: leave the copy out"))
    }

    /// The checkpoint to sign over ledgers that are in order.
    pub fn checkpoint_of(members: &[Member]) -> Checkpoint {
        let mut tree = Tree::default();
        for member in members {
            tree.push(member.leaf());
        }
        let root = tree.root();
        // Named by its root, so that a key never signs two trees of one name that do not continue each other.
        let origin = format!("cp-bound/{}", &Hash::from_raw(&root).hex()[..32]);
        Checkpoint { origin, size: tree.size(), root }
    }

    /// Signs ledgers that are in order.
    pub fn sign(members: Vec<Member>, signer: &Signer) -> Self {
        let checkpoint = Self::checkpoint_of(&members);
        Self { note: signer.sign(&checkpoint.to_text()), checkpoint, members }
    }

    /// The whole text.
    pub fn to_text(&self) -> String {
        let members: String = self.members.iter().map(Member::to_text).collect();
        format!("{HEADER}{members}\n{}", self.note)
    }

    /// Reads what [`Bound::to_text`] wrote. `None` if it is not that, or if the ledgers are not those that the root stands for. Says
    /// nothing of the signature.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, note) = text.strip_prefix(HEADER)?.split_once("\n\n")?;
        let lines: Vec<&str> = head.split('\n').collect();
        let members: Option<Vec<Member>> =
            lines.chunks(LINES).map(|member| Member::parse(&(member.join("\n") + "\n"))).collect();
        let (members, note) = (members?, Note::parse(note)?);
        let checkpoint = Checkpoint::parse(&note.text)?;
        let is_ordered = members.is_sorted_by(|a, b| a.checkpoint.origin < b.checkpoint.origin);
        let is_signed = Self::checkpoint_of(&members).to_text() == note.text;
        (is_ordered && is_signed).then_some(Self { note, checkpoint, members })
    }

    /// Reads the file of a bound. `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            // Its creator holds the lock, or was killed.
            Ok(text) if text.is_empty() => return Ok(None),
            text => text.map_err(|e| Error::io("cannot read the bound", e).in_file(path))?,
        };
        let damaged = || {
            let error = Error::new(Code::Integrity, "not a bound, or changed since it was signed");
            error.in_file(path).hint("cp-log bind makes one")
        };
        Self::parse(&text).map(Some).ok_or_else(damaged)
    }

    /// [`Bound::read`] for a file that must be there.
    pub fn load(path: &Path) -> Result<Self> {
        let missing = || Error::not_found("no such bound").in_file(path).hint("cp-log bind makes one");
        Self::read(path).and_then(|bound| bound.ok_or_else(missing)).map_err(Error::fatal)
    }

    /// Fails unless a key signed it.
    pub fn demand(&self, key: &Verifier, path: &Path) -> Result<()> {
        let message = match self.note.is_signed_by(key) {
            Some(true) => return Ok(()),
            Some(false) => format!("the signature of {} is wrong", key.name()),
            None => format!("the bound is not signed by {}", key.name()),
        };
        Err(Error::new(Code::Integrity, message).in_file(path).fatal())
    }

    /// The signed note.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// The signed checkpoint: the name, the number of ledgers, and the root.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The ledgers, by origin.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The index and the member of a ledger.
    pub fn find(&self, origin: &str) -> Option<(u64, &Member)> {
        let at = self.members.binary_search_by(|member| member.checkpoint.origin.as_str().cmp(origin)).ok()?;
        Some((u64::try_from(at).ok()?, &self.members[at]))
    }

    /// The hashes that lead from a ledger's leaf to the root.
    pub fn proof(&self, index: u64) -> Vec<Node> {
        let mut ranges = Ranges::new(inclusion(index, self.checkpoint.size));
        for member in &self.members {
            ranges.push(member.leaf());
        }
        ranges.hashes()
    }
}

fn is_twice(one: &Member, other: &Member) -> bool {
    one.checkpoint.origin == other.checkpoint.origin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tree::root_of_inclusion;
    use proptest::prelude::*;

    fn members(count: u8) -> Vec<Member> {
        let checkpoint = |n| Checkpoint { origin: format!("o/{n}"), size: u64::from(n) + 1, root: [n; 32] };
        let mut members: Vec<Member> =
            (0..count).map(|n| Member::new(checkpoint(n), Path::new(&format!("{n}.jsonl"))).unwrap()).collect();
        Bound::order(&mut members).unwrap();
        members
    }

    #[test]
    fn a_bound_reads_back_and_proves_each_of_its_ledgers() {
        let bound = Bound::sign(members(21), &Signer::new("k", &[1; 32]));
        assert_eq!(Bound::parse(&bound.to_text()).as_ref(), Some(&bound));
        for member in bound.members() {
            let (index, found) = bound.find(&member.checkpoint.origin).unwrap();
            assert_eq!(found, member);
            let root = root_of_inclusion(member.leaf(), index, 21, &bound.proof(index));
            assert_eq!(root, Some(bound.checkpoint().root));
        }
        assert_eq!(bound.find("o/21"), None);
    }

    #[test]
    fn two_ledgers_of_one_origin_are_named() {
        let mut twice = members(3);
        twice.push(Member { file: "copy.jsonl".into(), ..twice[1].clone() });
        let error = Bound::order(&mut twice).unwrap_err();
        assert_eq!(error.code(), Code::Conflict);
        assert_eq!(error.message(), "1.jsonl and copy.jsonl have the same origin o/1");
        // Nor does a signed one pass.
        assert_eq!(Bound::parse(&Bound::sign(twice, &Signer::new("k", &[1; 32])).to_text()), None);
    }

    #[test]
    fn names_that_would_break_the_lines_are_refused_or_replaced() {
        let checkpoint = |origin: &str| Checkpoint { origin: origin.into(), size: 1, root: [0; 32] };
        for origin in ["a\n1", "a b", ""] {
            assert!(Member::new(checkpoint(origin), Path::new("f")).is_err(), "{origin:?}");
        }
        let member = Member::new(checkpoint("o"), Path::new("a\n\nb\u{85}.jsonl")).unwrap();
        assert_eq!(Member::parse(&member.to_text()), Some(member));
    }

    proptest! {
        #[test]
        fn a_changed_byte_of_a_bound_is_never_read_as_another(at in 0_usize..2000, bit in 0_u8..8, count in 1_u8..12) {
            let signer = Signer::new("k", &[1; 32]);
            let text = Bound::sign(members(count), &signer).to_text();
            let mut changed = text.clone().into_bytes();
            let at = at % changed.len();
            changed[at] ^= 1 << bit;
            let read = String::from_utf8(changed).ok().and_then(|text| Bound::parse(&text));
            let passes = read.is_some_and(|bound| bound.demand(&signer.verifier(), Path::new("b")).is_ok());
            prop_assert!(!passes, "byte {at} of {text}");
        }
    }
}

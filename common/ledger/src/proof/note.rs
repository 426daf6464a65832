//! Signed notes (c2sp.org/signed-note), checkpoints (c2sp.org/tlog-checkpoint), the keys for them, and the checkpoint
//! beside a ledger: `X.checkpoint` beside `X.jsonl`.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::given::unreadable;
use cp_common::keys::hex;
use cp_common::{Code, Error, Result, json};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::format::line::Line;
use crate::proof::tree::{Node, parse_node};

const ED25519: u8 = 1;

/// A key that signs notes.
pub struct Signer {
    name: String,
    key: SigningKey,
}

/// A key that proves notes.
#[derive(Clone, Debug)]
pub struct Verifier {
    name: String,
    key: VerifyingKey,
}

/// True if a name may be a key's.
pub fn is_key_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+')
}

impl Signer {
    /// A new key, from 32 random bytes.
    pub fn new(name: &str, seed: &[u8; 32]) -> Self {
        Self { name: name.to_owned(), key: SigningKey::from_bytes(seed) }
    }

    /// The key's file: one line.
    pub fn to_text(&self) -> String {
        let key = [&[ED25519], &self.key.to_bytes()[..]].concat();
        format!("PRIVATE+KEY+{}+{}+{}\n", self.name, hex(&self.verifier().id()), BASE64.encode(key))
    }

    /// The key in the text of a private key file: what [`Signer::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        let rest = text.trim_end().strip_prefix("PRIVATE+KEY+")?;
        let (name, id, key) = parts(rest)?;
        let seed: [u8; 32] = key.strip_prefix(&[ED25519])?.try_into().ok()?;
        let signer = Self::new(name, &seed);
        (hex(&signer.verifier().id()) == id).then_some(signer)
    }

    /// Reads a private key file.
    pub fn load(path: &Path) -> Result<Self> {
        Self::from_text(&read(path)?).ok_or_else(|| {
            Error::new(Code::Config, "not a signing key").in_file(path).hint("make one with cp-log keygen").fatal()
        })
    }

    /// The public key that goes with it.
    pub fn verifier(&self) -> Verifier {
        Verifier { name: self.name.clone(), key: self.key.verifying_key() }
    }

    /// The note with this text, which must end with a line feed.
    pub fn sign(&self, text: &str) -> Note {
        let signature = self.key.sign(text.as_bytes()).to_bytes();
        let signature = BASE64.encode([&self.verifier().id()[..], &signature].concat());
        Note { text: text.to_owned(), signatures: vec![format!("— {} {signature}", self.name)] }
    }
}

fn parts(text: &str) -> Option<(&str, &str, Vec<u8>)> {
    let (name, rest) = text.split_once('+')?;
    // Base 64 may hold a plus sign.
    let (id, key) = rest.split_once('+')?;
    is_key_name(name).then_some((name, id, BASE64.decode(key).ok()?))
}

impl Verifier {
    /// The key's public file, without a line feed.
    pub fn to_text(&self) -> String {
        let key = [&[ED25519], &self.key.to_bytes()[..]].concat();
        format!("{}+{}+{}", self.name, hex(&self.id()), BASE64.encode(key))
    }

    /// The key in the text of a public key file: what [`Verifier::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        let (name, id, key) = parts(text.trim_end())?;
        let key = VerifyingKey::from_bytes(key.strip_prefix(&[ED25519])?.try_into().ok()?).ok()?;
        let verifier = Self { name: name.to_owned(), key };
        (hex(&verifier.id()) == id).then_some(verifier)
    }

    /// Reads a public key file.
    pub fn load(path: &Path) -> Result<Self> {
        Self::from_text(&read(path)?).ok_or_else(|| {
            let error = Error::new(Code::Config, "not a verifier key").in_file(path).fatal();
            error.hint("give the public file that cp-log keygen made, or one line name+id+key")
        })
    }

    /// The name that signatures carry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first four bytes of the hash of name and key, as C2SP signed-note has it.
    pub fn id(&self) -> [u8; 4] {
        let key = self.key.to_bytes();
        let digest = Sha256::new().chain_update(&self.name).chain_update([b'\n', ED25519]).chain_update(key).finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }

    /// True if a line is a good signature of the text by this key, false if it is a wrong one; `None` if it is by another.
    fn verifies(&self, text: &str, line: &str) -> Option<bool> {
        let (name, bytes) = signature_in(line)?;
        let (id, signature) = bytes.split_at_checked(4)?;
        if name != self.name || id != self.id() {
            return None;
        }
        let signature = Signature::from_slice(signature);
        Some(signature.is_ok_and(|signature| self.key.verify_strict(text.as_bytes(), &signature).is_ok()))
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| unreadable(e, "key", path).fatal())
}

/// The name of the key in a signature line of a note, and its id with the signature.
fn signature_in(line: &str) -> Option<(&str, Vec<u8>)> {
    let (name, signature) = line.strip_prefix("— ")?.split_once(' ')?;
    let bytes = BASE64.decode(signature).ok()?;
    (is_key_name(name) && bytes.len() >= 4).then_some((name, bytes))
}

/// A text and the signatures below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text, its last line feed included.
    pub text: String,
    /// The signature lines as they came.
    signatures: Vec<String>,
}

impl Note {
    /// Reads a signed note: the text, a blank line, the signatures. `None` if it is not one.
    pub fn parse(note: &str) -> Option<Self> {
        if note.len() > 1 << 20 || note.contains(|c: char| c < ' ' && c != '\n') {
            return None;
        }
        let (text, signatures) = note.rsplit_once("\n\n")?;
        let lines: Vec<String> = signatures.strip_suffix('\n')?.split('\n').map(str::to_owned).collect();
        lines
            .iter()
            .all(|line| signature_in(line).is_some())
            .then(|| Self { text: format!("{text}\n"), signatures: lines })
    }

    /// The note with the signatures of another one with the same text.
    #[must_use]
    pub fn with_signatures_of(mut self, other: Self) -> Self {
        self.signatures.extend(other.signatures);
        self
    }

    /// True if a key signed it. `None` if no signature is that key's; false if one is and is wrong.
    pub fn is_signed_by(&self, verifier: &Verifier) -> Option<bool> {
        let lines = self.signatures.iter().filter_map(|line| verifier.verifies(&self.text, line));
        lines.reduce(|all, one| all && one)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.text, self.signatures.join("\n"))
    }
}

/// A checkpoint: the size of a tree, and its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The origin of the ledger.
    pub origin: String,
    /// How many lines it covers.
    pub size: u64,
    /// The root of the tree of those lines.
    pub root: Node,
}

impl Checkpoint {
    /// Origin, size and root, a line each, as C2SP tlog-checkpoint has it.
    pub fn to_text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, BASE64.encode(self.root))
    }

    /// Reads the text of a note. Lines after the third are extensions, which say nothing to us.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let number: u64 = size.parse().ok().filter(|number: &u64| number.to_string() == size)?;
        let root = parse_node(root)?;
        (!origin.is_empty()).then(|| Self { origin: origin.to_owned(), size: number, root })
    }
}

/// The data of an entry about a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Signed {
    /// How many lines the checkpoint covers.
    pub size: u64,
    /// The root of their tree, in base 64.
    pub root: String,
    /// The public key of the signer.
    pub verifier: String,
}

/// The key that line 0 says signs the checkpoints.
pub fn signer_in(first: &Line<'_>) -> Option<Verifier> {
    Verifier::from_text(&first.data_member("verifier").and_then(json::unquote)?)
}

/// Where a ledger's checkpoint is: `X.checkpoint` beside `X.jsonl`.
pub fn checkpoint_path(ledger: &Path) -> PathBuf {
    let name = ledger.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ledger.with_file_name(format!("{}.checkpoint", name.strip_suffix(".jsonl").unwrap_or(&name)))
}

/// Reads a checkpoint. `None` if there is no such file.
pub fn read_checkpoint(path: &Path) -> Result<Option<(Note, Checkpoint)>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| Error::io("cannot read the checkpoint", e).in_file(path))?,
    };
    // The answer of `cp-log checkpoint` has the note.
    let answer: Option<Value> = serde_json::from_str(&text).ok();
    let text = answer.as_ref().and_then(|answer| answer["data"]["note"].as_str()).unwrap_or(&text);
    let read = Note::parse(text).and_then(|note| Checkpoint::parse(&note.text).map(|checkpoint| (note, checkpoint)));
    read.map(Some).ok_or_else(|| Error::new(Code::Integrity, "not a checkpoint").in_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_a_changed_one_does_not() {
        let signer = Signer::new("example.com/log", &[7; 32]);
        let text = signer.to_text();
        assert_eq!(Signer::from_text(&text).unwrap().to_text(), text);
        let public = signer.verifier().to_text();
        assert_eq!(Verifier::from_text(&public).unwrap().to_text(), public);
        assert!(Verifier::from_text(&public.replacen("example", "sample", 1)).is_none());
        assert!(Signer::from_text(&public).is_none());
    }

    #[test]
    fn the_key_of_another_implementation_is_read() {
        // The pair in the documentation of golang.org/x/mod/sumdb/note.
        let signer =
            Signer::from_text("PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz");
        let public = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        assert_eq!(signer.unwrap().verifier().to_text(), public);
    }

    #[test]
    fn a_note_of_another_implementation_is_proved() {
        let text =
            "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
        let signature = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=";
        let note = Note::parse(&format!("{text}\n{signature}\n")).unwrap();
        let key = Verifier::from_text("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW").unwrap();
        assert_eq!(note.is_signed_by(&key), Some(true));
        assert_eq!(note.to_string(), format!("{text}\n{signature}\n"));
        let mut changed = note.clone();
        changed.text = changed.text.replace("answer", "cause");
        assert_eq!(changed.is_signed_by(&key), Some(false));
        assert_eq!(note.is_signed_by(&Signer::new("other", &[1; 32]).verifier()), None);
    }

    #[test]
    fn the_example_of_the_standard_has_the_form_of_a_note() {
        let text = "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n";
        let signature = "— quasimodo.example/salvatore NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=";
        let note = Note::parse(&format!("{text}\n{signature}\n")).unwrap();
        // Blank lines are part of the text; only the last one ends it.
        assert_eq!(note.text, text);
    }

    #[test]
    fn a_signed_checkpoint_reads_back() {
        let signer = Signer::new("k", &[1; 32]);
        let checkpoint = Checkpoint { origin: "cp-ledger/x".into(), size: 7, root: [9; 32] };
        let note = Note::parse(&signer.sign(&checkpoint.to_text()).to_string()).unwrap();
        assert_eq!(note.is_signed_by(&signer.verifier()), Some(true));
        assert_eq!(Checkpoint::parse(&note.text), Some(checkpoint));
        for bad in ["", "o\n07\nAA==\n", "o\n7\nAA==\n", "\n7\n"] {
            assert_eq!(Checkpoint::parse(bad), None, "{bad}");
        }
    }
}

//! The keys that sign the checkpoints of a ledger. The first is the one that line 0 names, or that signed first; each other key was
//! announced by an entry with a checkpoint that the key before it signed.

use serde::{Deserialize, Serialize};

use crate::format::line::Line;
use crate::proof::note::{Checkpoint, Note, Verifier};
use crate::proof::tree::parse_node;

/// The event of an entry about a checkpoint.
pub(super) const CHECKPOINT: &str = "ledger.checkpoint";

/// The data of an entry about a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// How many lines the checkpoint covers.
    pub size: u64,
    /// The root of their tree, in base 64.
    pub root: String,
    /// The public key of the signer; older versions did not write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier: Option<String>,
    /// The public key that signs from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The signature of the announcement, as a line of a signed note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl Signed {
    /// The data of a line; `None` if the line is not an entry about a checkpoint.
    pub fn of(line: &Line<'_>) -> Option<Self> {
        line.is_event(CHECKPOINT).then(|| serde_json::from_slice(line.member("data")?).ok())?
    }
}

/// The text that announces a key: that of a checkpoint, and a line with the key.
pub fn announcement(checkpoint: &Checkpoint, next: &Verifier) -> String {
    format!("{}next {}\n", checkpoint.to_text(), next.to_text())
}

/// The keys of one ledger, in the order in which they sign.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Each key with the size behind which it signs.
    signers: Vec<(u64, Verifier)>,
    /// True if another key may follow only by an announcement.
    is_fixed: bool,
    /// The entries that announced a key.
    pub announced: Vec<Signed>,
}

impl Keys {
    /// The keys of a ledger whose line 0 names this one, if it names one.
    pub fn of(first: Option<&str>) -> Self {
        let signers: Vec<_> = first.and_then(Verifier::from_text).map(|key| (0, key)).into_iter().collect();
        Self { is_fixed: !signers.is_empty(), signers, announced: Vec::new() }
    }

    /// True if no key is known.
    pub fn is_empty(&self) -> bool {
        self.signers.is_empty()
    }

    /// The key that signs the next checkpoint; `None` if any key may sign.
    pub fn current(&self) -> Option<&Verifier> {
        self.signers.last().map(|(_, key)| key).filter(|_| self.is_fixed)
    }

    /// The key of a checkpoint of this size, and true if it is `trusted` or was announced after it.
    pub fn signer_of(&self, size: u64, trusted: &Verifier) -> Option<&Verifier> {
        let signer = self.signers.iter().rposition(|(from, _)| *from < size || *from == 0)?;
        let is_known = self.signers[..=signer].iter().any(|(_, key)| key.to_text() == trusted.to_text());
        is_known.then_some(&self.signers[signer].1)
    }

    /// The key of a checkpoint of this size, whose first key the ledger itself names.
    pub fn own_signer_of(&self, size: u64) -> Option<&Verifier> {
        self.signers.first().filter(|_| self.is_fixed).and_then(|(_, first)| self.signer_of(size, first))
    }

    /// Judges an entry about a checkpoint, and takes the key that it announces. `origin` is the ledger's name.
    pub fn checkpoint(&mut self, origin: &str, signed: &Signed) -> Result<(), String> {
        if let (Some(current), Some(key)) = (self.current().map(Verifier::to_text), &signed.verifier)
            && current != *key
        {
            let by = if self.announced.is_empty() { "line 0 names" } else { "the newest announcement names" };
            return Err(format!("signed by {key}, but {by} {current}"));
        }
        if !self.is_fixed {
            self.signers =
                signed.verifier.as_deref().and_then(Verifier::from_text).map(|key| (0, key)).into_iter().collect();
        }
        match (&signed.next, &signed.signature) {
            (None, None) => Ok(()),
            (Some(next), Some(signature)) => self.announce(origin, signed, next, signature),
            _ => Err("the announcement of a key has no key, or no signature".to_owned()),
        }
    }

    /// Takes the key that an entry announces.
    fn announce(&mut self, origin: &str, signed: &Signed, next: &str, signature: &str) -> Result<(), String> {
        let ((Some(next), Some(root)), Some((last, key))) =
            ((Verifier::from_text(next), parse_node(&signed.root)), self.signers.last())
        else {
            return Err("the announcement of a key cannot be parsed".to_owned());
        };
        if signed.size <= *last {
            return Err("the announcement of a key is older than the one before it".to_owned());
        }
        let text = announcement(&Checkpoint { origin: origin.to_owned(), size: signed.size, root }, &next);
        let note = Note::parse(&format!("{text}\n{signature}\n"));
        if note.and_then(|note| note.is_signed_by(key)) != Some(true) {
            return Err(format!("the announcement of a key is not signed by {}", key.to_text()));
        }
        self.is_fixed = true;
        self.signers.push((signed.size, next));
        self.announced.push(signed.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::note::Signer;
    use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};

    fn signer(seed: u8) -> Signer {
        Signer::new(&format!("k{seed}"), &[seed; 32])
    }

    /// An entry by one key at this size, which announces another.
    fn entry(origin: &str, size: u64, key: &Signer, next: Option<&Signer>) -> Signed {
        let checkpoint = Checkpoint { origin: origin.to_owned(), size, root: [7; 32] };
        let next = next.map(Signer::verifier);
        let signature =
            |next: &Verifier| key.sign(&announcement(&checkpoint, next)).to_string().lines().last()?.to_owned().into();
        Signed {
            size,
            root: BASE64.encode(checkpoint.root),
            verifier: Some(key.verifier().to_text()),
            signature: next.as_ref().and_then(signature),
            next: next.map(|next| next.to_text()),
        }
    }

    #[test]
    fn announced_key_signs_after_its_announcement_and_forged_announcement_fails() {
        let [a, b, c, evil] = [1, 2, 3, 9].map(signer);
        for named in [true, false] {
            let mut keys = Keys::of(named.then(|| a.verifier().to_text()).as_deref());
            keys.checkpoint("o", &entry("o", 3, &a, None)).unwrap();
            let announced = entry("o", 5, &a, Some(&b));
            let forged = [
                entry("o", 5, &evil, Some(&b)),
                Signed { verifier: announced.verifier.clone(), ..entry("o", 5, &evil, Some(&b)) },
                entry("other", 5, &a, Some(&b)),
                Signed { next: Some(evil.verifier().to_text()), ..announced.clone() },
                Signed { size: 6, ..announced.clone() },
                Signed { signature: None, ..announced.clone() },
            ];
            for (at, forged) in forged.iter().enumerate().skip(usize::from(!named)) {
                assert!(keys.clone().checkpoint("o", forged).is_err(), "{at}");
            }
            keys.checkpoint("o", &announced).unwrap();
            for late in [entry("o", 6, &a, None), announced.clone(), entry("o", 5, &b, Some(&c))] {
                assert!(keys.clone().checkpoint("o", &late).is_err(), "{late:?}");
            }
            keys.checkpoint("o", &entry("o", 8, &b, Some(&c))).unwrap();
            let of = |size: u64, trusted: &Signer| {
                keys.signer_of(size, &trusted.verifier()).map(|key| key.name().to_owned())
            };
            let name = |name: &str| Some(name.to_owned());
            assert_eq!(
                [of(4, &a), of(5, &a), of(6, &a), of(8, &a), of(9, &a)],
                ["k1", "k1", "k2", "k2", "k3"].map(name)
            );
            assert_eq!([of(5, &b), of(6, &b), of(9, &b), of(9, &evil)], [None, name("k2"), name("k3"), None]);
        }
    }
}

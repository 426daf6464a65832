//! Sealed values: the line carries a salted hash; the value, encrypted under a key of its own, lies in a file beside the ledger, and
//! the key in another. Without its key the value is gone, and the chain stands either way.

mod keys;
mod rows;

use std::path::{Path, PathBuf};

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _};
use cp_common::keys::random;
use cp_common::{Code, Error, Result, json};
use serde_json::value::RawValue;

use self::keys::Keys;
pub(crate) use self::keys::{Pending, Stage};
use self::rows::{Rows, StoredValue};
use crate::format::line::{Hash, inside, member};

/// How many random bytes come before a value, in its hash and in its box.
const SALT: usize = 16;

/// The file of a ledger's sealed values.
pub fn path(ledger: &Path) -> PathBuf {
    beside(ledger, ".vault")
}

/// The file of the keys of these values.
pub fn keys_path(ledger: &Path) -> PathBuf {
    beside(ledger, ".vault.keys")
}

fn beside(ledger: &Path, ending: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The two files of a vault, open for sealing and forgetting.
#[derive(Debug)]
pub(crate) struct Vault {
    keys: Keys,
    rows: Rows,
}

impl Vault {
    /// Opens the vault of a ledger, and creates it if it is missing.
    pub(crate) fn open(ledger: &Path) -> Result<Self> {
        Ok(Self { keys: Keys::open(&keys_path(ledger))?, rows: Rows::open(&path(ledger))? })
    }

    /// Replaces the value of a field in a body by its seal, and keeps it. A field that is not there is passed over.
    ///
    /// The value is not on disk before [`Vault::sync`].
    pub(crate) fn seal(&mut self, body: &mut Vec<u8>, start: usize, field: &str) -> Result<()> {
        let Some((from, to)) = place(&body[start..], field) else { return Ok(()) };
        let (from, to) = (start + from, start + to);
        let mut sealed = random::<SALT>()?.to_vec();
        sealed.extend_from_slice(&body[from..to]);
        let hash = Hash::of(&sealed);
        let key = random::<32>()?;
        apply(&key, &mut sealed);
        // The key first, then the value, then the line: a seal without a value would be a loss, a value without a seal is only litter.
        let _held = self.keys.lock()?;
        let slot = self.keys.add(&key)?;
        self.rows.add(&hash, slot, &sealed)?;
        body.splice(from..to, format!("{{\"$sealed\":\"{hash}\"}}").into_bytes());
        Ok(())
    }

    /// Waits until the disk has everything that was sealed.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.keys.sync()?;
        self.rows.sync()
    }

    /// Begins to forget a value: after this it is not revealed, and a later writer completes the deletion. `None` if the value is
    /// not there. The lock is held.
    pub(crate) fn begin_forgetting(&mut self, hash: &Hash) -> Result<Option<Pending>> {
        let Some(StoredValue { slot, .. }) = self.rows.find(hash)? else { return Ok(None) };
        if self.keys.key(slot)?.is_none() {
            return Ok(None);
        }
        let pending = Pending { stage: Stage::Meant, slot, hash: *hash };
        self.keys.set_pending(Some(&pending))?;
        Ok(Some(pending))
    }

    /// The value whose deletion a crash interrupted.
    pub(crate) fn pending(&self) -> Result<Option<Pending>> {
        self.keys.pending()
    }

    /// Records that the intent is on the ledger.
    pub(crate) fn set_recorded(&mut self, pending: &Pending) -> Result<()> {
        self.keys.set_pending(Some(&Pending { stage: Stage::Recorded, ..*pending }))
    }

    /// Overwrites the key, so that the value is gone.
    pub(crate) fn erase(&mut self, pending: &Pending) -> Result<()> {
        self.keys.erase(pending.slot)
    }

    /// Records that the result is on the ledger.
    pub(crate) fn done(&mut self) -> Result<()> {
        self.keys.set_pending(None)
    }

    /// Takes the lock, which sealing and forgetting need. It is given back when what this returns is dropped.
    pub(crate) fn lock(&mut self) -> Result<impl Drop + use<>> {
        self.keys.lock()
    }
}

/// True if a value of this ledger began to be forgotten. No lock is taken.
pub(crate) fn is_pending(ledger: &Path) -> Result<bool> {
    Ok(keys::look(&keys_path(ledger))?.is_some())
}

/// True if a ledger has a vault.
pub(crate) fn is_there(ledger: &Path) -> bool {
    path(ledger).exists() || keys_path(ledger).exists()
}

/// Overwrites all keys of a ledger's vault, before its files are deleted.
pub fn erase_keys(ledger: &Path) -> Result<()> {
    keys::erase_all(&keys_path(ledger))
}

/// The JSON of a sealed value, proved by its hash. `None` if it was taken away.
pub fn reveal(ledger: &Path, hash: &Hash) -> Result<Option<Box<RawValue>>> {
    let keys_path = keys_path(ledger);
    if keys::look(&keys_path)?.is_some_and(|pending| pending.hash == *hash) {
        return Ok(None);
    }
    let path = path(ledger);
    let Some(StoredValue { slot, mut sealed }) = rows::find(&path, hash)? else { return Ok(None) };
    let Some(key) = keys::key_of(&keys_path, slot)? else { return Ok(None) };
    apply(&key, &mut sealed);
    let changed = || Error::new(Code::Integrity, "the value is not the one that was sealed").in_file(&path);
    if Hash::of(&sealed) != *hash {
        return Err(changed());
    }
    let value = sealed.get(SALT..).ok_or_else(changed)?;
    serde_json::from_slice(value).map(Some).map_err(|_| changed())
}

/// Encrypts and decrypts. The key is used for one value, so the nonce need not differ; the hash in the line proves the value.
fn apply(key: &[u8; 32], bytes: &mut [u8]) {
    ChaCha20::new(&(*key).into(), &[0; 12].into()).apply_keystream(bytes);
}

/// Where the value of `message`, `content` or `data.NAME` is in a body.
fn place(body: &[u8], field: &str) -> Option<(usize, usize)> {
    let named = |object: &'_ [u8], name: &str| -> Option<(usize, usize)> {
        let mut spelt = Vec::new();
        json::string(name, &mut spelt);
        let value = member(object, std::str::from_utf8(&spelt[1..spelt.len() - 1]).ok()?)?;
        let start = value.as_ptr() as usize - body.as_ptr() as usize;
        Some((start, start + value.len()))
    };
    match field.split_once('.') {
        Some(("data", name)) => {
            let (from, to) = named(body, "data")?;
            named(inside(&body[from..to])?, name)
        }
        _ => named(body, field),
    }
}

/// True if a field can be sealed.
pub fn is_field(field: &str) -> bool {
    matches!(field, "message" | "content") || field.strip_prefix("data.").is_some_and(|name| !name.is_empty())
}

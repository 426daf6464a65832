//! References of entries: files that were read, written or run are hashed again where they still exist, and the line that a receipt names
//! must exist with that hash.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::wire::Receipt;
use cp_common::{Result, signals};
use cp_ledger::format::line::Hash;
use cp_ledger::proof::checkpoint::Signed;
use cp_ledger::proof::note::Verifier;
use cp_ledger::read::segments::segments_of;
use cp_ledger::read::source::lines_of;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::claim::{Claims, Entry, Source, Verdict};

/// The part of a file that a hash is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    path: PathBuf,
    offset: u64,
    /// All that follows, where it does not say.
    bytes: Option<u64>,
}

/// Hashes that were computed already, because many turns read the same files.
#[derive(Default)]
pub(super) struct Reads(HashMap<Part, Option<String>>);

impl Reads {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let what = entry.data.get("what").and_then(Value::as_object);
        let lists = [
            ("declared_read", entry.data.get("declared_reads")),
            ("declared_write", entry.data.get("declared_writes")),
            ("declared_read", what.and_then(|what| what.get("reads"))),
        ];
        for (claim, list) in lists {
            for file in list.and_then(Value::as_array).into_iter().flatten() {
                self.file(claim, file, entry, claims)?;
            }
        }
        match entry.data.get("exe") {
            Some(exe) if ["exec.intent", "exec.step"].contains(&entry.event.as_str()) => {
                self.file("executable", exe, entry, claims)
            }
            _ => Ok(()),
        }
    }

    fn file(&mut self, claim: &'static str, file: &Value, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let claimed = file.get("sha256").or_else(|| file.get("hash")).and_then(Value::as_str);
        // A directory has no hash: it claims nothing that could be computed again.
        let (Some(path), Some(claimed)) = (file.get("path").and_then(Value::as_str), claimed) else { return Ok(()) };
        if Hash::parse(claimed).is_none() {
            return claims.record(entry.source(), claim, Verdict::Broken(format!("{path}: `{claimed}` is not a hash")));
        }
        let number = |name: &str| file.get(name).and_then(Value::as_u64);
        let is_part = claim == "declared_read";
        let part = Part {
            path: PathBuf::from(path),
            offset: number("offset").filter(|_| is_part).unwrap_or(0),
            bytes: number("bytes").filter(|_| is_part),
        };
        let known = self.0.get(&part).cloned();
        let found = if let Some(known) = known {
            known
        } else {
            let found = hash_of(&part)?;
            self.0.insert(part, found.clone());
            found
        };
        let verdict = match found {
            Some(found) if found == claimed => Verdict::Holds,
            Some(_) => Verdict::Unknown(format!("{path} has changed since")),
            None => Verdict::Unknown(format!("{path} is not there any more, or cannot be read")),
        };
        claims.record(entry.source(), claim, verdict)
    }
}

/// The hash of a part of a regular file; none if it cannot be read.
fn hash_of(part: &Part) -> Result<Option<String>> {
    let Some(mut file) = opened(&part.path, part.offset) else { return Ok(None) };
    let (mut hasher, mut block) = (Sha256::new(), vec![0; 256 << 10]);
    let mut left = part.bytes.unwrap_or(u64::MAX);
    while left > 0 {
        signals::check()?;
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        match file.read(&mut block[..room]) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&block[..read]);
                left -= read as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(Hash::from_raw(&hasher.finalize().into()).to_string()))
}

fn opened(path: &Path, offset: u64) -> Option<File> {
    // A pipe in the place of a file must not make the audit hang.
    if !path.is_absolute() || !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(offset)).ok()?;
    Some(file)
}

/// The hashes that receipts name for the lines of a ledger.
type Named = BTreeMap<u64, Vec<(String, Source)>>;

/// The receipts so far, by the ledger and the line that they name. Each ledger is then read once.
#[derive(Default)]
pub(super) struct Receipts {
    named: BTreeMap<(PathBuf, String), Named>,
    /// The ledgers that were read, by their origins. A copy of a ledger, also in a bundle, is that ledger.
    read: BTreeMap<String, PathBuf>,
}

/// The key that line 0 of each ledger names.
#[derive(Default)]
pub(super) struct LedgerKeys(HashMap<PathBuf, Verifier>);

impl LedgerKeys {
    /// Judges the key of a checkpoint. Any key may sign a ledger that names none.
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        if entry.event == "ledger.open" {
            let named = entry.text("verifier").and_then(Verifier::from_text);
            named.map(|named| self.0.insert(entry.ledger.to_owned(), named));
        } else if entry.event == "ledger.checkpoint"
            && let Some(named) = self.0.get(entry.ledger)
            && let Ok(signed) = serde_json::from_value::<Signed>(Value::Object(entry.data.clone()))
        {
            let verdict = signed.check_signer(Some(named)).map_or_else(Verdict::Broken, |()| Verdict::Holds);
            claims.record(entry.source(), "key", verdict)?;
        }
        Ok(())
    }
}

impl Receipts {
    /// Takes the receipts of an entry: those that a program put there, never what a model or a tool said.
    pub(super) fn gather(&mut self, entry: &Entry<'_>) {
        if let Some(origin) =
            entry.text("origin").filter(|_| ["ledger.open", "segment.open"].contains(&entry.event.as_str()))
        {
            self.read.insert(origin.to_owned(), entry.ledger.to_owned());
        }
        let calls = entry.data.get("external_calls").and_then(Value::as_array);
        let calls = calls.into_iter().flatten().filter_map(|call| call.get("receipt"));
        for receipt in calls.chain(entry.data.get("receipt")) {
            if let Ok(receipt) = serde_json::from_value::<Receipt>(receipt.clone()) {
                let key = (path_of(&receipt), receipt.origin.unwrap_or_default());
                let named = self.named.entry(key).or_default().entry(receipt.seq).or_default();
                named.push((receipt.hash, entry.source()));
            }
        }
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for ((ledger, origin), mut named) in self.named {
            let other = self.read.iter().find(|(_, path)| **path == ledger).map(|(origin, _)| origin);
            if other.is_some_and(|other| *other != origin) {
                for (_, source) in named.into_values().flatten() {
                    let why = format!("{} does not have the origin {origin}", ledger.display());
                    claims.record(source, "receipt", Verdict::Broken(why))?;
                }
                continue;
            }
            let ledger = self.read.get(&origin).cloned().filter(|_| other.is_none()).unwrap_or(ledger);
            let mut files = segments_of(&ledger)?;
            files.push(ledger.clone());
            files.retain(|file| file.is_file());
            let is_there = !files.is_empty();
            for file in files {
                let mut lines = lines_of(&file)?;
                while let Some(raw) = lines.next()? {
                    let Some(line) = raw.stored() else { continue };
                    if line.seq() % 4096 == 0 {
                        signals::check()?;
                    }
                    let Some(waiting) = named.remove(&line.seq()) else { continue };
                    let found = if line.is_intact() { line.hash().to_string() } else { "damaged".to_owned() };
                    for (claimed, source) in waiting {
                        let why = || format!("line {} of {} is {found}, not {claimed}", line.seq(), ledger.display());
                        claims.record(source, "receipt", Verdict::when(found == claimed, why))?;
                    }
                }
            }
            for (seq, waiting) in named {
                for (_, source) in waiting {
                    let verdict = if is_there {
                        Verdict::Broken(format!("{} has no line {seq}", ledger.display()))
                    } else {
                        Verdict::Unknown(format!("{} is not there", ledger.display()))
                    };
                    claims.record(source, "receipt", verdict)?;
                }
            }
        }
        Ok(())
    }
}

fn path_of(receipt: &Receipt) -> PathBuf {
    let bytes = receipt.ledger_bytes.as_ref().and_then(|bytes| BASE64.decode(bytes).ok());
    bytes.map_or_else(|| PathBuf::from(&receipt.ledger), |bytes| PathBuf::from(OsString::from_vec(bytes)))
}

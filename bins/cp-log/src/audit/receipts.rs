//! Receipts: the line that one names must exist with that hash.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::wire::Receipt;
use cp_common::{Result, signals};
use cp_ledger::proof::leaves::files_of;
use cp_ledger::read::source::lines_of;
use serde_json::Value;

use super::claims::{Claims, Place, Verdict};
use super::entry::Entry;

/// The receipts so far, each with the place of the entry that has it.
#[derive(Default)]
pub(super) struct Receipts(Vec<(Receipt, Place)>);

/// The hashes that are claimed for the lines of one ledger.
type Claimed = BTreeMap<u64, Vec<(String, Place)>>;

impl Receipts {
    /// Takes the receipts of an entry: those that a program put there, never what a model or a tool said.
    pub(super) fn gather(&mut self, entry: &Entry) {
        let calls = entry.at("data/external_calls").and_then(Value::as_array);
        let calls = calls.into_iter().flatten().filter_map(|call| call.get("receipt"));
        let receipts = calls.chain(entry.at("data/receipt"));
        let parsed = receipts.filter_map(|receipt| serde_json::from_value(receipt.clone()).ok());
        self.0.extend(parsed.map(|receipt| (receipt, entry.place)));
    }

    /// Reads each ledger that is named once.
    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        let mut named = BTreeMap::<PathBuf, Claimed>::new();
        for (receipt, place) in self.0 {
            // A copy of a ledger, also in a bundle, is that ledger.
            let read = claims.ledgers.iter().find(|read| receipt.origin.is_some() && read.origin == receipt.origin);
            let ledger = read.map_or_else(|| path_of(&receipt), |read| read.path.clone());
            named.entry(ledger).or_default().entry(receipt.seq).or_default().push((receipt.hash, place));
        }
        for (ledger, mut claimed) in named {
            let mut is_there = false;
            for file in files_of(&ledger)?.into_iter().filter(|file| file.is_file()) {
                is_there = true;
                let mut lines = lines_of(&file)?;
                while let Some(raw) = lines.next()? {
                    let Some(line) = raw.stored() else { continue };
                    if line.seq() % 4096 == 0 {
                        signals::check()?;
                    }
                    let found = if line.is_intact() { line.hash().to_string() } else { "damaged".to_owned() };
                    for (hash, place) in claimed.remove(&line.seq()).into_iter().flatten() {
                        let why = || format!("line {} of {} is {found}, not {hash}", line.seq(), ledger.display());
                        let verdict = if found == hash { Verdict::Holds } else { Verdict::Broken(why()) };
                        claims.record(place, "receipt", verdict)?;
                    }
                }
            }
            for (seq, (_, place)) in
                claimed.into_iter().flat_map(|(seq, all)| all.into_iter().map(move |one| (seq, one)))
            {
                let verdict = if is_there {
                    Verdict::Broken(format!("{} has no line {seq}", ledger.display()))
                } else {
                    Verdict::Unknown(format!("{} is not there", ledger.display()))
                };
                claims.record(place, "receipt", verdict)?;
            }
        }
        Ok(())
    }
}

fn path_of(receipt: &Receipt) -> PathBuf {
    let bytes = receipt.ledger_bytes.as_ref().and_then(|bytes| BASE64.decode(bytes).ok());
    bytes.map_or_else(|| PathBuf::from(&receipt.ledger), |bytes| PathBuf::from(OsString::from_vec(bytes)))
}

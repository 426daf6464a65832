//! Receipts: the line that each names has to be there, with that hash.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::wire::Receipt;
use cp_common::{Result, signals};
use cp_ledger::proof::opening::Opening;
use cp_ledger::read::segments::segments_of;
use cp_ledger::read::source::lines_of;
use serde_json::Value;

use super::claim::{Claims, Entry, Source, Verdict};

/// The receipts so far, by the ledger and the line that they name. Each ledger is then read once.
#[derive(Default)]
pub(super) struct Receipts(BTreeMap<PathBuf, BTreeMap<u64, Vec<(String, Source)>>>);

impl Receipts {
    /// Takes the receipts of an entry: those that a program put there, never what a model or a tool said.
    pub(super) fn gather(&mut self, entry: &Entry<'_>) {
        let calls = entry.data.get("external_calls").and_then(Value::as_array);
        let calls = calls.into_iter().flatten().filter_map(|call| call.get("receipt"));
        for receipt in calls.chain(entry.data.get("receipt")) {
            if let Ok(receipt) = serde_json::from_value::<Receipt>(receipt.clone()) {
                let named = self.0.entry(path_of(&receipt)).or_default().entry(receipt.seq).or_default();
                named.push((receipt.hash, entry.source()));
            }
        }
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for (ledger, mut named) in self.0 {
            let mut files = segments_of(&ledger)?;
            files.push(ledger.clone());
            files.retain(|file| file.is_file());
            let is_there = !files.is_empty();
            let (mut absent, mut next) = (Vec::new(), 0);
            for file in files {
                let mut lines = lines_of(&file)?;
                while let Some(raw) = lines.next()? {
                    let Some(line) = raw.stored() else { continue };
                    if line.seq() % 4096 == 0 {
                        signals::check()?;
                    }
                    if Opening::of(&line).is_some_and(|opening| opening.tree.is_some() && line.seq() > next) {
                        absent.push(next..line.seq());
                    }
                    next = line.seq().saturating_add(1);
                    let Some(waiting) = named.remove(&line.seq()) else { continue };
                    let found = if line.is_intact() { line.hash().to_string() } else { "damaged".to_owned() };
                    for (claimed, source) in waiting {
                        let why = || format!("line {} of {} is {found}, not {claimed}", line.seq(), ledger.display());
                        claims.say(source, "receipt", Verdict::when(found == claimed, why))?;
                    }
                }
            }
            for (seq, waiting) in named {
                for (_, source) in waiting {
                    let verdict = if absent.iter().any(|lines| lines.contains(&seq)) {
                        Verdict::Unknown(format!("line {seq} of {} is in a segment that is absent", ledger.display()))
                    } else if is_there {
                        Verdict::Broken(format!("{} has no line {seq}", ledger.display()))
                    } else {
                        Verdict::Unknown(format!("{} is not there", ledger.display()))
                    };
                    claims.say(source, "receipt", verdict)?;
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

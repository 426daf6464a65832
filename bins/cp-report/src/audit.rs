//! The verdict of `cp-log audit` on a bundle. The page shows it, and cannot prove it.

use std::ffi::OsString;
use std::path::Path;

use cp_common::{Context, coprocess, wire};
use serde::{Deserialize, Serialize};

/// The most claims that are shown.
const SHOWN: usize = 200;

/// The claims of the lines, counted by what an audit found.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Audit {
    /// How many hold.
    held: u64,
    /// How many cannot be judged.
    unknown: u64,
    /// How many are false.
    broken: u64,
    /// The claims that are false or cannot be judged, at most 200 of them.
    claims: Vec<Judged>,
    /// The reason why there was no audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// A claim as `cp-log audit` judges it.
#[derive(Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Judged {
    claim: String,
    #[serde(default)]
    ledger: String,
    seq: Option<u64>,
    holds: Option<bool>,
    #[serde(default)]
    why: Option<String>,
}

/// Audits a bundle.
pub(crate) fn audit(file: &Path, context: &Context) -> Audit {
    let mut audit = Audit::default();
    let words = [OsString::from("audit"), "--".into(), file.into()];
    let home = [OsString::from("--home"), context.home.root().into()];
    let asked = coprocess::ask_each("cp-log", &words, &[], home, &mut |line| {
        let record = line.and_then(|line| wire::record::Record::parse(line).ok());
        let claim = record.and_then(|record| serde_json::from_str::<Judged>(record.data?.get()).ok());
        let Some(claim) = claim else { return Ok(()) };
        match claim.holds {
            Some(true) => audit.held += 1,
            Some(false) => audit.broken += 1,
            None => audit.unknown += 1,
        }
        // The file has another name for each reader, so its claims are named by their ledger alone.
        let ledger = Path::new(&claim.ledger).file_name().map(|name| name.to_string_lossy().into_owned());
        let is_shown = claim.holds != Some(true) && audit.claims.len() < SHOWN;
        audit.claims.extend(is_shown.then(|| Judged { ledger: ledger.unwrap_or_default(), ..claim }));
        Ok(())
    });
    // A claim that is false is a failure, too.
    let message = |error: cp_common::Error| error.message().replace(&file.display().to_string(), "the bundle");
    audit.failure = asked.err().filter(|_| audit.broken == 0).map(message);
    audit
}

//! The budget file: limits, sums and reservations. Processes share it: it is replaced as a whole under a
//! lock, and a file with other content is never written. A process with a budget of its own keeps the content in
//! memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::home::{locked, write_whole};
use cp_common::wire::Usage;
use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};

/// An amount of dollars and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Amount {
    pub usd: f64,
    pub tokens: u64,
}

/// The limits of a budget; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// The estimated cost of one request in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Reservation {
    pub owner: Owner,
    /// The number of the request in its process. Amounts do not tell requests apart.
    pub request: u64,
    pub amount: Amount,
}

/// The process that made a reservation. Process ids are used again, so its start time belongs to it, in clock ticks
/// since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Owner {
    pub pid: u32,
    pub started: u64,
}

/// The content of a budget file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetFile {
    pub limit: Limit,
    pub spent: Amount,
    pub reserved: Vec<Reservation>,
}

impl Amount {
    /// The amount of a usage.
    pub(in crate::engine) fn of(usage: &Usage) -> Self {
        let written = usage.output_tokens.saturating_add(usage.cache_write_tokens);
        let read = usage.input_tokens.saturating_add(usage.cache_read_tokens);
        Self { usd: usage.cost_usd.unwrap_or(0.0), tokens: read.saturating_add(written) }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        // Rounding to nine digits keeps sums of dollars readable.
        let usd = ((self.usd + more.usd) * 1e9).round() / 1e9;
        Self { usd, tokens: self.tokens.saturating_add(more.tokens) }
    }

    pub(super) fn minus(self, less: Self) -> Self {
        let usd = ((self.usd - less.usd) * 1e9).round() / 1e9;
        Self { usd: usd.max(0.0), tokens: self.tokens.saturating_sub(less.tokens) }
    }
}

impl Limit {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// True if an amount reaches a limit.
    pub(super) fn is_reached(self, spent: Amount) -> bool {
        self.usd.is_some_and(|most| spent.usd >= most) || self.tokens.is_some_and(|most| spent.tokens >= most)
    }
}

impl BudgetFile {
    /// Parses a file.
    pub(super) fn parse(text: &[u8]) -> serde_json::Result<Self> {
        if text.is_empty() { Ok(Self::default()) } else { serde_json::from_slice(text) }
    }

    /// The amount that is spent or reserved.
    pub(super) fn taken(&self) -> Amount {
        self.reserved.iter().map(|one| one.amount).fold(self.spent, Amount::plus)
    }

    /// Counts the reservations of these owners as spent, because their requests may have been paid for.
    pub(super) fn count_as_spent(&mut self, is_counted: impl Fn(&Owner) -> bool) {
        for reserved in self.reserved.extract_if(.., |reserved| is_counted(&reserved.owner)) {
            self.spent = self.spent.plus(reserved.amount);
        }
    }

    /// Replaces the reservation of a request by the amount that it used.
    pub(super) fn settle(&mut self, reserved: &Reservation, used: Amount) {
        let is_same = |one: &Reservation| (one.owner, one.request) == (reserved.owner, reserved.request);
        match self.reserved.iter().position(is_same) {
            Some(at) => drop(self.reserved.remove(at)),
            // A process that cannot see the owner, as in another container, has counted the reservation as spent.
            None => self.spent = self.spent.minus(reserved.amount),
        }
        self.spent = self.spent.plus(used);
    }
}

impl Owner {
    /// This process.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: start_time(pid).unwrap_or(0) }
    }

    /// True if the process still runs.
    pub(super) fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// The start time of a process, in clock ticks; `None` if it has ended.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // A zombie has ended, but its parent has not waited for it.
    if fields.next()? == "Z" { None } else { fields.nth(18)?.parse().ok() }
}

/// Creates the budget file at a path, unless it is there. Returns the target of a symbolic link, which is replaced, not
/// the link.
pub(super) fn create(path: &Path) -> Result<PathBuf> {
    match path.metadata() {
        Ok(found) if !found.is_file() => return Err(not_a_budget_file(path, "it is not a regular file")),
        Ok(_) => {}
        Err(_) => drop(open(path)?),
    }
    path.canonicalize().map_err(|e| failed(path, e))
}

/// Changes the content, and returns after it was synced.
pub(super) fn change<T>(path: &Path, change: impl FnOnce(&mut BudgetFile) -> T) -> Result<T> {
    let _lock = locked(path, || open(path))?;
    let text = std::fs::read(path).map_err(|e| failed(path, e))?;
    let before = BudgetFile::parse(&text).map_err(|e| not_a_budget_file(path, &e.to_string()))?;
    let mut content = before.clone();
    let outcome = change(&mut content);
    if content != before {
        let mut text = serde_json::to_vec(&content).map_err(|e| failed(path, e.into()))?;
        text.push(b'\n');
        write_whole(path, &text).map_err(Error::fatal)?;
    }
    Ok(outcome)
}

fn open(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(|e| failed(path, e))
}

fn failed(path: &Path, e: std::io::Error) -> Error {
    Error::io("the budget file", e).in_file(path).fatal()
}

fn not_a_budget_file(path: &Path, why: &str) -> Error {
    Error::config(format!("not a budget file: {why}")).in_file(path).hint("name another file for --budget-file").fatal()
}

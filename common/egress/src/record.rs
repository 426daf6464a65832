//! The records of connections and refusals. They are sent to the thread that writes them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// The most different refusals that are recorded individually. The others are counted together, without a name.
const MOST_REFUSALS: usize = 256;

/// The decision about a connection or a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The destination is allowed.
    Allow,
    /// The name is not allowed, or its address is not.
    Deny,
}

/// A connection that has ended, or equal refusals.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Connection {
    /// The name, or the address if the policy lists it; null for the refusals above the limit.
    pub name: Option<String>,
    /// The port that the program used; null for a question about a name.
    pub port: Option<u16>,
    /// The address and port outside.
    pub address: Option<SocketAddr>,
    /// Bytes that the program received.
    pub bytes_in: u64,
    /// Bytes that the program sent.
    pub bytes_out: u64,
    /// The decision.
    pub decision: Decision,
    /// The destination that allows it, or the rule that refuses it: `network`, `private_address` or `limit`.
    pub rule: String,
    /// The error that ended the connection.
    pub error: Option<String>,
    /// The number of equal refusals.
    pub count: u64,
}

impl Connection {
    /// The record of a connection that is about to be made.
    pub(crate) fn allowed(name: &str, port: u16, rule: &str) -> Self {
        Self { port: Some(port), decision: Decision::Allow, ..Self::refused(Some(name.to_owned()), rule) }
    }

    /// The record of a refusal.
    pub(crate) fn refused(name: Option<String>, rule: &str) -> Self {
        Self {
            name,
            port: None,
            address: None,
            bytes_in: 0,
            bytes_out: 0,
            decision: Decision::Deny,
            rule: rule.to_owned(),
            error: None,
            count: 1,
        }
    }
}

/// The records that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    /// Each refusal, and how often it happened again after it was sent.
    refusals: HashMap<Connection, u64>,
    /// Open connections by number.
    open: HashMap<u64, Connection>,
    opened: u64,
}

/// Sends records. The channel is bounded, so a flood of connections waits for the writer.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub sender: SyncSender<Connection>,
    pub unsent: Arc<Mutex<Unsent>>,
}

impl Recorder {
    /// Records a refusal: the first of equal ones now, the others at the end of the run. True if it is the first, and
    /// recorded individually.
    pub(crate) fn refuse(&self, refusal: Connection) -> bool {
        let mut unsent = lock(&self.unsent);
        let is_new = !unsent.refusals.contains_key(&refusal);
        let is_one_of_many = is_new && unsent.refusals.len() >= MOST_REFUSALS;
        let key = if is_one_of_many { Connection::refused(None, "limit") } else { refusal };
        if let Some(count) = unsent.refusals.get_mut(&key) {
            *count += 1;
            return false;
        }
        unsent.refusals.insert(key.clone(), 0);
        drop(unsent);
        // The receiver has ended with the run.
        drop(self.sender.send(key));
        !is_one_of_many
    }

    /// Registers an open connection, and returns its number.
    pub(crate) fn open(&self, connection: Connection) -> u64 {
        let mut unsent = lock(&self.unsent);
        unsent.opened += 1;
        let number = unsent.opened;
        unsent.open.insert(number, connection);
        number
    }

    /// Records the end of a connection, unless the end of the run recorded it.
    pub(crate) fn close(&self, number: u64, connection: Connection) {
        let is_open = lock(&self.unsent).open.remove(&number).is_some();
        match connection.decision {
            _ if !is_open => {}
            Decision::Allow => drop(self.sender.send(connection)),
            Decision::Deny => drop(self.refuse(connection)),
        }
    }
}

/// The records that are left at the end of a run: repeated refusals, and connections that did not end in time.
pub(crate) fn left(unsent: &Mutex<Unsent>) -> Vec<Connection> {
    let Unsent { refusals, open, .. } = std::mem::take(&mut *lock(unsent));
    let repeated = refusals.into_iter().filter(|(_, count)| *count > 0);
    let repeated = repeated.map(|(refusal, count)| Connection { count, ..refusal });
    let error = || Some("the run ended before the connection was made".to_owned());
    repeated.chain(open.into_values().map(|connection| Connection { error: error(), ..connection })).collect()
}

fn lock(unsent: &Mutex<Unsent>) -> MutexGuard<'_, Unsent> {
    unsent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn equal_refusals_are_counted_and_different_ones_are_bounded() {
        let (sender, records) = mpsc::sync_channel(10_000);
        let recorder = Recorder { sender, unsent: Arc::default() };
        for number in 0..3000 {
            recorder.refuse(Connection::refused(Some(format!("n{}", number % 1000)), "network"));
        }
        let left = left(&recorder.unsent);
        drop(recorder.sender);
        let sent: Vec<Connection> = records.iter().collect();
        assert_eq!(sent.len(), MOST_REFUSALS + 1);
        assert_eq!(sent.iter().chain(&left).map(|refusal| refusal.count).sum::<u64>(), 3000);
        assert_eq!(sent.last().unwrap().name, None);
    }
}

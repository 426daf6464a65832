//! Recordings of answers: what was asked, by the hash of the request, and what came. `--record` makes one, `--replay` answers from
//! one and sends nothing, `--cache` does both.

mod cache;
mod differences;
mod index;
mod recording;
mod replay;

use std::path::{Path, PathBuf};

use cp_common::home::locked;
use cp_common::wire::Message;
use cp_common::{Error, Result};

use self::cache::Cache;
pub(super) use self::cache::Claim;
use self::replay::Replay;

/// A file of recordings, and what it is for.
pub(crate) enum Cassette {
    /// Answers are added.
    Record(PathBuf),
    /// Answers are taken, each in its turn, and a miss is an error.
    Replay(Replay),
    /// Answers are taken, and added where there is none.
    Cache(Cache),
}

impl Cassette {
    /// A file that answers are added to, made where there is none.
    pub(crate) fn record(path: &Path) -> Result<Self> {
        recording::open(path).map(|_| Self::Record(path.to_owned()))
    }

    /// A file that answers come from.
    pub(crate) fn replay(path: &Path) -> Result<Self> {
        Replay::open(path).map(Self::Replay)
    }

    /// A file of answers that stand for new ones, made where there is none.
    pub(crate) fn cache(path: &Path, warn: &dyn Fn(&str)) -> Result<Self> {
        Cache::open(path, warn).map(Self::Cache)
    }

    /// The recorded answer to a request, by the first key that has one.
    pub(super) fn find(&self, keys: &[String]) -> Result<Option<Message>> {
        match self {
            Self::Record(_) => Ok(None),
            Self::Replay(replay) => replay.find(keys),
            Self::Cache(cache) => cache.find(keys),
        }
    }

    /// The right to ask for what is not there, where others may want the same: they wait for it.
    pub(super) fn claim(&self, key: &str) -> Result<Option<Claim>> {
        if let Self::Cache(cache) = self { cache.claim(key).map(Some) } else { Ok(None) }
    }

    /// Whether answers come from nowhere else: a miss is an error.
    pub(crate) fn is_replayed(&self) -> bool {
        matches!(self, Self::Replay(_))
    }

    /// Whether answers of earlier runs stand for new ones.
    pub(super) fn is_cache(&self) -> bool {
        matches!(self, Self::Cache(_))
    }

    /// The name that the ledger has for an answer from here.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Record(_) => "record",
            Self::Replay(_) => "replay",
            Self::Cache(_) => "cache",
        }
    }

    /// Adds an answer, where answers are added.
    pub(super) fn keep(&self, key: &str, backend: &str, request: &[u8], message: &Message) -> Result<()> {
        let path = match self {
            Self::Replay(_) => return Ok(()),
            Self::Record(path) => path,
            Self::Cache(cache) => cache.path(),
        };
        let line = recording::line(key, backend, request, message)?;
        // What is paid for is kept.
        let _effect = cp_common::signals::effect();
        recording::append(&locked(path, || recording::open(path))?, path, line)
    }

    /// The error for a request that has no answer, where nobody is asked.
    pub(super) fn miss(&self, key: &str, request: &[u8]) -> Option<Error> {
        if let Self::Replay(replay) = self { Some(replay.miss(key, request)) } else { None }
    }
}

//! A bundle as ledgers: its lines and large values in a directory of their own, which the verbs that read ledgers read. `verify` and
//! `audit` prove the bundle, not these files.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::wire::bundle::{BLOB, BUNDLE, Blob, LEDGER, LINE, Ledger, Line};
use cp_common::{Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::read::source::{is_stdin, lines_of};
use cp_ledger::store::blob;
use serde::Deserialize;
use serde_json::value::RawValue;
use tempfile::TempDir;

/// A bundle that was unpacked. Its directory is removed with the last use of it.
#[derive(Clone, Debug)]
pub(crate) struct Unpacked {
    bundle: PathBuf,
    directory: Arc<TempDir>,
    /// The ledgers, and whether all lines of each are in the bundle.
    pub(crate) ledgers: Vec<(PathBuf, bool)>,
}

#[derive(Deserialize)]
struct Record<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Unpacked {
    /// Unpacks a file; none if it is not a bundle.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        let mark = format!("\"type\":\"{BUNDLE}\"");
        // Standard input may be open elsewhere, and what is read here would be missing there.
        let is_regular = !is_stdin(path) && path.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_regular || memchr::memmem::find(lines_of(path)?.peek()?, mark.as_bytes()).is_none() {
            return Ok(None);
        }
        let failed = |e: std::io::Error| Error::io("unpacking the bundle", e).in_file(path);
        let directory = Arc::new(TempDir::with_prefix("cp-log-").map_err(failed)?);
        let mut this = Self { bundle: path.to_owned(), directory, ledgers: Vec::new() };
        let mut input = lines_of(path)?;
        let mut ledger = None;
        while let Some(raw) = input.next()? {
            let invalid = |e: serde_json::Error| Error::validation(e.to_string()).at_line(raw.number).in_file(path);
            let record: Record<'_> = serde_json::from_slice(raw.bytes).map_err(invalid)?;
            let data = record.data.get();
            match (record.r#type, &mut ledger) {
                (LEDGER, _) => {
                    let head: Ledger = serde_json::from_str(data).map_err(invalid)?;
                    ledger = Some(File::create(this.begin(&head).map_err(failed)?).map_err(failed)?);
                }
                (LINE, Some(file)) => {
                    let line: Line<'_> = serde_json::from_str(data).map_err(invalid)?;
                    file.write_all(format!("{}\n", line.raw).as_bytes()).map_err(failed)?;
                }
                (BLOB, Some(_)) => {
                    let part: Blob<'_> = serde_json::from_str(data).map_err(invalid)?;
                    this.store(&part).map_err(failed)?;
                }
                _ => {}
            }
        }
        Ok(Some(this))
    }

    /// The path of the next ledger. Its name is that of the file, without a directory.
    fn begin(&mut self, head: &Ledger) -> std::io::Result<PathBuf> {
        let name = Path::new(&head.file).file_name().map_or_else(|| "ledger.jsonl".into(), PathBuf::from);
        let mut path = self.directory.path().join(&name);
        if path.exists() {
            let directory = self.directory.path().join(self.ledgers.len().to_string());
            std::fs::create_dir(&directory)?;
            path = directory.join(&name);
        }
        self.ledgers.push((path.clone(), head.whole));
        Ok(path)
    }

    /// Stores a value, or a part of one, beside the last ledger.
    fn store(&self, part: &Blob<'_>) -> std::io::Result<()> {
        let (Some((ledger, _)), Some(hash)) = (self.ledgers.last(), Hash::parse(&part.hash)) else { return Ok(()) };
        let Ok(bytes) = BASE64.decode(part.base64.as_bytes()) else { return Ok(()) };
        if part.missing {
            return Ok(());
        }
        std::fs::create_dir_all(blob::directory(ledger))?;
        File::options().create(true).append(true).open(blob::path(ledger, &hash))?.write_all(&bytes)
    }

    /// The name of one of its ledgers for people: the bundle, and the name of the ledger in it.
    pub(crate) fn name_of(&self, ledger: &Path) -> Option<PathBuf> {
        ledger.strip_prefix(self.directory.path()).ok().map(|name| self.bundle.join(name))
    }

    /// True if lines of a ledger are not in the bundle.
    pub(crate) fn is_part(&self, ledger: &Path) -> bool {
        self.ledgers.iter().any(|(path, is_whole)| path == ledger && !is_whole)
    }

    /// The bundle.
    pub(crate) fn bundle(&self) -> &Path {
        &self.bundle
    }
}

impl PartialEq for Unpacked {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.directory, &other.directory)
    }
}

impl Eq for Unpacked {}

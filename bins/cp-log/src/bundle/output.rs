//! Where a bundle goes: standard output, or a new file that appears whole. All that was written is hashed.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

/// The bundle under way.
pub(super) struct Output<'a> {
    hash: Sha256,
    to: To<'a>,
}

enum To<'a> {
    Stream(&'a mut Context),
    File(BufWriter<NamedTempFile>, PathBuf),
}

impl<'a> Output<'a> {
    pub(super) fn new(file: Option<&Path>, context: &'a mut Context) -> Result<Self> {
        let to = match file {
            None => {
                context.out.streaming()?;
                To::Stream(context)
            }
            Some(file) => {
                let file = std::path::absolute(file)?;
                context.home.check_writable(&file)?;
                if file.symlink_metadata().is_ok() {
                    return Err(there(&file));
                }
                let directory = file.parent().unwrap_or(Path::new("/"));
                let unfinished = NamedTempFile::new_in(directory)
                    .map_err(|e| Error::io("cannot make the bundle", e).in_file(&file))?;
                To::File(BufWriter::new(unfinished), file)
            }
        };
        Ok(Self { hash: Sha256::new(), to })
    }

    /// Writes a line, line feed included.
    pub(super) fn write(&mut self, line: &[u8]) -> Result<()> {
        self.hash.update(line);
        match &mut self.to {
            To::Stream(context) => context.out.pass(line.strip_suffix(b"\n").unwrap_or(line)),
            To::File(file, path) => {
                file.write_all(line).map_err(|e| Error::io("cannot write the bundle", e).in_file(path).fatal())
            }
        }
    }

    /// The hash of what was written so far.
    pub(super) fn hash(&self) -> Hash {
        Hash::from_raw(&self.hash.clone().finalize().into())
    }

    /// Makes sure of what was written. The file, if it is one.
    pub(super) fn finish(self) -> Result<Option<String>> {
        match self.to {
            To::Stream(context) => {
                context.out.ended_with(0);
                Ok(None)
            }
            To::File(file, path) => {
                let failed = |e: std::io::Error| Error::io("cannot write the bundle", e).in_file(&path).fatal();
                let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
                file.as_file().sync_all().map_err(failed)?;
                file.persist_noclobber(&path).map_err(|e| match e.error.kind() {
                    std::io::ErrorKind::AlreadyExists => there(&path),
                    _ => failed(e.error),
                })?;
                Ok(Some(path.display().to_string()))
            }
        }
    }
}

fn there(path: &Path) -> Error {
    Error::new(Code::Conflict, "the file exists already").in_file(path).hint("name another file, or remove this one")
}

//! `cp-log bundle`: whole ledgers with their checkpoints and large values, in one file for those who have nothing else.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{FileName, Reply};
use cp_common::{Code, Context, Error, Result, signals};
use cp_ledger::blob;
use cp_ledger::proof::note::checkpoint_path;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::reading::{Group, Part, Start, ledgers, line_of};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc =
    VerbDoc { examples: &["{} append hello && {} bundle -o b"], ..VerbDoc::new("bundle", Class::Query, "bundled") };

/// Put ledgers and what belongs to them into one file
///
/// The ledgers are whole, with their segments, checkpoints and large values, byte for byte. The verbs that read ledgers
/// take a bundle like a directory of them. What was redacted stays redacted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the bundle to this new file, and answer with its counts (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Runs, sessions, ledgers, bundles or directories of them (default: the run's, the session's, else all of home's)
    #[arg(value_name = "RUN|SESSION|LEDGER")]
    subjects: Vec<PathBuf>,
}

/// A file that was written.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bundled {
    #[serde(flatten)]
    file: FileName,
    /// How many ledgers are in it.
    ledgers: u64,
    /// How many of their files.
    files: u64,
    /// How many bytes it has.
    bytes: u64,
}

impl Reply for Bundled {
    fn text(&self) -> String {
        format!("{}: {} ledgers, {} files, {} bytes", self.file.file, self.ledgers, self.files, self.bytes)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let plan = Plan::new(&args.subjects, context)?;
    deliver(&plan, args.output.as_deref(), context, |out| {
        out(&line_of(&Start::of(plan.items.len()))?)?;
        for item in &plan.items {
            out(&line_of(&item.part)?)?;
            item.copy(out)?;
        }
        Ok(())
    })
}

/// What goes into a bundle or a page.
pub(crate) struct Plan {
    /// The ledgers. A bundle that one was unpacked from stays there with it.
    groups: Vec<Group>,
    pub(crate) items: Vec<Item>,
}

/// A file that belongs to a ledger.
pub(crate) struct Item {
    pub(crate) part: Part,
    pub(crate) source: PathBuf,
    /// True if it is a large value.
    pub(crate) is_blob: bool,
    inode: u64,
}

impl Plan {
    /// Finds the ledgers. An operand that is not a ledger is an error before anything is written.
    pub(crate) fn new(subjects: &[PathBuf], context: &Context) -> Result<Self> {
        let groups = ledgers(subjects, context)?;
        if groups.is_empty() {
            return Err(Error::not_found("no ledger is there").hint("name a run, a session or a ledger"));
        }
        let mut plan = Self { groups: Vec::new(), items: Vec::new() };
        let paths: Vec<PathBuf> =
            groups.iter().map(|group| std::path::absolute(&group.ledger)).collect::<std::io::Result<_>>()?;
        let base = common_directory(&paths);
        for (group, ledger) in groups.iter().zip(&paths) {
            plan.add_ledger(group, &name_below(&base, ledger))?;
        }
        plan.groups = groups;
        let mut names = HashSet::new();
        match plan.items.iter().find(|item| !names.insert(&item.part.path)) {
            Some(item) => Err(Error::validation(format!("two files would have the name `{}`", item.part.path))),
            None => Ok(plan),
        }
    }

    /// Adds the files of a ledger: its checkpoint first, because a ledger has all lines of an older checkpoint.
    fn add_ledger(&mut self, group: &Group, name: &str) -> Result<()> {
        let name = Path::new(name);
        self.add(&checkpoint_path(&group.ledger), &checkpoint_path(name), false)?;
        for target in &group.files {
            let is_tip = target.path == group.ledger;
            let name = if is_tip { name.to_owned() } else { name.with_file_name(file_name(&target.path)) };
            self.add(&target.path, &name, false)?;
        }
        let Ok(values) = std::fs::read_dir(blob::directory(&group.ledger)) else { return Ok(()) };
        let mut values: Vec<PathBuf> =
            values.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
        values.sort();
        values.iter().try_for_each(|value| self.add(value, &blob::directory(name).join(file_name(value)), true))
    }

    /// Adds a file, if it is there.
    fn add(&mut self, source: &Path, name: &Path, is_blob: bool) -> Result<()> {
        let metadata = match source.metadata() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(|e| Error::io("cannot read its metadata", e).in_file(source))?,
        };
        let part = Part { path: name.to_string_lossy().into_owned(), bytes: metadata.len() };
        self.items.push(Item { part, source: source.to_owned(), is_blob, inode: metadata.ino() });
        Ok(())
    }
}

impl Item {
    /// Opens the file, which must be the one that was found.
    pub(crate) fn open(&self) -> Result<File> {
        let failed = |e: std::io::Error| Error::io("cannot open", e).in_file(&self.source);
        let file = File::open(&self.source).map_err(failed)?;
        let is_same = |metadata: Metadata| metadata.ino() == self.inode && metadata.len() >= self.part.bytes;
        if file.metadata().map(is_same).map_err(failed)? { Ok(file) } else { Err(self.changed()) }
    }

    /// Passes as many of its bytes as were there when it was found: lines may be appended meanwhile.
    pub(crate) fn copy(&self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut file, mut left) = (self.open()?, self.part.bytes);
        // A multiple of three, so that each part has base 64 without padding.
        let mut block = vec![0; 192 << 10];
        while left > 0 {
            signals::check()?;
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            file.read_exact(&mut block[..most]).map_err(|_| self.changed())?;
            each(&block[..most])?;
            left -= most as u64;
        }
        Ok(())
    }

    fn changed(&self) -> Error {
        Error::new(Code::Conflict, "the file changed while it was read").in_file(&self.source).hint("try again")
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn common_directory(files: &[PathBuf]) -> PathBuf {
    let mut base = files.first().and_then(|file| file.parent()).unwrap_or(Path::new("/")).to_owned();
    while !files.iter().all(|file| file.starts_with(&base)) && base.pop() {}
    base
}

/// The name of a ledger in a bundle. It always ends with `.jsonl`, as those do that are looked for in a directory.
fn name_below(base: &Path, ledger: &Path) -> String {
    let name = ledger.strip_prefix(base).unwrap_or(ledger).to_string_lossy();
    format!("{}.jsonl", name.strip_suffix(".jsonl").unwrap_or(&name))
}

/// Writes to a new file, which appears whole, and answers with its counts; without one, to standard output.
pub(crate) fn deliver(
    plan: &Plan,
    file: Option<&Path>,
    context: &mut Context,
    write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let Some(file) = file else {
        // A failure after this goes to standard error, because standard output has the bytes.
        context.out.ended_with(0);
        return write(&mut |bytes| context.out.raw(bytes)).map_err(Error::fatal);
    };
    let file = std::path::absolute(file)?;
    let taken = || {
        Error::new(Code::Conflict, "the file exists already")
            .in_file(&file)
            .hint("name another file, or remove this one")
    };
    let failed = |e: std::io::Error| Error::io("cannot write the file", e).in_file(&file).fatal();
    cp_policy::check_writable(&context.home, &file)?;
    if file.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let unfinished = NamedTempFile::new_in(file.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let (mut out, mut bytes) = (BufWriter::new(unfinished), 0);
    write(&mut |part| {
        bytes += part.len() as u64;
        out.write_all(part).map_err(failed)
    })?;
    let out = out.into_inner().map_err(|e| failed(e.into_error()))?;
    out.as_file().sync_all().map_err(failed)?;
    out.persist_noclobber(&file).map_err(|e| match e.error.kind() {
        std::io::ErrorKind::AlreadyExists => taken(),
        _ => failed(e.error),
    })?;
    let (ledgers, files) = (plan.groups.len() as u64, plan.items.len() as u64);
    context.out.answer(&Bundled { file: file.as_path().into(), ledgers, files, bytes })
}

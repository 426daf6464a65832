//! The files to read: operands, directories, runs, the segments of a rotated ledger, and the defaults.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::given::has_unread_input;
use cp_common::home::TIERS;
use cp_common::wire::quoted;
use cp_common::{Code, Context, Error, Result, json, signals};
use cp_ledger::append::register::missing;
use cp_ledger::home::session_directory;
use cp_ledger::proof::note::checkpoint_path;
use cp_ledger::read::lines;
use cp_ledger::read::segments::{followed, ledger_of, segments_of};
use cp_ledger::read::source::is_stdin;
use cp_ledger::sessions::Session;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::reader::is_ledger_or_empty;
use super::unpacked::Unpacked;

/// A file to read.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    /// True if it was named itself, not found in a directory.
    pub(crate) named: bool,
    /// The bundle that it was unpacked from.
    bundle: Option<Arc<Unpacked>>,
}

/// The place of a ledger in the order of operands, then of paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Rank {
    operand: usize,
    pub(crate) ledger: OsString,
}

/// The files of one ledger, the oldest first.
pub(crate) struct Group {
    pub(crate) rank: Rank,
    pub(crate) ledger: PathBuf,
    pub(crate) files: Vec<Target>,
}

impl Target {
    /// A file that was named.
    pub(crate) fn named(path: &Path) -> Self {
        Self { path: path.to_owned(), named: true, bundle: None }
    }

    /// True if the file has to be one of a ledger: it was named, is in a bundle, or was signed.
    pub(crate) fn must_be_ledger(&self) -> bool {
        self.named || self.bundle.is_some() || checkpoint_path(&ledger_of(&self.path)).exists()
    }

    /// The name of its ledger.
    fn name(&self) -> PathBuf {
        name_in(self.bundle.as_deref(), &ledger_of(&self.path))
    }

    /// The name of the file for people: its path, and in a bundle its name there.
    pub(crate) fn shown(&self) -> PathBuf {
        name_in(self.bundle.as_deref(), &self.path)
    }

    /// The members that are appended to an entry to say where it was found. A path that is not UTF-8 is printed twice,
    /// readable and exact.
    pub(crate) fn mark(&self) -> Vec<u8> {
        let ledger = self.name();
        let mut mark = b",\"ledger\":".to_vec();
        json::string(&ledger.to_string_lossy(), &mut mark);
        if ledger.to_str().is_none() {
            mark.extend_from_slice(b",\"ledger_bytes\":");
            json::string(&BASE64.encode(ledger.as_os_str().as_bytes()), &mut mark);
        }
        mark.push(b'}');
        mark
    }
}

/// An entry of a record as the line that was written, without the mark of where it was found.
pub(crate) fn without_mark(entry: &[u8]) -> Vec<u8> {
    // No string can hold this: a quote in one is escaped.
    match memchr::memmem::rfind(entry, b",\"ledger\":\"") {
        Some(at) => [&entry[..at], b"}"].concat(),
        None => entry.to_vec(),
    }
}

fn name_in(bundle: Option<&Unpacked>, file: &Path) -> PathBuf {
    bundle.map_or_else(|| file.to_owned(), |bundle| bundle.name_of(file))
}

/// The ledgers to prove, without files of other programs. A file that was named must be one.
pub(crate) fn ledgers(operands: &[PathBuf], context: &Context) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for group in to_prove(operands, context)? {
        let are_ledgers: Vec<bool> = group.files.iter().map(is_ledger).collect::<Result<_>>()?;
        groups.extend(are_ledgers.contains(&true).then_some(group));
    }
    if groups.is_empty() { Err(no_ledger(operands, context)) } else { Ok(groups) }
}

/// The files to read for a proof. Fails if there are none, because nothing would be proved, and if a directory has what
/// belongs to a ledger that is not there, because the whole ledger was removed. Without operands `--run` names the
/// ledger of a run.
pub(crate) fn to_prove(operands: &[PathBuf], context: &Context) -> Result<Vec<Group>> {
    let operands = &match &context.options.run {
        Some(run) if operands.is_empty() && context.options.ledger.is_none() => vec![ledger_of_run(run, context)?],
        _ => subjects(operands, context)?,
    };
    let Operands { groups, lost, .. } = found(operands, context)?;
    if let Some((part, ledger)) = lost {
        let message = format!("{} is there, and its ledger {} is not", part.display(), ledger.display());
        return Err(gone(message, "put the ledger back, or move this file away if you removed the ledger"));
    }
    let is_home = operands.is_empty() && context.options.ledger.is_none() && session_directory(context)?.is_none();
    for home in operands.iter().map(PathBuf::as_path).chain(is_home.then(|| context.home.root())) {
        if let Some(ledger) = missing(home)?.iter().next().map(|file| home.join(file)) {
            let message = format!("{} was made in this home, and is not there", ledger.display());
            let outermost = ledger.ancestors().take_while(|path| !path.exists()).last().unwrap_or(&ledger);
            let removed = format!("cp-log repair --accept-shorter {}", quoted(&outermost.to_string_lossy()));
            return Err(gone(message, &format!("put the ledger back, or, if you removed it, record that: {removed}")));
        }
    }
    let has_tip = |group: &&Group| group.files.iter().any(|file| file.path == group.ledger);
    let parts = groups.iter().filter(|group| !has_tip(group)).flat_map(|group| &group.files);
    if let Some(part) = parts.into_iter().find(|part| part.named) {
        let hint =
            format!("name {}; cp-log verify - reads the lines of a segment alone", ledger_of(&part.path).display());
        return Err(Error::usage("a closed segment is proved with its ledger").in_file(&part.path).hint(hint));
    }
    if groups.is_empty() { Err(no_ledger(operands, context)) } else { Ok(groups) }
}

/// The error about places without a ledger, where nothing would be proved.
pub(crate) fn no_ledger(operands: &[PathBuf], context: &Context) -> Error {
    let places: Vec<String> = operands.iter().map(|path| path.display().to_string()).collect();
    let place = if places.is_empty() { context.home.root().display().to_string() } else { places.join(", ") };
    Error::not_found(format!("no ledger in {place}")).hint("name a ledger, or a directory with ledgers")
}

/// The error about a ledger that was removed as a whole.
fn gone(message: String, hint: &str) -> Error {
    Error::new(Code::Integrity, message).with("kind", "rollback").hint(hint)
}

/// The lines in which the start of a run is looked for.
const FIRST: usize = 8;

/// Finds the ledger of a run by its id or its name, which means the newest run, as in cp-toolloop; none if no run has it.
fn run_ledger(run: &str, context: &Context) -> Result<Option<PathBuf>> {
    if run.is_empty() || run.contains('/') {
        return Ok(None);
    }
    let directories = TIERS.iter().map(|tier| context.home.runs(tier));
    let by_id = directories.clone().map(|runs| runs.join(format!("{run}.jsonl"))).find(|path| path.is_file());
    if by_id.is_some() {
        return Ok(by_id);
    }
    let mut newest = None;
    for entry in directories.filter_map(|runs| std::fs::read_dir(runs).ok()).flatten() {
        let path = entry.map_err(|e| Error::io("cannot list the runs", e))?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl")
            && let Some((name, started)) = run_start(&path)?
            && name == run
        {
            newest = newest.max(Some((started, path)));
        }
    }
    Ok(newest.map(|(_, ledger)| ledger))
}

/// The ledger of a run that is given by its id, its name or the path of its ledger.
pub(crate) fn ledger_of_run(run: &str, context: &Context) -> Result<PathBuf> {
    if run.contains('/') {
        return Ok(followed(Path::new(run)));
    }
    let missing = || Error::not_found(format!("no run `{run}`")).hint("cp-toolloop runs lists them");
    run_ledger(run, context)?.ok_or_else(missing)
}

/// Fails if no entry was found because `--run` names no run.
pub(crate) fn check_run(context: &Context) -> Result<()> {
    context.options.run.as_deref().map_or(Ok(()), |run| ledger_of_run(run, context).map(drop))
}

/// The id of a run that is given by its id or its name.
pub(crate) fn run_id(run: &str, context: &Context) -> Result<String> {
    let ledger = run_ledger(run, context)?;
    let id = ledger.as_deref().and_then(Path::file_stem).map(|id| id.to_string_lossy().into_owned());
    Ok(id.unwrap_or_else(|| run.to_owned()))
}

/// The name that the start of a run has, and its time.
fn run_start(ledger: &Path) -> Result<Option<(String, String)>> {
    let mut lines = lines(ledger)?;
    for _ in 0..FIRST {
        let Some(raw) = lines.next()? else { break };
        if let Some(line) = raw.stored().filter(|line| line.is_event("run_start")) {
            let name = line.data_member("name").and_then(json::unquote);
            return Ok(name.map(|name| (name, line.ts().to_owned())));
        }
    }
    Ok(None)
}

/// The path that an operand stands for: a run by its id or name, a session by its id, of which it is the directory or
/// the ledger.
pub(crate) fn subject(operand: &Path, of: impl FnOnce(&Session) -> PathBuf, context: &Context) -> Result<PathBuf> {
    let is_path = operand.components().count() > 1 || operand.extension().is_some_and(|end| end == "jsonl");
    let name = operand.to_str().filter(|name| !is_path && !name.contains('/'));
    let Some(name) = name.filter(|_| !is_stdin(operand) && !operand.exists()) else { return Ok(operand.to_owned()) };
    if let Some(ledger) = run_ledger(name, context)? {
        return Ok(ledger);
    }
    Session::find(name, &context.home).map(|session| of(&session)).map_err(|_| {
        Error::not_found(format!("no session, run or ledger `{name}`"))
            .hint("cp-session list and cp-toolloop runs list them; a ledger is named by its path")
    })
}

/// The paths that operands stand for.
fn subjects(operands: &[PathBuf], context: &Context) -> Result<Vec<PathBuf>> {
    let directory = |session: &Session| session.directory.clone();
    operands.iter().map(|operand| subject(operand, directory, context)).collect()
}

/// The files to read: the operands, where a directory is replaced by the ledgers below it and a ledger by its segments
/// first; without operands the named ledger, the session's ledgers, or all of home's.
pub(crate) fn to_read(operands: &[PathBuf], context: &Context) -> Result<Vec<Group>> {
    Ok(found(&subjects(operands, context)?, context)?.groups)
}

fn found(operands: &[PathBuf], context: &Context) -> Result<Operands> {
    let mut found = Operands::default();
    if operands.is_empty() {
        refuse_waiting_input()?;
        match (&context.options.ledger, session_directory(context)?) {
            (Some(ledger), _) => found.add(ledger)?,
            (None, Some(directory)) => found.add_directory(&directory)?,
            (None, None) => {
                for part in ["ledger", "planes", "memory"] {
                    let directory = context.home.path(part);
                    if directory.is_dir() {
                        found.add_directory(&directory)?;
                    }
                    found.operand += 1;
                }
            }
        }
    }
    if operands.iter().filter(|operand| is_stdin(operand)).count() > 1 {
        return Err(Error::usage("- is given twice, but standard input can be read only once"));
    }
    for operand in operands {
        found.add(operand)?;
        found.operand += 1;
    }
    for group in &mut found.groups {
        // Digits sort before letters, so the file that goes on comes last.
        group.files.sort_by(|a, b| a.path.cmp(&b.path));
    }
    found.groups.sort_by(|a, b| a.rank.cmp(&b.rank));
    Ok(found)
}

/// True if a file is a ledger. One that was named has to be.
fn is_ledger(target: &Target) -> Result<bool> {
    let path = &target.path;
    if is_stdin(path) {
        return Err(Error::validation("what belongs to a ledger lies beside it, and standard input is not a bundle")
            .hint("name the file of the ledger"));
    }
    // An empty file is not one.
    is_ledger_or_empty(&cp_ledger::read::open(path)?, u64::MAX, target)
}

/// How long a program before a pipe has to send its first bytes.
const GRACE: Duration = Duration::from_millis(500);

/// Gives who fills a pipe a moment: which of two programs started sooner must not decide what is read.
pub(crate) fn await_input() -> Result<()> {
    let stdin = rustix::stdio::stdin();
    let kind = rustix::fs::fstat(stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if matches!(kind, Ok(FileType::Fifo | FileType::Socket)) {
        signals::wait_readable(stdin, Some(GRACE))?;
    }
    Ok(())
}

/// Fails if standard input has data that would stay unread: the caller must say if it is to be read.
pub(crate) fn refuse_waiting_input() -> Result<()> {
    if has_unread_input() {
        return Err(Error::usage("standard input has data, and no operand says what to read")
            .hint("add - to read standard input, name a FILE, or redirect from /dev/null"));
    }
    Ok(())
}

#[derive(Default)]
struct Operands {
    groups: Vec<Group>,
    /// The index of the group of each ledger.
    places: HashMap<PathBuf, usize>,
    operand: usize,
    /// The bundle whose directory is listed.
    bundle: Option<Arc<Unpacked>>,
    /// The first checkpoint, or directory of blobs, without its ledger, and that ledger.
    lost: Option<(PathBuf, PathBuf)>,
}

impl Operands {
    /// Adds a file to those of its ledger, once.
    fn push(&mut self, path: PathBuf, named: bool) {
        let target = Target { path, named, bundle: self.bundle.clone() };
        let ledger = ledger_of(&target.path);
        let place = *self.places.entry(ledger.clone()).or_insert_with(|| {
            let rank = Rank { operand: self.operand, ledger: target.name().into() };
            self.groups.push(Group { rank, ledger, files: Vec::new() });
            self.groups.len() - 1
        });
        let files = &mut self.groups[place].files;
        if !files.iter().any(|file| file.path == target.path) {
            files.push(target);
        }
    }

    fn add(&mut self, named: &Path) -> Result<()> {
        let path = &*if is_stdin(named) { named.to_owned() } else { followed(named) };
        if path.is_dir() {
            return self.add_directory(path);
        }
        if let Some(bundle) = Unpacked::of(path)? {
            let bundle = Arc::new(bundle);
            self.bundle = Some(Arc::clone(&bundle));
            let added = self.add_directory(bundle.directory());
            self.bundle = None;
            return added;
        }
        if !is_stdin(path) {
            for segment in segments_of(path)? {
                self.push(segment, true);
            }
        }
        self.push(path.to_owned(), true);
        Ok(())
    }

    fn add_directory(&mut self, directory: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("cannot list", e).in_file(directory);
        // Reading this as a file fails with the same reason, and the others are read.
        let Ok(listing) = std::fs::read_dir(directory) else {
            self.push(directory.to_owned(), false);
            return Ok(());
        };
        let mut paths = listing.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        // The name of a segment sorts before that of its ledger, because digits sort before letters.
        paths.sort();
        for path in paths {
            // A link would bring the same file twice, or lead out of the directory.
            let metadata = match path.symlink_metadata() {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(_) => {
                    self.push(path, false);
                    continue;
                }
                Ok(metadata) => metadata,
            };
            if self.lost.is_none() {
                let shown = |path: &Path| name_in(self.bundle.as_deref(), path);
                let lost =
                    ledger_beside(&path).filter(|ledger| !ledger.exists() && !ledger.with_extension("").exists());
                self.lost = lost.map(|ledger| (shown(&path), shown(&ledger)));
            }
            if metadata.is_dir() && path.extension().is_none_or(|extension| extension != "blobs") {
                self.add_directory(&path)?;
            } else if metadata.is_file() && is_lines(&path) {
                self.push(path, false);
            }
        }
        Ok(())
    }
}

/// The ledger that a checkpoint or a directory of blobs belongs to.
fn ledger_beside(part: &Path) -> Option<PathBuf> {
    match part.extension()?.to_str()? {
        "checkpoint" => Some(part.with_extension("jsonl")),
        "blobs" => Some(part.with_extension("")).filter(|ledger| is_lines(ledger)),
        _ => None,
    }
}

/// True if the name of a file says that it holds lines of JSON.
fn is_lines(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().ends_with(b".jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    #[test]
    fn non_utf8_path_is_marked_readable_and_exact() {
        let target = |path: &[u8]| Target { path: OsString::from_vec(path.to_vec()).into(), named: true, bundle: None };
        assert_eq!(target(b"a.jsonl").mark(), br#","ledger":"a.jsonl"}"#);
        let mark = String::from_utf8(target(b"a\xff.jsonl").mark()).unwrap();
        assert_eq!(
            mark,
            format!(",\"ledger\":\"a\u{fffd}.jsonl\",\"ledger_bytes\":\"{}\"}}", BASE64.encode(b"a\xff.jsonl"))
        );
        let segment = target(b"d/a.00000000000000000000.jsonl");
        assert_eq!(segment.name(), Path::new("d/a.jsonl"));
    }

    #[test]
    fn without_mark_restores_any_entry() {
        let line = br#"{"seq":1,"data":{"ledger":"x"},"hash":"h"}"#;
        let target = Target { path: PathBuf::from("q\",\"ledger\":\"z"), named: true, bundle: None };
        let marked = [&line[..line.len() - 1], &target.mark()].concat();
        assert_eq!(without_mark(&marked), line);
    }
}

//! `cp-log follow`: print entries as they are appended, across rotation.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::output::has_lost_reader;
use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result, signals};
use cp_ledger::read::source::is_stdin;
use cp_ledger::read::{End, Lines, backward, open};
use cp_ledger::sessions::Session;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::ledger::{self, LedgerOperand};
use crate::reading::{Filters, Printer, Select, Step, Target, is_ledger_or_empty, refuse_waiting_input, step};

/// How often a file is looked at if nothing reports its changes, as on a file system of another machine.
const POLL: Duration = Duration::from_millis(100);

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["{} append hello && {} follow --last 1 --limit 1"],
    sort: Some("seq"),
    ..VerbDoc::new("follow", Class::Query, "entry")
};

/// Print entries as they are appended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Begin with so many of the last lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    last: u64,
    /// Stop after so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    ledger: LedgerOperand,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.ledger.file.is_none() {
        refuse_waiting_input()?;
    }
    let path = ledger::path_to_read(args.ledger.file.as_deref(), context)?;
    let session = context.options.session.clone();
    // No line of a session that does not exist will ever come.
    if let Some(named) = session.as_deref().filter(|_| args.ledger.file.is_none()) {
        Session::find(named, &context.home)?;
    }
    let select = Select::of(&args.filters, session.as_deref(), context)?;
    let mut printer = Printer::new(args.limit);
    follow(&path, args.last, &select, &mut printer, context)?;
    printer.close(None, context);
    Ok(())
}

fn follow(path: &Path, last: u64, select: &Select, printer: &mut Printer, context: &mut Context) -> Result<()> {
    if is_stdin(path) || path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Error::usage("only a file grows").hint("cp-log query - prints the lines of a stream as they come"));
    }
    let changes = changes_beside(path);
    let mut position = Position::open(path, last)?;
    context.out.streaming()?;
    loop {
        position.read(select, printer, context)?;
        context.out.flush()?;
        if printer.is_full() {
            return Ok(());
        }
        // Without appended lines nothing is written, so a closed reader must be detected.
        if has_lost_reader() {
            return Err(Error::reader_gone());
        }
        match &changes {
            Ok(changes) if signals::wait_readable(changes.as_fd(), Some(POLL))? => {
                // What changed is read from the file itself.
                let _ = rustix::io::read(changes, &mut [0; 4096]);
            }
            Ok(_) => {}
            Err(_) => std::thread::sleep(POLL),
        }
        signals::check()?;
    }
}

/// Becomes readable when a file in the directory of this one is written, or another file gets a name there.
fn changes_beside(path: &Path) -> rustix::io::Result<OwnedFd> {
    let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(".".as_ref());
    inotify::add_watch(&changes, directory, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
    Ok(changes)
}

/// How far which file was read.
struct Position {
    path: PathBuf,
    target: Target,
    file: File,
    offset: u64,
}

impl Position {
    fn open(path: &Path, last: u64) -> Result<Self> {
        let (file, target) = (open(path)?, Target::named(path));
        let size = file.metadata().map_err(|e| Error::io("cannot read the size", e).in_file(path))?.len();
        is_ledger_or_empty(&file, size, &target)?;
        let mut offset = None;
        let mut reader = backward(path)?;
        let mut left = last;
        while let Some(raw) = reader.next()? {
            // A line that is being written is printed once it is complete.
            if raw.end == End::File {
                offset = Some(raw.offset);
                continue;
            }
            if left == 0 {
                offset.get_or_insert(raw.offset + raw.bytes.len() as u64 + 1);
                break;
            }
            offset = Some(raw.offset);
            left -= 1;
        }
        let offset = offset.unwrap_or(0);
        Ok(Self { path: path.to_owned(), target, file, offset })
    }

    /// Prints what is new, going on in the next file where this one was closed.
    fn read(&mut self, select: &Select, printer: &mut Printer, context: &mut Context) -> Result<()> {
        loop {
            // Checked before reading: after the rename nothing is appended to the old file any more.
            let replaced = self.replaced();
            let size = self.size()?;
            if size < self.offset {
                return Err(Error::new(cp_common::Code::Conflict, "the file was truncated").in_file(&self.path));
            }
            let mut reader = Lines::new(self.file.try_clone()?, &self.path, self.offset, size);
            while let Some(raw) = reader.next()? {
                if raw.end == End::File {
                    break;
                }
                self.offset = raw.offset + raw.bytes.len() as u64 + 1;
                match step(&raw, 0, &self.target, select) {
                    Some(Step::Fault(e)) => context.out.item_failed(e)?,
                    Some(Step::Entry(view)) if !printer.print(&self.target, &view, context)? => return Ok(()),
                    _ => {}
                }
            }
            if !replaced {
                return Ok(());
            }
            self.file = open(&self.path)?;
            self.offset = 0;
        }
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| Error::io("cannot read the size", e).in_file(&self.path))?.len())
    }

    /// True if another file has taken the name of this one.
    fn replaced(&self) -> bool {
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (std::fs::metadata(&self.path).map(id), self.file.metadata().map(id)) {
            (Ok(named), Ok(open)) => named != open,
            _ => false,
        }
    }
}

//! `cp-session import`: a session from a transcript of another program. The same transcript again adds only what is new in it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::context::options::AppendOptions;
use cp_common::home::{Session, lock, make_directory};
use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::creation::{create, working_directory};
use crate::round::turn_entry;
use crate::transcript::{Imported, Mode, Start, must_be_open};
use crate::transcripts::{self, Transcript};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "import",
    class: Class::Append,
    output: "session_imported",
    examples: &[
        "echo '[{\"conversation_id\":\"c\",\"prompt\":\"hi\",\"response\":\"hello\"}]' > log.json; cp-session import log.json",
    ],
    events: &["session_start", "message"],
    ..VerbDoc::EMPTY
};

/// Make a session from a transcript of Claude Code, codex or llm
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The transcript
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    append: AppendOptions,
}

/// A session that was imported.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Answer {
    /// The session. A dry run makes none.
    session_id: Option<String>,
    /// Its ledger.
    path: Option<String>,
    /// Whose transcript it is: `claude_code`, `codex` or `llm`.
    format: String,
    /// How many turns the transcript has.
    turns: usize,
    /// How many of them are new in the session.
    added: usize,
    /// How many lines of the transcript could not be read.
    skipped: u64,
    /// Where the first new one is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Answer {
    fn text(&self) -> String {
        self.session_id.clone().unwrap_or_else(|| format!("would import {} turns", self.turns))
    }
}

/// The note of an earlier import: the session it went to, and how many turns it had.
#[derive(Serialize, Deserialize)]
struct Known {
    session: PathBuf,
    turns: usize,
}

/// The largest transcript: it is held in memory.
const LIMIT: u64 = 1 << 30;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let bytes = bytes_of(&args.file)?;
    let transcript = transcripts::read(&bytes).map_err(|e| e.in_file(&args.file))?;
    if transcript.skipped > 0 {
        let lines = if transcript.skipped == 1 { "1 line" } else { &format!("{} lines", transcript.skipped) };
        let message = format!("skipped the parts of {lines} that cannot be read");
        context.out.notice("lines_skipped", Severity::Warning, message.clone());
        context.warn(&message);
    }
    // A transcript without an id is recognised by its first line: it may have grown since.
    let id = match transcript.id.as_str() {
        "" => Hash::of(bytes.split(|byte| *byte == b'\n').next().unwrap_or_default()).to_string(),
        id => id.to_owned(),
    };
    let from = Imported { format: transcript.format.to_owned(), id };
    let preview = || Ok(answer(None, &transcript, 0, None));
    let asked = ("import", &from, Hash::of(&bytes).to_string());
    idempotency::answer(&args.append, &asked, context, preview, |context| import(&transcript, &from, context))
}

fn bytes_of(file: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such file").in_file(file),
        _ => Error::io("reading", e).in_file(file),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LIMIT {
        return Err(Error::validation(format!("not a regular file of at most {LIMIT} bytes")).in_file(file));
    }
    std::fs::read(file).map_err(failed)
}

fn answer(session: Option<&Session>, transcript: &Transcript, added: usize, receipt: Option<Receipt>) -> Answer {
    Answer {
        session_id: session.map(|session| session.id.clone()),
        path: session.map(|session| session.file().display().to_string()),
        format: transcript.format.to_owned(),
        turns: transcript.turns.len(),
        added,
        skipped: transcript.skipped,
        receipt,
    }
}

fn import(transcript: &Transcript, from: &Imported, context: &Context) -> Result<Answer> {
    let (mut slot, known) = slot_of(from, context)?;
    // The session that a hook of that program began is about the same conversation.
    let hosted = || context.home.host_session(from.format.trim_end_matches("_code"), &from.id);
    let known = known.or_else(|| Some(Known { session: hosted()?.0.directory, turns: 0 }));
    let entries = |id: &str, skip: usize| -> Vec<Entry> {
        transcript.turns.iter().skip(skip).map(|turn| turn_entry(id, turn)).collect()
    };
    let before = known.and_then(|known| Some((session_at(&known.session)?, known.turns)));
    let (session, added, receipt) = if let Some((session, before)) = before {
        let new = entries(&session.id, before);
        let added = new.len();
        let mut receipt = None;
        if added > 0 {
            must_be_open(&session.file())?;
            receipt = Ledger::open_existing(&session.file(), Sync::Line)?.append_all(new)?.into_iter().next();
        }
        (session, added, receipt)
    } else {
        let start = Start {
            agent: context.agent(None),
            tier: context.tier(),
            mode: Mode::Persistent,
            cwd: working_directory(),
            imported_from: Some(from.clone()),
            ..Start::default()
        };
        let (session, receipt) = create(&start, context, |id| entries(id, 0))?;
        (session, transcript.turns.len(), Some(receipt))
    };
    let known = Known { session: session.directory.clone(), turns: transcript.turns.len() };
    let text = cp_common::wire::raw(&known)?;
    let stored = slot.rewind().and_then(|()| slot.set_len(0)).and_then(|()| slot.write_all(text.get().as_bytes()));
    stored.map_err(|e| Error::io("recording what was imported", e))?;
    Ok(answer(Some(&session), transcript, added, receipt))
}

fn session_at(directory: &Path) -> Option<Session> {
    let id = directory.file_name()?.to_str()?.to_owned();
    directory.join(cp_common::home::sessions::FILE).is_file().then(|| Session { id, directory: directory.to_owned() })
}

/// The note of earlier imports of this transcript, locked: of two imports at once the second finds what the first did.
fn slot_of(from: &Imported, context: &Context) -> Result<(File, Option<Known>)> {
    let directory = context.home.state("imports");
    make_directory(&directory)?;
    let path = directory.join(Hash::of(format!("{}\n{}", from.format, from.id).as_bytes()).hex());
    let failed = |e: std::io::Error| Error::io("opening the note of earlier imports", e).in_file(&path);
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    lock(&file).map_err(|e| e.in_file(&path))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    if text.is_empty() {
        return Ok((file, None));
    }
    let known = serde_json::from_str(&text).map_err(|e| {
        Error::new(Code::Integrity, format!("damaged: {e}"))
            .in_file(&path)
            .hint("delete the file to import the transcript as a new session")
    })?;
    Ok((file, Some(known)))
}

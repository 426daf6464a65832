//! `cp-log bind`: sign one root over many ledgers, and compare the ledgers that `cp-log verify --bound` finds with it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::AppendOptions;
use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result, signals};
use cp_ledger::proof::bound::{Bound, Member};
use cp_ledger::proof::checkpoint::{Held, checkpoint_path, read_checkpoint};
use cp_ledger::proof::fault::Kind;
use cp_ledger::proof::leaves::origin_of;
use cp_ledger::proof::note::{Checkpoint, Note, Signer, Verifier};
use cp_ledger::read::source::is_stdin;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::audit::is_ledger;
use crate::ledger::path_of;
use crate::prove::current;
use crate::reading::{Group, to_read};
use crate::verified::BoundStatus;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "bind",
    class: Class::Append,
    output: "bound",
    examples: &["{} append -f a.jsonl hello && {} keygen B && {} bind a.jsonl --key B -o b.note"],
    events: &["ledger.bind"],
    ..VerbDoc::EMPTY
};

/// Sign one root over many ledgers as they are now
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The key that signs
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    /// Write the bound to this file; an older one is replaced only if every ledger in it continues (default: print it)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    append: AppendOptions,
    /// Ledgers or directories of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// A bound.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Signed {
    /// The file of the bound, where one was named.
    file: Option<String>,
    /// The name of the bound, which comes from its root.
    origin: String,
    /// How many ledgers it covers.
    ledgers: u64,
    /// How many lines they have.
    lines: u64,
    /// The root of the tree of their checkpoints, in base 64.
    root: String,
    /// The bound itself, where no file was named; empty where a dry run signs nothing.
    bound: Option<String>,
    /// The entry that says so, where one was made.
    receipt: Option<Receipt>,
    /// True if it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Signed {
    fn text(&self) -> String {
        format!("{} {} ledgers {}", self.origin, self.ledgers, self.root)
    }

    fn raw(&self) -> Vec<u8> {
        self.bound.clone().unwrap_or_default().into_bytes()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let output = args.output.as_ref().map(std::path::absolute).transpose()?;
    let record = std::path::absolute(path_of(None, context))?;
    output.iter().chain([&record]).try_for_each(|path| context.home.check_writable(path))?;
    let named: Vec<PathBuf> = args.files.iter().map(std::path::absolute).collect::<std::io::Result<_>>()?;
    let asked = ("bind", named, output.clone(), std::path::absolute(&args.key)?);
    let AppendOptions { dry_run, request_id } = &args.append;
    // A request that was answered before reads no files.
    let bind = |context: &mut Context| {
        let groups = ledgers(Group::all(&to_read(&args.files, context)?, context), context)?;
        Bind { args, groups, output, record, signer: Signer::load(&args.key)? }.done(*dry_run)
    };
    let signed = match dry_run {
        true => bind(context)?,
        false => idempotency::once(request_id.as_deref(), &asked, context, bind)?,
    };
    context.out.answer(&signed)
}

/// The groups that are ledgers. Other files are reported if they were found in a directory, and an error if they were named.
fn ledgers(groups: Vec<Group>, context: &mut Context) -> Result<Vec<Group>> {
    let mut ledgers = Vec::new();
    for group in groups {
        let Some(first) = group.files.first() else { continue };
        if is_ledger(first)? {
            ledgers.push(group);
        } else {
            let message = format!("{} is not a ledger", first.path.display());
            context.out.notice("not_a_ledger", Severity::Info, message);
        }
    }
    if ledgers.is_empty() {
        return Err(Error::not_found("no ledger to bind").hint("name ledgers, or a directory that has some"));
    }
    Ok(ledgers)
}

struct Bind<'a> {
    args: &'a Args,
    groups: Vec<Group>,
    output: Option<PathBuf>,
    /// The ledger that records the bound.
    record: PathBuf,
    signer: Signer,
}

impl Bind<'_> {
    fn done(&self, dry_run: bool) -> Result<Signed> {
        // Held to the end: of two that bind at once, the one that saw fewer lines must not come last.
        let held = self.output.as_deref().map(|path| Held::take_with(path, Bound::read)).transpose()?;
        let before = held.as_ref().and_then(Held::newest);
        if let (Some(before), Some(path)) = (before, &self.output)
            && before.note().is_signed_by(&self.signer.verifier()) != Some(true)
        {
            return Err(Error::new(Code::Integrity, "the existing bound is not signed by this key")
                .in_file(path)
                .hint("use its key, or write to another file"));
        }
        let members = self.members(before)?;
        let lines = members.iter().map(|member| member.checkpoint.size).sum();
        let Checkpoint { origin, size: ledgers, root } = Bound::checkpoint_of(&members);
        let file = self.output.as_ref().map(|path| path.display().to_string());
        let root = BASE64.encode(root);
        let bound = file.is_none().then(String::new);
        let mut signed = Signed { file, origin, ledgers, lines, root, bound, receipt: None, dry_run };
        if dry_run {
            return Ok(signed);
        }
        let entry = Entry::new("ledger.bind")
            .with("bound", &signed.origin)
            .with("file", &signed.file)
            .with("ledgers", &signed.ledgers)
            .with("lines", &signed.lines)
            .with("root", &signed.root)
            .with("verifier", &self.signer.verifier().to_text());
        let text = Bound::sign(members, &self.signer).to_text();
        // Before the file is written, so that every signature that was handed out is on the ledger.
        signed.receipt = Some(Ledger::open(&self.record, Sync::Line)?.append(entry)?);
        match held {
            Some(held) => held.write(&text)?,
            None => signed.bound = Some(text),
        }
        Ok(signed)
    }

    /// The members to sign, in order.
    fn members(&self, before: Option<&Bound>) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        for group in &self.groups {
            members.push(self.member(group, before)?);
            signals::check()?;
        }
        Bound::order(&mut members)?;
        let is_gone = |gone: &&Member| {
            members.binary_search_by(|member| member.checkpoint.origin.cmp(&gone.checkpoint.origin)).is_err()
        };
        let Some(gone) = before.into_iter().flat_map(Bound::members).find(is_gone) else { return Ok(members) };
        let message = format!("missing: the existing bound has {}", gone.checkpoint.origin);
        Err(Error::new(Code::Conflict, message)
            .with("origin", gone.checkpoint.origin.as_str())
            .in_file(Path::new(&gone.file))
            .hint("also name that ledger, or write to another file"))
    }

    fn member(&self, group: &Group, before: Option<&Bound>) -> Result<Member> {
        let files: Vec<PathBuf> = group.files.iter().map(|file| file.path.clone()).collect();
        if files.last() != Some(&group.ledger) {
            let message = "missing: only its closed segments are there";
            return Err(Error::new(Code::Integrity, message).in_file(&group.ledger));
        }
        let origin = files.first().map(|first| origin_of(first)).transpose()?.flatten().unwrap_or_default();
        let bound = before.and_then(|before| before.find(&origin)).map(|(_, member)| &member.checkpoint);
        let signed = read_checkpoint(&checkpoint_path(&group.ledger))?.map(|(_, checkpoint)| checkpoint);
        let earlier: Vec<&Checkpoint> = bound.into_iter().chain(&signed).collect();
        let (checkpoint, _) = current(&files, &earlier)?;
        // Relative to the operand, so that the bound does not disclose where it was made.
        let operand = self.args.files.get(group.files[0].rank().operand);
        let below = operand.and_then(|operand| group.ledger.strip_prefix(operand).ok());
        let file = below.filter(|below| !below.as_os_str().is_empty()).or(group.ledger.file_name().map(Path::new));
        Member::new(checkpoint, file.unwrap_or(&group.ledger))
    }
}

/// A bound, and which ledgers were found.
pub(crate) struct Bounded {
    bound: Bound,
    origins: HashMap<PathBuf, String>,
}

impl Bounded {
    /// Reads a bound. A wrong signature is an error at once, because then no ledger can be judged.
    pub(crate) fn load(path: &Path, key: Option<&Verifier>) -> Result<Bound> {
        let bound = Bound::load(path)?;
        key.map_or(Ok(()), |key| bound.demand(key, path))?;
        Ok(bound)
    }

    /// Reads the name of each ledger. If two have one name, both must hold; a ledger that was moved gets a notice.
    pub(crate) fn of(bound: Bound, groups: &[Group], context: &mut Context) -> Result<Self> {
        let mut origins = HashMap::new();
        for group in groups {
            let Some(first) = group.files.first().filter(|_| !group.is_part()) else { continue };
            if is_stdin(&first.path) || first.path.exists() && !first.path.is_file() {
                let error = Error::usage("cannot compare a pipe or standard input with a bound");
                return Err(error.in_file(&first.path).hint("name a file or a directory"));
            }
            // Files that cannot be read are reported with the others.
            let Ok(Some(origin)) = origin_of(&first.path) else { continue };
            if let Some((_, member)) = bound.find(&origin).filter(|(_, one)| !group.ledger.ends_with(&one.file)) {
                let message = format!("{} was bound as {}", group.ledger.display(), member.file);
                context.out.notice("moved", Severity::Warning, message);
            }
            origins.insert(group.ledger.clone(), origin);
        }
        Ok(Self { bound, origins })
    }

    fn member(&self, ledger: &Path) -> Option<&Member> {
        self.bound.find(self.origins.get(ledger)?).map(|(_, member)| member)
    }

    /// The signed checkpoint of a ledger in the bound.
    pub(crate) fn signed(&self, ledger: &Path) -> Option<(Note, Checkpoint)> {
        Some((self.bound.note().clone(), self.member(ledger)?.checkpoint.clone()))
    }

    /// True if a note is the bound's.
    pub(crate) fn is_signed_by(&self, note: &Note) -> bool {
        self.bound.note() == note
    }

    /// The status of a ledger with this fault and this last line, of which `covered` lines were found to be the signed ones.
    pub(crate) fn status(
        &self,
        ledger: &Path,
        fault: Option<Kind>,
        covered: Option<u64>,
        last: Option<u64>,
    ) -> Option<BoundStatus> {
        self.origins.get(ledger)?;
        Some(match (self.member(ledger), fault, covered) {
            (None, ..) => BoundStatus::Added,
            (Some(_), Some(Kind::Rollback), _) => BoundStatus::WentBack,
            // The lines that were bound end in an absent segment, or are damaged.
            (Some(_), Some(Kind::Segment), _) | (Some(_), None, None) => BoundStatus::Damaged,
            (Some(_), Some(_), _) => BoundStatus::Changed,
            (Some(_), None, Some(size)) if last.is_some_and(|last| last >= size) => BoundStatus::Grown,
            (Some(_), None, Some(_)) => BoundStatus::Intact,
        })
    }

    /// An error for each bound ledger that was not judged. A file that only has the name of such a ledger does not replace it.
    pub(crate) fn missing(&self, judged: &HashSet<&Path>) -> impl Iterator<Item = Error> {
        let is_judged = |(ledger, _): &(&PathBuf, &String)| judged.contains(ledger.as_path());
        let found: HashSet<&String> = self.origins.iter().filter(is_judged).map(|(_, origin)| origin).collect();
        let is_missing = move |member: &&Member| !found.contains(&member.checkpoint.origin);
        self.bound.members().iter().filter(is_missing).map(|member| {
            let Checkpoint { origin, size, .. } = &member.checkpoint;
            let message = format!("missing: the bound has {origin} with {size} lines");
            Error::new(Code::Integrity, message)
                .in_file(Path::new(&member.file))
                .with("bound", "missing")
                .with("origin", origin.as_str())
                .with("lines", *size)
                .hint("restore it; if it was moved, also name the directory where it is now")
        })
    }
}

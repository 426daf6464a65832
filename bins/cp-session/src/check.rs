//! `cp-session check`: find what is wrong with a session; with `--repair`, fix what can be fixed by appending.

use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Block, Content, Receipt, Reply, Turn};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::verifier::{self, Options};
use cp_ledger::sessions::Session;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::session::{self, SessionOperand};
use crate::transcript::{self, Insert, MESSAGE, REPAIR, Repair};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "check",
    class: Class::Append,
    output: "session_checked",
    examples: &["S=$(cp-session start --format text); cp-session check \"$S\""],
    events: &["session_repair"],
    ..VerbDoc::EMPTY
};

/// Look for damaged lines and for tool calls without a result
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    /// Move a damaged end aside, and give every open tool call a result that says so
    #[arg(long)]
    repair: bool,
    /// Exit with 1 when something is wrong
    #[arg(long)]
    strict_exit: bool,
    #[command(flatten)]
    append: AppendOptions,
}

/// The result of a check.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Checked {
    /// The session.
    session_id: String,
    /// True if nothing is wrong, or nothing is any more.
    intact: bool,
    /// Damaged lines: the first hundred.
    faults: Vec<Damage>,
    /// How many lines are damaged.
    fault_count: u64,
    /// Tool calls that have no result.
    open_calls: Vec<OpenCall>,
    /// True if they were put right now.
    repaired: bool,
    /// Where the repair is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

/// A damaged line.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Damage {
    /// Its number, from 1.
    line: u64,
    /// Where it starts in the file.
    offset: u64,
    /// The description of the fault.
    message: String,
}

/// A tool call without a result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OpenCall {
    /// The call.
    id: String,
    /// The tool.
    name: String,
    /// The place of the turn that called it.
    seq: u64,
}

impl Reply for Checked {
    fn text(&self) -> String {
        let mut lines: Vec<String> =
            self.faults.iter().map(|fault| format!("line {}: {}", fault.line, fault.message)).collect();
        lines.extend(
            self.open_calls.iter().map(|call| format!("entry {}: {} {} has no result", call.seq, call.name, call.id)),
        );
        lines.push(if self.intact { "intact" } else { "damaged" }.to_owned());
        lines.join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let answer = if args.append.dry_run {
        check(&session)?
    } else {
        let request = ("check", session::place(&session), args.repair);
        idempotency::once(args.append.request_id.as_deref(), &request, context, |_| {
            let found = check(&session)?;
            if args.repair && !found.intact { repair(&session, found) } else { Ok(found) }
        })?
    };
    if args.strict_exit && !answer.intact {
        let error = Error::new(Code::Integrity, "the session is damaged")
            .in_file(&session.file())
            .with("fault_count", answer.fault_count)
            .with("open_calls", answer.open_calls.len())
            .hint("cp-session check --repair fixes what can be fixed by appending");
        return context.out.refuse(&answer, error);
    }
    context.out.answer(&answer)
}

fn check(session: &Session) -> Result<Checked> {
    let file = session.file();
    let options = Options { json: true, closed: false };
    let report = verifier::verify(&file, None, &options, &mut |_, _| {})?;
    let open_calls = open_calls(session)?;
    let faults = report.faults.into_iter();
    let faults =
        faults.map(|fault| Damage { line: fault.line, offset: fault.offset, message: fault.message }).collect();
    Ok(Checked {
        session_id: session.id.clone(),
        intact: report.fault_count == 0 && open_calls.is_empty(),
        faults,
        fault_count: report.fault_count,
        open_calls,
        repaired: false,
        receipt: None,
    })
}

/// The calls that the turn after them does not answer, and no repair has.
fn open_calls(session: &Session) -> Result<Vec<OpenCall>> {
    let file = session.file();
    let (mut open, mut waiting): (Vec<OpenCall>, Vec<OpenCall>) = (Vec::new(), Vec::new());
    let mut answered: Vec<String> = Vec::new();
    transcript::each_entry(&file, &mut |line| {
        if line.is_event(REPAIR) {
            for insert in transcript::repair_of(line, &file)?.inserts {
                answered.extend(results(&insert.turn));
            }
        } else if line.is_event(MESSAGE) {
            let turn = transcript::turn_of(line, &file)?;
            let results = results(&turn);
            open.extend(waiting.drain(..).filter(|call| !results.contains(&call.id)));
            waiting = calls(&turn, line.seq());
        }
        Ok(())
    })?;
    open.append(&mut waiting);
    open.retain(|call| !answered.contains(&call.id));
    Ok(open)
}

fn results(turn: &Turn) -> Vec<String> {
    let ids = |block: &Block| Some(block.view().ok()?.tool_use_id?.into_owned());
    turn.content.blocks().iter().filter_map(ids).collect()
}

fn calls(turn: &Turn, seq: u64) -> Vec<OpenCall> {
    let call = |block: &Block| {
        let view = block.view().ok().filter(|view| view.kind == "tool_use")?;
        Some(OpenCall { id: view.id?.into_owned(), name: view.name.unwrap_or_default().into_owned(), seq })
    };
    turn.content.blocks().iter().filter_map(call).collect()
}

fn repair(session: &Session, found: Checked) -> Result<Checked> {
    let mut ledger = Ledger::open_existing(&session.file(), Sync::Line)?;
    let mut receipt = None;
    if found.fault_count > 0 && ledger.damaged_tail()?.is_some() {
        receipt = Some(ledger.repair_tail()?);
    }
    let mut inserts: Vec<Insert> = Vec::new();
    for call in &found.open_calls {
        let block = Block::tool_result(&call.id, "no result: the call was interrupted", true);
        match inserts.iter_mut().find(|insert| insert.after_seq == call.seq) {
            Some(insert) => {
                let blocks = insert.turn.content.blocks().into_iter().chain([block]).collect();
                insert.turn.content = Content::Blocks(blocks);
            }
            None => inserts.push(Insert { after_seq: call.seq, turn: Turn::of("user", Content::Blocks(vec![block])) }),
        }
    }
    if !inserts.is_empty() {
        receipt = Some(ledger.append(Entry::new(REPAIR).session(&session.id).data(&Repair { inserts }))?);
    }
    // Damage in the middle stays as it is: what was written there is lost.
    let after = check(session)?;
    Ok(Checked { repaired: receipt.is_some(), receipt, open_calls: found.open_calls, ..after })
}

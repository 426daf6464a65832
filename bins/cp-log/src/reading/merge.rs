//! The entries of many ledgers in the order of time, from either end. Only some files are open at a time: memory does
//! not grow with their number but by an entry each.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use cp_common::{Context, Result};
use cp_ledger::format::line::Line;
use serde::{Deserialize, Serialize};

use crate::reading::reader::Position;
use crate::reading::{Direction, Rank, Reader, Select, Step, Target, View};

/// How many files are kept open.
const OPEN: usize = 32;

/// Where a page ended: behind the entry `seq` of a ledger. Where ledgers are merged `time` is how far the order had
/// come; it is not the entry's own if the writer's clock had gone backward before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) time: Option<String>,
    pub(crate) operand: usize,
    /// The path, each byte of which is kept.
    pub(crate) ledger: Vec<u8>,
    pub(crate) seq: u64,
}

impl Place {
    pub(crate) fn new(time: Option<&str>, rank: &Rank, seq: u64) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let ledger = rank.ledger.as_os_str().as_bytes().to_vec();
        Self { time: time.map(str::to_owned), operand: rank.operand, ledger, seq }
    }

    pub(crate) fn rank(&self) -> Rank {
        use std::os::unix::ffi::OsStringExt as _;
        Rank { operand: self.operand, ledger: PathBuf::from(std::ffi::OsString::from_vec(self.ledger.clone())) }
    }
}

/// The next entry of one ledger.
pub(crate) struct Head {
    /// The ledger.
    pub(crate) rank: Rank,
    /// The file that it is in.
    pub(crate) target: Target,
    pub(crate) ts: String,
    pub(crate) seq: u64,
    written: Vec<u8>,
    index: usize,
    file: usize,
    at: Option<Position>,
}

impl Head {
    /// The entry; `None` never, as it was one when it was read.
    pub(crate) fn view(&self) -> Option<View<'_>> {
        Line::parse(&self.written).as_ref().map(View::of_line)
    }
}

/// Ledgers that are merged.
pub(crate) struct Merge<'a> {
    ledgers: Vec<(Rank, Vec<Target>)>,
    select: &'a Select,
    direction: Direction,
    heads: BTreeMap<(String, Rank), Head>,
    /// Readers that stand behind the head of their ledger; the one used last is last.
    open: Vec<(usize, Reader)>,
}

impl<'a> Merge<'a> {
    /// Begins behind `after`, or at the end where `direction` begins.
    pub(crate) fn new(
        ledgers: Vec<(Rank, Vec<Target>)>,
        select: &'a Select,
        direction: Direction,
        after: Option<&Place>,
        context: &mut Context,
    ) -> Result<Self> {
        let mut merge = Self { ledgers, select, direction, heads: BTreeMap::new(), open: Vec::new() };
        let after = after.map(|after| (after.time.clone().unwrap_or_default(), after.rank(), after.seq));
        for index in 0..merge.ledgers.len() {
            let rank = merge.ledgers[index].0.clone();
            let is_passed = |view: &View<'_>| {
                let Some((time, last, seq)) = &after else { return false };
                let ((place, end), (time, seq)) = if rank == *last {
                    // Its numbers are its order.
                    (("", view.seq), ("", *seq))
                } else {
                    // The entry that the page ended with was of another ledger: of equal times the order of ledgers
                    // decides.
                    let later = u64::from(rank > *last);
                    ((view.ts, later), (time.as_str(), u64::from(direction == Direction::Backward)))
                };
                match direction {
                    Direction::Forward => (place, end) <= (time, seq),
                    Direction::Backward => (place, end) >= (time, seq),
                }
            };
            merge.advance(index, 0, None, &is_passed, context)?;
        }
        Ok(merge)
    }

    /// The later of two times in this order.
    pub(crate) fn further(&self, reached: String, time: &str) -> String {
        let is_further = match self.direction {
            Direction::Forward => time > reached.as_str(),
            Direction::Backward => time < reached.as_str(),
        };
        if is_further { time.to_owned() } else { reached }
    }

    /// The next entry of all; its ledger moves on to the one after it.
    pub(crate) fn next(&mut self, context: &mut Context) -> Result<Option<Head>> {
        let next = match self.direction {
            Direction::Forward => self.heads.pop_first(),
            Direction::Backward => self.heads.pop_last(),
        };
        let Some((_, head)) = next else { return Ok(None) };
        self.advance(head.index, head.file, head.at, &|_| false, context)?;
        Ok(Some(head))
    }

    /// Finds the next matching entry of a ledger that was not passed, from where file number `file` stands on.
    fn advance(
        &mut self,
        index: usize,
        mut file: usize,
        mut at: Option<Position>,
        is_passed: &dyn Fn(&View<'_>) -> bool,
        context: &mut Context,
    ) -> Result<()> {
        let kept = self.open.iter().position(|(of, _)| *of == index);
        let mut kept = kept.map(|kept| self.open.remove(kept).1);
        let mut is_skipping = true;
        loop {
            let (rank, files) = &self.ledgers[index];
            let target = match self.direction {
                Direction::Forward => files.get(file),
                Direction::Backward => files.iter().rev().nth(file),
            };
            let Some(target) = target.cloned() else { return Ok(()) };
            let mut found: Option<Head> = None;
            let mut step = |step: Step<'_>| {
                match step {
                    Step::Wait => context.out.flush()?,
                    Step::Fault(e) => context.out.item_failed(e)?,
                    Step::Entry(view) => {
                        is_skipping = is_skipping && is_passed(&view);
                        if !is_skipping {
                            found = Some(Head {
                                rank: rank.clone(),
                                target: target.clone(),
                                ts: view.ts.to_owned(),
                                seq: view.seq,
                                written: view.written.to_vec(),
                                index,
                                file,
                                at: None,
                            });
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            let reader = match (kept.take(), at.take()) {
                (Some(reader), _) => Ok(reader),
                (None, Some(at)) => Reader::resume(&target, self.direction, &at),
                (None, None) => Reader::open(&target, self.direction),
            };
            let outcome = reader.and_then(|mut reader| reader.each(self.select, &mut step).map(|_| reader));
            match outcome {
                Err(e) if e.is_fatal() => return Err(e),
                Err(e) => context.out.item_failed(e)?,
                Ok(reader) => {
                    if let Some(mut head) = found {
                        head.at = reader.position();
                        self.keep(index, reader);
                        self.heads.insert((head.ts.clone(), head.rank.clone()), head);
                        return Ok(());
                    }
                }
            }
            file += 1;
        }
    }

    /// Keeps a reader open, and closes the one that was not used for the longest time if there are too many.
    fn keep(&mut self, index: usize, reader: Reader) {
        self.open.push((index, reader));
        if self.open.len() > OPEN
            && let Some(oldest) = self.open.iter().position(|(_, reader)| reader.position().is_some())
        {
            self.open.remove(oldest);
        }
    }
}

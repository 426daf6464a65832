//! The entries of ledgers in the order of time, from either end. Only some files are open at a time: memory does not grow
//! with their number but by an entry each.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use cp_common::{Context, Result};
use cp_ledger::format::line::Line;
use serde::{Deserialize, Serialize};

use crate::reading::reader::Position;
use crate::reading::{Direction, Group, Rank, Reader, Select, Step, Target, View};

/// How many files are kept open.
const OPEN: usize = 32;

/// Where a page ended: behind the entry `seq` of a ledger. `time` is how far the order had come; it is not the entry's own
/// if the writer's clock had gone backward before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Place {
    time: String,
    rank: Rank,
    seq: u64,
}

/// The next entry of one ledger.
pub(crate) struct Head {
    seq: u64,
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
    ledgers: Vec<Group>,
    select: &'a Select,
    direction: Direction,
    /// The heads by their time and their ledger.
    heads: BTreeMap<(String, usize), Head>,
    /// Readers that stand behind the head of their ledger; the one used last is last.
    open: Vec<(usize, Reader)>,
    /// How far the order has come.
    reached: Option<String>,
}

impl<'a> Merge<'a> {
    /// Begins behind `after`, or at the end where `direction` begins.
    pub(crate) fn new(
        mut ledgers: Vec<Group>,
        select: &'a Select,
        direction: Direction,
        after: Option<&Place>,
        context: &mut Context,
    ) -> Result<Self> {
        if direction == Direction::Backward {
            for ledger in &mut ledgers {
                ledger.files.reverse();
            }
        }
        let reached = after.map(|after| after.time.clone());
        let mut merge = Self { ledgers, select, direction, heads: BTreeMap::new(), open: Vec::new(), reached };
        for index in 0..merge.ledgers.len() {
            let order = after.map(|after| merge.ledgers[index].rank.cmp(&after.rank));
            let is_passed = |view: &View<'_>| {
                let (Some(after), Some(order)) = (after, order) else { return false };
                // A ledger's numbers are its order. Else of equal times the order of ledgers decides.
                let of_time = view.ts.cmp(&after.time).then(order);
                let place = if order.is_eq() { view.seq.cmp(&after.seq) } else { of_time };
                if direction == Direction::Forward { place.is_le() } else { place.is_ge() }
            };
            merge.advance(index, 0, None, &is_passed, context)?;
        }
        Ok(merge)
    }

    /// The next entry of all; its ledger moves on from `before`, which was the next.
    pub(crate) fn next(&mut self, before: Option<&Head>, context: &mut Context) -> Result<Option<Head>> {
        if let Some(before) = before {
            self.advance(before.index, before.file, before.at, &|_| false, context)?;
        }
        let next = match self.direction {
            Direction::Forward => self.heads.pop_first(),
            Direction::Backward => self.heads.pop_last(),
        };
        Ok(next.map(|((_, _), head)| head))
    }

    /// The file that an entry is in.
    pub(crate) fn target(&self, head: &Head) -> &Target {
        &self.ledgers[head.index].files[head.file]
    }

    /// The place behind an entry that was printed.
    pub(crate) fn place(&mut self, head: &Head) -> Place {
        let ts = head.view().map_or("", |view| view.ts);
        let is_further = |reached: &String| match self.direction {
            Direction::Forward => ts > reached.as_str(),
            Direction::Backward => ts < reached.as_str(),
        };
        if self.reached.as_ref().is_none_or(is_further) {
            self.reached = Some(ts.to_owned());
        }
        let (time, rank) = (self.reached.clone().unwrap_or_default(), self.ledgers[head.index].rank.clone());
        Place { time, rank, seq: head.seq }
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
        while let Some(target) = self.ledgers[index].files.get(file) {
            let mut found: Option<(String, Head)> = None;
            let mut step = |step: Step<'_>| {
                match step {
                    Step::Wait => context.out.flush()?,
                    Step::Fault(e) => context.out.item_failed(e)?,
                    Step::Entry(view) => {
                        is_skipping = is_skipping && is_passed(&view);
                        if !is_skipping {
                            let head = Head { seq: view.seq, written: view.written.to_vec(), index, file, at: None };
                            found = Some((view.ts.to_owned(), head));
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            let at = at.take();
            let reader = kept.take().map_or_else(|| Reader::open(target, self.direction, at), Ok);
            match reader.and_then(|mut reader| reader.each(self.select, &mut step).map(|_| reader)) {
                Err(e) if e.is_fatal() => return Err(e),
                Err(e) => context.out.item_failed(e)?,
                Ok(reader) => {
                    if let Some((ts, mut head)) = found {
                        head.at = reader.position();
                        self.keep(index, reader);
                        self.heads.insert((ts, index), head);
                        return Ok(());
                    }
                }
            }
            file += 1;
        }
        Ok(())
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

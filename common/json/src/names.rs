//! The member names of an object, each at most once.

use std::collections::HashSet;
use std::ops::Range;

use crate::sink::Sink;

/// From this many members on, an object's names are kept in a hash set.
const MANY_MEMBERS: usize = 24;

/// The member names of one object.
pub(crate) struct Names {
    pub(crate) base: usize,
    /// One bit for each (length, last byte) met, so that most new names need no comparison.
    pub(crate) seen: u64,
    pub(crate) many: Option<HashSet<Box<[u8]>>>,
}

impl Names {
    /// Adds a name; false if it was there.
    pub(crate) fn insert<S: Sink>(&mut self, name: Range<usize>, all: &mut Vec<Range<usize>>, sink: &S) -> bool {
        let text = sink.taken(name.clone());
        if let Some(many) = &mut self.many {
            return many.insert(text.into());
        }
        let last = text.last().copied().unwrap_or(0);
        let bit = 1_u64 << ((usize::from(last) ^ (text.len() << 2)) & 63);
        let open = &all[self.base..];
        if self.seen & bit != 0 && open.iter().any(|other| sink.taken(other.clone()) == text) {
            return false;
        }
        self.seen |= bit;
        if open.len() == MANY_MEMBERS {
            let mut many: HashSet<Box<[u8]>> = open.iter().map(|other| sink.taken(other.clone()).into()).collect();
            many.insert(text.into());
            self.many = Some(many);
        } else {
            all.push(name);
        }
        true
    }
}

//! A thread pool for the items of a stream. Results are returned in the order of submission; the number of items in
//! memory is limited.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::signals;
use crate::wire::{Error, Result};

/// Maximum number of items in progress per thread: some wait for their turn while others are processed.
const WINDOW: usize = 4;

/// A thread pool for tasks `T` with results `R`.
pub struct Jobs<T, R> {
    board: Arc<Board<T, R>>,
    threads: usize,
    started: usize,
    work: Arc<dyn Fn(T) -> R + Send + Sync>,
}

struct Board<T, R> {
    state: Mutex<State<T, R>>,
    /// Signalled when a task is submitted or done, or the pool is closed.
    changed: Condvar,
    /// Readable while there may be results that have not been returned.
    done: OwnedFd,
}

struct State<T, R> {
    /// The tasks whose results have not been returned, in the order of submission.
    slots: VecDeque<Slot<T, R>>,
    /// The number of tasks that were in front of them.
    passed: usize,
    closed: bool,
}

enum Slot<T, R> {
    /// No task after a waiting one has begun.
    Waiting(T),
    Busy,
    Done(R),
}

impl<T: Send + 'static, R: Send + 'static> Jobs<T, R> {
    /// Prepares up to `threads` threads that run `work`. Each is started when it is needed.
    pub fn new(threads: usize, work: impl Fn(T) -> R + Send + Sync + 'static) -> Result<Self> {
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("preparing threads", e).fatal())?;
        let state = Mutex::new(State { slots: VecDeque::new(), passed: 0, closed: false });
        let board = Arc::new(Board { state, changed: Condvar::new(), done });
        Ok(Self { board, threads: threads.max(1), started: 0, work: Arc::new(work) })
    }

    /// Returns a descriptor that is readable when results may be ready, for [`crate::stream::filter::Filter::wakes`].
    pub fn wakes(&self) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.board.done, 0).map_err(|e| Error::io("preparing threads", e).fatal())
    }

    /// True if another task may be submitted before a result is taken.
    pub fn has_room(&self) -> bool {
        self.pending() < self.threads * WINDOW
    }

    /// Returns the number of tasks whose results have not been returned.
    pub fn pending(&self) -> usize {
        self.board.lock().slots.len()
    }

    /// Submits a task to the next free thread.
    pub fn give(&mut self, task: T) -> Result<()> {
        let mut state = self.board.lock();
        state.slots.push_back(Slot::Waiting(task));
        let wanted = state.slots.iter().filter(|slot| !matches!(slot, Slot::Done(_))).count();
        drop(state);
        self.board.changed.notify_all();
        if self.started < self.threads.min(wanted) {
            let (board, work) = (Arc::clone(&self.board), Arc::clone(&self.work));
            std::thread::Builder::new()
                .spawn(move || board.work_off(&*work))
                .map_err(|e| Error::io("starting a thread", e).fatal())?;
            self.started += 1;
        }
        Ok(())
    }

    /// Returns the next result, in the order of submission, if it is ready.
    pub fn take(&mut self) -> Option<R> {
        // The descriptor is cleared before the results are read, so that a result that arrives in between makes it
        // readable again.
        let _ = rustix::io::read(&self.board.done, &mut [0; 8]);
        let mut state = self.board.lock();
        let Slot::Done(result) = state.slots.pop_front_if(|slot| matches!(slot, Slot::Done(_)))? else { return None };
        state.passed += 1;
        Some(result)
    }

    /// Waits for the next result; `None` if no task is pending. Fails if a signal arrives first.
    pub fn wait(&mut self) -> Result<Option<R>> {
        while self.pending() > 0 {
            if let Some(result) = self.take() {
                return Ok(Some(result));
            }
            signals::wait_readable(self.board.done.as_fd(), None)?;
        }
        Ok(None)
    }

    /// Removes the tasks that no thread has begun, the oldest first. Tasks in progress continue.
    pub fn take_back(&mut self) -> Vec<T> {
        let mut state = self.board.lock();
        let begun = state.slots.iter().take_while(|slot| !matches!(slot, Slot::Waiting(_))).count();
        let open = state.slots.split_off(begun).into_iter();
        open.filter_map(|slot| if let Slot::Waiting(task) = slot { Some(task) } else { None }).collect()
    }

    /// Returns every result that is ready within `limit`, in the order of submission, and forgets the others. Signals do
    /// not end the wait.
    pub fn drain(&mut self, limit: Duration) -> Vec<R> {
        let asked = Instant::now();
        let mut state = self.board.lock();
        while !state.slots.iter().all(|slot| matches!(slot, Slot::Done(_))) && asked.elapsed() < limit {
            let left = limit.saturating_sub(asked.elapsed());
            state = self.board.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let slots = std::mem::take(&mut state.slots);
        state.passed += slots.len();
        drop(state);
        slots.into_iter().filter_map(|slot| if let Slot::Done(result) = slot { Some(result) } else { None }).collect()
    }
}

impl<T, R> Drop for Jobs<T, R> {
    fn drop(&mut self) {
        self.board.lock().closed = true;
        self.board.changed.notify_all();
    }
}

impl<T, R> Board<T, R> {
    fn lock(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_off(&self, work: &dyn Fn(T) -> R) {
        let mut state = self.lock();
        loop {
            let next = state.slots.iter().position(|slot| matches!(slot, Slot::Waiting(_)));
            let begun = next.map(|at| (state.passed + at, std::mem::replace(&mut state.slots[at], Slot::Busy)));
            let Some((ticket, Slot::Waiting(task))) = begun else {
                if state.closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let result = work(task);
            state = self.lock();
            let at = ticket.checked_sub(state.passed);
            if let Some(slot) = at.and_then(|at| state.slots.get_mut(at)) {
                *slot = Slot::Done(result);
            }
            self.changed.notify_all();
            // If the counter is full, the descriptor is readable anyway.
            let _ = rustix::io::write(&self.done, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_first(threads: usize) -> Vec<u64> {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let opened = Arc::clone(&gate);
        let mut jobs = Jobs::new(threads, move |n: u64| {
            let (open, changed) = &*gate;
            let mut open = open.lock().unwrap();
            if n == 0 {
                while !*open {
                    open = changed.wait(open).unwrap();
                }
            }
            n
        })
        .unwrap();
        (0..8).for_each(|n| jobs.give(n).unwrap());
        let mut taken = Vec::new();
        *opened.0.lock().unwrap() = true;
        opened.1.notify_all();
        while let Some(result) = jobs.wait().unwrap() {
            taken.push(result);
        }
        taken
    }

    #[test]
    fn ordered_results_follow_submission_order() {
        assert_eq!(slow_first(1), (0..8).collect::<Vec<_>>());
        assert_eq!(slow_first(4), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn window_is_bounded_and_unstarted_tasks_can_be_taken_back() {
        let gate = Arc::new(Mutex::new(()));
        let shut = gate.lock().unwrap();
        let inner = Arc::clone(&gate);
        let mut jobs = Jobs::new(1, move |n: u32| (n, drop(inner.lock()))).unwrap();
        let mut given = 0;
        while jobs.has_room() {
            jobs.give(given).unwrap();
            given += 1;
        }
        assert_eq!(given, 4);
        let mut back = jobs.take_back();
        drop(shut);
        let done: Vec<u32> = jobs.drain(Duration::from_mins(1)).into_iter().map(|(n, ())| n).collect();
        back.splice(0..0, done);
        assert_eq!(back, [0, 1, 2, 3]);
        assert_eq!(jobs.pending(), 0);
    }
}

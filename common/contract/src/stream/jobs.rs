//! A thread pool for the items of a stream. Results are returned in the order of submission; the number of items in
//! memory is limited.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
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
    /// The results that have not been returned, in the order of submission.
    results: VecDeque<Receiver<R>>,
    threads: usize,
    started: usize,
    work: Arc<dyn Fn(T) -> R + Send + Sync>,
}

struct Board<T, R> {
    queue: Mutex<Queue<T, R>>,
    /// Signalled when a task is submitted, or the pool is closed.
    changed: Condvar,
    /// Readable while there may be results that have not been returned.
    done: OwnedFd,
}

struct Queue<T, R> {
    /// The tasks that no thread has begun, the oldest first, each with the sender of its result.
    waiting: VecDeque<(T, Sender<R>)>,
    closed: bool,
}

impl<T: Send + 'static, R: Send + 'static> Jobs<T, R> {
    /// Prepares up to `threads` threads that run `work`. Each is started when it is needed.
    pub fn new(threads: usize, work: impl Fn(T) -> R + Send + Sync + 'static) -> Result<Self> {
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("preparing threads", e).fatal())?;
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), closed: false });
        let board = Arc::new(Board { queue, changed: Condvar::new(), done });
        Ok(Self { board, results: VecDeque::new(), threads: threads.max(1), started: 0, work: Arc::new(work) })
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
        self.results.len()
    }

    /// Submits a task to the next free thread.
    pub fn give(&mut self, task: T) -> Result<()> {
        let (sender, result) = channel();
        self.board.lock().waiting.push_back((task, sender));
        self.board.changed.notify_one();
        self.results.push_back(result);
        if self.started < self.threads.min(self.pending()) {
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
        // The descriptor is cleared before the result is received, so that a result that arrives in between makes it
        // readable again.
        let _ = rustix::io::read(&self.board.done, &mut [0; 8]);
        let result = self.results.front()?.try_recv().ok()?;
        self.results.pop_front();
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
        let tasks: Vec<T> = self.board.lock().waiting.drain(..).map(|(task, _)| task).collect();
        // They are the newest, because threads begin the oldest first.
        self.results.truncate(self.pending() - tasks.len());
        tasks
    }

    /// Returns every result that is ready within `limit`, in the order of submission, and forgets the others. Signals do
    /// not end the wait.
    pub fn drain(&mut self, limit: Duration) -> Vec<R> {
        let asked = Instant::now();
        let results = self.results.drain(..);
        let ready =
            results.filter_map(|result| result.recv_timeout(limit.saturating_sub(asked.elapsed())).ok()).collect();
        self.board.lock().waiting.clear();
        ready
    }
}

impl<T, R> Drop for Jobs<T, R> {
    fn drop(&mut self) {
        self.board.lock().closed = true;
        self.board.changed.notify_all();
    }
}

impl<T, R> Board<T, R> {
    fn lock(&self) -> MutexGuard<'_, Queue<T, R>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_off(&self, work: &dyn Fn(T) -> R) {
        let mut queue = self.lock();
        loop {
            let Some((task, result)) = queue.waiting.pop_front() else {
                if queue.closed {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            // The pool may have forgotten the task.
            let _ = result.send(work(task));
            // If the counter is full, the descriptor is readable anyway.
            let _ = rustix::io::write(&self.done, &1_u64.to_ne_bytes());
            queue = self.lock();
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

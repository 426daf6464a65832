//! Fault injection: a command line runs with a fault at each of its system calls. The disk fails, is full, or the
//! process is killed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::counterpart::{counterpart, required};
use crate::outcome::Outcome;
use crate::place::Place;

/// The faults of a system call.
const FAULTS: [&str; 4] = ["signal=SIGKILL", "error=EIO", "error=ENOSPC", "error=EINTR"];

/// System calls that change data, or that a change waits for.
const WRITING: &str = "write,pwrite64,fdatasync,fsync,ftruncate,flock,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,\
                       mkdir,mkdirat,chmod,fchmod,fchmodat,openat";

/// Number of faults to try if not all are requested.
const SAMPLE: usize = 14;

/// A command line in a place. The working directory and the home are restored before each fault.
pub struct Sweep<'a> {
    place: &'a Place,
    arguments: Vec<String>,
    input: String,
    /// True if the only fault is that the process itself is killed, and its children are not affected.
    dies_alone: bool,
}

impl<'a> Sweep<'a> {
    /// Makes a sweep for a command line of this place's program.
    pub fn new(place: &'a Place, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { place, arguments, input: String::new(), dies_alone: false }
    }

    /// Sets the standard input.
    #[must_use]
    pub fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// Restricts the faults to killing the process itself.
    #[must_use]
    pub fn dies_alone(mut self) -> Self {
        self.dies_alone = true;
        self
    }

    /// Runs the command line once for each fault, and calls `check` with the outcome and the fault. Tries a sample of
    /// the faults, or with `CP_LONG=1` all faults, including those of reading calls. The last run has no fault. Does
    /// nothing if processes cannot be traced.
    #[track_caller]
    pub fn run(self, mut check: impl FnMut(&Outcome, &str)) {
        let Some(strace) = counterpart("strace") else { return };
        let can_trace = self.place.program(&strace).args(["-o", "/dev/null", "true"]).run().status == 0;
        if !required("the right to trace a process", can_trace) {
            return;
        }
        let before = tempfile::tempdir().expect("a temporary directory");
        let kept = [(&*self.place.work, before.path().join("work")), (&*self.place.home, before.path().join("home"))];
        for (from, to) in &kept {
            copy(from, to);
        }
        let restore = || {
            for (to, from) in &kept {
                let _ = std::fs::remove_dir_all(to);
                copy(from, to);
            }
        };
        let is_long = std::env::var_os("CP_LONG").is_some();
        let calls = self.calls(&strace, if is_long { "%file,%desc" } else { WRITING });
        let kinds = if self.dies_alone { &FAULTS[..1] } else { &FAULTS };
        let mut faults: Vec<String> = Vec::new();
        for (call, count) in &calls {
            for when in 1..=*count {
                faults.extend(kinds.iter().map(|fault| format!("{call}:{fault}:when={when}")));
            }
        }
        // An odd step reaches each kind of fault in turn.
        let step = if is_long { 1 } else { (faults.len() / SAMPLE) | 1 };
        for fault in faults.iter().step_by(step) {
            restore();
            let inject = format!("inject={fault}");
            let done = self.under(&strace, &["-qq", "-o", "/dev/null", "-e", &inject]);
            check(&done, fault);
        }
        restore();
        let done = self.place.subject().args(&self.arguments).stdin(&self.input).run();
        assert_eq!(done.status, 0, "without a fault: {done:?}");
        check(&done, "none");
    }

    fn under(&self, strace: &Path, options: &[&str]) -> Outcome {
        let options = [if self.dies_alone { &[][..] } else { &["-f"] }, options].concat();
        self.place.subject().args(&self.arguments).stdin(&self.input).under(strace, &options).run()
    }

    /// Counts the command's system calls.
    fn calls(&self, strace: &Path, set: &str) -> BTreeMap<String, usize> {
        let log = self.place.root.join("calls");
        let trace = format!("trace={set}");
        let done = self.under(strace, &["-qq", "-o", log.to_str().expect("a path in UTF-8"), "-e", &trace]);
        assert_eq!(done.status, 0, "{done:?}");
        let mut calls = BTreeMap::new();
        for line in std::fs::read_to_string(log).expect("strace has written").lines() {
            // With children, each line begins with a process id.
            let call =
                if self.dies_alone { line } else { line.split_once(' ').map_or("", |(_, rest)| rest.trim_start()) };
            if let Some((name, _)) = call.split_once('(')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.starts_with("exec")
            {
                *calls.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
        calls
    }
}

/// Copies a directory, if it exists, with the modes of its files.
fn copy(from: &Path, to: &Path) {
    let Ok(listing) = std::fs::read_dir(from) else { return };
    std::fs::create_dir_all(to).expect("a directory for the copy");
    for entry in listing {
        let entry = entry.expect("a name");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("a kind").is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("a copy");
        }
    }
}

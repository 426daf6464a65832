//! Provenance of processes: if a program is started by the command line itself or by a program that the line started.

use std::collections::HashMap;
use std::path::Path;

use crate::decision::Caller;
use crate::rules::{Arguments, is_shell, is_wrapper};
use crate::sandbox::Process;

/// Above this number of processes, those that have ended are removed.
const MANY: usize = 4096;

/// The most ancestors that are searched.
const GENERATIONS: usize = 64;

/// The kind of program in each process that has executed one.
#[derive(Default)]
pub(super) struct Provenance {
    known: HashMap<Process, Caller>,
}

impl Provenance {
    /// The kind of program in a process: the last one that it executed, or that of the process from which it was
    /// forked. Unknown ones count as programs.
    pub(super) fn of(&self, process: Process, parent: i32) -> Caller {
        let processes = std::iter::successors(Some((process, parent)), |(_, parent)| Process::find(*parent));
        let mut known = processes.take(GENERATIONS).filter_map(|(process, _)| self.known.get(&process).copied());
        known.next().unwrap_or(Caller::Program)
    }

    /// Records that a process executes a program. `is_git` is true for a git that the run cannot write.
    pub(super) fn executes(&mut self, process: Process, caller: Caller, name: &str, argv: &[String], is_git: bool) {
        if self.known.len() > MANY {
            self.known.retain(|process, _| Process::find(process.pid).is_some_and(|(found, _)| found == *process));
        }
        if caller == Caller::Line {
            // Processes that the line forked from this process before still belong to the line.
            for child in children(process.pid) {
                self.known.entry(child).or_insert(Caller::Line);
            }
        }
        let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
        let becomes = match caller {
            Caller::Line if starts_others(&name, argv) => Caller::Line,
            _ if is_git => Caller::Git,
            _ => Caller::Program,
        };
        self.known.insert(process, becomes);
    }
}

/// The children of a process that is waiting for a decision, so that it cannot create more of them now.
fn children(pid: i32) -> Vec<Process> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Some(Process::find(pid.parse().ok()?)?.0)).collect()
}

/// True if the line determines which programs a program starts: for a wrapper, or for a shell without a script, which
/// has a line after `-c` or on its standard input.
fn starts_others(name: &str, argv: &[String]) -> bool {
    is_wrapper(name) || (is_shell(name) && !has_script(name, argv))
}

/// True if a shell has a script as an operand. The caller can set any `argv[0]`.
fn has_script(name: &str, argv: &[String]) -> bool {
    let argv: Vec<String> = std::iter::once(name.to_owned()).chain(argv.iter().skip(1).cloned()).collect();
    Arguments::read(&argv).script().is_some_and(|(script, after)| {
        // A word such as `+o` unsets an option, and the next one may be its name.
        let unsets = argv[..argv.len() - after.len()].iter().any(|word| word.starts_with('+'));
        script != "-" && !unsets
    })
}

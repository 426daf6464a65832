//! Provenance of processes: if a program is started by the command line itself or by a program that the line started.

use std::collections::HashMap;
use std::path::Path;

use crate::decision::Caller;
use crate::rules::{is_shell, is_wrapper};
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
        lineage(process, parent).find_map(|process| self.known.get(&process).copied()).unwrap_or(Caller::Program)
    }

    /// Records that a process executes a program. `is_git` is true for a git that the run cannot write.
    pub(super) fn executes(&mut self, process: Process, caller: Caller, name: &str, argv: &[String], is_git: bool) {
        if self.known.len() > MANY {
            self.known.retain(|process, _| is_alive(process));
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

pub(super) fn is_alive(process: &Process) -> bool {
    Process::find(process.pid).is_some_and(|(found, _)| found == *process)
}

/// A process and its ancestors, the nearest first.
pub(super) fn lineage(process: Process, parent: i32) -> impl Iterator<Item = Process> {
    let processes = std::iter::successors(Some((process, parent)), |(_, parent)| Process::find(*parent));
    processes.map(|(process, _)| process).take(GENERATIONS)
}

/// The children of a process that is waiting for a decision, so that it cannot create more of them now.
fn children(pid: i32) -> Vec<Process> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Some(Process::find(pid.parse().ok()?)?.0)).collect()
}

/// True if the line determines which programs a program starts: for a wrapper, or for a shell without a script.
fn starts_others(name: &str, argv: &[String]) -> bool {
    is_wrapper(name) || (is_shell(name) && !has_script(argv))
}

/// True if a shell has a script as an operand, instead of a line after `-c` or on its standard input.
fn has_script(argv: &[String]) -> bool {
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" | "-" => return words.next().is_some(),
            "--rcfile" | "--init-file" => drop(words.next()),
            long if long.starts_with("--") => {}
            cluster if cluster.len() > 1 && cluster.starts_with(['-', '+']) => {
                if cluster.starts_with('-') && cluster.contains('c') {
                    return false;
                }
                // `-o` and `-O` have the next word as their value.
                if cluster.ends_with(['o', 'O']) {
                    words.next();
                }
            }
            _ => return true,
        }
    }
    false
}

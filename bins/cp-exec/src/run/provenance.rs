//! Provenance of processes: whether a program is started by the line itself or by a program that the line started.

use std::collections::HashMap;
use std::path::Path;

use crate::decision::Caller;
use crate::rules::{is_shell, is_wrapper};
use crate::sandbox::Process;

/// Processes above this number are looked through for those that have ended.
const MANY: usize = 4096;

/// The farthest ancestor that is looked at.
const GENERATIONS: usize = 64;

/// What runs in each process that has executed something.
#[derive(Default)]
pub(super) struct Provenance {
    known: HashMap<Process, Caller>,
}

impl Provenance {
    /// What runs in a process: what it executed last, or what the process that it was forked from did. An unknown one is a program.
    pub(super) fn of(&self, process: Process, parent: i32) -> Caller {
        lineage(process, parent).find_map(|process| self.known.get(&process).copied()).unwrap_or(Caller::Program)
    }

    /// Notes that the line decides what a process starts, because the process asked for that.
    pub(super) fn serves_line(&mut self, process: Process) {
        self.known.insert(process, Caller::Line);
    }

    /// Notes that a process executes a program.
    pub(super) fn executes(&mut self, process: Process, caller: Caller, name: &str, argv: &[String]) {
        if self.known.len() > MANY {
            self.known.retain(|process, _| is_alive(process));
        }
        if caller == Caller::Line {
            // What the line forked in this process before stays the line's.
            for child in children(process.pid) {
                self.known.entry(child).or_insert(Caller::Line);
            }
        }
        let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
        let becomes = match caller {
            Caller::Line if starts_others(&name, argv) => Caller::Line,
            _ if name == "git" => Caller::Git,
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

/// The children of a process that waits for a decision, and so makes no more of them now.
fn children(pid: i32) -> Vec<Process> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Some(Process::find(pid.parse().ok()?)?.0)).collect()
}

/// Whether what a program starts is chosen by the line: a wrapper, or a shell without a script.
fn starts_others(name: &str, argv: &[String]) -> bool {
    is_wrapper(name) || (is_shell(name) && !has_script(argv))
}

/// Whether a shell is given a script as an operand, and not a line with `-c` or on its standard input.
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
                // `-o` and `-O` take the next word.
                if cluster.ends_with(['o', 'O']) {
                    words.next();
                }
            }
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_with_line_goes_on_as_the_line_and_shell_with_script_does_not() {
        let starts = |line: &str| {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            starts_others(&argv[0], &argv)
        };
        for line in ["sh -c x", "bash -ec x y", "bash -o pipefail -c x", "bash --norc -c x", "bash", "env x"] {
            assert!(starts(line), "{line}");
        }
        for line in ["sh x.sh", "bash -e x.sh", "bash -o errexit x.sh", "bash -- x.sh", "make", "python3 -c x"] {
            assert!(!starts(line), "{line}");
        }
    }
}

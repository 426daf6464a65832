//! A stand-in for a program: a script that keeps how it was called and prints what the test gave it.

use std::path::PathBuf;

use crate::directory::Directory;
use crate::place::Place;

/// A fake program in `bin` of a place. A program that was [installed](Place::install) there finds it beside itself.
#[derive(Debug)]
pub struct Fake {
    /// Where it is.
    pub path: PathBuf,
    log: Directory,
}

/// What it was called with.
#[derive(Debug)]
pub struct Call {
    /// Its arguments, with blanks between them.
    pub arguments: String,
    /// Its standard input.
    pub input: String,
}

impl Fake {
    /// Makes one that reads its input to the end and prints `line`. Another of the same name takes its place.
    #[track_caller]
    pub fn printing(place: &Place, name: &str, line: &str) -> Self {
        Self::doing(place, name, &format!("cat <<'END OF THE LINE'\n{line}\nEND OF THE LINE"))
    }

    /// Makes one that reads its input to the end and then does what a script says.
    #[track_caller]
    pub fn doing(place: &Place, name: &str, script: &str) -> Self {
        let log = place.root.directory(format!("calls/{name}"));
        // A call is a directory: mkdir makes each number once, however many calls there are at a time.
        let keep = format!(
            "#!/bin/sh\nn=1; until mkdir \"{0}/$n\" 2>/dev/null; do n=$((n + 1)); done\n\
             printf '%s' \"$*\" >\"{0}/$n/arguments\"\ncat >\"{0}/$n/input\"\n{script}\n",
            log.display()
        );
        Self { path: place.root.executable(format!("bin/{name}"), keep), log }
    }

    /// The calls so far, in their order.
    pub fn calls(&self) -> Vec<Call> {
        let mut numbers: Vec<u32> = self.log.names().iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        let read = |n: &u32, part: &str| self.log.read_if_there(format!("{n}/{part}"));
        numbers.iter().map(|n| Call { arguments: read(n, "arguments"), input: read(n, "input") }).collect()
    }

    /// The last call, which must have been made.
    #[track_caller]
    pub fn last_call(&self) -> Call {
        self.calls().pop().unwrap_or_else(|| panic!("{} was not called", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints_its_line_and_keeps_its_calls() {
        let place = Place::new();
        let fake = Fake::printing(&place, "fake", "a \"b\" $c");
        assert!(fake.calls().is_empty());
        assert_eq!(place.program("fake").args(["x", "y"]).stdin("in\n").run().stdout, "a \"b\" $c\n");
        place.program("fake").run();
        let calls = fake.calls();
        assert_eq!((calls[0].arguments.as_str(), calls[0].input.as_str(), calls.len()), ("x y", "in\n", 2));
    }
}

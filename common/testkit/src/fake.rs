//! A fake program: a script that records its calls and prints output of the test's choice.

use std::path::PathBuf;

use crate::directory::Directory;
use crate::place::Place;

/// A fake program in `bin` of a place. A program that was [installed](Place::install) there finds it beside itself.
#[derive(Debug)]
pub struct Fake {
    /// Its path.
    pub path: PathBuf,
    log: Directory,
}

/// The recorded call of a fake.
#[derive(Debug)]
pub struct Call {
    /// The arguments, separated by blanks.
    pub arguments: String,
    /// The standard input.
    pub input: String,
}

impl Fake {
    /// Makes a fake that reads its input to the end and prints `line`. It replaces a fake of the same name.
    #[track_caller]
    pub fn printing(place: &Place, name: &str, line: &str) -> Self {
        Self::doing(place, name, &format!("cat <<'END OF THE LINE'\n{line}\nEND OF THE LINE"))
    }

    /// Makes a fake that reads its input to the end and then runs a script.
    #[track_caller]
    pub fn doing(place: &Place, name: &str, script: &str) -> Self {
        let log = place.root.directory(format!("calls/{name}"));
        // Each call is a directory, because mkdir assigns each number once even with concurrent calls.
        let keep = format!(
            "#!/bin/sh\nn=1; until mkdir \"{0}/$n\" 2>/dev/null; do n=$((n + 1)); done\n\
             printf '%s' \"$*\" >\"{0}/$n/arguments\"\ncat >\"{0}/$n/input\"\n{script}\n",
            log.display()
        );
        Self { path: place.root.executable(format!("bin/{name}"), keep), log }
    }

    /// Returns the calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        let mut numbers: Vec<u32> = self.log.names().iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        let read = |n: &u32, part: &str| self.log.read_if_there(format!("{n}/{part}"));
        numbers.iter().map(|n| Call { arguments: read(n, "arguments"), input: read(n, "input") }).collect()
    }

    /// Returns the last call, which must exist.
    #[track_caller]
    pub fn last_call(&self) -> Call {
        self.calls().pop().unwrap_or_else(|| panic!("{} was not called", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fake_prints_its_line_and_records_its_calls() {
        let place = Place::new();
        let fake = Fake::printing(&place, "fake", "a \"b\" $c");
        assert!(fake.calls().is_empty());
        assert_eq!(place.program("fake").args(["x", "y"]).stdin("in\n").run().stdout, "a \"b\" $c\n");
        place.program("fake").run();
        let calls = fake.calls();
        assert_eq!((calls[0].arguments.as_str(), calls[0].input.as_str(), calls.len()), ("x y", "in\n", 2));
    }
}

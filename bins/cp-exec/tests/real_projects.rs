//! Projects that others wrote: their own tests count the same inside as outside, under what `policy init --for .`
//! writes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use cp_testkit::{Program, needs, packages, pytest_environment, required, times};

use crate::exec::{Exec, rows};
use crate::projects::has_rustup;

/// A project: a `crate` in cargo's registry, `node` with its dependencies beside it, or an archive of `python`,
/// `pytest` (run by the environment that has it) or `debian`.
struct Project {
    kind: &'static str,
    name: &'static str,
    test: &'static str,
}

const PROJECTS: &str = include_str!("data/projects.tsv");

/// Prints what lies in the working directory, with modes and the targets of links, and the tracked files that changed.
const TREE: &str =
    "git status --porcelain -uno; find . -path ./.git -prune -o -type l -printf '%P -> %l\\n' -o -printf '%P %m\\n'";

/// The directory in which `.ci/run` installs projects.
fn installed() -> PathBuf {
    packages().with_file_name("projects")
}

fn cargo_home() -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo")
}

/// The directory of a crate's source, in whichever registry it is.
fn registered(name: &str) -> Option<PathBuf> {
    let registries = std::fs::read_dir(cargo_home().join("registry/src")).ok()?;
    registries.map(|registry| registry.unwrap().path().join(name)).find(|source| source.is_dir())
}

impl Project {
    /// The lines that copy the source to the working directory and that prepare it there; none if something is missing.
    fn prepare(&self) -> Option<[String; 2]> {
        let installed = installed();
        let name = self.name;
        let archive = |kind: &str| {
            let ends = [".tar.gz", ".tar.xz", ".tar.bz2"].into_iter();
            ends.map(|end| installed.join(format!("{kind}/{name}{end}"))).find(|file| file.is_file())
        };
        let nothing = || Some("true".to_owned());
        let (source, build) = match self.kind {
            "crate" if !has_rustup() => return None,
            "crate" => {
                let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/projects/crates/Cargo.lock");
                // The lock of the release would want other versions than those that were fetched.
                (registered(name), Some(format!("cp '{lock}' . && {} --no-run", cut(self.test, " -- "))))
            }
            "node" => {
                let modules = installed.join("node_modules");
                let own = modules.join(name);
                // Last its own, which may be of other versions.
                let line = format!("cp -R '{}' . && cp -R '{}/.' .", modules.display(), own.display());
                (Some(own).filter(|own| own.is_dir()), Some(line))
            }
            "pytest" => (archive("python"), pytest_environment().and_then(|_| nothing())),
            kind => (archive(kind), nothing()),
        };
        let _ = required(&format!("{name} (.ci/run fetches it)"), source.is_some());
        let source = source?;
        let copy = if source.is_dir() {
            format!("cp -R '{}/.' .", source.display())
        } else {
            // As root, tar would keep the owners, whose files root may not change inside.
            format!("tar --no-same-owner --strip-components=1 -xf '{}'", source.display())
        };
        Some([copy, build?])
    }

    /// A command line in the environment of the person who works on the project.
    fn as_person(&self, program: Program) -> Program {
        let cargo = cargo_home();
        let program = match (self.kind == "pytest").then(pytest_environment).flatten() {
            None => program.also_on_path(cargo.join("bin")),
            Some(environment) => {
                let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin", environment.display());
                program.env("PATH", path).env("VIRTUAL_ENV", environment)
            }
        };
        let program = program.env("HOME", cargo.parent().unwrap()).env("CARGO_TARGET_DIR", "target");
        program.limit(Duration::from_mins(10))
    }
}

/// The lines of an output that count tests, without their times, in an order of their own: programs may end in any.
fn counts(output: &str) -> Vec<String> {
    let marks = [
        "test result: ",
        "# tests ",
        "# pass ",
        "# fail ",
        "Ran ",
        "OK",
        "FAILED",
        "Files=",
        "Result: ",
        "# TOTAL: ",
        "# PASS: ",
        "# SKIP: ",
        "# FAIL: ",
        "*** ",
    ];
    // As pytest writes: `2 passed, 1 skipped in 0.1s`.
    let counted = |line: &&str| {
        let is_of_pytest = line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(" passed");
        is_of_pytest || marks.iter().any(|mark| line.starts_with(mark))
    };
    let mut found: Vec<String> = output.lines().map(str::trim).filter(counted).map(timeless).collect();
    found.sort();
    found
}

/// A line without the time that something took.
fn timeless(line: &str) -> String {
    let line = [" in ", "; finished"].iter().fold(line, |line, time| cut(line, time));
    // As prove writes: `Files=2, Tests=6,  3 wallclock secs`.
    line.split_once(" wallclock")
        .and_then(|(begin, _)| begin.rsplit_once(','))
        .map_or(line, |(begin, _)| begin)
        .to_owned()
}

fn cut<'a>(line: &'a str, end: &str) -> &'a str {
    line.split_once(end).map_or(line, |(begin, _)| begin)
}

/// The lines of a tree. Only the directory remains of a name with a hash, a time or a random word in it, which differ
/// in each build: something of eight and more letters and digits.
fn names(tree: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_made_up =
        |word: &str| word.len() >= 8 && word.contains(|c: char| c.is_ascii_digit()) && word.chars().all(is_of_name);
    let is_stable = |part: &&str| !part.split(|c: char| !c.is_alphanumeric()).any(is_made_up);
    let length = |line: &str| line.split_inclusive('/').take_while(is_stable).map(str::len).sum::<usize>();
    tree.lines().map(|line| &line[..length(line)]).collect()
}

fn compare(project: &Project) {
    let Some([copy, build]) = project.prepare() else { return };
    let exec = Exec::without_policy();
    let outside = |script: &str| project.as_person(exec.outside(script)).run();
    let commit = "git init -q && git config user.name N && git config user.email n@x.y && git add -A \
        && git -c gc.auto=0 commit -qm x";
    outside(&format!("{copy} && {commit} && {build} && cp -a . ../fresh")).success();

    let expected = outside(&format!("({}) 2>&1", project.test));
    let expected_counts = counts(&expected.stdout);
    assert!(!expected_counts.is_empty(), "{}: nothing is counted outside: {expected:?}", project.name);
    let expected_tree = outside(TREE).success().stdout;

    outside("cd .. && mv work ran && mv fresh work").success();
    project.as_person(exec.command(&["policy", "init", "--for", "."])).run().success();
    let run = exec.command(&["--timeout", "300", "--format", "raw", "-c", project.test]);
    let inside = project.as_person(run).run();
    let printed = [inside.stdout.as_str(), inside.stderr.as_str()].concat();
    assert_eq!(
        (inside.status, counts(&printed)),
        (expected.status, expected_counts),
        "{}: {inside:?}\noutside: {expected:?}",
        project.name
    );
    assert_eq!(names(&outside(TREE).success().stdout), names(&expected_tree), "{}: {inside:?}", project.name);
}

#[test]
fn own_tests_of_real_projects_count_the_same_inside() {
    needs!("node", "python3");
    let projects: Vec<_> = rows(PROJECTS).take(times(12, usize::MAX)).collect();
    std::thread::scope(|scope| {
        for share in projects.chunks(projects.len().div_ceil(4)) {
            scope.spawn(|| share.iter().for_each(|&[kind, name, test]| compare(&Project { kind, name, test })));
        }
    });
}

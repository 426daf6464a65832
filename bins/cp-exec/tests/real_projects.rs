//! Projects that others wrote: their own tests count the same inside as outside, under what `policy init --for .`
//! writes.

use std::path::PathBuf;
use std::time::Duration;

use cp_testkit::{Program, needs, packages, required, times};

use crate::exec::{Exec, rows};
use crate::projects::has_rustup;

/// A project: `crate` in cargo's registry, `python` as a source distribution, or `node` with its dependencies beside
/// it.
struct Project {
    kind: &'static str,
    name: &'static str,
    test: &'static str,
}

const CARGO: &str = "cargo test --offline --no-fail-fast --lib --tests";
const PROJECTS: &str = include_str!("data/projects.tsv");

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
    /// The line that copies the source to the working directory and builds it; none if something is missing.
    fn prepare(&self) -> Option<String> {
        let installed = installed();
        let name = self.name;
        let (source, line) = match self.kind {
            "crate" if !has_rustup() => return None,
            "crate" => {
                let source = registered(name).unwrap_or_default();
                let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/projects/crates/Cargo.lock");
                // The lock of the release would want other versions than those that were fetched.
                let line = format!("cp -R '{}/.' . && cp '{lock}' . && {CARGO} --no-run", source.display());
                (source, line)
            }
            "python" => {
                let source = installed.join(format!("python/{name}.tar.gz"));
                let line = format!("tar -xzf '{}' --strip-components=1", source.display());
                (source, line)
            }
            _ => {
                let modules = installed.join("node_modules");
                let line = format!("cp -R '{0}/{name}/.' . && cp -R '{0}' .", modules.display());
                (modules.join(name), line)
            }
        };
        required(&format!("{name} (.ci/run fetches it)"), source.exists()).then_some(line)
    }
}

/// The lines of an output that count tests, without their times, in an order of their own: programs may end in any.
fn counts(output: &str) -> Vec<String> {
    let marks = ["test result: ", "# tests ", "# pass ", "# fail ", "Ran ", "OK", "FAILED"];
    let timeless = |line: &str| [" in ", "; finished"].iter().fold(line, |line, time| cut(line, time)).to_owned();
    let mut found: Vec<String> =
        output.lines().filter(|line| marks.iter().any(|mark| line.starts_with(mark))).map(timeless).collect();
    found.sort();
    found
}

fn cut<'a>(line: &'a str, end: &str) -> &'a str {
    line.split_once(end).map_or(line, |(begin, _)| begin)
}

/// A command line in the environment of the person who works on the project.
fn as_person(program: Program) -> Program {
    let cargo = cargo_home();
    program
        .also_on_path(cargo.join("bin"))
        .env("HOME", cargo.parent().unwrap())
        .env("CARGO_TARGET_DIR", "target")
        .limit(Duration::from_mins(10))
}

fn compare(project: &Project) {
    let Some(prepare) = project.prepare() else { return };
    let exec = Exec::without_policy();
    let begin =
        "git init -q && git config user.name N && git config user.email n@x.y && git add -A && git commit -qm x";
    as_person(exec.outside(&format!("{prepare} && {begin}"))).run().success();
    as_person(exec.command(&["policy", "init", "--for", "."])).run().success();

    let outside = as_person(exec.outside(&format!("({}) 2>&1", project.test))).run();
    let run = exec.command(&["--timeout", "300", "--format", "raw", "-c", project.test]);
    let inside = as_person(run).run();
    let expected = counts(&outside.stdout);
    assert!(!expected.is_empty(), "{}: nothing is counted outside: {outside:?}", project.name);
    let printed = [inside.stdout.as_str(), inside.stderr.as_str()].concat();
    assert_eq!(
        (inside.status, counts(&printed)),
        (outside.status, expected),
        "{}: {inside:?}\noutside: {outside:?}",
        project.name
    );
}

#[test]
fn own_tests_of_real_projects_count_the_same_inside() {
    needs!("node", "python3");
    for [kind, name, test] in rows(PROJECTS).take(times(3, usize::MAX)) {
        compare(&Project { kind, name, test });
    }
}

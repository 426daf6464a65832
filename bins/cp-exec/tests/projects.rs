//! Small projects build and test under the policy that `policy init --for .` writes for them, with nothing added by
//! hand. They lie in `/tmp`, so that programs in the private `/tmp` are not executable, except for those in TMPDIR.

use std::path::{Path, PathBuf};
use std::process::Command;

use cp_testkit::{pytest_environment, required};
use serde_json::Value;

use crate::exec::{Exec, Who};

/// True if a program exists and runs.
fn found(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// A place with these files and no policy.
fn project(files: &str) -> Exec {
    let exec = Exec::without_policy();
    exec.unpack(files);
    exec
}

/// The policy for the project of a place, in an environment with these variables.
#[track_caller]
fn begin(exec: &Exec, variables: &[(&str, &Path)]) -> Value {
    let command = exec.command(&["policy", "init", "--for", "."]);
    let command = variables.iter().fold(command, |command, (name, value)| command.env(name, value));
    command.run().success().data()
}

/// The output of a command that must succeed.
#[track_caller]
fn printed(exec: &Exec, words: &[&str]) -> String {
    let (answer, status) = exec.ask(&[&["--"], words].concat());
    assert_eq!(status, 0, "{words:?}: {answer}");
    answer["data"]["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn node_project_runs_builds_and_tests() {
    cp_testkit::needs!("npm");
    let exec = project(include_str!("data/projects/node.txt"));
    let begun = begin(&exec, &[]);
    assert_eq!(begun["notes"][0], "node (package.json, *.js)", "{begun}");
    assert_eq!(printed(&exec, &["node", "index.js"]), "index\n");
    assert!(printed(&exec, &["npm", "run", "build"]).contains("built"));
    assert!(exec.work.join("out.txt").exists());
    for words in [&["node", "--test"][..], &["node", "--test", "a.test.js"], &["npm", "test"]] {
        assert!(printed(&exec, words).contains("pass 1"), "{words:?}");
    }
    std::fs::write(exec.home.join("config/policy.toml"), "[exec]\nallowed_commands = [\"node\"]\n").unwrap();
    let (answer, _) = exec.ask(&["--", "node", "index.js"]);
    assert_eq!(answer["error"]["details"]["rule"], "interpreter.script", "the project may not be executed: {answer}");
}

#[test]
fn python_project_uses_active_environment() {
    let Some(environment) = pytest_environment() else { return };
    let exec = project(include_str!("data/projects/python.txt"));
    let begun = begin(&exec, &[("VIRTUAL_ENV", &environment)]);
    assert!(!begun["notes"].to_string().contains("missing"), "{begun}");
    let [python, pytest] = ["python3", "pytest"].map(|name| format!("{}/bin/{name}", environment.display()));
    assert_eq!(Path::new(printed(&exec, &[&python, "main.py"]).trim()), environment.canonicalize().unwrap());
    for words in [&[pytest.as_str(), "-q"][..], &[&python, "-m", "pytest", "-q"]] {
        assert!(printed(&exec, words).contains("1 passed"), "{words:?}");
    }
}

#[test]
fn name_in_line_means_its_pin() {
    let exec = Exec::new(Who::Me);
    let mut pins = Vec::new();
    for (directory, own) in [("first", "a"), ("second", "z")] {
        for name in [own, "tool"] {
            exec.executable(&format!("target/{directory}/{name}"), &format!("#!/bin/sh\necho {directory}\n"));
        }
        pins.push(format!("{own} = \"{}/target/{directory}/{own}\"", exec.work.display()));
    }
    for pinned in ["first", "second"] {
        let tool = format!("tool = \"{}/target/{pinned}/tool\"", exec.work.display());
        let pins = pins.join(", ");
        exec.policy(&format!(
            "[exec]\nallowed_commands = [\"*\"]\npin = {{ {pins}, {tool} }}\n[paths]\nread = [\".\"]\nexecute = [\"target/**\"]\n"
        ));
        let (answer, _) = exec.ask(&["-c", "tool"]);
        assert_eq!(answer["data"]["stdout"], format!("{pinned}\n"), "{answer}");
    }
}

#[test]
fn python_project_uses_own_environment() {
    cp_testkit::needs!("python3");
    let exec = project(include_str!("data/projects/venv.txt"));
    let made = exec.program("python3").args(["-m", "venv", "--without-pip", ".venv"]).run();
    if !required("venv of python3", made.status == 0) {
        return;
    }
    begin(&exec, &[]);
    for name in [".venv/bin/python3", ".venv/bin/python"] {
        assert_eq!(Path::new(printed(&exec, &[name, "main.py"]).trim()), exec.work.join(".venv"));
    }
}

/// True if this user has a toolchain of rustup, which the starter policy declares.
pub(crate) fn has_rustup() -> bool {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let me = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known =
        fields.find(|fields| fields.get(2) == Some(&me.as_str())).is_some_and(|fields| Path::new(fields[5]) == home);
    let is_there = known && home.join(".cargo/bin/cargo").exists() && home.join(".rustup").exists();
    required("a toolchain of rustup in the home of this user", is_there)
}

#[test]
fn crate_with_build_script_is_tested() {
    if !has_rustup() {
        return;
    }
    let exec = project(include_str!("data/projects/crate.txt"));
    begin(&exec, &[]);
    let printed = printed(&exec, &["cargo", "test"]);
    assert_eq!(printed.matches("1 passed").count(), 2, "the test and the one of the documentation: {printed}");
}

#[test]
fn configure_script_compiles_and_runs_in_tmpdir() {
    let exec = project(include_str!("data/projects/configure.txt"));
    begin(&exec, &[]);
    let printed = printed(&exec, &["sh", "./configure", "/dev/shm/conftest"]);
    assert_eq!(printed, "it is 42\nelsewhere it is 126\n", "the control: other scratch directories execute nothing");
}

#[test]
fn python_extension_is_compiled_and_imported() {
    let Some(environment) = pytest_environment() else { return };
    let has_headers =
        found("sh", &["-c", "ls /usr/include/python3*/Python.h || ls \"$HOME\"/.pyenv/versions/*/include/*/Python.h"]);
    if !required("the headers of Python", has_headers) {
        return;
    }
    let exec = project(include_str!("data/projects/extension.txt"));
    begin(&exec, &[("VIRTUAL_ENV", &environment)]);
    printed(&exec, &["python3", "setup.py", "-q", "build_ext", "--inplace"]);
    assert_eq!(printed(&exec, &["python3", "use.py"]), "it is 42\n");
    assert!(printed(&exec, &["pytest", "-q", "test_tmp.py"]).contains("1 passed"));
}

#[test]
fn node_addon_is_compiled_and_loaded() {
    let gyp = Path::new("/usr/lib/node_modules/npm/node_modules/node-gyp");
    let is_there = gyp.exists() && Path::new("/usr/include/node/node_api.h").exists() && found("make", &["--version"]);
    if !required("node-gyp, its headers and make", is_there) {
        return;
    }
    let exec = project(include_str!("data/projects/addon.txt"));
    begin(&exec, &[]);
    printed(&exec, &["npm", "run", "build"]);
    assert_eq!(printed(&exec, &["node", "use.js"]), "it is 42\n");
}

#[test]
fn make_project_builds_and_runs() {
    cp_testkit::needs!("make");
    let exec = project(include_str!("data/projects/make.txt"));
    begin(&exec, &[]);
    assert!(printed(&exec, &["make", "test"]).contains("it runs"));
}

#[test]
fn go_module_is_tested_and_run() {
    // 300 MB to install: not everywhere.
    if !cp_testkit::is_long() || !required("go", found("go", &["version"])) {
        return;
    }
    let exec = project(include_str!("data/projects/go.txt"));
    begin(&exec, &[]);
    assert!(printed(&exec, &["go", "test", "./..."]).starts_with("ok"));
    assert!(printed(&exec, &["go", "test", "./..."]).contains("(cached)"));
    printed(&exec, &["go", "run", "."]);
    printed(&exec, &["go", "vet", "./..."]);
}

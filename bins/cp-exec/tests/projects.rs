//! Small projects build and test under the policy that `policy init --for .` writes for them, with nothing added by hand.

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
fn project(files: &[(&str, &str)]) -> Exec {
    let exec = Exec::new(Who::Me);
    std::fs::remove_file(exec.home.join("config/policy.toml")).unwrap();
    for (name, text) in files {
        exec.write(name, text);
    }
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
    if !required("npm in /usr/bin", found("/usr/bin/npm", &["--version"])) {
        return;
    }
    let package =
        r#"{"name":"a","version":"1.0.0","scripts":{"build":"node build.js && echo built","test":"node --test"}}"#;
    let exec = project(&[
        ("package.json", package),
        ("index.js", "console.log('index')\n"),
        ("build.js", "require('fs').writeFileSync('out.txt', String(require('os').cpus().length))\n"),
        ("a.test.js", "require('node:test')('adds', () => require('node:assert').equal(1 + 1, 2))\n"),
    ]);
    let begun = begin(&exec, &[]);
    assert_eq!(begun["found"][0]["evidence"], serde_json::json!(["package.json", "*.js"]), "{begun}");
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

const PYTHON_TEST: &str = "import multiprocessing, subprocess, sys, tempfile\n\ndef double(x):\n    return 2 * x\n\ndef test_it():\n    with tempfile.TemporaryFile() as f:\n        f.write(b'x')\n    with multiprocessing.Pool(2) as pool:\n        assert pool.map(double, [1, 2]) == [2, 4]\n    assert subprocess.check_output([sys.executable, '-c', 'print(1)']) == b'1\\n'\n";

#[test]
fn python_project_uses_active_environment() {
    let Some(environment) = pytest_environment() else { return };
    let exec = project(&[("main.py", "import sys; print(sys.prefix)\n"), ("test_it.py", PYTHON_TEST)]);
    let begun = begin(&exec, &[("VIRTUAL_ENV", &environment)]);
    assert_eq!(begun["found"][0]["missing"], serde_json::json!([]), "{begun}");
    assert_eq!(Path::new(printed(&exec, &["python3", "main.py"]).trim()), environment.canonicalize().unwrap());
    for words in [&["pytest", "-q"][..], &["python3", "-m", "pytest", "-q"]] {
        assert!(printed(&exec, words).contains("1 passed"), "{words:?}");
    }
}

#[test]
fn python_project_uses_own_environment_unchanged() {
    let exec = project(&[("main.py", "import sys; print(sys.prefix)\n"), ("pyproject.toml", "")]);
    let made = exec.program("python3").args(["-m", "venv", "--without-pip", ".venv"]).run();
    if !required("venv of python3", made.status == 0) {
        return;
    }
    exec.own_all();
    begin(&exec, &[]);
    for name in ["python3", "python"] {
        assert_eq!(Path::new(printed(&exec, &[name, "main.py"]).trim()), exec.work.join(".venv"));
    }
    exec.write("change.py", "import sys; open(sys.argv[1], 'w').write('x')\n");
    printed(&exec, &["python3", "change.py", "control"]);
    let (answer, status) = exec.ask(&["--", "python3", "change.py", ".venv/lib/x.pth"]);
    assert_eq!(status, 1, "{answer}");
    assert!(exec.work.join("control").exists() && !exec.work.join(".venv/lib/x.pth").exists());
}

#[test]
fn crate_with_build_script_is_tested() {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let me = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known =
        fields.find(|fields| fields.get(2) == Some(&me.as_str())).is_some_and(|fields| Path::new(fields[5]) == home);
    let is_there = known && home.join(".cargo/bin/cargo").exists() && home.join(".rustup").exists();
    if !required("a toolchain of rustup in the home of this user", is_there) {
        return;
    }
    let exec = project(&[
        ("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n"),
        ("build.rs", "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }\n"),
        ("src/lib.rs", "#[test]\nfn works() {\n    std::fs::write(\"x\", \"y\").unwrap();\n}\n"),
    ]);
    begin(&exec, &[]);
    assert!(printed(&exec, &["cargo", "test"]).contains("1 passed"));
}

#[test]
fn make_project_builds_and_runs() {
    if !required("make and cc", found("make", &["--version"]) && found("cc", &["--version"])) {
        return;
    }
    let exec = project(&[
        ("Makefile", "test: prog\n\t./prog\nprog: prog.c\n\tcc -o prog prog.c\n"),
        ("prog.c", "#include <stdio.h>\nint main(void) { puts(\"it runs\"); return 0; }\n"),
    ]);
    begin(&exec, &[]);
    assert!(printed(&exec, &["make", "test"]).contains("it runs"));
}

#[test]
fn go_module_is_tested_and_run() {
    // 300 MB to install: not everywhere.
    if std::env::var_os("CP_LONG").is_none() || !required("go", found("go", &["version"])) {
        return;
    }
    let exec = project(&[
        ("go.mod", "module x\n\ngo 1.19\n"),
        ("x.go", "package main\n\nfunc main() { println(\"it runs\") }\n"),
        ("x_test.go", "package main\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { _ = t.TempDir() }\n"),
    ]);
    begin(&exec, &[]);
    assert!(printed(&exec, &["go", "test", "./..."]).starts_with("ok"));
    assert!(printed(&exec, &["go", "test", "./..."]).contains("(cached)"));
    printed(&exec, &["go", "run", "."]);
    printed(&exec, &["go", "vet", "./..."]);
}

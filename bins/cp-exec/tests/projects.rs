//! Small projects of npm, Python and cargo build and test under the default sandbox, with the policies of `tests/data`.

use std::path::{Path, PathBuf};
use std::process::Command;

use cp_testkit::required;

use crate::exec::{Exec, Who};

/// Whether a program is there and runs.
fn found(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

#[test]
fn an_npm_project_builds() {
    if !required("npm in /usr/bin", found("/usr/bin/npm", &["--version"])) {
        return;
    }
    let exec = Exec::with_policy(Who::Me, include_str!("data/policies/npm.toml"));
    exec.write("package.json", r#"{"name":"a","version":"1.0.0","scripts":{"build":"node build.js && echo built"}}"#);
    exec.write("build.js", "require('fs').writeFileSync('out.txt', String(require('os').cpus().length))\n");
    let (answer, status) = exec.ask(&["--", "npm", "run", "build"]);
    assert_eq!(status, 0, "{answer}");
    assert!(answer["data"]["stdout"].as_str().unwrap().contains("built"));
    assert!(exec.work.join("out.txt").exists());
}

#[test]
fn a_python_project_is_tested() {
    let output =
        Command::new("python3").args(["-c", "import sys; print(sys.executable); print(sys.base_prefix)"]).output();
    let text = output.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default();
    let mut lines = text.lines().map(PathBuf::from);
    let found_python = lines.next().zip(lines.next());
    if !required("python3", found_python.is_some()) {
        return;
    }
    let (python, prefix) = found_python.unwrap();
    let venv = python.parent().and_then(Path::parent).unwrap();
    let policy = include_str!("data/policies/python.toml")
        .replace("PYTHON", python.to_str().unwrap())
        .replace("VENV", venv.to_str().unwrap())
        .replace("PREFIX", prefix.to_str().unwrap());
    let exec = Exec::with_policy(Who::Me, &policy);
    exec.write(
        "tests/test_it.py",
        "import multiprocessing, subprocess, sys, tempfile, unittest\n\ndef double(x):\n    return 2 * x\n\nclass It(unittest.TestCase):\n    def test_it(self):\n        with tempfile.TemporaryFile() as f:\n            f.write(b'x')\n        with multiprocessing.Pool(2) as pool:\n            self.assertEqual(pool.map(double, [1, 2]), [2, 4])\n        self.assertEqual(subprocess.check_output([sys.executable, '-c', 'print(1)']), b'1\\n')\n",
    );
    let pytest = found(python.to_str().unwrap(), &["-m", "pytest", "--version"]);
    let line: &[&str] = if pytest { &["-m", "pytest", "tests/"] } else { &["-m", "unittest", "discover", "tests"] };
    let (answer, status) = exec.ask(&[&["--", "python3"], line].concat());
    assert_eq!(status, 0, "{answer}");
}

#[test]
fn a_crate_is_tested_with_its_build_script() {
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
    let exec = Exec::with_policy(Who::Me, include_str!("data/policies/cargo.toml"));
    exec.write("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n");
    exec.write("build.rs", "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }\n");
    exec.write("src/lib.rs", "#[test]\nfn works() {\n    std::fs::write(\"x\", \"y\").unwrap();\n}\n");
    let (answer, status) = exec.ask(&["--", "cargo", "test"]);
    assert_eq!(status, 0, "{answer}");
    assert!(answer["data"]["stdout"].as_str().unwrap().contains("1 passed"));
}

//! Package managers: before `policy init --for`, after it, in a second project, without the registry, and with its
//! name.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use cp_testkit::counterpart;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::exec::Exec;
use crate::projects::has_rustup;

/// Serves files by their paths, and returns the port.
fn serve(files: Vec<(String, Vec<u8>)>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (files, mut stream) = (files.clone(), stream.unwrap());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let asked = lines.next().unwrap_or_default();
                lines.find(String::is_empty);
                let path = asked.split(' ').nth(1).unwrap_or_default();
                let found = files.iter().find(|(name, _)| name == path);
                let mut head = format!("HTTP/1.1 {}\r\nConnection: close\r\n", found.map_or("404 No", |_| "200 OK"));
                let body = found.map_or(&b""[..], |(_, body)| body);
                let kind = if path.ends_with('/') { "text/html" } else { "application/octet-stream" };
                let _ = write!(head, "Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(&[head.as_bytes(), body].concat());
            });
        }
    });
    port
}

/// Runs a line in a directory of the place.
fn line(exec: &Exec, directory: &str, line: &str) -> (Value, i32) {
    let words = ["--timeout", "120", "-c", line];
    let ran = exec.command(&words[..]).current_dir(exec.root.join(directory)).run();
    (ran.records().pop().unwrap(), ran.status)
}

/// Types `cp-exec WORDS` with its token in a directory of the place.
fn type_with_token(exec: &Exec, directory: &str, words: &[&str]) {
    let run = |more: &[&str]| exec.command(&[words, more].concat()).current_dir(exec.root.join(directory)).run();
    let token = run(&["--dry-run"]).success().data()["confirm_token"].as_str().unwrap().to_owned();
    assert_eq!(run(&["--confirm", &token]).success().data()["changed"], true);
}

/// A place with the starter policy and two projects.
fn two_projects(file: &str, text: &str) -> Exec {
    let exec = Exec::without_policy();
    exec.ask(&["policy", "init"]);
    for project in ["one", "two"] {
        exec.root.write(format!("{project}/{file}"), text);
    }
    exec
}

#[test]
fn npm_installs_from_listed_registry_in_its_project_only() {
    cp_testkit::needs!("npm");
    let exec = two_projects("package.json", "{\"name\":\"x\",\"version\":\"1.0.0\"}");
    exec.root.write("pack/package/package.json", "{\"name\":\"left-pad\",\"version\":\"1.3.0\",\"main\":\"i.js\"}");
    exec.root.write("pack/package/i.js", "module.exports = text => ' ' + text;\n");
    let mut packed = std::process::Command::new("tar");
    packed.args(["-czf", "p.tgz", "package"]).current_dir(exec.root.join("pack"));
    assert!(packed.status().unwrap().success());
    let about = "{\"name\":\"left-pad\",\"dist-tags\":{\"latest\":\"1.3.0\"},\"versions\":{\"1.3.0\":{\"name\":\"left-pad\",\
                 \"version\":\"1.3.0\",\"dist\":{\"tarball\":\"http://registry.test/p.tgz\"}}}}";
    let tarball = std::fs::read(exec.root.join("pack/p.tgz")).unwrap();
    let port = serve(vec![("/left-pad".to_owned(), about.into()), ("/p.tgz".to_owned(), tarball)]);
    let install = "npm install --no-audit --no-fund --registry http://registry.test left-pad";
    for project in ["one", "one", "two"] {
        // Before and after `init --for`, and in another project, the name is refused in seconds.
        let began = Instant::now();
        let (answer, _) = line(&exec, project, install);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}: {answer}", began.elapsed());
        let refused = &answer["error"]["details"];
        assert!(refused["stderr"].as_str().unwrap().contains("cp-exec allow network registry.test"), "{answer}");
        assert_eq!(refused["connections"]["first_refused"][0]["allow"], "cp-exec allow network registry.test");
        if !exec.home.read("config/policy.toml").contains("project") {
            type_with_token(&exec, "one", &["policy", "init", "--for", "."]);
        }
    }
    type_with_token(&exec, "one", &["allow", "network", &format!("registry.test=127.0.0.1:{port}")]);
    let (answer, status) = line(&exec, "one", &format!("{install} && node -p 'require(\"left-pad\")(1)'"));
    assert_eq!(status, 0, "{answer}");
    assert!(answer["data"]["stdout"].as_str().unwrap().ends_with(" 1\n"), "{answer}");
    assert_eq!(line(&exec, "two", install).1, 1, "another project");
    assert_eq!(
        line(&exec, "two", "node -e 'require(\"http\").createServer().listen(0, function () { this.close() })'").1,
        0
    );
}

/// A file with the SHA-256 of its bytes, packed by a script in a directory of its own.
fn packed(exec: &Exec, files: &[(&str, &str)], script: &str) -> (Vec<u8>, String) {
    for (name, text) in files {
        exec.root.write(format!("pack/{name}"), text);
    }
    let mut pack = std::process::Command::new("sh");
    assert!(pack.args(["-ec", script]).current_dir(exec.root.join("pack")).status().unwrap().success());
    let bytes = std::fs::read(exec.root.join("pack/packed")).unwrap();
    let hash = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    (bytes, hash)
}

/// Installs before and after `init --for`, which is refused by the name of the registry, and with the name listed,
/// which holds in this project only.
fn installs_once_registry_is_listed(exec: &Exec, registry: &str, port: u16, install: &str, printed: &str) {
    let grant = format!("cp-exec allow network {registry}");
    for is_prepared in [false, true] {
        if is_prepared {
            type_with_token(exec, "one", &["policy", "init", "--for", "."]);
        }
        let (answer, status) = line(exec, "one", install);
        assert!(status != 0 && answer.to_string().contains(&grant), "{is_prepared}: {answer}");
    }
    type_with_token(exec, "one", &["allow", "network", &format!("{registry}=127.0.0.1:{port}")]);
    let (answer, status) = line(exec, "one", install);
    let out = answer["data"]["stdout"].as_str().unwrap_or_default();
    assert!(status == 0 && out.ends_with(printed), "{answer}");
    assert_ne!(line(exec, "two", install).1, 0, "another project");
}

#[test]
fn pip_installs_from_listed_index_in_its_project_only() {
    cp_testkit::needs!("python3");
    let exec = two_projects("main.py", "");
    let about = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n";
    let wheel = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let files = [
        ("tiny.py", "said = 'tiny'\n"),
        ("tiny-1.0.dist-info/METADATA", about),
        ("tiny-1.0.dist-info/WHEEL", wheel),
        ("tiny-1.0.dist-info/RECORD", ""),
    ];
    let (bytes, _) = packed(&exec, &files, "python3 -m zipfile -c packed tiny.py tiny-1.0.dist-info");
    let index = "<a href=\"/tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>";
    let port =
        serve(vec![("/simple/tiny/".to_owned(), index.into()), ("/tiny-1.0-py3-none-any.whl".to_owned(), bytes)]);
    let install = "test -d .venv || python3 -m venv .venv; .venv/bin/pip install -q --disable-pip-version-check --retries 0 \
                   --trusted-host pypi.org --index-url http://pypi.org/simple tiny && .venv/bin/python -c 'import tiny; print(tiny.said)'";
    installs_once_registry_is_listed(&exec, "pypi.org", port, install, "tiny\n");
}

#[test]
fn cargo_builds_with_listed_registry_in_its_project_only() {
    if !has_rustup() {
        return;
    }
    let manifest =
        "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ntiny = \"1\"\n[workspace]\n";
    let exec = two_projects("Cargo.toml", manifest);
    let sources =
        "[source.crates-io]\nreplace-with = \"near\"\n[source.near]\nregistry = \"sparse+http://index.crates.io/\"\n";
    for project in ["one", "two"] {
        exec.root.write(format!("{project}/src/main.rs"), "fn main() { println!(\"{}\", tiny::SAID); }\n");
        exec.root.write(format!("{project}/.cargo/config.toml"), sources);
    }
    let of_crate = "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    let files = [("tiny-1.0.0/Cargo.toml", of_crate), ("tiny-1.0.0/src/lib.rs", "pub const SAID: &str = \"tiny\";\n")];
    let (bytes, hash) = packed(&exec, &files, "tar -czf packed tiny-1.0.0");
    let entry = format!(
        "{{\"name\":\"tiny\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{hash}\",\"features\":{{}},\"yanked\":false}}\n"
    );
    let port = serve(vec![
        ("/config.json".to_owned(), "{\"dl\":\"http://index.crates.io/dl\"}".into()),
        ("/ti/ny/tiny".to_owned(), entry.into()),
        ("/dl/tiny/1.0.0/download".to_owned(), bytes),
    ]);
    installs_once_registry_is_listed(&exec, "index.crates.io", port, "cargo run -q", "tiny\n");
}

#[test]
fn venv_is_made_and_activated_in_every_project() {
    let Some(_) = counterpart("python3") else { return };
    let exec = two_projects("main.py", "");
    let make =
        "python3 -m venv --without-pip .venv && . .venv/bin/activate && python -c 'import sys; print(sys.prefix)'";
    for project in ["one", "two"] {
        for when in ["before", "after"] {
            let (answer, status) = line(&exec, project, make);
            let prefix = format!("{}\n", exec.root.join(project).join(".venv").display());
            assert_eq!(
                (status, answer["data"]["stdout"].as_str()),
                (0, Some(prefix.as_str())),
                "{project} {when}: {answer}"
            );
            if when == "before" {
                type_with_token(&exec, project, &["policy", "init", "--for", "."]);
            }
        }
    }
    assert!(!exec.home.read("config/policy.toml").contains("pin = { python"));
}

//! Package managers: before `policy init --for`, after it, in a second project, without the registry, and with its name.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use cp_testkit::counterpart;
use serde_json::Value;

use crate::exec::{Exec, Who};

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
                let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
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
    assert_eq!(run(&["--confirm", &token]).success().data()["written"], true);
}

/// A place with the starter policy and two projects.
fn two_projects(file: &str, text: &str) -> Exec {
    let exec = Exec::new(Who::Me);
    std::fs::remove_file(exec.home.join("config/policy.toml")).unwrap();
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

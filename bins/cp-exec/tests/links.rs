//! What a command does to the file system between two runs leads no later run anywhere else.

use std::fs;
use std::os::unix::fs::symlink;

use cp_testkit::Place;
use serde_json::{Value, json};

use crate::attempts::{inside, outside};
use crate::exec::{Exec, POLICY, everyone};

fn with_paths(paths: &str) -> String {
    format!("{POLICY}\n[paths]\n{paths}\n")
}

/// A file outside the project that whoever runs can read, and what is in it.
fn secret(exec: &Exec) -> String {
    let path = exec.root.join("outside");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("secret"), "the secret").unwrap();
    exec.own_all();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn refused_for_the_link(exec: &Exec, answer: &Value, link: &str) {
    let (code, details) = (&answer["error"]["code"], &answer["error"]["details"]);
    assert_eq!((code, &details["rule"]), (&json!("E_FORBIDDEN"), &json!("link")), "{:?}: {answer}", exec.who);
    assert_eq!(details["link"].as_str().unwrap(), exec.work.join(link).to_str().unwrap(), "{answer}");
    let entries = exec.entries("exec.refused");
    assert_eq!(entries.last().unwrap()["data"]["rule"], "link", "{entries:?}");
}

#[test]
fn a_path_of_the_policy_that_became_a_link_is_refused_and_on_the_ledger() {
    for who in everyone() {
        for (paths, name) in [
            ("read = [\".\"]\nwrite = [\".\"]\nexecute = [\"target/**\"]", "target"),
            ("read = [\".\", \"target/**\"]\nwrite = [\".\"]", "target"),
            ("read = [\".\"]\nwrite = [\".\", \"out/**\"]", "out"),
            ("read = [\".\"]\nwrite = [\"out/**\", \".\"]", "out"),
            ("read = [\".\"]\nwrite = [\".\"]\npristine = [\"lib/**\"]", "lib"),
            ("read = [\".\"]\nwrite = [\".\"]\nforbidden = [\"conf/prod/**\"]", "conf"),
            ("read = [\".\"]\nwrite = [\".\"]\nforbidden = [\"conf/*.key\"]", "conf"),
        ] {
            let exec = Exec::with_policy(who, &with_paths(paths));
            let outside = secret(&exec);
            let control = exec.ask(&["--", "sh", "-c", "echo ran"]).0;
            assert_eq!(control["data"]["stdout"], "ran\n", "{control}");
            let first =
                exec.ask(&["--", "sh", "-c", &format!("rmdir {name}; ln -s {outside} {name} && echo linked")]).0;
            assert_eq!(first["data"]["stdout"], "linked\n", "{paths}: {first}");
            let line = format!("cat {name}/secret; echo more > {name}/planted");
            refused_for_the_link(&exec, &exec.ask(&["--", "sh", "-c", &line]).0, name);
            let read = json!({"tool": "filesystem", "operation": "read_file", "arguments": {"path": "x"}});
            refused_for_the_link(&exec, &exec.answers(&[], &read.to_string()).0[0], name);
            assert!(!exec.root.join("outside/planted").exists());
            // With the link away everything runs again.
            fs::remove_file(exec.work.join(name)).unwrap();
            assert_eq!(exec.ask(&["--", "sh", "-c", "echo ran"]).0["data"]["stdout"], "ran\n", "{paths}");
        }
    }
}

#[test]
fn a_link_that_comes_while_requests_are_answered_is_refused_too() {
    for who in everyone() {
        let paths = "read = [\".\"]\nwrite = [\".\"]\nexecute = [\"target/**\"]";
        let exec = Exec::with_policy(who, &with_paths(paths));
        let outside = secret(&exec);
        let request = |line: &str| json!({"tool": "shell", "arguments": {"argv": ["sh", "-c", line]}}).to_string();
        let input = [
            request("echo ran"),
            request(&format!("rmdir target; ln -s {outside} target")),
            request("cat target/secret"),
        ];
        let (answers, _) = exec.answers(&[], &input.join("\n"));
        assert_eq!(answers[0]["data"]["stdout"], "ran\n", "{answers:?}");
        assert_eq!(answers[1]["ok"], true, "{answers:?}");
        refused_for_the_link(&exec, &answers[2], "target");
    }
}

#[test]
fn the_owners_link_is_followed_where_it_stays_inside_and_refused_where_it_leads_out() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &with_paths("read = [\".\", \"in\", \"away\"]\nwrite = [\"out/**\"]"));
        let outside = secret(&exec);
        exec.write("real/file", "inside");
        exec.write("out/x", "");
        symlink("real", exec.work.join("in")).unwrap();
        assert_eq!(exec.ask(&["--", "cat", "in/file"]).0["data"]["stdout"], "inside");
        symlink(&outside, exec.work.join("away")).unwrap();
        refused_for_the_link(&exec, &exec.ask(&["--", "cat", "away/secret"]).0, "away");
        // The control: listed by its own path it is read.
        let policy = with_paths(&format!("read = [\".\", \"{outside}\"]\nwrite = [\"out/**\"]"));
        fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
        assert_eq!(exec.ask(&["--", "cat", "away/secret"]).0["data"]["stdout"], "the secret");
    }
}

#[test]
fn what_is_forbidden_stays_hidden_when_a_directory_on_its_way_is_renamed() {
    for who in everyone() {
        let paths =
            "read = [\".\"]\nwrite = [\".\"]\nforbidden = [\"conf/prod/**\", \"deep/*/key.pem\", \"**/.token\"]";
        let exec = Exec::with_policy(who, &with_paths(paths));
        for name in ["conf/prod/key.pem", "deep/a/key.pem", "sub/below/.env", "sub/below/.token"] {
            exec.write(name, "hidden");
        }
        exec.write("plain/file", "plain");
        let first = r#"
attempt("plain", lambda: os.rename("plain", "plain2"))
attempt("conf", lambda: os.rename("conf", "conf2"))
attempt("prod", lambda: os.rename("conf/prod", "conf/prod2"))
attempt("deep", lambda: os.rename("deep", "deep2"))
attempt("deep_a", lambda: os.rename("deep/a", "a"))
attempt("exchange", lambda: call(316, -100, b"conf", -100, b"sub", 2))
attempt("token", lambda: os.rename("sub/below/.token", "t"))
attempt("link", lambda: os.link("sub/below/.env", "e"))
attempt("remove", lambda: os.unlink("sub/below/.env"))
attempt("sub", lambda: os.rename("sub", "moved"))
"#;
        let (found, result) = inside(&exec, first);
        for (name, what) in &found {
            let expected = if ["plain", "sub"].contains(&name.as_str()) { "done" } else { "refused" };
            assert_eq!(what, expected, "{who:?} {name}: {result}");
        }
        let second = r#"
import glob
hidden = ["conf/prod/key.pem", "deep/a/key.pem", "moved/below/.env", "moved/below/.token"]
for name in hidden:
    attempt("read_" + name, lambda: open(name).read())
attempt("plain_read", lambda: open("plain2/file").read())
def any_readable():
    for where, _, names in os.walk("."):
        for name in names:
            try:
                if open(os.path.join(where, name)).read() == "hidden": return
            except OSError: pass
    raise OSError(2, "nothing")
attempt("read_any", any_readable)
"#;
        let (found, result) = inside(&exec, second);
        let control = outside(&exec, second);
        for (name, what) in &found {
            assert_eq!(what, if name == "plain_read" { "done" } else { "refused" }, "{who:?} {name}: {result}");
            assert_eq!(control[name], "done", "{who:?} {name} outside");
        }
        assert_eq!(found.len(), 6);
    }
}

#[test]
fn the_home_of_these_programs_cannot_be_moved_or_replaced_where_its_surroundings_are_writable() {
    for who in everyone() {
        let exec = Exec::new(who);
        let root = exec.root.as_os_str().to_str().unwrap().to_owned();
        let policy = with_paths(&format!("read = [\"{root}\"]\nwrite = [\"{root}\"]"));
        fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
        exec.own_all();
        let script = r#"
home = os.path.abspath("../home")
for part in ["config", "keys", "ledger", "state"]:
    attempt("move_" + part, lambda: os.rename(home + "/" + part, home + "/x"))
    attempt("list_" + part, lambda: os.listdir(home + "/" + part))
    attempt("write_" + part, lambda: open(home + "/" + part + "/planted", "w"))
attempt("move_home", lambda: os.rename(home, home + "2"))
attempt("beside", lambda: open("../beside", "w"))
"#;
        let (found, result) = inside(&exec, script);
        assert_eq!(found.len(), 14, "{result}");
        for (name, what) in &found {
            assert_eq!(what, if name == "beside" { "done" } else { "refused" }, "{who:?} {name}: {result}");
        }
        let control = outside(&exec, &script.replace("\"/x\"", "\"/x\" + part"));
        assert!(control.values().filter(|what| *what == "done").count() > 4, "{control:?}");
    }
}

#[test]
fn only_what_is_declared_is_there_and_no_path_socket_outside() {
    for who in everyone() {
        let exec = Exec::new(who);
        let elsewhere = Place::new();
        let socket = elsewhere.root.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, mode) in [(elsewhere.root.to_path_buf(), 0o755), (socket.clone(), 0o777)] {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let script = format!(
            r#"
import socket
def connect(path):
    s = socket.socket(socket.AF_UNIX); s.connect(path)
attempt("socket", lambda: connect({socket:?}))
for path in ["/var", "/sys/kernel", "/etc/passwd", "/usr/bin"]:
    attempt("there_" + path, lambda: os.stat(path))
for path in ["/boot", "/var/lib", "/etc/shadow", "/etc/fstab", "/home", "/root", "/.old", "/sys/class", "/mnt"]:
    if os.path.exists(path) or os.getpid() < 50: attempt("gone_" + path, lambda: os.stat(path))
"#
        );
        let (found, result) = inside(&exec, &script);
        let control = outside(&exec, &script);
        assert_eq!(control["socket"], "done");
        for (name, what) in found.iter().filter(|(name, _)| name.starts_with("gone") || *name == "socket") {
            assert_eq!(what, "refused", "{who:?} {name}: {result}");
        }
        for name in ["there_/etc/passwd", "there_/usr/bin", "there_/sys/kernel"] {
            assert_eq!(found[name], "done", "{who:?} {name}: {result}");
        }
    }
}

//! Changes of a command to the file system do not give later runs access to other paths.

use std::fs;
use std::os::unix::fs::symlink;

use cp_testkit::Place;
use serde_json::{Value, json};

use crate::attempts::{inside, outside};
use crate::exec::{Exec, POLICY, details, everyone};

fn with_paths(paths: &str) -> String {
    format!("{POLICY}\n[paths]\n{paths}\n")
}

/// A file outside of the project that the user of cp-exec can read, and its content.
fn secret(exec: &Exec) -> String {
    let path = exec.root.join("outside");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("secret"), "the secret").unwrap();
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

/// The sentences about paths that were not granted.
fn not_granted(answer: &Value) -> Vec<String> {
    let details = details(answer);
    let missing = details["enforcement"]["missing"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let sentences = missing.iter().map(|sentence| sentence.as_str().unwrap().to_owned());
    sentences.filter(|sentence| sentence.starts_with("not_granted: ")).collect()
}

#[test]
fn granted_path_replaced_by_link_is_not_granted() {
    for who in everyone() {
        for (paths, name) in [
            ("read = [\".\"]\nwrite = [\".\"]\nexecute = [\"target/**\"]", "target"),
            ("read = [\".\", \"target/**\"]\nwrite = [\".\"]", "target"),
            ("read = [\".\"]\nwrite = [\".\", \"out/**\"]", "out"),
            ("read = [\".\"]\nwrite = [\"out/**\", \".\"]", "out"),
        ] {
            let exec = Exec::with_policy(who, &with_paths(paths));
            let outside = secret(&exec);
            assert_eq!(not_granted(&exec.ask(&["--", "true"]).0), Vec::<String>::new(), "{paths}: the control");
            let first = exec.sh(&format!("ln -s {outside} {name} && echo linked")).0;
            assert_eq!(first["data"]["stdout"], "linked\n", "{paths}: {first}");
            let line = format!("echo ran; cat {name}/secret; echo more > {name}/planted; true");
            let answer = exec.sh(&line).0;
            assert_eq!(answer["data"]["stdout"], "ran\n", "{who:?} {paths}: {answer}");
            let [sentence] = &*not_granted(&answer) else { panic!("{paths}: {answer}") };
            assert!(sentence.contains(exec.work.join(name).to_str().unwrap()), "{paths}: {sentence}");
            let path = format!("{name}/secret");
            let read = exec.file(&[], "read_file", &json!({"path": path}));
            assert_eq!(read["error"]["code"], "E_FORBIDDEN", "{paths}");
            assert!(!exec.root.join("outside/planted").exists());
        }
    }
}

#[test]
fn forbidden_or_pristine_path_replaced_by_link_refuses_every_run() {
    for who in everyone() {
        for (paths, name) in [
            ("read = [\".\"]\nwrite = [\".\"]\npristine = [\"lib/**\"]", "lib"),
            ("read = [\".\"]\nwrite = [\".\"]\nforbidden = [\"conf/prod/**\"]", "conf"),
            ("read = [\".\"]\nwrite = [\".\"]\nforbidden = [\"conf/*.key\"]", "conf"),
        ] {
            let exec = Exec::with_policy(who, &with_paths(paths));
            let outside = secret(&exec);
            assert_eq!(exec.sh("echo ran").0["data"]["stdout"], "ran\n", "the control");
            symlink(&outside, exec.work.join(name)).unwrap();
            refused_for_the_link(&exec, &exec.sh("echo ran").0, name);
            refused_for_the_link(&exec, &exec.file(&[], "read_file", &json!({"path": "x"})), name);
            // With the link away everything runs again.
            fs::remove_file(exec.work.join(name)).unwrap();
            assert_eq!(exec.sh("echo ran").0["data"]["stdout"], "ran\n", "{paths}");
        }
    }
}

#[test]
fn link_created_between_requests_is_not_granted() {
    for who in everyone() {
        let paths = "read = [\".\"]\nwrite = [\".\"]\nexecute = [\"target/**\"]";
        let exec = Exec::with_policy(who, &with_paths(paths));
        let outside = secret(&exec);
        let request = |line: &str| json!({"tool": "shell", "arguments": {"argv": ["sh", "-c", line]}}).to_string();
        let input = [request(&format!("ln -s {outside} target")), request("echo ran; cat target/secret; true")];
        let (answers, _) = exec.answers(&[], &input.join("\n"));
        assert_eq!(answers[0]["ok"], true, "{answers:?}");
        assert_eq!(answers[1]["data"]["stdout"], "ran\n", "{answers:?}");
        assert_eq!(not_granted(&answers[1]).len(), 1, "{answers:?}");
    }
}

#[test]
fn owner_link_is_followed_only_inside_its_root() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &with_paths("read = [\".\", \"in\", \"away\"]\nwrite = [\"out/**\"]"));
        let outside = secret(&exec);
        exec.write("real/file", "inside");
        exec.write("out/x", "");
        symlink("real", exec.work.join("in")).unwrap();
        assert_eq!(exec.ask(&["--", "cat", "in/file"]).0["data"]["stdout"], "inside");
        symlink(&outside, exec.work.join("away")).unwrap();
        let answer = exec.ask(&["--", "cat", "away/secret"]).0;
        assert_eq!(answer["error"]["code"], "E_COMMAND_FAILED", "{answer}");
        assert_eq!(not_granted(&answer).len(), 1, "{answer}");
        // The control: listed by its own path it is read.
        let policy = with_paths(&format!("read = [\".\", \"{outside}\"]\nwrite = [\"out/**\"]"));
        fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
        assert_eq!(exec.ask(&["--", "cat", "away/secret"]).0["data"]["stdout"], "the secret");
    }
}

#[test]
fn forbidden_path_stays_hidden_after_rename_of_ancestor() {
    cp_testkit::needs!("python3");
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
fn cp_home_in_writable_tree_cannot_be_moved_or_replaced() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let root = exec.root.as_os_str().to_str().unwrap().to_owned();
        let policy = with_paths(&format!("read = [\"{root}\"]\nwrite = [\"{root}\"]"));
        fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
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
fn view_contains_only_declared_paths() {
    cp_testkit::needs!("python3");
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

#[test]
fn directory_swapped_during_listing_shows_nothing_outside() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &with_paths("read = [\".\"]\nwrite = [\".\"]"));
        let outside = secret(&exec);
        exec.write("d/inside", "");
        symlink(&outside, exec.work.join("l")).unwrap();
        let (directory, link) = (exec.work.join("d"), exec.work.join("l"));
        let done = std::sync::atomic::AtomicBool::new(false);
        let request = json!({"tool": "filesystem", "operation": "list_directory", "arguments": {"path": "d"}});
        let input = vec![request.to_string(); 400].join("\n");
        let answers = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(rustix::fs::CWD, &directory, rustix::fs::CWD, &link, flags).unwrap();
                }
            });
            let (answers, _) = exec.answers(&[], &input);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            answers
        });
        let listed: Vec<&Value> = answers.iter().filter(|answer| answer["type"] == "item").collect();
        assert!(listed.iter().all(|answer| !answer.to_string().contains("secret\"")), "{who:?}");
        assert!(listed.iter().any(|answer| answer.to_string().contains("inside")), "{who:?}: nothing was listed");
        assert!(answers.iter().any(|answer| answer["ok"] == false), "{who:?}: the link was never met");
    }
}

#[test]
fn listing_continues_after_non_utf8_name() {
    use std::os::unix::ffi::OsStrExt;
    let exec = Exec::with_policy(everyone()[0], &with_paths("read = [\".\"]\nwrite = [\".\"]"));
    for name in [&b"a"[..], b"b\xff", b"base64:x", b"c"] {
        fs::create_dir_all(exec.work.join("d")).unwrap();
        fs::write(exec.work.join("d").join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    let mut cursor = Value::Null;
    let mut names = Vec::new();
    for _ in 0..4 {
        let arguments = if cursor.is_null() {
            json!({"path": "d", "limit": 1})
        } else {
            json!({"path": "d", "limit": 1, "cursor": cursor})
        };
        let value = exec.file(&[], "list_directory", &arguments)["data"]["value"].clone();
        names.push(value["entries"][0].clone());
        cursor = value["next_cursor"].clone();
    }
    assert!(cursor.is_null());
    let shown: Vec<&str> = names.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(shown, ["a", "base64:x", "b\u{fffd}", "c"]);
    assert_eq!((&names[2]["name_base64"], names[2]["kind"].as_str()), (&json!("Yv8="), Some("file")));
    assert!(names[0].get("name_base64").is_none());
}

#[test]
fn too_many_entries_are_refused_with_setting() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &with_paths("walk = 20\nforbidden = [\"**/.token\"]"));
        exec.write("few/.token", "x");
        assert_eq!(exec.ask(&["--", "true"]).1, 0, "{who:?}: the control");
        for name in 0..20 {
            exec.write(&format!("many/below/{name}"), "");
        }
        let answer = exec.ask(&["--", "true"]).0;
        assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
        assert_eq!(answer["error"]["details"]["setting"], "paths.walk", "{answer}");
        assert_eq!(exec.entries("exec.refused").len(), 1);
    }
}

#[test]
fn hidden_names_are_found_in_deep_closed_and_odd_directories() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &with_paths("forbidden = [\"**/.token\"]"));
        for name in ["closed/.token", "odd/.token", "long/.token"] {
            exec.write(name, "hidden");
        }
        // The first run moves them to where they are hard to find.
        let first = r#"
attempt("odd", lambda: os.rename(b"odd", b"\xff\xfe"))
attempt("closed", lambda: os.chmod("closed", 0))
"#;
        let (found, result) = inside(&exec, first);
        assert!(found.values().all(|what| what == "done"), "{result}");
        let second = r#"
try: os.chmod("closed", 0o755)
except OSError: pass
attempt("odd", lambda: open(b"\xff\xfe/.token").read())
attempt("closed", lambda: open("closed/.token").read())
attempt("control", lambda: open("probe.py").read())
"#;
        exec.write("probe.py", "");
        let (found, result) = inside(&exec, second);
        assert_eq!((&*found["odd"], &*found["closed"], &*found["control"]), ("refused", "refused", "done"), "{result}");
        let control = outside(&exec, second);
        assert!(control.values().all(|what| what == "done"), "{control:?}");
        // A path that is longer than the kernel takes cannot be hidden: the run is refused, and the directory moved.
        let third = r#"
for _ in range(20):
    os.mkdir("x" * 240); os.rename("long", "x" * 240 + "/long"); os.chdir("x" * 240)
attempt("moved", lambda: open("long/.token"))
"#;
        let (_, result) = inside(&exec, third);
        assert_eq!(result["enforcement"]["guard"].as_array().unwrap().len(), 1, "{who:?}: {result}");
        assert_eq!(exec.ask(&["--", "true"]).1, 0, "{who:?}: the next run");
        if who == crate::exec::Who::Ordinary {
            continue;
        }
        // The owner's own is hidden from where the path is too long.
        let deep = "mkdir -p p; cd p; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do d=$(printf 'x%.0s' $(seq 240)); mkdir $d; cd $d; done; echo hidden > .token";
        exec.program("bash").args(["-c", deep]).run().success();
        exec.write("probe.py", "");
        let fourth = r#"
def read():
    os.chdir("p")
    for _ in range(20): os.chdir("x" * 240)
    return open(".token").read()
attempt("control", lambda: open("probe.py").read())
attempt("deep", read)
"#;
        let (found, result) = inside(&exec, fourth);
        assert_eq!((&*found["deep"], &*found["control"]), ("refused", "done"), "{who:?}: {result}");
        exec.program("rm").args(["-rf", "p"]).run().success();
    }
}

#[test]
fn view_has_no_path_outside() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let outside = secret(&exec);
        let script = format!(
            r#"
name = "{outside}/secret"
here = os.getcwd()
def through(start):
    fd = os.open(start, os.O_RDONLY)
    os.fchdir(fd)
    try:
        for _ in range(30): os.chdir("..")
        return open("." + name).read()
    finally: os.chdir(here)
attempt("direct", lambda: open(name).read())
attempt("dots", lambda: open("../" * 30 + name[1:]).read())
attempt("root", lambda: open("/proc/self/root" + name).read())
attempt("cwd", lambda: open("/proc/self/cwd/../outside/secret").read())
attempt("thread", lambda: open("/proc/thread-self/root" + name).read())
attempt("fchdir", lambda: through("."))
attempt("fchdir_root", lambda: through("/proc/self/root"))
attempt("stat", lambda: os.stat(name))
attempt("link", lambda: os.link(name, "l"))
attempt("rename", lambda: os.rename("probe-copy", "{outside}/planted"))
attempt("write", lambda: open("{outside}/planted2", "w"))
os.path.islink("s") or os.symlink(name, "s")
attempt("symlink", lambda: open("s").read())
"#
        );
        exec.write("probe-copy", "");
        let (found, result) = inside(&exec, &script);
        assert!(found.values().all(|what| what == "refused"), "{who:?}: {result}");
        assert_eq!(found.len(), 12);
        let control = crate::attempts::outside(&exec, &script);
        assert!(control.values().all(|what| what == "done"), "{who:?}: {control:?}");
    }
}

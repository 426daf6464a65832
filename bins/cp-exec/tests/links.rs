//! Changes of a command to the file system do not give later runs access to other paths.

use std::fs;
use std::os::unix::fs::symlink;

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
        let first = include_str!("data/python/renames.py");
        let (found, result) = inside(&exec, first);
        for (name, what) in &found {
            let expected = if ["plain", "sub"].contains(&name.as_str()) { "done" } else { "refused" };
            assert_eq!(what, expected, "{who:?} {name}: {result}");
        }
        let second = include_str!("data/python/after-renames.py");
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
        let first = include_str!("data/python/hiding.py");
        let (found, result) = inside(&exec, first);
        assert!(found.values().all(|what| what == "done"), "{result}");
        let second = include_str!("data/python/found.py");
        exec.write("probe.py", "");
        let (found, result) = inside(&exec, second);
        assert_eq!((&*found["odd"], &*found["closed"], &*found["control"]), ("refused", "refused", "done"), "{result}");
        let control = outside(&exec, second);
        assert!(control.values().all(|what| what == "done"), "{control:?}");
        // A path that is longer than the kernel takes cannot be hidden: the run is refused, and the directory moved.
        let third = include_str!("data/python/too-long.py");
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
        let fourth = include_str!("data/python/too-deep.py");
        let (found, result) = inside(&exec, fourth);
        assert_eq!((&*found["deep"], &*found["control"]), ("refused", "done"), "{who:?}: {result}");
        exec.program("rm").args(["-rf", "p"]).run().success();
    }
}

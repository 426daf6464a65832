//! A tree that was named as the root governs itself: its pristine parts and ledgers are not written, what its modules
//! forbid is not seen, and scripts run with the arguments that are declared.

use std::fs;

use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, SCRIPT, Who, everyone};

/// A project with a tree `t` in it.
fn tree(who: Who) -> Exec {
    let policy = POLICY.replace("\"git\",", "\"tee\", \"touch\", \"grep\", \"cp\", \"bash\",");
    let exec = Exec::with_policy(who, &policy);
    for (name, text) in [
        ("t/lib/k.py", "s3cret = 1\n"),
        ("t/specs/a", "a\n"),
        ("t/own/a", "s3cret\n"),
        ("t/ledger/governance.jsonl", "{}\n"),
        ("t/planes/ho2/ledger/w.jsonl", "{}\n"),
        ("t/planes/ho1/sessions/SES-1/session.jsonl", "{}\n"),
        ("t/modules/m/README", "m\n"),
    ] {
        exec.write(name, text);
    }
    exec
}

const WRITES: &str = include_str!("data/python/governed.py");

#[test]
fn pristine_paths_and_ledgers_are_read_only() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = tree(who);
        exec.write("w.py", WRITES);
        let out = |arguments: &[&str]| {
            let (answer, _) = exec.ask(&[arguments, &["--", "python3", "-c", SCRIPT, "w.py"]].concat());
            answer["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{who:?}: {answer}")).to_owned()
        };
        let said = out(&["--root", "t"]);
        let written: Vec<&str> = said.lines().filter(|line| !line.starts_with("kept ")).collect();
        assert_eq!(
            written,
            ["wrote t/own/new", "wrote t/own/a", "wrote beside", "stayed t/lib", "stayed t/ledger", "stayed t"]
        );
        assert_eq!(fs::read_to_string(exec.work.join("t/ledger/governance.jsonl")).unwrap(), "{}\n");
        // The control: where no tree is named the policy alone decides.
        let said = out(&[]);
        assert!(!said.contains("kept") && !said.contains("stayed"), "{said}");
    }
}

#[test]
fn missing_pristine_path_or_ledger_cannot_be_created() {
    const SCRIPT: &str = "mkdir -p t/lib t/own p; echo x > t/lib/new; echo x > t/own/new; echo x > p/kept; \
                          mkdir -p t/ledger; echo x > t/ledger/governance.jsonl; true";
    for who in everyone() {
        let made = |arguments: &[&str]| {
            let exec = Exec::with_policy(who, &format!("{POLICY}\n[paths]\npristine = [\"p/kept\"]\n"));
            exec.write("t/own/a", "a\n");
            let (answer, status) = exec.ask(&[arguments, &["--", "sh", "-c", SCRIPT]].concat());
            let names = ["t/lib/new", "t/ledger/governance.jsonl", "p/kept", "t/own/new"];
            let there: Vec<&str> = names.into_iter().filter(|name| exec.work.join(name).exists()).collect();
            (there, status, answer)
        };
        let (there, status, answer) = made(&["--root", "t"]);
        assert_eq!((there, status), (vec!["t/own/new"], 4), "{who:?}: {answer}");
        // The control: where no tree is named, only the policy's own path is kept.
        let (there, status, answer) = made(&[]);
        assert_eq!((there, status), (vec!["t/lib/new", "t/ledger/governance.jsonl", "t/own/new"], 4), "{answer}");
    }
}

#[test]
fn writing_governed_path_is_refused_with_class() {
    let exec = tree(Who::Me);
    let ask = |words: &[&str]| exec.ask(&[&["--root", "t", "--"], words].concat()).0;
    for (words, rule, class) in [
        (&["tee", "t/ledger/governance.jsonl"][..], "append_only", "APPEND_ONLY"),
        (&["touch", "t/lib/new.py"], "pristine", "PRISTINE"),
        (&["cp", "t/own/a", "t/specs/../lib/k.py"], "pristine", "PRISTINE"),
    ] {
        let answer = ask(words);
        let details = &answer["error"]["details"];
        assert_eq!((&details["rule"], &details["class"]), (&json!(rule), &json!(class)), "{answer}");
    }
    assert_eq!(ask(&["touch", "t/own/new"])["ok"], true, "the control");
    assert_eq!(ask(&["cp", "t/lib/k.py", "t/own/k"])["ok"], true, "the control");
    let write = |path: &str| exec.file(&["--root", "t"], "write_file", &json!({"path": path, "content": "x"}));
    for (path, rule, class) in [
        ("t/ledger/governance.jsonl", "append_only", "APPEND_ONLY"),
        ("t/specs/new", "pristine", "PRISTINE"),
        ("t/specs/../lib/k.py", "pristine", "PRISTINE"),
    ] {
        let answer = write(path);
        let details = &answer["error"]["details"];
        assert_eq!((&details["rule"], &details["class"]), (&json!(rule), &json!(class)), "{answer}");
    }
    assert_eq!(write("t/own/other")["ok"], true, "the control");
}

/// Declares what the module `m` of the tree may do.
fn declare(exec: &Exec, capabilities: &Value) {
    let manifest = json!({"package_id": "PKG-M", "capabilities": capabilities});
    exec.write("t/modules/m/capabilities.json", &manifest.to_string());
}

#[test]
fn forbidden_path_of_module_is_hidden_from_all_commands() {
    for who in everyone() {
        let exec = tree(who);
        declare(&exec, &json!({"forbidden": ["lib/*"]}));
        let found =
            |arguments: &[&str]| exec.ask(&[arguments, &["--", "grep", "-rh", "s3cret", "t"]].concat()).0.to_string();
        let said = found(&["--root", "t"]);
        assert!(!said.contains("s3cret = 1") && said.contains("s3cret\\n"), "{who:?}: {said}");
        assert!(found(&[]).contains("s3cret = 1"), "the control");
        let by_file = ["--root", "t", "--", "grep", "-ft/lib/k.py", "t/own/a"];
        let (answer, status) = exec.ask(&by_file);
        assert!(status != 0 && !answer.to_string().contains("s3cret"), "{answer}");
        let named = exec.ask(&["--root", "t", "--", "grep", "-r", "s3cret", "t/lib/k.py"]).0;
        assert_eq!(named["error"]["details"]["rule"], "capabilities", "{named}");
    }
}

#[test]
fn overlapping_restrictions_of_paths_never_stop_a_command() {
    let patterns: Vec<&str> = "lib lib/** lib/* lib/*.py lib/a.py lib/deep lib/deep/* lib/deep/b.py **/a.py **/deep lib/link.py lib/there out/* out/link"
        .split(' ').collect();
    let mut seed = 7_usize;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let rounds = cp_testkit::times(24, 400);
    for round in 0..rounds {
        let mut some = |prefix: &str, most: usize| -> Vec<String> {
            let drawn: Vec<&str> = (0..draw(4)).map(|_| draw(most)).map(|at| patterns[at]).collect();
            let below = |pattern: &&str| {
                if pattern.starts_with("**") { (*pattern).to_owned() } else { format!("{prefix}{pattern}") }
            };
            drawn.iter().map(below).collect()
        };
        // A policy is refused if one of its patterns goes through a link that a command could have created.
        let (forbidden, pristine) = (some("t/", 10), some("t/", 10));
        let manifests = [some("", patterns.len()), some("", patterns.len())];
        let manifests = manifests.map(|list| json!({"capabilities": {"forbidden": list}}));
        let exec = Exec::with_policy(
            Who::Me,
            &format!(
                "{POLICY}\n[paths]\nread = [\".\"]\nwrite = [\".\"]\nforbidden = {forbidden:?}\npristine = {pristine:?}\n"
            ),
        );
        for name in ["lib/a.py", "lib/deep/b.py", "out/x", "own/free"] {
            exec.write(&format!("t/{name}"), "it is read\n");
        }
        let at = |name: &str| exec.work.join("t").join(name);
        std::os::unix::fs::symlink("a.py", at("lib/link.py")).unwrap();
        std::os::unix::fs::symlink("deep", at("lib/there")).unwrap();
        std::os::unix::fs::symlink("../lib", at("out/link")).unwrap();
        fs::hard_link(at("lib/a.py"), at("out/hard")).unwrap();
        for (name, manifest) in ["m", "n"].iter().zip(&manifests) {
            exec.write(&format!("t/modules/{name}/capabilities.json"), &manifest.to_string());
        }
        let lists = format!("{round}: forbidden {forbidden:?}, pristine {pristine:?}, {manifests:?}");
        let (answer, status) = exec.ask(&["--root", "t", "--", "cat", "t/own/free"]);
        assert_eq!((status, &answer["data"]["stdout"]), (0, &json!("it is read\n")), "{lists}: {answer}");
        let hides = |name: &str, words: &[&str]| {
            let listed =
                |list: &Vec<String>| list.iter().any(|pattern| words.contains(&pattern.trim_start_matches("t/")));
            let of_modules = |manifest: &Value| {
                let list: Vec<String> = serde_json::from_value(manifest["capabilities"]["forbidden"].clone()).unwrap();
                listed(&list)
            };
            let is_hidden = listed(&forbidden) || manifests.iter().any(of_modules);
            let (answer, _) = exec.ask(&["--root", "t", "-c", &format!("cat t/{name}; true")]);
            let read = answer["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{lists}: {answer}"));
            assert_eq!(read.is_empty(), is_hidden, "{name} with {lists}: {answer}");
        };
        hides("lib/a.py", &["lib", "lib/**", "lib/*", "lib/*.py", "lib/a.py", "**/a.py", "lib/link.py", "out/link"]);
        hides(
            "lib/deep/b.py",
            &["lib", "lib/**", "lib/*", "lib/deep", "lib/deep/*", "lib/deep/b.py", "**/deep", "lib/there", "out/link"],
        );
    }
}

#[test]
fn script_arguments_are_checked_for_any_interpreter() {
    cp_testkit::needs!("python3");
    let exec = tree(Who::Me);
    let paths = "\n[paths]\nread = [\".\"]\nwrite = [\"t/own\"]\nexecute = [\"t/modules/**\"]\n";
    let policy = fs::read_to_string(exec.home.join("config/policy.toml")).unwrap();
    let policy = policy.replace("\"sh\",", "\"sh\", \"t/modules/m/a.sh\",");
    fs::write(exec.home.join("config/policy.toml"), policy + paths).unwrap();
    exec.executable("t/modules/m/a.sh", "#!/bin/sh\necho \"ran $*\"\n");
    exec.write("t/modules/m/b.py", "print('ran')\n");
    exec.write("t/modules/m/undeclared.py", "print('ran')\n");
    declare(&exec, &json!({"read": [exec.work.join(".")], "execute": ["modules/m/a.sh --*", "modules/m/b.py"]}));
    let ask = |words: &[&str]| exec.ask(&[&["--root", "t", "--"], words].concat()).0;
    for words in [
        &["t/modules/m/a.sh", "--x"][..],
        &["sh", "t/modules/m/a.sh", "--x"],
        &["bash", "t/modules/m/a.sh", "--x", "y"],
        &["python3", "t/modules/m/b.py"],
        &["python3", "t/modules/m/b.py", "anything"],
    ] {
        let answer = ask(words);
        assert!(answer["data"]["stdout"].as_str().is_some_and(|said| said.starts_with("ran")), "{words:?}: {answer}");
    }
    for words in [
        &["t/modules/m/a.sh", "x"][..],
        &["sh", "t/modules/m/a.sh"],
        &["python3", "t/modules/m/undeclared.py"],
        &["sh", "t/modules/m/undeclared.py"],
        &["python3", "t/own/../modules/m/undeclared.py"],
    ] {
        let answer = ask(words);
        assert_eq!(answer["error"]["details"]["rule"], "capabilities", "{words:?}: {answer}");
    }
}

#[test]
fn declared_arguments_hold_at_every_door() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &format!("{POLICY}\n[paths]\nexecute = [\".\"]\n"));
        exec.executable("t/scripts/trace.py", "#!/usr/bin/env python3\nprint('ran')\n");
        exec.write("t/modules/shell/capabilities.json", r#"{"capabilities":{"execute":["scripts/trace.py --*"]}}"#);
        let runs = |word: &str, door: usize| {
            let words = ["t/scripts/trace.py", word];
            let request = |tool: &str| {
                json!({"tool": tool, "operation": "execute_command", "arguments": {"command": words.join(" ")}})
                    .to_string()
            };
            let line = words.join(" ");
            let answer = match door {
                0 => exec.ask(&["--root", "t", "--", words[0], words[1]]).0,
                1 => exec.ask(&["--root", "t", "--", "python3", words[0], words[1]]).0,
                2 => exec.ask(&["--root", "t", "-c", &line]).0,
                3 => exec.ask(&["--root", "t", "-c", &format!("python3 {line}")]).0,
                4 => exec.answers(&["--root", "t"], &request("shell")).0.remove(0),
                _ => exec.answers(&["--root", "t"], &request("bash")).0.remove(0),
            };
            answer["data"]["stdout"] == "ran\n" || answer["data"]["value"]["stdout"] == "ran\n"
        };
        for door in 0..6 {
            assert!(!runs("run", door), "{who:?}, door {door}: no module declares these arguments");
            assert!(runs("--explain", door), "{who:?}, door {door}: the control");
        }
    }
}

//! Lines and files that are looked for: what ignore rules and the policy leave in, as `rg` has it.

use std::os::unix::fs::symlink;

use cp_testkit::required;
use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who, everyone};

fn ask(exec: &Exec, operation: &str, arguments: &Value) -> Value {
    let request = json!({"tool": "filesystem", "operation": operation, "arguments": arguments}).to_string();
    exec.answers(&[], &request).0[0].clone()
}

/// The text for a model.
fn text(exec: &Exec, input: &Value) -> String {
    let call = json!({"schema_version": "1.0.0", "ok": true, "type": "tool_call", "data": {"id": "c", "name": "filesystem", "input": input}});
    exec.answers(&[], &call.to_string()).0[0]["data"]["content"].as_str().unwrap().to_owned()
}

/// A project with ignore rules of every kind.
fn project() -> Exec {
    let exec = Exec::new(Who::Me);
    for (path, text) in [
        (".git/HEAD", "needle"),
        (".git/info/exclude", "excluded\n"),
        (".gitignore", "*.log\n/build/\n!keep.log\n"),
        ("src/.gitignore", "generated.rs\n"),
        (".ignore", "ignored.txt\n"),
        ("a.txt", "hay\nneedle one\nhay\nNeedle two\n"),
        ("b.log", "needle"),
        ("keep.log", "needle kept"),
        ("build/out.txt", "needle"),
        ("excluded", "needle"),
        ("ignored.txt", "needle"),
        (".hidden", "needle hidden"),
        ("src/lib.rs", "fn needle() {}\r\n    let x = 1; // needle.*\nend"),
        ("src/generated.rs", "needle"),
        ("src/deep/er/x.rs", "1\n2\nneedle\n4\nneedle\n6\n7\n8\nneedle\n"),
        ("sp ace/é.txt", "needle é"),
        ("empty", ""),
    ] {
        exec.write(path, text);
    }
    exec.work.write("binary", b"\0needle\n");
    exec
}

#[test]
fn search_agrees_with_ripgrep() {
    cp_testkit::needs!("rg");
    let exec = project();
    for (pattern, options, arguments) in [
        ("needle", &[][..], json!({})),
        ("(?i)NEEDLE", &[], json!({})),
        ("^needle$", &[], json!({})),
        (r"needle\W", &[], json!({})),
        (r"e\s*$", &[], json!({})),
        ("needle.*", &["-F"], json!({"literal": true})),
        ("needle", &["-C1"], json!({"context": 1})),
        ("needle", &["-C3"], json!({"context": 3})),
        ("needle", &["-g", "*.rs", "-g", "!generated.rs"], json!({"glob": "*.rs"})),
        ("needle", &["-g", "src/**/x.rs"], json!({"glob": "src/**/x.rs"})),
        ("needle", &["-g", "!*.rs"], json!({"glob": "!*.rs"})),
        ("needle", &["--hidden", "-g", "!.git"], json!({"hidden": true})),
        ("é", &[], json!({})),
        ("nothing at all", &[], json!({})),
    ] {
        let ran = exec
            .program("rg")
            .args(["-n", "--sort", "path", "--no-heading", "--color", "never"])
            .args(options)
            .args(["-e", pattern])
            .run();
        let mut input = arguments;
        input["operation"] = "search".into();
        input["pattern"] = pattern.into();
        let found = text(&exec, &input);
        let found = found.strip_suffix("[no lines]").unwrap_or(&found);
        assert_eq!(found, ran.stdout.replace("\r\n", "\n"), "{pattern} {options:?}");
        assert!(pattern.starts_with("nothing") || !found.is_empty(), "{pattern} {options:?}");
    }
}

#[test]
fn search_answers_are_bounded_with_note() {
    let exec = Exec::new(Who::Me);
    exec.write("many", &"needle\n".repeat(500));
    exec.write("wide", &format!("wide {}", "é".repeat(5000)));
    let answer = ask(&exec, "search", &json!({"pattern": "needle", "limit": 3}));
    let value = &answer["data"]["value"];
    assert_eq!((value["matches"].as_array().unwrap().len(), &value["has_more"]), (3, &json!(true)), "{answer}");
    assert_eq!(value["matches"][2], json!({"path": "many", "line": 3, "text": "needle"}));
    let usual = text(&exec, &json!({"operation": "search", "pattern": "needle"}));
    assert!(usual.lines().count() == 101 && usual.contains("[the first 100 lines; there are more"), "{usual}");
    let exact = ask(&exec, "search", &json!({"pattern": "needle", "limit": 500}));
    assert_eq!(exact["data"]["value"]["has_more"], false);
    let wide = ask(&exec, "search", &json!({"pattern": "wide"}));
    assert_eq!(wide["data"]["value"]["matches"][0]["text"].as_str().unwrap().chars().count(), 401);
    let invalid = ask(&exec, "search", &json!({"pattern": "a("}));
    assert_eq!(invalid["error"]["details"]["rule"], "pattern", "{invalid}");
    assert!(invalid["error"]["details"]["hint"].as_str().unwrap().contains("literal"));
}

#[test]
fn search_skips_hidden_and_outside_files() {
    let exec =
        Exec::with_policy(Who::Me, &format!("{POLICY}\n[paths]\nread = [\".\"]\nforbidden = [\"**/private\"]\n"));
    for path in [".env", "seen", "private/a", "sub/private/b", "sub/seen"] {
        exec.write(path, "needle");
    }
    exec.root.write("outside/a", "needle");
    symlink(exec.root.join("outside"), exec.work.join("link")).unwrap();
    symlink(exec.root.join("outside/a"), exec.work.join("file")).unwrap();
    let found = |operation: &str| text(&exec, &json!({"operation": operation, "pattern": "needle", "hidden": true}));
    assert_eq!(found("search"), "seen:1:needle\nsub/seen:1:needle\n");
    let files = text(&exec, &json!({"operation": "find", "kind": "file", "hidden": true}));
    assert_eq!(files, "seen\nsub/seen\n");
    for path in ["link", "..", "/", "private", ".env"] {
        for operation in ["search", "find"] {
            let arguments =
                if operation == "find" { json!({"path": path}) } else { json!({"path": path, "pattern": "x"}) };
            assert_eq!(ask(&exec, operation, &arguments)["error"]["code"], "E_FORBIDDEN", "{operation} {path}");
        }
    }
    assert_eq!(ask(&exec, "find", &json!({"path": "none"}))["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn find_selects_by_glob_and_kind() {
    let exec = project();
    let find = |arguments: &Value| {
        let answer = ask(&exec, "find", arguments);
        answer["data"]["value"]["paths"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    };
    assert_eq!(find(&json!({"glob": "*.rs"})), ["src/deep/er/x.rs", "src/lib.rs"]);
    assert_eq!(find(&json!({"glob": "src/*.rs"})), ["src/lib.rs"]);
    assert_eq!(find(&json!({"path": "src", "kind": "directory"})), ["src/deep", "src/deep/er"]);
    assert_eq!(find(&json!({"glob": "*.log"})), ["keep.log"]);
    let first = ask(&exec, "find", &json!({"limit": 1}));
    assert_eq!((&first["data"]["value"]["has_more"], &first["data"]["value"]["count"]), (&json!(true), &json!(1)));
    assert_eq!(text(&exec, &json!({"operation": "find", "glob": "*.zig"})), "[no files]");
}

#[test]
fn search_reports_unreadable_file() {
    use std::os::unix::fs::PermissionsExt;
    // Root reads every file.
    let who = everyone().pop().unwrap();
    let exec = Exec::new(who);
    exec.write("seen", "needle\n");
    let closed = exec.write("closed", "needle\n");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    if !required("an ordinary user", who == Who::Ordinary || std::fs::read(&closed).is_err()) {
        return;
    }
    let value = ask(&exec, "search", &json!({"pattern": "needle"}))["data"]["value"].clone();
    assert_eq!(
        (&value["count"], &value["files"], &value["skipped_files"]),
        (&json!(1), &json!(1), &json!(1)),
        "{value}"
    );
    assert_eq!(value["skipped"][0]["path"], "closed", "{value}");
    let shown = text(&exec, &json!({"operation": "search", "pattern": "needle"}));
    assert!(shown.starts_with("seen:1:needle\n[closed was not searched: "), "{shown}");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        ask(&exec, "search", &json!({"pattern": "needle"}))["data"]["value"]["skipped"],
        json!([]),
        "the control"
    );
}

//! `policy suggest`: the requests that its additions let pass, and those that it never suggests.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::exec::{Exec, Who};

/// Programs that a policy may allow, and requests that are harmless.
const HARMLESS: [&[&str]; 8] = [
    &["sort", "a.txt"],
    &["sort", "-u", "a.txt"],
    &["wc", "-l", "a.txt"],
    &["cut", "-c1", "a.txt"],
    &["seq", "3"],
    &["perl", "-e", "1"],
    &["timeout", "5", "seq", "3"],
    &["env", "seq", "4"],
];

/// Requests that destroy, publish, reach secrets, govern, escalate, or name nothing.
const NEVER: [&[&str]; 17] = [
    &["rm", "a.txt"],
    &["rm", "gone.txt"],
    &["shred", "a.txt"],
    &["git", "push", "--force"],
    &["git", "push"],
    &["npm", "publish"],
    &["find", ".", "-delete"],
    &["timeout", "5", "rm", "a.txt"],
    &["env", "git", "push"],
    &["sh", "-c", "true; rm a.txt"],
    &["sort", ".env"],
    &["cut", "-c1", "~/.ssh/id_rsa"],
    &["cp-log", "tip"],
    &["sudo", "id"],
    &["dd", "if=a.txt"],
    &["no-such-program"],
    &["wc", "HOME/config/policy.toml"],
];

/// The requests as rows, with the paths of a place.
fn rows(exec: &Exec, requests: &[Vec<String>]) -> String {
    let home = exec.home.to_str().unwrap();
    let row = |argv: &Vec<String>| {
        let argv: Vec<String> = argv.iter().map(|word| word.replace("HOME", home)).collect();
        json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": argv}}).to_string() + "\n"
    };
    requests.iter().map(row).collect()
}

/// For each request: true if `check` allows it.
fn allowed(exec: &Exec, rows: &str) -> Vec<bool> {
    let ran = exec.command(&["--origin", "person", "check", "--row-failures", "ok"]).stdin(rows).run();
    let answers = ran.of("item");
    answers.iter().map(|answer| answer["decision"] == "allow").collect()
}

fn suggest(exec: &Exec, options: &[&str]) -> Value {
    exec.command(&["policy", "suggest"]).with_programs().args(options).run().success().data()
}

fn apply(exec: &Exec) -> Value {
    let token = suggest(exec, &["--dry-run"])["confirm_token"].as_str().unwrap().to_owned();
    suggest(exec, &["--confirm", &token])
}

fn named(suggested: &Value) -> BTreeSet<String> {
    let suggestions = suggested["suggestions"].as_array().unwrap();
    let names = suggestions.iter().flat_map(|one| one["lets_pass"].as_array().unwrap());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn suggested_additions_allow_exactly_named_requests(
        requests in proptest::collection::vec(proptest::sample::select([&HARMLESS[..], &NEVER[..]].concat()), 1..16),
        programs in proptest::sample::subsequence(vec!["sort", "seq", "git", "env", "sh", "find"], 0..4),
        rules in proptest::sample::select(vec!["default", "off"]),
    ) {
        let policy = format!(
            "# mine\n[exec]\nallowed_commands = {} # own\nargument_rules = \"{rules}\"\nrestricted_commands = [\"dd\"]\n",
            json!([&["true"], &programs[..]].concat()),
        );
        let exec = Exec::with_policy(Who::Me, &policy);
        for name in ["a.txt", ".env"] {
            exec.write(name, "text\n");
        }
        let mut requests: Vec<Vec<String>> =
            requests.iter().map(|argv| argv.iter().map(|word| (*word).to_owned()).collect()).collect();
        requests.sort();
        requests.dedup();
        let rows = rows(&exec, &requests);
        let before = allowed(&exec, &rows);
        prop_assert_eq!(before.len(), requests.len());
        // Only refused requests are made, because others would run.
        let refused: Vec<&str> = rows.lines().zip(&before).filter(|(_, is)| !**is).map(|(row, _)| row).collect();
        exec.command(&["--row-failures", "ok"]).stdin(refused.join("\n")).run();
        let suggested = suggest(&exec, &[]);
        let names = named(&suggested);
        let also_pass = suggested["also_pass"].to_string().replace(exec.home.to_str().unwrap(), "HOME");
        if names.is_empty() {
            prop_assert_eq!(&suggested["difference"], "");
        } else {
            prop_assert_eq!(&apply(&exec)["written"], true);
        }
        let text = exec.home.read("config/policy.toml");
        prop_assert!(text.contains("# mine\n") && text.contains("# own\n"), "{}", text);
        let after = allowed(&exec, &rows);
        for ((request, before), after) in requests.iter().zip(before).zip(after) {
            let words: Vec<&str> = request.iter().map(String::as_str).collect();
            let is_named = names.contains(&request.join(" "));
            let hidden = words.iter().any(|word| [".env", "~/.ssh", "HOME"].iter().any(|path| word.starts_with(path)));
            prop_assert_eq!(after, before || is_named || also_pass.contains(words[words.len() - 1]) && hidden, "{:?}: {}", request, suggested);
            prop_assert!(!is_named || HARMLESS.contains(&&words[..]), "{:?}", request);
            let is_installed = std::path::Path::new("/usr/bin").join(words[0]).exists();
            // A wrapper is not suggested if it would start what destroys.
            let is_plain = is_installed && !["env", "timeout"].contains(&words[0]);
            prop_assert!(after || !HARMLESS.contains(&&words[..]) || !is_plain || rules == "off", "{:?}: {}", request, suggested);
        }
        let again = suggest(&exec, &[]);
        prop_assert_eq!(&again["suggestions"], &json!([]));
    }
}

#[test]
fn suggestions_without_refusals_are_empty() {
    let exec = Exec::new(Who::Me);
    exec.ask(&["--", "true"]);
    let suggested = suggest(&exec, &["--since", "1h"]);
    assert_eq!((&suggested["suggestions"], &suggested["unsuggested"]), (&json!([]), &json!(0)), "{suggested}");
    assert_eq!(exec.command(&["policy", "suggest", "--since", "soon"]).run().status, 2);
}

#[test]
fn suggestions_name_evidence_and_are_joined_if_more_than_ten() {
    let exec = Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"true\"]\n");
    exec.write("a.txt", "text\n");
    let programs = ["sort", "wc", "cut", "seq", "tr", "uniq", "comm", "join", "paste", "fold", "expand", "tac", "od"];
    let refuse = |at: usize| {
        let row = rows(&exec, &[vec![programs[at].to_owned(), "a.txt".to_owned()]]);
        exec.command(&["--origin", "person", "--row-failures", "ok"]).stdin(row.repeat(programs.len() - at)).run();
    };
    (0..10).for_each(refuse);
    let suggested = suggest(&exec, &[]);
    let suggestions = suggested["suggestions"].as_array().unwrap();
    let values: Vec<&str> = suggestions.iter().map(|one| one["additions"][0]["value"].as_str().unwrap()).collect();
    assert_eq!(values, programs[..10], "{suggested}");
    for (at, one) in suggestions.iter().enumerate() {
        assert_eq!((&one["refusals"], &one["requests"]), (&json!(programs.len() - at), &json!(1)), "{one}");
        assert_eq!((&one["rules"], one["entries"].as_array().unwrap().len()), (&json!(["not_allowed"]), 3), "{one}");
        let (ledger, seq) = one["entries"][0].as_str().unwrap().rsplit_once('#').unwrap();
        let entry = exec.entries("exec.refused").into_iter().find(|entry| entry["seq"].as_u64() == seq.parse().ok());
        assert!(entry.is_some_and(|entry| entry["data"]["rule"] == "not_allowed"), "{one}");
        assert!(ledger.ends_with("cp-exec.jsonl"), "{one}");
    }
    (10..13).for_each(refuse);
    let joined = suggest(&exec, &[]);
    let all = joined["suggestions"][0]["additions"].as_array().unwrap();
    assert_eq!((joined["suggestions"].as_array().unwrap().len(), all.len()), (1, 13), "{joined}");
    assert_eq!((&joined["unsuggested"], &joined["rules"][0]["refused"]), (&json!(0), &json!(91)), "{joined}");
    let text = exec.command(&["policy", "suggest", "--format", "text"]).with_programs().run().success();
    assert!(text.stdout.contains("refused 91 times by not_allowed") && text.stdout.contains("risk low"), "{text:?}");
}

#[test]
fn suggestion_for_paths_tools_and_names_is_smallest_and_spares_secrets() {
    let exec = Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"npm\"]\n[tools]\nallow = [\"@default\"]\n");
    let other = exec.root.join("other");
    let refused = |asked: Value, message: String, rule: &str| json!({"event": "exec.refused", "message": message, "data": {"asked": asked, "rule": rule, "code": "E_FORBIDDEN"}});
    let file = |operation: &str, name: &str| {
        let message = format!("Capability denied: {operation} on {}", other.join(name).display());
        refused(json!({"tool": "Read", "command": null, "input_hash": "x"}), message, "paths.read")
    };
    let tool = |name: &str| {
        let message = format!("Tool not permitted: {name}");
        refused(json!({"tool": name, "command": null, "input_hash": "x"}), message, "tools.allow")
    };
    let connection = |intent: u64, name: &str, rule: &str| json!({"event": "exec.connection", "data": {"intent": intent, "name": name, "port": 443, "decision": "deny", "rule": rule, "count": 2}});
    let lines = [
        json!({"event": "exec.intent", "data": {"argv": ["npm", "install"], "line": null, "rule": "x"}}),
        json!({"event": "exec.intent", "data": {"argv": ["npm", "publish"], "line": null, "rule": "x"}}),
        connection(1, "registry.npmjs.org", "network"),
        connection(2, "evil.test", "network"),
        connection(1, "internal.test", "private_address"),
        file("read", "one/x.txt"),
        file("read", "many/1.txt"),
        file("read", "many/2.txt"),
        file("read", "many/3.txt"),
        file("write", "two/y.txt"),
        file("read", "one/.env"),
        tool("mcp__notes__read_note"),
        tool("mcp__notes__deleteNote"),
        tool("mcp__mail__SEND"),
    ];
    let input = lines.map(|line| line.to_string()).join("\n");
    let ledger = exec.ledger();
    exec.program("cp-log").args(["append", "--rows", "-f"]).arg(&ledger).stdin(input).run().success();
    let suggested = suggest(&exec, &[]);
    let added: BTreeSet<String> = suggested["suggestions"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|one| one["additions"].as_array().unwrap())
        .map(|one| format!("{} {} {}", one["key"], one["name"], one["value"]).replace('"', ""))
        .collect();
    let shown = |name: &str| other.join(name).display().to_string();
    let expected = [
        "exec.rule npm install registry.npmjs.org".to_owned(),
        format!("paths.read null {}", shown("one/x.txt")),
        format!("paths.read null {}", shown("many")),
        format!("paths.read null {}", shown("two/y.txt")),
        format!("paths.write null {}", shown("two/y.txt")),
        "tools.allow null mcp__notes__read_note".to_owned(),
    ];
    assert_eq!(added, expected.into_iter().collect(), "{suggested}");
    assert_eq!(apply(&exec)["written"], true);
    let policy = exec.ask(&["policy", "show"]).0["data"]["policy"].clone();
    assert_eq!(policy["exec"]["rule"][0]["network"], json!(["registry.npmjs.org"]), "{policy}");
    assert_eq!(policy["tools"]["allow"].as_array().unwrap().len(), 2, "{policy}");
    let read = |name: &str| {
        let arguments = json!({"path": other.join(name)});
        let row = json!({"tool": "filesystem", "operation": "read_file", "arguments": arguments}).to_string();
        exec.command(&[]).stdin(row).run().records()[0]["error"]["details"]["rule"].clone()
    };
    for name in ["one/x.txt", "many/4.txt", "two/y.txt"] {
        std::fs::create_dir_all(other.join(name).parent().unwrap()).unwrap();
        std::fs::write(other.join(name), "text").unwrap();
        assert_eq!(read(name), Value::Null, "{name}");
    }
    assert_eq!(read("one/z.txt"), "paths.read");
}

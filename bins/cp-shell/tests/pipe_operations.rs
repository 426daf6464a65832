//! The members of each operation's result on the complete tree.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::pipe::{EVIDENCE, keys};
use crate::tree::Tree;

/// Each line of the file has a request and its exact answer. `UPDATE=1` rewrites the answers.
#[test]
fn requests_of_the_complete_tree_have_the_recorded_answers() {
    let place = Tree::new();
    symlink("lib", place.tree.join("innocent")).unwrap();
    symlink("secret.py", place.tree.join("lib/innocent.py")).unwrap();
    let broken = "{\"event_type\":\"A\"}\n{\"event\n[1]\n{\"event\":\"B\"}\n{\"event_type\":\"C";
    place.tree.write("ledger/broken.jsonl", broken);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/operations.jsonl");
    let recorded = std::fs::read_to_string(&file).unwrap();
    let rows = recorded.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let requests: Vec<Value> = rows.map(|row| row["request"].clone()).collect();
    let answers = place.pipe(requests.iter().map(|request| request.to_string() + "\n").collect::<String>()).records();
    assert_eq!(answers.len(), requests.len());
    let found = requests.iter().zip(answers).map(|(request, mut answer)| {
        assert_eq!(keys(&answer), ["status", if answer["status"] == "ok" { "result" } else { "error" }, "evidence"]);
        let evidence = answer.as_object_mut().unwrap().remove("evidence").unwrap();
        assert_eq!((keys(&evidence), &evidence["declared_writes"]), (EVIDENCE.to_vec(), &json!([])));
        assert!(!evidence["declared_reads"].to_string().contains("secret.py"), "{request}: {evidence}");
        let root = format!("{}/", place.root.display());
        json!({"request": request, "answer": answer}).to_string().replace(&root, "$ROOT/")
    });
    let found: Vec<String> = found.collect();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, found.join("\n") + "\n").unwrap();
        return;
    }
    for (found, line) in found.iter().zip(recorded.lines()) {
        assert_eq!(found, line);
    }
}

#[test]
fn ledger_without_segments_is_read_itself() {
    let place = Tree::new();
    for segment in ["governance-20260203-100000.jsonl", "governance-20260204-110000.jsonl"] {
        std::fs::remove_file(place.tree.join("ledger").join(segment)).unwrap();
    }
    assert_eq!(place.result(&json!({"operation": "ledger_query"}))["ledger_file"], "governance.jsonl");
}

/// A policy that allows `echo`, `false` and the scripts.
fn allow(place: &Tree) {
    place.home.write("config/policy.toml", "[exec]\nallowed_commands = [\"echo\", \"false\"]\n");
}

#[test]
fn execute_command_runs_command_of_policy() {
    let place = Tree::new();
    allow(&place);
    let execute = |command: &str| place.ask(&json!({"operation": "execute_command", "command": command}));
    let ran = execute("! echo hi")["result"].clone();
    assert_eq!((&ran["stdout"], &ran["return_code"]), (&json!("hi\n"), &json!(0)), "{ran}");
    let failed = execute(":!false");
    let details = &failed["error"]["details"];
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("error"), &json!("HANDLER_ERROR")));
    assert_eq!((&details["error_code"], &details["result"]["return_code"]), (&json!("E_COMMAND_FAILED"), &json!(1)));
    let piped = place.pipe("{\"operation\":\"execute_command\",\"command\":\"! false\"}");
    assert_eq!(piped.status, 1, "the next command of a script does not run");
    let denied = execute("! git push")["error"].clone();
    assert_eq!((&denied["code"], &denied["details"]["error_code"]), (&json!("HANDLER_ERROR"), &json!("E_FORBIDDEN")));
    assert!(denied["details"]["hint"].is_string());
    assert_eq!(execute("! echo $(id)")["error"]["code"], "HANDLER_ERROR");
}

#[test]
fn execute_command_records_calls() {
    let place = Tree::new();
    allow(&place);
    let input = "{\"operation\":\"execute_command\",\"command\":\"! echo hi\"}{\"operation\":\"execute_command\",\"command\":\"! git x\"}{\"operation\":\"signal_status\"}";
    let ran = place.pipe(input);
    let exec = place.entries("ledger/exec.jsonl");
    let of = |event: &str| exec.iter().filter(|entry| entry["event"] == event).count();
    assert_eq!((of("exec.intent"), of("agent_turn")), (1, 3), "{exec:?}");
    let evidence = place.entries("ledger/evidence.jsonl");
    let turn = evidence.iter().find(|entry| entry["event"] == "turn_evidence").unwrap();
    assert_eq!(turn["data"]["external_calls"][0]["program"], "cp-exec");
    assert!(turn["data"]["external_calls"][0]["receipt"]["hash"].is_string());
    let signals = ran.records()[2]["result"]["signals"].clone();
    assert_eq!((&signals["stance"], &signals["altitude"]), (&json!("protective"), &json!("L3")));
}

#[test]
fn written_files_and_receipts_are_evidence() {
    let place = Tree::new();
    let policy = "[exec]\nallowed_commands = [\"touch\", \"false\"]\n[paths]\nwrite = [\".\"]\n";
    place.home.write("config/policy.toml", policy);
    let execute = |command: &str| json!({"operation": "execute_command", "command": command}).to_string();
    let answers = place.pipe(["! touch a", "! false", "pkg list"].map(execute).concat()).records();
    let paths = |evidence: &Value| -> Vec<String> {
        let writes = evidence["declared_writes"].as_array().unwrap().iter();
        writes.map(|write| format!("{} {}", write["path"].as_str().unwrap(), write["hash"].is_string())).collect()
    };
    let written = |file: &str| format!("{} true", place.work.join(file).display());
    let declared: Vec<Vec<String>> = answers.iter().map(|answer| paths(&answer["evidence"])).collect();
    assert_eq!(declared, [vec![written("a")], Vec::new(), Vec::new()]);
    assert!(answers[1]["error"]["details"]["hint"].as_str().unwrap().contains("standard error"), "{}", answers[1]);
    let entries = place.entries("ledger/evidence.jsonl");
    let turns: Vec<&Value> = entries.iter().filter(|entry| entry["event"] == "turn_evidence").collect();
    let recorded = |turn: usize| turns[turn]["data"].clone();
    for turn in [0, 1] {
        assert!(recorded(turn)["external_calls"][0]["receipt"]["hash"].is_string(), "{}", recorded(turn));
    }
    assert_eq!(paths(&recorded(0)), [written("a")]);
}

#[test]
fn tree_narrows_policy() {
    let place = Tree::new();
    allow(&place);
    let execute = |command: &str| place.ask(&json!({"operation": "execute_command", "command": command}));
    assert_eq!(execute("! echo lib/paths.py")["status"], "ok");
    let inside = |file: &str| place.tree.join(file).display().to_string();
    let denied = execute(&format!("! echo {}", inside("lib/../lib/secret.py")))["error"].clone();
    assert_eq!(denied["code"], "CAPABILITY_DENIED");
    assert_eq!(denied["message"], format!("Capability denied: read on {}", inside("lib/secret.py")));
    assert!(denied["details"]["hint"].as_str().unwrap().contains("of capabilities.forbidden in "), "{denied}");
    let (script, paths) = (inside("scripts/other.sh"), place.tree.display());
    let policy = format!(
        "[exec]\nallowed_commands = [\"echo\", \"{script}\"]\n[paths]\nread = [\".\", \"{paths}\"]\nexecute = [\"{script}\"]\n"
    );
    place.home.write("config/policy.toml", policy);
    assert_eq!(execute(&format!("! {script}"))["error"]["code"], "CAPABILITY_DENIED");
    // Declared for the shell but not in the policy: the tree cannot widen the policy.
    let script = place.tree.join("scripts/report.sh");
    assert_eq!(execute(&format!("! {}", script.display()))["error"]["details"]["error_code"], "E_FORBIDDEN");
    place.tree.write("modules/shell/capabilities.json", "{\"capabilities\":{\"forbidden\":\"all\"}}");
    let damaged = execute("! echo hi")["error"].clone();
    assert_eq!(damaged["code"], "CAPABILITY_DENIED", "{damaged}");
    assert!(damaged["details"]["hint"].is_string(), "{damaged}");
}

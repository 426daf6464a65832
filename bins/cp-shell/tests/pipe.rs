//! Pipe mode: the envelope, the evidence, the ledgers and the exit status.

use cp_testkit::Signal;
use serde_json::{Value, json};

use crate::tree::{Tree, everything};

const OPERATIONS: [&str; 17] = [
    "pkg_list",
    "pkg_info",
    "ledger_query",
    "gate_status",
    "compliance",
    "trace",
    "signal_status",
    "execute_command",
    "manifest_requirements",
    "packaging_workflow",
    "troubleshoot",
    "example_manifest",
    "list_frameworks",
    "list_specs",
    "spec_info",
    "governed_roots",
    "explain_path",
];

/// A request for each operation that succeeds on a complete tree.
fn requests() -> Vec<Value> {
    let parameters = |operation: &str| match operation {
        "pkg_info" => json!({"package_id": "PKG-SHELL-001"}),
        "trace" => json!({"artifact_id": "lib/paths.py"}),
        "execute_command" => json!({"command": "pkg list"}),
        "spec_info" => json!({"spec_id": "SPEC-SHELL-001"}),
        "explain_path" => json!({"path": "lib/paths.py"}),
        _ => json!({}),
    };
    let request = |operation: &&str| {
        let mut request = parameters(operation);
        request["operation"] = (*operation).into();
        request
    };
    OPERATIONS.iter().map(request).collect()
}

/// All requests, one on each line.
pub(crate) fn all_requests() -> String {
    let lines: Vec<String> = requests().iter().map(Value::to_string).collect();
    lines.join("\n") + "\n"
}

pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", cp_common::keys::hex(&sha2::Sha256::digest(bytes)))
}

pub(crate) const EVIDENCE: [&str; 6] =
    ["timestamp", "input_hash", "output_hash", "duration_ms", "declared_reads", "declared_writes"];

#[test]
fn operations_answer_empty_tree() {
    let place = Tree::bare();
    for request in requests() {
        let answer = place.ask(&request);
        let expected = match request["operation"].as_str().unwrap() {
            "pkg_info" => json!("PACKAGE_NOT_FOUND"),
            "ledger_query" => json!("LEDGER_NOT_FOUND"),
            "spec_info" => json!("SPEC_NOT_FOUND"),
            _ => json!(null),
        };
        assert_eq!((answer["status"] == "ok", &answer["error"]["code"]), (expected.is_null(), &expected), "{request}");
    }
    assert_eq!(place.result(&json!({"operation": "trace", "artifact_id": "lib/paths.py"}))["type"], "unknown");
    let signals = place.result(&json!({"operation": "signal_status"}))["signals"].clone();
    assert_eq!(
        [&signals["tier"], &signals["active_wo"], &signals["gate_state"]],
        [&json!("ho1"), &Value::Null, &json!("open")]
    );
}

#[test]
fn wrong_types_are_errors() {
    let place = Tree::new();
    let parameters = [
        ("pkg_list", "plane"),
        ("pkg_info", "package_id"),
        ("ledger_query", "type"),
        ("ledger_query", "event_filter"),
        ("gate_status", "gate"),
        ("trace", "artifact_id"),
        ("execute_command", "command"),
        ("troubleshoot", "error_type"),
        ("example_manifest", "package_type"),
        ("list_specs", "framework_id"),
        ("spec_info", "spec_id"),
        ("explain_path", "path"),
    ];
    let values = [json!(7), json!(true), json!([]), json!({}), json!([["x"]]), json!(1.5)];
    let mut input = String::new();
    for (operation, name) in parameters {
        for value in &values {
            input.push_str(&json!({"operation": operation, name: value}).to_string());
        }
    }
    for value in values.iter().filter(|value| !value.is_object()) {
        input.push_str(&value.to_string());
        input.push_str(&json!({"operation": value}).to_string());
    }
    for limit in [json!(0), json!(-1), json!(1.5), json!("10"), json!([]), json!(true), json!(1e300)] {
        input.push_str(&json!({"operation": "ledger_query", "limit": limit}).to_string());
    }
    let ran = place.pipe(&input);
    assert_eq!(ran.status, 1);
    let answers = ran.records();
    assert_eq!(answers.len(), parameters.len() * values.len() + 2 * 5 + 7);
    for answer in answers {
        assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{answer}");
    }
}

#[test]
fn invalid_input_is_an_error_of_the_standard() {
    let place = Tree::new();
    for (input, code) in [
        ("", "EMPTY_INPUT"),
        (" \n\n\t \n", "EMPTY_INPUT"),
        ("nope", "INVALID_JSON"),
        ("{\"operation\":\"pkg_list\"", "INVALID_JSON"),
        ("{\"operation\":\"pkg_list\",\"operation\":\"trace\"}", "INVALID_JSON"),
    ] {
        let ran = place.pipe(input);
        assert_eq!((ran.status, keys(&ran.only())), (1, vec!["status", "error", "evidence"]), "{input}");
        assert_eq!(ran.only()["error"]["code"], code, "{input}");
    }
}

#[test]
fn requests_accept_any_layout_and_report_invalid_once() {
    let place = Tree::new();
    let input = "{\"operation\":\"governed_roots\"}{\"operation\":\"list_specs\"}\n{\n  \"operation\":\n    \"pkg_list\"\n}\n\
                 {\"operation\": \"governed_roots\"\n{\"operation\":\"compliance\"}\nnope nope\n{\n \"a\": oops,\n \"b\": 1\n}\n\
                 {\"operation\":\"signal_status\"}";
    let ran = place.pipe(input);
    let told: Vec<String> = ran
        .records()
        .iter()
        .map(|answer| {
            answer["error"]["code"].as_str().map_or_else(|| keys(&answer["result"])[0].to_owned(), str::to_owned)
        })
        .collect();
    assert_eq!(
        told,
        ["roots", "specs", "packages", "INVALID_JSON", "governance_chain", "INVALID_JSON", "INVALID_JSON", "signals"]
    );
    assert_eq!(ran.status, 1);
}

#[test]
fn hashes_match_control_plane_and_read_bytes() {
    let place = Tree::new();
    // Different spellings have the same hash.
    for input in ["{\"operation\":\"governed_roots\"}", "{ \"operation\" : \"governed\\u005froots\" }"] {
        let hash = "sha256:a79c45b26cfc5707c0591daf7813a3f17c44e585586e499410524ad097ee5ffa";
        assert_eq!(place.pipe(input).only()["evidence"]["input_hash"], hash);
    }
    let sorted = r#"{"count": 12, "roots": ["lib", "scripts", "frameworks", "schemas", "policies", "registries", "modules", "tests", "specs", "config", "docs", "governed_prompts"]}"#;
    let roots = place.tree.join("config/governed_roots.json");
    std::fs::rename(&roots, place.tree.join("kept")).unwrap();
    let answer = place.ask(&json!({"operation": "governed_roots"}));
    assert_eq!(answer["evidence"]["output_hash"], sha256(sorted.as_bytes()));
    // Reads for the session itself are declared with the first turn, and a link by its real path.
    let reads = answer["evidence"]["declared_reads"].as_array().unwrap();
    assert!(reads.len() == 1 && reads[0]["path"].as_str().unwrap().ends_with("/tier.json"), "{reads:?}");
    std::os::unix::fs::symlink("../kept", &roots).unwrap();
    let reads = place.ask(&json!({"operation": "governed_roots"}))["evidence"]["declared_reads"].clone();
    assert_eq!(reads[1]["path"], place.tree.join("kept").to_str().unwrap());
    for request in requests() {
        for read in place.ask(&request)["evidence"]["declared_reads"].as_array().unwrap() {
            assert_eq!(keys(read), ["path", "hash"]);
            let path = read["path"].as_str().unwrap();
            assert!(path.starts_with(place.tree.to_str().unwrap()), "{path}");
            assert_eq!(read["hash"], sha256(&std::fs::read(path).unwrap()), "{request} {path}");
        }
    }
}

#[test]
fn partial_ledger_read_declares_offset() {
    let place = Tree::new();
    let long = format!("{{\"event_type\":\"GATE_PASSED\",\"note\":\"{}\"}}\n", "x".repeat(1000)).repeat(400);
    place.tree.write("ledger/governance-99999999-999999.jsonl", &long);
    let reads = place.ask(&json!({"operation": "signal_status"}))["evidence"]["declared_reads"].clone();
    let part = reads.as_array().unwrap().iter().find(|read| read.get("offset").is_some()).unwrap();
    let offset = usize::try_from(part["offset"].as_u64().unwrap()).unwrap();
    assert_eq!(part["bytes"], long.len() - offset);
    assert_eq!(part["hash"], sha256(&long.as_bytes()[offset..]));
}

#[test]
fn requests_are_recorded_in_both_ledgers() {
    let place = Tree::new();
    let ran = place.pipe(
        "{\"operation\":\"signal_status\"}\nnope\n{\"operation\":\"pkg_info\",\"package_id\":\"PKG-SHELL-001\"}\n",
    );
    let answers = ran.records();
    let exec: Vec<Value> =
        place.entries("ledger/exec.jsonl").into_iter().filter(|entry| entry["event"] == "agent_turn").collect();
    let evidence: Vec<Value> =
        place.entries("ledger/evidence.jsonl").into_iter().filter(|entry| entry["event"] == "turn_evidence").collect();
    assert_eq!((exec.len(), evidence.len()), (3, 3));
    for (at, answer) in answers.iter().enumerate() {
        let (exec, evidence) = (&exec[at]["data"], &evidence[at]["data"]);
        assert_eq!(exec["event_type"], "agent_turn");
        assert_eq!(exec["turn_number"], at + 1);
        assert_eq!(exec["status"], answer["status"]);
        assert_eq!(exec["command_hash"], answer["evidence"]["input_hash"]);
        assert_eq!(exec["result_hash"], answer["evidence"]["output_hash"]);
        assert!(exec["timestamp"].is_string() && exec["session_id"].as_str().unwrap().starts_with("SES-"));
        assert_eq!(keys(evidence), ["turn_evidence", "declared_reads", "declared_writes", "external_calls"]);
        assert_eq!(evidence["declared_reads"], answer["evidence"]["declared_reads"]);
        assert_eq!(evidence["turn_evidence"]["output_hash"], answer["evidence"]["output_hash"]);
    }
    assert_eq!(exec[0]["data"]["command"], "{\"operation\":\"signal_status\"}");
    assert_eq!(exec[1]["data"]["command"], "nope");
    let session = place.entries("session.jsonl");
    for event in ["session_start", "session_end"] {
        assert_eq!(session.iter().filter(|entry| entry["event"] == event).count(), 1, "{event}");
    }
    let verified = place.other("cp-log", &["verify"]);
    assert_eq!(verified.status, 0, "{}", verified.stdout);
}

#[test]
fn named_session_is_joined_and_left_open() {
    let place = Tree::new();
    let started = place.other("cp-session", &["start", "--format", "text"]);
    let session = started.stdout.trim();
    for _ in 0..2 {
        let ran = place.command().args(["--session", session]).stdin("{}{}").run();
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
    let turns: Vec<Value> =
        place.entries("ledger/exec.jsonl").iter().filter_map(|entry| entry.get("turn").cloned()).collect();
    assert_eq!(turns, [1, 2, 3, 4]);
    assert!(place.entries("session.jsonl").iter().all(|entry| entry["event"] != "session_end"));
    let none = place.command().args(["--session", "SES-none"]).stdin("{}").run();
    assert_eq!(none.status, 3, "{}", none.stdout);
    assert_eq!(place.other("cp-session", &["end", session]).status, 0);
    let ended = place.command().args(["--session", session]).stdin("{}").run();
    assert_eq!((ended.status, &ended.only()["error"]["code"]), (6, &json!("E_CONFLICT")));
}

#[test]
fn concurrent_shells_number_turns_uniquely() {
    let place = Tree::new();
    let started = place.other("cp-session", &["start", "--format", "text"]);
    let session = started.stdout.trim();
    let input = "{\"operation\":\"governed_roots\"}\n".repeat(40);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(place.command().args(["--session", session]).stdin(&input).run().status, 0));
        }
    });
    for (ledger, event) in [("ledger/exec.jsonl", "agent_turn"), ("ledger/evidence.jsonl", "turn_evidence")] {
        let entries = place.entries(ledger);
        let mut turns: Vec<u64> = entries
            .iter()
            .filter(|entry| entry["event"] == event)
            .map(|entry| entry["turn"].as_u64().unwrap())
            .collect();
        turns.sort_unstable();
        assert_eq!(turns, (1..=120).collect::<Vec<u64>>(), "{ledger}");
    }
}

#[test]
fn named_ledger_receives_all_entries() {
    let place = Tree::new();
    let file = place.work.join("all.jsonl");
    let ran = place.command().arg("--ledger").arg(&file).stdin("{}{}").run();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!((text.matches("\"event\":\"agent_turn\"").count(), text.matches("\"turn_evidence\",").count()), (2, 2));
    assert_eq!(place.other("cp-log", &["verify", file.to_str().unwrap()]).status, 0);
    assert!(place.entries("ledger/exec.jsonl").iter().all(|entry| entry["event"] != "agent_turn"));
}

#[test]
fn pipe_mode_does_not_change_tree() {
    let place = Tree::new();
    let before = everything(&place.tree);
    let mut input = all_requests();
    input.push_str("nope\n{\"operation\":\"execute_command\",\"command\":\"! echo hi\"}\n");
    place.pipe(&input);
    assert_eq!(everything(&place.tree), before);
    // With the tree as the home, only our own files are added.
    let own = place.command_at(&place.tree).stdin(&input).run();
    assert!(own.records().len() >= 18, "{}", own.stderr);
    let after = everything(&place.tree);
    for (file, was) in &before {
        assert_eq!(after.get(file), Some(was), "{}", file.display());
    }
}

#[test]
fn request_secrets_are_not_recorded() {
    let place = Tree::new();
    let key = format!("sk-ant-api03-{}", "A1b2C3d4E5f6".repeat(8));
    let request = json!({"operation": "execute_command", "command": format!("remember {key}")});
    let answer = place.ask(&request);
    assert_eq!(answer["result"]["executed"], false);
    let exec = place.entries("ledger/exec.jsonl");
    let turn = exec.iter().find(|entry| entry["event"] == "agent_turn").unwrap();
    assert!(!turn.to_string().contains(&key), "{turn}");
    // A plain hash of a short secret could be guessed.
    assert_eq!(turn["data"].get("command_hash"), None);
    assert!(turn["data"]["command_hmac"].as_str().unwrap().starts_with("hmac-sha256:"), "{turn}");
    let evidence = &place.entries("ledger/evidence.jsonl")[1]["data"]["turn_evidence"];
    assert_eq!((evidence.get("input_hash"), &evidence["input_hmac"]), (None, &turn["data"]["command_hmac"]));
    // A member that a request has in the wrong place is not repeated; a plain name is.
    let members = "operation command path plane package_id type event_filter gate artifact_id framework_id spec_id \
                   error_type package_type";
    let asked = |text: &str| {
        let rows = std::fs::read_to_string("tests/data/operations.jsonl").unwrap();
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()["request"].clone());
        let rows = rows.filter(Value::is_object).flat_map(|row| {
            members.split_whitespace().map(move |member| {
                let mut row = row.clone();
                row[member] = text.into();
                row.to_string() + "\n"
            })
        });
        let commands = ["", ":", ":trace ", "spec ", "wo "].map(|verb| format!("{verb}{text}"));
        let commands = commands.map(|command| json!({"operation": "execute_command", "command": command}).to_string());
        let ran = place.command().stdin(rows.chain(commands).collect::<String>()).run();
        (ran.stdout.matches(text).count(), ran.stderr.matches(text).count())
    };
    assert_eq!(asked(&key), (0, 0));
    let (answered, reported) = asked("plain-name");
    assert!(answered > 100 && reported > 50, "{answered} {reported}");
    let all = everything(&place.home);
    for (file, (bytes, _)) in all {
        assert!(!String::from_utf8_lossy(&bytes).contains(&key), "{}", file.display());
    }
}

#[test]
fn change_between_requests_is_visible() {
    let place = Tree::new();
    let mut child = place.command().arg("--root").arg(&place.tree).start();
    let mut ask = |request: &str, member: &str| {
        child.write(request);
        let answer = child.record();
        let found = answer.pointer(&format!("/result/{member}")).unwrap_or_else(|| panic!("{answer}"));
        found.to_string()
    };
    let rewritten = |file: &str, from: &str, to: &str| {
        let path = place.tree.join(file);
        let before = path.metadata().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(from, to)).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(before.modified().unwrap()).unwrap();
        assert_eq!((path.metadata().unwrap().len(), from.len()), (before.len(), to.len()));
    };
    let package = r#"{"operation":"pkg_info","package_id":"PKG-SHELL-001"}"#;
    let gates = r#"{"operation":"gate_status"}"#;
    let signals = r#"{"operation":"signal_status"}"#;
    let spec = r#"{"operation":"spec_info","spec_id":"SPEC-SHELL-001"}"#;
    let specs = r#"{"operation":"list_specs"}"#;
    let order = r#"{"operation":"execute_command","command":"wo WO-20260204-001"}"#;
    let file = r#"{"operation":"trace","artifact_id":"lib/paths.py"}"#;
    let packages = r#"{"operation":"pkg_list"}"#;
    let asked = [
        (package, "version", "\"1.1.0\"", "\"9.9.9\""),
        (spec, "manifest/title", "\"Universal Shell\"", "\"Universal SHELL\""),
        (specs, "specs/0/status", "\"active\"", "\"ACTIVE\""),
        (gates, "failures_count", "3", "5"),
        (signals, "signals/gate_state", "\"degraded\"", "\"closed\""),
        (order, "status", "\"wo_approved\"", "\"wo_canceled\""),
        (file, "data/unchanged", "true", "false"),
        (packages, "count", "2", "3"),
    ];
    for _ in 0..2 {
        for (request, member, before, _) in asked {
            assert_eq!(ask(request, member), before, "{request}");
        }
    }
    rewritten("installed/PKG-SHELL-001/manifest.json", "1.1.0", "9.9.9");
    rewritten("specs/SPEC-SHELL-001/manifest.yaml", "Universal Shell", "Universal SHELL");
    rewritten("registries/specs_registry.csv", ",active,", ",ACTIVE,");
    rewritten("ledger/governance-20260204-110000.jsonl", "GATE_PASSED", "GATE_FAILED");
    rewritten("planes/ho2/ledger/workorder.jsonl", "WO_APPROVED", "WO_CANCELED");
    rewritten("lib/paths.py", "e", "E");
    place.tree.write("installed/PKG-NEW-001/manifest.json", "{}");
    for (request, member, _, after) in asked {
        assert_eq!(ask(request, member), after, "{request}");
    }
    std::fs::remove_file(place.tree.join("installed/PKG-SHELL-001/manifest.json")).unwrap();
    std::fs::remove_dir_all(place.tree.join("ledger")).unwrap();
    assert_eq!((ask(packages, "count"), ask(gates, "failures_count")), ("2".to_owned(), "0".to_owned()));
    child.finish().success();
}

#[test]
fn missing_ledger_prevents_answer() {
    let place = Tree::new();
    let started = place.other("cp-session", &["start"]);
    let started: Value = serde_json::from_str(&started.stdout).unwrap();
    let session = started["data"]["session_id"].as_str().unwrap();
    let file = std::path::Path::new(started["data"]["path"].as_str().unwrap()).with_file_name("ledger/exec.jsonl");
    std::fs::write(&file, "not a ledger\n").unwrap();
    let ran = place.command().args(["--session", session]).stdin("{}").run();
    assert_ne!(ran.status, 0);
    assert!(!ran.stdout.contains("\"status\":\"ok\""), "{}", ran.stdout);
    assert_eq!(ran.only()["ok"], false);
}

#[test]
fn missing_tree_is_named() {
    let place = Tree::empty();
    place.pipe("{}").failed(3, "E_NOT_FOUND");
    place.root.write("tree", "a file");
    assert_eq!(place.pipe("{}").status, 2);
}

#[test]
fn signal_ends_session() {
    for signal in [Signal::INT, Signal::HUP] {
        let place = Tree::new();
        let mut child = place.command().start();
        child.write("{}\n");
        child.line();
        child.signal(signal);
        assert_eq!(child.record()["error"]["code"], "E_INTERRUPTED");
        // Its standard input is still open.
        child.wait().code(130);
        assert!(place.entries("session.jsonl").iter().any(|entry| entry["event"] == "session_end"));
        assert_eq!(place.entries("ledger/log.jsonl").last().unwrap()["event"], "error");
    }
}

#[test]
fn reference_declares_specification_and_frameworks() {
    let declared = Tree::new().other("cp-shell", &["reference"]).success().data();
    let expected = json!({"spec_id": "SPEC-SHELL-001", "frameworks": ["FMWK-SHELL-001", "FMWK-100"]});
    assert_eq!(declared["compliance"], expected);
}

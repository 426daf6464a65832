//! The members of each operation's result on the complete tree.

use serde_json::{Value, json};

use crate::tree::Tree;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn column<'a>(rows: &'a Value, name: &str) -> Vec<&'a str> {
    rows.as_array().unwrap().iter().map(|row| row[name].as_str().unwrap()).collect()
}

#[test]
fn packages_are_listed_by_plane() {
    let place = Tree::new();
    let all = place.result(&json!({"operation": "pkg_list"}));
    assert_eq!(keys(&all), ["packages", "count"]);
    assert_eq!(all["count"], 2);
    assert_eq!(
        all["packages"][1],
        json!({"package_id": "PKG-SHELL-001", "version": "1.1.0", "assets_count": 2, "package_type": "module",
            "plane_id": "ho3", "installed_at": "2026-02-04T11:30:00+00:00"})
    );
    assert_eq!(all["packages"][0]["package_type"], "standard");
    let workers = place.result(&json!({"operation": "pkg_list", "plane": "ho1"}));
    assert_eq!(column(&workers["packages"], "package_id"), ["PKG-WORKER-001"]);
    assert_eq!(place.result(&json!({"operation": "pkg_list", "plane": "ho2"}))["count"], 0);
    assert_eq!(place.code(&json!({"operation": "pkg_list", "plane": "../../x"})), "INVALID_REQUEST");
}

#[test]
fn package_info_combines_manifest_and_receipt() {
    let place = Tree::new();
    let info = place.result(&json!({"operation": "pkg_info", "package_id": "PKG-SHELL-001"}));
    let members = [
        "package_id",
        "version",
        "spec_id",
        "plane_id",
        "package_type",
        "assets",
        "assets_count",
        "dependencies",
        "installed_at",
        "manifest_hash",
    ];
    assert_eq!(keys(&info), members);
    assert_eq!(info["assets"][0]["path"], "modules/shell/shell.py");
    assert_eq!(info["dependencies"], json!(["PKG-BASELINE-HO3-000"]));
    assert!(info["manifest_hash"].as_str().unwrap().starts_with("sha256:"));
    let worker = place.result(&json!({"operation": "pkg_info", "package_id": "PKG-WORKER-001"}));
    assert_eq!(worker["plane_id"], "ho1");
    place.tree.write("installed/PKG-HALF-001/receipt.json", "{}");
    assert_eq!(place.code(&json!({"operation": "pkg_info", "package_id": "PKG-HALF-001"})), "INVALID_MANIFEST");
}

#[test]
fn ledger_query_returns_newest_entries_of_newest_segment() {
    let place = Tree::new();
    let found = place.result(&json!({"operation": "ledger_query"}));
    assert_eq!(keys(&found), ["entries", "ledger_file", "count", "total_in_file"]);
    assert_eq!(found["ledger_file"], "governance-20260204-110000.jsonl");
    assert_eq!((&found["count"], &found["total_in_file"]), (&json!(5), &json!(5)));
    let last = place.result(&json!({"operation": "ledger_query", "limit": 2}));
    assert_eq!(column(&last["entries"], "event_type"), ["GATE_PASSED", "PACKAGE_INSTALLED"]);
    let failed = place.result(&json!({"operation": "ledger_query", "event_filter": "fail"}));
    assert_eq!(column(&failed["entries"], "event_type"), ["GATE_FAILED", "G5_FAIL"]);
    assert_eq!(failed["total_in_file"], 5);
    let index = place.result(&json!({"operation": "ledger_query", "type": "nothing"}));
    assert_eq!(index["ledger_file"], "index.jsonl");
    for segment in ["governance-20260203-100000.jsonl", "governance-20260204-110000.jsonl"] {
        std::fs::remove_file(place.tree.join("ledger").join(segment)).unwrap();
    }
    assert_eq!(place.result(&json!({"operation": "ledger_query"}))["ledger_file"], "governance.jsonl");
}

#[test]
fn unreadable_entry_is_reported_and_partial_line_skipped() {
    let place = Tree::new();
    place
        .tree
        .write("ledger/broken.jsonl", "{\"event_type\":\"A\"}\n{\"event\n[1]\n{\"event\":\"B\"}\n{\"event_type\":\"C");
    let found = place.result(&json!({"operation": "ledger_query", "type": "broken"}));
    assert_eq!((&found["count"], &found["total_in_file"]), (&json!(4), &json!(4)));
    assert_eq!(found["entries"][1]["line"], 2);
    assert!(found["entries"][1]["unreadable"].as_str().unwrap().starts_with("not JSON"));
    let own = place.result(&json!({"operation": "ledger_query", "type": "broken", "event_filter": "b"}));
    assert_eq!(own["entries"], json!([{"event": "B"}]));
}

#[test]
fn gate_status_lists_failures() {
    let place = Tree::new();
    let status = place.result(&json!({"operation": "gate_status"}));
    assert_eq!(keys(&status), ["gates", "recent_failures", "failures_count"]);
    assert_eq!(keys(&status["gates"]), ["MANIFEST", "G0A", "G0B", "G1", "OWN", "G3", "G4", "G5"]);
    for gate in status["gates"].as_object().unwrap().values() {
        assert_eq!(keys(gate), ["phase", "description"]);
    }
    assert_eq!(status["failures_count"], 3);
    assert_eq!(column(&status["recent_failures"], "gate"), ["G1", "G0A", "G5"]);
    let failure = &status["recent_failures"][1];
    assert_eq!(keys(failure), ["gate", "timestamp", "package_id", "error_message", "evidence"]);
    assert_eq!(
        (&failure["package_id"], &failure["evidence"][0]["range"], &failure["evidence"][1]),
        (&json!("PKG-SHELL-001"), &json!([1, 2]), &json!("modules/shell/x.py"))
    );
    assert_eq!(failure["error_message"], "UNDECLARED: modules/shell/x.py");
    let pointer = &status["recent_failures"][2]["evidence"][0];
    assert_eq!((&pointer["source"], &pointer["range"]), (&json!("ledger"), &json!([2, 3])));
    let one = place.result(&json!({"operation": "gate_status", "gate": "G1"}));
    assert_eq!((keys(&one["gates"]), &one["failures_count"]), (vec!["G1"], &json!(1)));
    assert_eq!(place.code(&json!({"operation": "gate_status", "gate": "G9"})), "INVALID_REQUEST");
}

#[test]
fn compliance_counts_registries() {
    let place = Tree::new();
    let compliance = place.result(&json!({"operation": "compliance"}));
    let members = ["governance_chain", "gates", "registry_stats", "frameworks_count", "specs_count", "quick_reference"];
    assert_eq!(keys(&compliance), members);
    assert_eq!(keys(&compliance["quick_reference"]), ["create_package", "validate", "stage", "install"]);
    let stats = &compliance["registry_stats"];
    assert_eq!(keys(stats), ["registries", "total_items", "by_status", "by_registry"]);
    assert_eq!((&stats["registries"], &stats["total_items"]), (&json!(4), &json!(9)));
    assert_eq!(stats["by_status"], json!({"active": 5, "deprecated": 1, "unknown": 3}));
    assert_eq!(stats["by_registry"]["frameworks_registry.csv"], 3);
    assert_eq!((&compliance["frameworks_count"], &compliance["specs_count"]), (&json!(3), &json!(2)));
}

#[test]
fn trace_follows_lineage() {
    let place = Tree::new();
    let trace = |id: &str| {
        let traced = place.result(&json!({"operation": "trace", "artifact_id": id}));
        assert_eq!(keys(&traced), ["artifact_id", "type", "data"]);
        (traced["type"].as_str().unwrap().to_owned(), traced["data"].clone())
    };
    let (kind, data) = trace("lib/paths.py");
    assert_eq!(
        (kind.as_str(), &data["owner_package_id"], &data["unchanged"]),
        ("file", &json!("PKG-BASELINE-HO3-000"), &json!(true))
    );
    assert_eq!(data["spec_id"], "SPEC-CORE-001");
    let (_, data) = trace("modules/shell/shell.py");
    assert_eq!(data["unchanged"], false);
    let (_, data) = trace("lib/gone.py");
    assert_eq!((&data["exists"], &data["current_sha256"]), (&json!(false), &Value::Null));
    let (kind, data) = trace("lib/unowned.py");
    assert_eq!((kind.as_str(), &data["owner_package_id"]), ("file", &Value::Null));
    let (kind, data) = trace("PKG-SHELL-001");
    assert_eq!((kind.as_str(), &data["spec"]["spec_id"]), ("package", &json!("SPEC-SHELL-001")));
    assert_eq!(data["framework"]["framework_id"], "FMWK-SHELL-001");
    let (kind, data) = trace("FMWK-SHELL-001");
    assert_eq!((kind.as_str(), &data["specs"]), ("framework", &json!(["SPEC-SHELL-001"])));
    assert_eq!(data["title"], "Shell/CLI Development Standard, v1");
    let (kind, data) = trace("SPEC-CORE-001");
    assert_eq!((kind.as_str(), &data["packages"]), ("spec", &json!(["PKG-BASELINE-HO3-000", "PKG-WORKER-001"])));
    let (kind, data) = trace("nobody");
    assert_eq!((kind.as_str(), &data["query"]), ("unknown", &json!("nobody")));
    std::os::unix::fs::symlink("secret.py", place.tree.join("lib/innocent.py")).unwrap();
    for forbidden in ["lib/secret.py", "lib/innocent.py"] {
        let answer = place.ask(&json!({"operation": "trace", "artifact_id": forbidden}));
        assert_eq!(answer["error"]["code"], "CAPABILITY_DENIED", "{answer}");
        assert_eq!(answer["error"]["message"], "Capability denied: read on lib/secret.py");
        let reads = answer["evidence"]["declared_reads"].to_string();
        assert!(!reads.contains("secret.py"), "{reads}");
    }
    for outside in ["../home", "/etc/passwd", "lib/../../x"] {
        assert_eq!(trace(outside).0, "unknown", "{outside}");
    }
}

#[test]
fn signal_status_starts_at_default_and_changes() {
    let place = Tree::new();
    let ran = place.pipe("{\"operation\":\"signal_status\"}nope\n{\"operation\":\"signal_status\"}");
    let answers = ran.records();
    let first = &answers[0]["result"];
    assert_eq!(keys(first), ["signals", "compact_display"]);
    assert_eq!(
        first["signals"],
        json!({"stance": "neutral", "altitude": "L2", "turn_number": 0, "health": 1.0, "drift": 0.0, "tier": "ho3",
            "role": null, "active_wo": "WO-20260204-001", "ledger_synced": true, "gate_state": "degraded"})
    );
    assert_eq!(first["compact_display"], "neutral · L2 · [█████] · t0 | ctx:0/200k (0.0%)");
    let last = &answers[2]["result"]["signals"];
    assert_eq!((&last["turn_number"], &last["health"], &last["drift"]), (&json!(2), &json!(0.9), &json!(0.2)));
    assert_eq!((&last["stance"], &last["altitude"]), (&json!("grounded"), &json!("L1")));
    let bare = Tree::bare();
    let signals = bare.result(&json!({"operation": "signal_status"}))["signals"].clone();
    assert_eq!(
        (&signals["tier"], &signals["active_wo"], &signals["gate_state"]),
        (&json!("ho1"), &Value::Null, &json!("open"))
    );
}

#[test]
fn guidance_has_expected_shape() {
    let place = Tree::new();
    let manifest = place.result(&json!({"operation": "manifest_requirements"}));
    assert_eq!(
        keys(&manifest),
        ["schema_version", "required_fields", "optional_fields", "asset_object", "asset_classifications"]
    );
    assert_eq!(
        keys(&manifest["required_fields"]),
        ["package_id", "schema_version", "version", "spec_id", "plane_id", "assets"]
    );
    assert_eq!(manifest["required_fields"]["package_id"]["format"], "PKG-[A-Z0-9-]+");
    let workflow = place.result(&json!({"operation": "packaging_workflow"}));
    assert_eq!(
        column(&workflow["steps"], "name"),
        [
            "Register Framework",
            "Register Spec",
            "Create Package Skeleton",
            "Implement",
            "Preflight Validation",
            "Stage",
            "Install"
        ]
    );
    let guide = place.result(&json!({"operation": "troubleshoot", "error_type": "own"}));
    assert_eq!(keys(&guide["troubleshooting"]), ["OWN_CONFLICT"]);
    assert_eq!(keys(&guide["troubleshooting"]["OWN_CONFLICT"]), ["symptom", "cause", "fix"]);
    assert_eq!(place.result(&json!({"operation": "troubleshoot"}))["troubleshooting"].as_object().unwrap().len(), 8);
    let example = place.result(&json!({"operation": "example_manifest"}));
    assert_eq!((keys(&example), &example["example"]["package_type"]), (vec!["example", "note"], &json!("library")));
    assert!(example["example"]["capabilities"].is_null());
    let agent = place.result(&json!({"operation": "example_manifest", "package_type": "agent"}));
    assert!(agent["example"]["capabilities"].is_array());
}

#[test]
fn frameworks_and_specs_are_listed_with_manifest() {
    let place = Tree::new();
    let frameworks = place.result(&json!({"operation": "list_frameworks"}));
    assert_eq!((keys(&frameworks), &frameworks["count"]), (vec!["frameworks", "count"], &json!(3)));
    let specs = place.result(&json!({"operation": "list_specs"}));
    assert_eq!(
        (keys(&specs), &specs["filter"], &specs["count"]),
        (vec!["specs", "count", "filter"], &Value::Null, &json!(2))
    );
    let specs = place.result(&json!({"operation": "list_specs", "framework_id": "FMWK-000"}));
    assert_eq!(
        (column(&specs["specs"], "spec_id"), &specs["filter"]),
        (vec!["SPEC-CORE-001"], &json!({"framework_id": "FMWK-000"}))
    );
    let info = place.result(&json!({"operation": "spec_info", "spec_id": "SPEC-SHELL-001"}));
    assert_eq!(keys(&info), ["spec_id", "manifest"]);
    assert_eq!(info["manifest"]["interfaces"], json!([{"name": "pipe", "description": "JSON in, JSON out"}]));
    assert_eq!(info["manifest"]["acceptance"], json!({"tests": ["pytest tests/test_shell_pipe.py"], "checks": []}));
    assert_eq!(info["manifest"]["version"], "1.1.0");
}

#[test]
fn explain_path_resolves_target() {
    let place = Tree::new();
    std::os::unix::fs::symlink("lib", place.tree.join("innocent")).unwrap();
    for (path, class, root) in [
        ("innocent/x.py", "PRISTINE", json!("lib/")),
        ("lib/../ledger/x", "APPEND_ONLY", json!("ledger")),
        ("planes/ho2/ledger/workorder.jsonl", "APPEND_ONLY", json!("planes/ho2/ledger")),
        ("registries/compiled/x", "DERIVED", json!("registries/compiled")),
        ("ledgerish/x", "UNKNOWN", Value::Null),
        ("../x", "EXTERNAL", Value::Null),
    ] {
        let result = place.result(&json!({"operation": "explain_path", "path": path}));
        assert_eq!(keys(&result), ["path", "classification", "governed_root", "explanation"]);
        let found = (&result["path"], &result["classification"], &result["governed_root"]);
        assert_eq!(found, (&json!(path), &json!(class), &root));
    }
    assert_eq!(place.code(&json!({"operation": "explain_path", "path": "lib\u{0}/x"})), "INVALID_REQUEST");
}

/// A policy that allows `echo`, `false` and the scripts.
fn allow(place: &Tree) {
    place.home.write("config/policy.toml", "[exec]\nallowed_commands = [\"echo\", \"false\"]\n");
}

#[test]
fn execute_command_runs_query_or_policy_command() {
    let place = Tree::new();
    allow(&place);
    let execute = |command: &str| place.ask(&json!({"operation": "execute_command", "command": command}));
    let query = execute(":pkg info PKG-SHELL-001")["result"].clone();
    assert_eq!(query, place.result(&json!({"operation": "pkg_info", "package_id": "PKG-SHELL-001"})), "once, as it is");
    let orders = execute("wo")["result"].clone();
    assert_eq!(
        column(&orders["work_orders"], "work_order_id"),
        ["WO-20260203-001", "WO-20260204-001", "WO-20260205-001"]
    );
    assert_eq!(orders["active"], "WO-20260204-001");
    assert_eq!(execute("pkg info nobody")["error"]["code"], "PACKAGE_NOT_FOUND");
    let not_run = execute("hello there")["result"].clone();
    assert_eq!(keys(&not_run), ["command", "executed", "note", "available_operations"]);
    assert_eq!((&not_run["executed"], not_run["available_operations"].as_array().unwrap().len()), (&json!(false), 17));
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
    assert_eq!(execute("!")["error"]["code"], "MISSING_FIELD");
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
fn tree_narrows_policy() {
    let place = Tree::new();
    allow(&place);
    let execute = |command: &str| place.ask(&json!({"operation": "execute_command", "command": command}));
    assert_eq!(execute("! echo lib/paths.py")["status"], "ok");
    let inside = |file: &str| place.tree.join(file).display().to_string();
    let denied = execute(&format!("! echo {}", inside("lib/../lib/secret.py")))["error"].clone();
    assert_eq!(denied["code"], "CAPABILITY_DENIED");
    assert_eq!(denied["message"], format!("Capability denied: read on {}", inside("lib/secret.py")));
    assert!(denied["details"]["hint"].as_str().unwrap().starts_with("it is forbidden in "), "{denied}");
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

#[test]
fn reset_ends_session_after_confirmation() {
    let place = Tree::empty();
    let started = place.other("cp-session", &["start", "--format", "text"]);
    let session = started.stdout.trim().to_owned();
    let reset = |words: &[&str]| place.command().arg("reset").args(words).stdin("").run();
    let none = reset(&[]);
    assert_eq!((none.status, &none.only()["error"]["code"]), (3, &json!("E_NOT_FOUND")));
    let link = place.home.join("agents/default/sessions/current.jsonl");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    let file = place.home.join(format!("planes/ho1/sessions/{session}/session.jsonl"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(reset(&[]).status, 5);
    let preview = reset(&["--dry-run"]).only()["data"].clone();
    assert_eq!(preview["preview"]["changes"][0]["id"], session.as_str());
    assert_eq!(preview["preview"]["changes"].as_array().unwrap().len(), 2);
    assert!(link.symlink_metadata().is_ok());
    assert_eq!(reset(&["--confirm", "ct_00000000000000000000000000000000000000000000"]).status, 6);
    let token = preview["confirm_token"].as_str().unwrap();
    let done = reset(&["--confirm", token]);
    assert_eq!(done.status, 0, "{}", done.stdout);
    assert_eq!(done.only()["data"]["session_id"], session.as_str());
    assert!(link.symlink_metadata().is_err());
    assert!(file.is_file());
    assert_eq!(reset(&["--session", &session, "--confirm", token]).status, 6);
    assert!(place.entries("session.jsonl").iter().any(|entry| entry["event"] == "session_end"));
}

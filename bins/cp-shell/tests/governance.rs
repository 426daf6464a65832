//! A tree of real size, made here: its lineage from every side, what it forbids, and what damage of it comes to.

use std::fmt::Write as _;

use cp_testkit::Directory;
use serde_json::{Value, json};

use crate::person::Person;
use crate::tree::Tree;

const FILES: usize = 116;
const SPECS: usize = 20;

/// A tree with a package of old that names no spec, specs that list what it owns, younger packages, work orders, and a governance ledger
/// whose chain restarts with every segment.
fn large(tree: &Directory) {
    let mut frameworks = "framework_id,title,status,version,plane_id,created_at\n".to_owned();
    let mut specs = "spec_id,title,framework_id,status,version,plane_id,created_at\n".to_owned();
    let mut owners = "file_path,owner_package_id,sha256,classification,installed_at\n".to_owned();
    for n in 0..6 {
        let _ = writeln!(frameworks, "FMWK-{n:03},\"Standard {n}, v1\",active,1.0.0,ho3,x");
    }
    for spec in 0..SPECS {
        let id = format!("SPEC-{spec:03}");
        let _ = writeln!(specs, "{id},Spec {spec},FMWK-{:03},active,1.0.0,ho3,x", spec % 6);
        let mut listed = String::new();
        for file in (spec..FILES).step_by(SPECS) {
            let _ = writeln!(listed, "  - lib/f{file}.py");
            tree.write(format!("lib/f{file}.py"), format!("{file}\n"));
            let owner = if file % 2 == 0 { "PKG-BASELINE-HO3-000".to_owned() } else { format!("PKG-{spec:03}") };
            let _ = writeln!(owners, "lib/f{file}.py,{owner},sha256:0,library,x");
        }
        tree.write(format!("specs/{id}/manifest.yaml"), format!("spec_id: {id}\nassets:\n{listed}"));
        let package = json!({"package_id": format!("PKG-{spec:03}"), "spec_id": id, "version": "1.0.0", "assets": []});
        tree.write(format!("installed/PKG-{spec:03}/manifest.json"), package.to_string());
        tree.write(
            format!("work_orders/ho3/WO-20260203-{spec:03}.json"),
            json!({"work_order_id": format!("WO-20260203-{spec:03}"), "spec_id": id, "status": "approved"}).to_string(),
        );
        let segment = json!({"event_type": "PACKAGE_INSTALLED", "submission_id": format!("PKG-{spec:03}"), "id": format!("LED-{spec:08}"), "previous_hash": "", "entry_hash": "0"});
        tree.write(format!("ledger/governance-20260203-{spec:06}.jsonl"), format!("{segment}\n"));
    }
    tree.write(
        "installed/PKG-BASELINE-HO3-000/manifest.json",
        r#"{"package_id":"PKG-BASELINE-HO3-000","version":"1.0.0","assets":[]}"#,
    );
    for (name, text) in [("frameworks", frameworks), ("specs", specs)] {
        tree.write(format!("registries/{name}_registry.csv"), text);
    }
    tree.write("registries/file_ownership.csv", owners);
    tree.write("tier.json", r#"{"tier":"HOT"}"#);
}

fn traces(place: &Tree, ids: &[String]) -> Vec<Value> {
    let requests: String = ids.iter().map(|id| json!({"operation": "trace", "artifact_id": id}).to_string()).collect();
    let answers = place.pipe(requests).records();
    assert_eq!(answers.len(), ids.len());
    answers.into_iter().map(|answer| answer["result"].clone()).collect()
}

fn has(list: &Value, id: &str) -> bool {
    list.as_array().unwrap_or_else(|| panic!("{list}")).iter().any(|item| item == id || item["id"] == id)
}

#[test]
fn every_listed_file_has_its_spec_and_every_spec_its_packages_and_back() {
    let place = Tree::bare();
    large(&place.tree);
    let files: Vec<String> = (0..FILES).map(|file| format!("lib/f{file}.py")).collect();
    for (n, traced) in traces(&place, &files).iter().enumerate() {
        let (data, spec) = (&traced["data"], format!("SPEC-{:03}", n % SPECS));
        let owner = if n % 2 == 0 { "PKG-BASELINE-HO3-000".to_owned() } else { format!("PKG-{:03}", n % SPECS) };
        assert_eq!(
            (&traced["type"], &data["spec"]["spec_id"], &data["spec_id"]),
            (&json!("file"), &json!(spec), &json!(spec))
        );
        assert_eq!(
            (&data["framework"]["framework_id"], &data["package"]["package_id"]),
            (&json!(format!("FMWK-{:03}", n % SPECS % 6)), &json!(owner))
        );
        assert!(has(&data["work_orders"], &format!("WO-20260203-{:03}", n % SPECS)), "{data}");
    }
    let named = |prefix: &str| (0..SPECS).map(|spec| format!("{prefix}{spec:03}")).collect::<Vec<_>>();
    for (n, traced) in traces(&place, &named("SPEC-")).iter().enumerate() {
        let data = &traced["data"];
        let (package, file) = (format!("PKG-{n:03}"), format!("lib/f{n}.py"));
        let entry =
            data["ledger_entries"].as_array().unwrap().iter().find(|entry| entry["id"] == format!("LED-{n:08}"));
        assert!(has(&data["packages"], &package) && has(&data["files"], &file) && entry.is_some(), "{data}");
        assert_eq!(entry.unwrap()["evidence"]["range"], json!([0, 1]));
        assert_eq!(has(&data["packages"], "PKG-BASELINE-HO3-000"), n % 2 == 0, "by what it owns: {data}");
    }
    for (n, traced) in traces(&place, &named("WO-20260203-")).iter().enumerate() {
        assert_eq!(
            (&traced["type"], &traced["data"]["specs"]),
            (&json!("work_order"), &json!([format!("SPEC-{n:03}")]))
        );
    }
    let ids = ["FMWK-001", "PKG-BASELINE-HO3-000", "LED-00000003", "LED-99999999"].map(str::to_owned);
    let [framework, baseline, entry, nothing] = <[Value; 4]>::try_from(traces(&place, &ids)).unwrap();
    assert!(
        has(&framework["data"]["packages"], "PKG-001") && has(&framework["data"]["files"], "lib/f1.py"),
        "{framework}"
    );
    assert_eq!(baseline["type"], "package");
    assert_eq!((&entry["type"], &entry["data"]["packages"]), (&json!("ledger_entry"), &json!(["PKG-003"])));
    assert_eq!(nothing["type"], "unknown");
    assert_eq!(place.result(&json!({"operation": "signal_status"}))["signals"]["tier"], "ho3");
}

#[test]
fn whatever_is_damaged_every_operation_answers_with_a_hint() {
    let requests: String = [
        "pkg_list",
        "ledger_query",
        "gate_status",
        "compliance",
        "signal_status",
        "list_frameworks",
        "list_specs",
        "governed_roots",
    ]
    .map(|operation| json!({"operation": operation}))
    .into_iter()
    .chain([
        json!({"operation": "pkg_info", "package_id": "PKG-SHELL-001"}),
        json!({"operation": "trace", "artifact_id": "lib/paths.py"}),
        json!({"operation": "spec_info", "spec_id": "SPEC-SHELL-001"}),
        json!({"operation": "explain_path", "path": "lib/x"}),
        json!({"operation": "execute_command", "command": "wo"}),
        json!({"operation": "execute_command", "command": "! cat lib/paths.py"}),
        json!({"operation": "execute_command", "command": "!"}),
        json!({"operation": "trace"}),
        json!({"operation": 7}),
    ])
    .map(|request| request.to_string())
    .collect();
    for file in [
        "installed/PKG-SHELL-001/manifest.json",
        "installed/PKG-SHELL-001/receipt.json",
        "specs/SPEC-SHELL-001/manifest.yaml",
        "registries/specs_registry.csv",
        "config/governed_roots.json",
        "tier.json",
        "modules/shell/capabilities.json",
        "ledger/governance-20260204-110000.jsonl",
        "work_orders/ho3/WO-20260204-001.json",
        "ledger",
    ] {
        for damage in [Some(&b"\xff{\n"[..]), Some(b""), Some(b"[[[[[[\n"), None] {
            let place = Tree::new();
            let path = place.tree.join(file);
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }.unwrap();
            match damage {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => std::os::unix::fs::symlink("/etc/passwd", &path).unwrap(),
            }
            let answers = place.pipe(&requests).records();
            assert_eq!(answers.len(), 17, "{file}");
            for answer in &answers {
                let hint = &answer["error"]["details"]["hint"];
                assert!(answer["status"] == "ok" || hint.is_string(), "{file} {damage:?}: {answer}");
            }
            let state = &answers[4]["result"]["signals"]["gate_state"];
            let is_unread =
                file.starts_with("ledger") && damage.is_none_or(|bytes| !bytes.is_empty() || file == "ledger");
            assert_eq!(state == "closed", is_unread, "{file} {damage:?}: {state}");
        }
    }
}

#[test]
fn what_a_tree_governs_is_not_written_through_any_door() {
    let place = Tree::new();
    let execute = |command: &str| place.ask(&json!({"operation": "execute_command", "command": command}));
    let inside = |file: &str| place.tree.join(file).display().to_string();
    for allowed in [false, true] {
        if allowed {
            place.home.write("config/policy.toml", format!("[exec]\nallowed_commands = [\"touch\", \"tee\"]\nintent = \"off\"\n[paths]\nread = [\".\", \"{0}\"]\nwrite = [\".\", \"{0}\"]\n", place.tree.display()));
        }
        for (command, class) in [
            ("touch lib/new.py".to_owned(), "PRISTINE"),
            (format!("touch {}", inside("lib/new.py")), "PRISTINE"),
            (format!("touch {}", inside("other/../lib/new.py")), "PRISTINE"),
            (format!("tee {}", inside("ledger/governance.jsonl")), "APPEND_ONLY"),
        ] {
            let error = execute(&format!("! {command}"))["error"].clone();
            assert_eq!(
                (&error["code"], &error["details"]["rule"]),
                (&json!("CAPABILITY_DENIED"), &json!(class)),
                "{command}: {error}"
            );
            assert!(
                error["details"]["hint"].is_string() && error["message"].as_str().unwrap().ends_with(class),
                "{error}"
            );
        }
    }
    let free = execute(&format!("! touch {}", inside("free")));
    assert_eq!((&free["status"], place.tree.join("free").is_file()), (&json!("ok"), true), "the control: {free}");
    assert!(!place.tree.join("lib/new.py").exists());
    let said = place
        .command()
        .args(["--interactive", "--root"])
        .arg(&place.tree)
        .stdin(":! touch lib/new.py\n:trace\n:wo apply\n")
        .run();
    assert!(said.stdout.contains("write on lib/new.py: PRISTINE"), "{}", said.stdout);
    assert_eq!(said.stdout.matches("  Hint: ").count(), 3, "{}", said.stdout);
    let none = place.command().args(["--interactive", "--root", "/none/such"]).stdin("").run();
    assert_eq!(none.status, 3, "{}", none.stdout);
}

#[test]
fn to_govern_is_to_ask_about_packages_and_ledgers_and_ids_are_never_cut() {
    let place = Tree::new();
    let agent = "#!/bin/sh\nread -r line\nprintf '{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"describe\",\"data\":{\"name\":\"g\",\"version\":\"1\",\"capabilities\":[\"GOVERNANCE\"]}}\\n'\ncat >/dev/null\n";
    let path = place.home.executable("g", agent).display().to_string();
    for columns in [None, Some("80"), Some("20")] {
        let mut program = place.command().args(["--interactive", "--agent", &path, "--root"]).arg(&place.tree);
        if let Some(columns) = columns {
            program = program.env("COLUMNS", columns);
        }
        let said = program.stdin(":pkg\n:ledger 1\n:memory\n").run().stdout;
        assert_eq!(said.matches("no such capability").count(), 1, "only the memory: {said}");
        assert!(
            said.contains("PKG-BASELINE-HO3-000 ") && said.contains("PACKAGE_INSTALLED") == columns.is_none(),
            "{said}"
        );
    }
}

#[test]
fn an_edited_soul_is_sent_once_it_is_registered_and_the_same_words_go_through_both_doors() {
    let place = Person::new();
    let system = |place: &Person, agent: &str| {
        place.program("cp-compose").args(["system", "--agent", agent]).run().data()["system"].clone()
    };
    place.run(&["init"]).success();
    place.home.write("agents/default/soul.md", "Be brief.\n");
    let refused = place.stub("hello\n");
    assert!(refused.stdout.contains("Hint: `cp-shell register default`") && refused.status == 4, "{}", refused.stdout);
    assert!(!place.asked());
    place.run(&["register", "default"]).failed(5, "E_CONFIRMATION_REQUIRED");
    let shown = place.run(&["register", "default", "--dry-run"]).data();
    let change = &shown["preview"]["changes"][0];
    assert_eq!((&change["id"], &change["after"]["text"]), (&json!("PRM-DEFAULT-SOUL-001"), &json!("Be brief.\n")));
    assert!(change["after"]["difference"].as_str().unwrap().ends_with("+Be brief.\n"), "{change}");
    place.run(&["register", "default", "--confirm", shown["confirm_token"].as_str().unwrap()]).success();
    assert_eq!(place.run(&["register", "default", "--yes"]).data()["items"], json!([]), "nothing is left to do");
    place.home.write("agents/critic/soul.md", "Find faults.\n");
    place.home.write("agents/critic/context/we, us.md", "We use Rust.\n");
    let done = place.run(&["register", "critic", "--yes"]).data();
    assert_eq!(
        (&done["items"][0]["prompt_id"], &done["items"][1]["prompt_id"]),
        (&json!("PRM-CRITIC-SOUL-001"), &json!("PRM-CRITIC-WE--US-001"))
    );
    for (agent, words) in [("default", "Be brief."), ("critic", "Find faults.\n\nWe use Rust.")] {
        let asked = place.script(&["--backend", "openai", "--agent", agent], "hello\n");
        assert!(!asked.stdout.contains("not registered"), "{}", asked.stdout);
        assert_eq!(system(&place, agent), words);
        let governed = place
            .program("cp-compose")
            .args(["system", "--agent", agent, "--prompt", &format!("PRM-{}-SOUL-001", agent.to_uppercase())])
            .run()
            .data();
        assert_eq!(governed["system"], words, "what the shell sends");
    }
    place.home.write("agents/critic/context/we, us.md", "We use C.\n");
    assert!(
        place
            .script(&["--backend", "stub", "--agent", "critic"], "hello\n")
            .stdout
            .contains("cp-shell register critic")
    );
    place.run(&["register", "nobody", "--yes"]).failed(3, "E_NOT_FOUND");
    place.run(&["register", "PRM-../x", "--yes"]).failed(3, "E_NOT_FOUND");
}

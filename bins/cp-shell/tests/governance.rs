//! A large generated tree: its lineage, its restrictions, and failures if it is damaged.

use serde_json::{Value, json};

use crate::person::Person;
use crate::pipe::all_requests;
use crate::tree::Tree;

/// A tree with an old package without a spec, specs that list its files, newer packages, work orders, and a governance
/// ledger whose chain restarts with every segment.
const LARGE: &str = include_str!("data/large-tree.sh");

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
fn trace_links_files_specs_and_packages() {
    let place = Tree::bare();
    place.program("sh").args(["-c", LARGE]).env("TREE", &place.tree).run().success();
    let each = |many: usize, name: &dyn Fn(usize) -> String| {
        let ids: Vec<String> = (0..many).map(name).collect();
        traces(&place, &ids).into_iter().enumerate()
    };
    for (n, traced) in each(116, &|n| format!("lib/f{n}.py")) {
        let (data, spec, framework) = (&traced["data"], format!("SPEC-{}", n % 20), format!("FMWK-{}", n % 20 % 6));
        let owner = if n % 2 == 0 { "PKG-BASELINE-HO3-000".to_owned() } else { format!("PKG-{}", n % 20) };
        let found = [&traced["type"], &data["spec"]["spec_id"], &data["framework"]["framework_id"]];
        assert_eq!(found, ["file", spec.as_str(), framework.as_str()]);
        assert_eq!((&data["package"]["package_id"], &data["spec_id"]), (&json!(owner), &json!(spec)));
        assert!(has(&data["work_orders"], &format!("WO-20260203-{}", n % 20)), "{data}");
    }
    for (n, traced) in each(20, &|n| format!("SPEC-{n}")) {
        let data = &traced["data"];
        assert!(has(&data["packages"], &format!("PKG-{n}")) && has(&data["files"], &format!("lib/f{n}.py")), "{data}");
        assert_eq!(has(&data["packages"], "PKG-BASELINE-HO3-000"), n % 2 == 0, "by what it owns: {data}");
        assert!(has(&data["ledger_entries"], &format!("LED-{n}")), "{data}");
        assert_eq!(data["ledger_entries"][0]["evidence"]["range"], json!([0, 1]));
    }
    let ids = ["FMWK-1", "PKG-BASELINE-HO3-000", "LED-999"].map(str::to_owned);
    let [framework, baseline, nothing] = <[Value; 3]>::try_from(traces(&place, &ids)).unwrap();
    assert!(has(&framework["data"]["packages"], "PKG-1") && has(&framework["data"]["files"], "lib/f1.py"));
    assert_eq!((&baseline["type"], &nothing["type"]), (&json!("package"), &json!("unknown")));
    assert_eq!(place.result(&json!({"operation": "signal_status"}))["signals"]["tier"], "ho3");
}

#[test]
fn damaged_tree_answers_have_hints() {
    let requests =
        all_requests() + r#"{"operation":"execute_command","command":"! cat x"}{"operation":"trace"}{"operation":7}"#;
    let files = "installed/PKG-SHELL-001/manifest.json installed/PKG-SHELL-001/receipt.json specs/SPEC-SHELL-001/manifest.yaml \
                 registries/specs_registry.csv config/governed_roots.json tier.json modules/shell/capabilities.json \
                 work_orders/ho3/WO-20260204-001.json ledger/governance-20260204-110000.jsonl ledger";
    for file in files.split_whitespace() {
        for damage in [Some("\u{1}{\n"), Some(""), Some("[[[[[[\n"), None] {
            let place = Tree::new();
            let path = place.tree.join(file);
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }.unwrap();
            match damage {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::os::unix::fs::symlink("/etc/passwd", &path).unwrap(),
            }
            let answers = place.pipe(&requests).records();
            assert_eq!(answers.len(), 20, "{file}");
            for (n, answer) in answers.iter().enumerate().filter(|(_, answer)| answer["status"] != "ok") {
                let (error, directory) = (&answer["error"], file.split('/').next().unwrap());
                assert!(error["details"]["hint"].is_string(), "{file} {damage:?}: {answer}");
                assert!(
                    n >= 17 || error["message"].as_str().unwrap().contains(directory),
                    "{file} {damage:?}: {answer}"
                );
            }
            let is_bad =
                |row: &Value| row["error"]["code"] == "INVALID_MANIFEST" && row["package_id"] == "PKG-SHELL-001";
            let packages = answers[0]["result"]["packages"].as_array().unwrap();
            assert_eq!((packages.len(), is_bad(&packages[1])), (2, file.starts_with("installed")), "{packages:?}");
            let is_unread = file == "ledger" || file.starts_with("ledger/") && damage != Some("");
            assert_eq!(answers[6]["result"]["signals"]["gate_state"] == "closed", is_unread, "{file} {damage:?}");
        }
    }
}

#[test]
fn governed_paths_are_not_writable() {
    let place = Tree::new();
    let execute = |command: &str| place.ask(&json!({"operation": "execute_command", "command": command}));
    let execute_in_tree = |command: &str| {
        let request = json!({"operation": "execute_command", "command": command}).to_string();
        place.command().current_dir(&place.tree).arg("--root").arg(&place.tree).stdin(request).run().only()
    };
    let inside = |file: &str| place.tree.join(file).display().to_string();
    for allowed in [false, true] {
        if allowed {
            place.home.write("config/policy.toml", format!("[exec]\nallowed_commands = [\"touch\", \"tee\", \"sh\", \"cat\", \"grep\"]\nintent = \"off\"\n[paths]\nread = [\".\", \"{0}\"]\nwrite = [\".\", \"{0}\"]\nexecute = [\"{0}/scripts/**\"]\n", place.tree.display()));
        }
        for (command, class) in [
            ("touch lib/new.py".to_owned(), "PRISTINE"),
            (format!("touch {}", inside("lib/new.py")), "PRISTINE"),
            (format!("touch {}", inside("other/../lib/new.py")), "PRISTINE"),
            (format!("tee {}", inside("ledger/governance.jsonl")), "APPEND_ONLY"),
        ] {
            let error = execute_in_tree(&format!("! {command}"))["error"].clone();
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
    // The module of the shell lists no writable paths, so nothing in the tree is.
    let denied = execute(&format!("! touch {}", inside("free")))["error"].clone();
    assert_eq!((&denied["code"], &denied["details"]["rule"]), (&json!("CAPABILITY_DENIED"), &json!("capabilities")));
    let free = execute("! touch free");
    assert_eq!((&free["status"], place.work.join("free").is_file()), (&json!("ok"), true), "the control: {free}");
    assert!(!place.tree.join("lib/new.py").exists() && !place.tree.join("free").exists());
    // The declarations of a module apply to scripts of any interpreter, and to paths behind links.
    let report = inside("scripts/report.sh");
    let capabilities = place.tree.read("modules/shell/capabilities.json").replace("report.sh", "report.sh --*");
    place.tree.write("modules/shell/capabilities.json", capabilities);
    for (command, denied) in [
        (format!("sh {report} --x"), false),
        (format!("sh {report}"), true),
        (format!("sh {}", inside("scripts/other.sh")), true),
        (format!("cat {}", inside("lib/secret.py")), true),
    ] {
        let answer = execute(&format!("! {command}"));
        assert_eq!(answer["error"]["code"] == "CAPABILITY_DENIED", denied, "{command}: {answer}");
        assert_eq!(answer["result"]["stdout"] == "report\n", !denied, "{command}: {answer}");
    }
    let found = execute(&format!("! grep -rh TOKEN {}", inside("lib")))["error"]["details"]["result"].clone();
    assert!(found["stderr"].is_string() && !found["stdout"].as_str().unwrap().contains("not for"), "{found}");
    let said = place
        .command()
        .current_dir(&place.tree)
        .args(["--interactive", "--root"])
        .arg(&place.tree)
        .stdin(":! touch lib/new.py\n:trace\n:wo apply\n")
        .run();
    assert!(said.stdout.contains("✗ the command exited with status 1"), "{}", said.stdout);
    assert!(said.stderr.contains("tree/lib/new.py is read-only for commands"), "{}", said.stderr);
    assert!(!place.tree.join("lib/new.py").exists());
    assert_eq!(said.stdout.matches("  Hint: ").count(), 3, "{}", said.stdout);
    let none = place.command().args(["--interactive", "--root", "/none/such"]).stdin("").run();
    assert_eq!(none.status, 3, "{}", none.stdout);
}

#[test]
fn governance_implies_packages_and_ledgers() {
    let place = Tree::new();
    let agent = include_str!("data/agents/governs.sh");
    let path = place.home.executable("g", agent).display().to_string();
    let program = place.command().args(["--interactive", "--agent", &path, "--root"]).arg(&place.tree);
    let said = program.stdin(":pkg\n:ledger 1\n:memory\n").run().stdout;
    assert_eq!(said.matches("no such capability").count(), 1, "only the memory: {said}");
    assert!(said.contains("\nPKG-BASELINE-HO3-000  1.0.0 ") && said.contains("\nPACKAGE_INSTALLED  "), "{said}");
}

#[test]
fn edited_soul_is_sent_after_registration() {
    let place = Person::new();
    place.run(&["init"]).success();
    let soul = |text: &str| place.home.write("agents/default/soul.md", text);
    soul("Be brief.\n");
    let refused = place.stub("hello\n");
    assert!(refused.stdout.contains("Hint: `cp-shell register default`") && refused.status == 4, "{}", refused.stdout);
    assert!(!place.asked());
    let shown = place.run(&["register", "default", "--dry-run"]).data();
    let change = &shown["preview"]["changes"][0];
    assert_eq!((&change["id"], &change["after"]["text"]), (&json!("PRM-DEFAULT-SOUL-001"), &json!("Be brief.\n")));
    assert!(change["after"]["difference"].as_str().unwrap().ends_with("+Be brief.\n"), "{change}");
    let token = shown["confirm_token"].as_str().unwrap();
    place.run(&["register", "default", "--confirm", token]).success();
    assert_eq!(place.run(&["register", "default", "--yes"]).data()["items"], json!([]), "nothing is left to do");
    place.home.write("agents/critic/soul.md", "Find faults.\n");
    place.home.write("agents/critic/context/we, us.md", "We use Rust.\n");
    let done = place.run(&["register", "critic", "--yes"]).data();
    assert_eq!(done["items"][1]["prompt_id"], "PRM-CRITIC-WE--US-001");
    // A model that stores its input.
    let model = place.home.executable("model", include_str!("data/agents/keeps.sh"));
    for (agent, words) in [("default", "Be brief."), ("critic", "Find faults.\n\nWe use Rust.")] {
        let asked = place.script(&["--backend", model.to_str().unwrap(), "--agent", agent], "hello\n");
        assert_eq!(asked.status, 0, "{}", asked.stdout);
        place.sh(&format!("cp-compose --agent {agent} -- hello | cp-llm --backend {}", model.display())).success();
        let sent = place.home.records("sent");
        let systems: Vec<&Value> = sent.iter().rev().take(2).map(|prompt| &prompt["data"]["system"]).collect();
        assert_eq!(systems, [words, words]);
    }
    soul("Be long.\n");
    let mut terminal = place.terminal(&["register", "default"], 80);
    assert!(terminal.wait_for("[y/N]").contains("+Be long.\n"), "{}", terminal.text());
    terminal.send("n\n");
    assert_eq!(terminal.end(), Some(5));
    assert!(place.stub("hello\n").stdout.contains("cp-shell register default"));
}

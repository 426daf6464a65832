//! What the policy of a home asks of this program. Each refusal has its counterpart that is let through.

use serde_json::{Value, json};

use crate::messages::whole;
use crate::server::{Program, Server};

const ID: &str = "PRM-TEST-001";
/// The hash of `Speak {tone}.`
const HASH: &str = "sha256:ead8899cbc0216d60684282bf3154d0246d3420383655e0cf5c86835b001ba0d";

fn write(program: &Program, file: &str, text: &str) {
    let path = program.home.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn governed(policy: &str) -> Program {
    let program = Program::new();
    write(&program, "governed_prompts/PRM-TEST-001.md", "Speak {tone}.");
    let rows =
        format!("prompt_id,title,status,hash,created,updated\n{ID},\"A, test\",active,{HASH},2026-01-01,2026-01-01\n");
    write(&program, "registries/prompts_registry.csv", &rows);
    write(&program, "config/policy.toml", policy);
    program
}

fn row(id: Option<&str>, system: &str) -> String {
    json!({"prompt_id":id,"system":system,"messages":[{"role":"user","content":"x"}]}).to_string() + "\n"
}

#[test]
fn a_governed_prompt_can_be_required() {
    let program = governed("[llm]\ngoverned_prompts = \"require\"\n");
    let ask = |more: &[&str], input: &str| program.run_with(&[&["--backend", "stub", "--rows"], more].concat(), input);
    let good = row(Some(ID), "Speak softly.\n\nAnd briefly.");
    assert_eq!(ask(&[], &good).status, 0);
    assert_eq!(program.ledger()[1]["data"]["prompt_id"], ID);
    for (more, input, code) in [
        (&[][..], row(None, "Speak softly."), "E_FORBIDDEN"),
        (&[], row(Some(ID), "Shout."), "E_FORBIDDEN"),
        (&[], row(Some(ID), ""), "E_FORBIDDEN"),
        (&["-s", "Shout."], good.clone(), "E_FORBIDDEN"),
        (&["--dry-run"], row(None, "x"), "E_FORBIDDEN"),
        (&[], row(Some("PRM-TEST-002"), "Speak softly."), "E_NOT_FOUND"),
        (&[], row(Some("../PRM-TEST-001"), "Speak softly."), "E_NOT_FOUND"),
    ] {
        let ran = ask(more, &input);
        let error = ran.error();
        assert_eq!(error["code"], code, "{more:?} {input}");
        assert_ne!(ran.status, 0);
    }
    let refused = program.run(&["--backend", "stub", "hi"]);
    assert_eq!((refused.status, &refused.error()["details"]["rule"]), (4, &json!("llm.governed_prompts")));
    // One refused row is one line.
    let mixed = ask(&["--jobs", "2"], &format!("{good}{}{good}", row(None, "x")));
    assert_eq!(mixed.last()["data"], json!({"total":3,"succeeded":2,"failed":1,"skipped":0}));
    write(&program, "governed_prompts/PRM-TEST-001.md", "Speak {tone}!");
    assert_eq!(ask(&[], &row(Some(ID), "Speak softly!")).error()["code"], "E_INTEGRITY");
}

#[test]
fn without_the_rule_the_prompt_is_only_named_on_the_ledger_and_only_if_its_words_are_sent() {
    let program = governed("[llm]\ngoverned_prompts = \"log\"\n");
    let good = row(Some(ID), "Speak softly.");
    assert_eq!(program.run_with(&["--backend", "stub", "--rows"], &good).status, 0);
    assert_eq!(program.run_with(&["--backend", "stub", "--rows", "-s", "Shout."], &good).status, 0);
    let ledger = program.ledger();
    let asked: Vec<&Value> = ledger.iter().filter(|entry| entry["event"] == "llm.request").collect();
    assert_eq!((&asked[0]["data"]["prompt_id"], &asked[1]["data"]["prompt_id"]), (&json!(ID), &Value::Null));
    assert!(asked.iter().all(|entry| entry["data"]["system_hash"].as_str().unwrap().starts_with("sha256:")));
}

#[test]
fn the_network_can_take_a_token() {
    let server = Server::start(vec![whole("openai", "fine")]);
    let program = Program::asking("openai", &server);
    let free = program.run(&["-m", "m", "hi"]);
    assert_eq!(free.status, 0, "{}", free.stdout);
    write(&program, "config/policy.toml", "[llm]\nnetwork = \"token\"\n");
    for arguments in [&["-m", "m", "hi"][..], &["models"]] {
        let refused = program.run(arguments);
        let error = refused.error();
        assert_eq!((refused.status, error["code"].as_str().unwrap()), (4, "E_FORBIDDEN"));
        assert_eq!(
            (&error["details"]["rule"], &error["details"]["missing"]),
            (&json!("llm.network"), &json!("CAPABILITY_NETWORK"))
        );
    }
    assert_eq!(server.requests().len(), 1);
    // Neither of these dials.
    assert_eq!(program.run(&["--backend", "stub", "hi"]).status, 0);
    assert_eq!(program.run(&["-m", "m", "--dry-run", "hi"]).status, 0);
    let program = program.set("CAPABILITY_NETWORK", "cap-0123456789");
    assert_eq!(program.run(&["-m", "m", "hi"]).status, 0);
    let ledger = program.ledger();
    let asked: Vec<&Value> =
        ledger.iter().filter(|e| e["event"] == "llm.request").map(|e| &e["data"]["network"]).collect();
    assert_eq!(asked, [&json!("allow"), &Value::Null, &json!("token")]);
    assert!(!ledger.iter().any(|entry| entry.to_string().contains("cap-0123456789")));
}

#[test]
fn words_are_kept_where_policy_says_so() {
    let program = Program::new();
    let contents = || {
        let ledger = program.ledger();
        ledger.iter().filter(|e| e["event"] == "llm.response").map(|e| e["content"].clone()).collect::<Vec<_>>()
    };
    program.run(&["--backend", "stub", "hi"]);
    write(&program, "config/policy.toml", "[llm]\nlog_content = true\n");
    program.run(&["--backend", "stub", "hi"]);
    assert_eq!(contents(), [Value::Null, json!("stub response 1")]);
}

#[test]
fn policy_bounds_what_a_command_line_may_spend() {
    let server = Server::start(vec![whole("openai", "fine")]);
    let program = Program::asking("openai", &server);
    write(&program, "config/policy.toml", "[llm]\nbudget_usd = 0.00002\n");
    write(&program, "config/prices.toml", "[m]\ninput = 1.0\noutput = 1.0\n");
    let rows = row(None, "").repeat(5);
    for more in [&[][..], &["--budget-usd", "100"]] {
        let ran = program.run_with(&[&["-m", "m", "--rows"], more].concat(), &rows);
        assert_eq!((ran.status, ran.last()["error"]["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
        assert_eq!(ran.last()["error"]["details"]["succeeded"], 2, "{more:?}");
    }
    assert_eq!(program.run(&["-m", "unpriced", "hi"]).error()["code"], "E_CONFIG");
}

#[test]
fn a_slip_in_the_policy_stops_everything() {
    let program = governed("[llm]\ngoverned_prompt = \"require\"\n");
    let error = program.run(&["--backend", "stub", "hi"]).error();
    assert_eq!((&error["code"], &error["details"]["nearest"]), (&json!("E_CONFIG"), &json!("governed_prompts")));
    assert!(program.run(&["doctor"]).stdout.contains("governed_prompts"));
}

//! The policy of a home. Each denial has a counterpart that is allowed.

use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::whole;

const ID: &str = "PRM-TEST-001";
/// The hash of `Speak {tone}.`
const HASH: &str = "sha256:ead8899cbc0216d60684282bf3154d0246d3420383655e0cf5c86835b001ba0d";

fn governed(policy: &str) -> Llm {
    let llm = Llm::new();
    llm.home.write("governed_prompts/PRM-TEST-001.md", "Speak {tone}.");
    let rows =
        format!("prompt_id,title,status,hash,created,updated\n{ID},\"A, test\",active,{HASH},2026-01-01,2026-01-01\n");
    llm.home.write("registries/prompts_registry.csv", &rows);
    llm.home.write("config/policy.toml", policy);
    llm
}

fn row(id: Option<&str>, system: &str) -> String {
    json!({"prompt_id":id,"system":system,"messages":[{"role":"user","content":"x"}]}).to_string() + "\n"
}

#[test]
fn governed_prompt_is_required() {
    let llm = governed("[llm]\ngoverned_prompts = \"require\"\n");
    let ask = |more: &[&str], input: &str| llm.feed(&[&["--backend", "stub", "--rows"], more].concat(), input);
    let good = row(Some(ID), "Speak softly.\n\nAnd briefly.");
    assert_eq!(ask(&[], &good).status, 0);
    assert_eq!(llm.ledger()[1]["data"]["prompt_id"], ID);
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
        let error = ran.first_error();
        assert_eq!(error["code"], code, "{more:?} {input}");
        assert_ne!(ran.status, 0);
    }
    let refused = llm.run(&["--backend", "stub", "hi"]);
    assert_eq!((refused.status, &refused.first_error()["details"]["rule"]), (4, &json!("llm.governed_prompts")));
    // Each denied row is one line.
    let mixed = ask(&["--jobs", "2"], &format!("{good}{}{good}", row(None, "x")));
    assert_eq!(mixed.closing()["error"]["details"], json!({"total":3,"succeeded":2,"failed":1,"skipped":0}));
    llm.home.write("governed_prompts/PRM-TEST-001.md", "Speak {tone}!");
    assert_eq!(ask(&[], &row(Some(ID), "Speak softly!")).first_error()["code"], "E_INTEGRITY");
}

#[test]
fn prompt_id_is_recorded_without_rule() {
    let llm = governed("[llm]\ngoverned_prompts = \"log\"\n");
    let good = row(Some(ID), "Speak softly.");
    assert_eq!(llm.feed(&["--backend", "stub", "--rows"], &good).status, 0);
    assert_eq!(llm.feed(&["--backend", "stub", "--rows", "-s", "Shout."], &good).status, 0);
    let asked = llm.entries("llm.request");
    assert_eq!((&asked[0]["data"]["prompt_id"], &asked[1]["data"]["prompt_id"]), (&json!(ID), &Value::Null));
    assert!(asked.iter().all(|entry| entry["data"]["system_hash"].as_str().unwrap().starts_with("sha256:")));
}

#[test]
fn network_token_is_required() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "fine")]);
    let free = llm.run(&["-m", "m", "hi"]);
    assert_eq!(free.status, 0, "{}", free.stdout);
    llm.home.write("config/policy.toml", "[llm]\nnetwork = \"token\"\n");
    for arguments in [&["-m", "m", "hi"][..], &["models"]] {
        let refused = llm.run(arguments);
        let error = refused.first_error();
        assert_eq!((refused.status, error["code"].as_str().unwrap()), (4, "E_FORBIDDEN"));
        assert_eq!(
            (&error["details"]["rule"], &error["details"]["missing"]),
            (&json!("llm.network"), &json!("CAPABILITY_NETWORK"))
        );
    }
    assert_eq!(server.requests().len(), 1);
    // Neither opens a connection.
    assert_eq!(llm.run(&["--backend", "stub", "hi"]).status, 0);
    assert_eq!(llm.run(&["-m", "m", "--dry-run", "hi"]).status, 0);
    let llm = llm.set("CAPABILITY_NETWORK", "cap-0123456789");
    assert_eq!(llm.run(&["-m", "m", "hi"]).status, 0);
    let asked = llm.entries("llm.request");
    assert!(asked.iter().map(|entry| &entry["data"]["network"]).eq(&[json!("allow"), json!(null), json!("token")]));
    assert!(!llm.home.read("ledger/cp-llm.jsonl").contains("cap-0123456789"));
}

#[test]
fn log_content_records_text() {
    let llm = Llm::new();
    llm.run(&["--backend", "stub", "hi"]);
    llm.home.write("config/policy.toml", "[llm]\nlog_content = true\n");
    llm.run(&["--backend", "stub", "hi"]);
    let contents: Vec<Value> = llm.entries("llm.response").iter().map(|entry| entry["content"].clone()).collect();
    assert_eq!(contents, [Value::Null, json!("stub response 1")]);
}

#[test]
fn policy_limits_budget() {
    let (llm, _server) = Llm::playing("openai", vec![whole("openai", "fine")]);
    llm.home.write("config/policy.toml", "[llm]\nbudget_usd = 0.00002\n");
    llm.home.write("config/prices.toml", "[m]\ninput = 1.0\noutput = 1.0\n");
    let rows = row(None, "").repeat(5);
    for more in [&[][..], &["--budget-usd", "100"]] {
        let ran = llm.feed(&[&["-m", "m", "--rows"], more].concat(), &rows);
        assert_eq!((ran.status, ran.closing()["error"]["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
        assert_eq!(ran.closing()["error"]["details"]["succeeded"], 2, "{more:?}");
    }
    assert_eq!(llm.run(&["-m", "unpriced", "hi"]).first_error()["code"], "E_CONFIG");
}

#[test]
fn invalid_policy_stops_all_requests() {
    let llm = governed("[llm]\ngoverned_prompt = \"require\"\n");
    let error = llm.run(&["--backend", "stub", "hi"]).first_error();
    assert_eq!((&error["code"], &error["details"]["nearest"]), (&json!("E_CONFIG"), &json!("governed_prompts")));
    assert!(llm.run(&["doctor"]).stdout.contains("governed_prompts"));
}

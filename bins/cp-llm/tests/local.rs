//! Servers on this machine: the error without a backend, `doctor`, `models`, and base URLs without a path.

use cp_testkit::Server;
use cp_testkit::server::json as json_answer;
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::whole;

/// A server like Ollama, with these models.
fn ollama(models: &[&str]) -> Server {
    let models: Vec<Value> = models.iter().map(|id| json!({"id": id, "object": "model"})).collect();
    Server::replying(move |request| match request.line() {
        "GET /v1/models" => json_answer(200, &json!({"object": "list", "data": models})),
        "POST /v1/chat/completions" => whole("openai", "hello"),
        _ => json_answer(404, &json!({"error": "not found"})),
    })
}

fn with(server: &Server) -> Llm {
    Llm::new().set("OLLAMA_HOST", server.url().trim_start_matches("http://"))
}

fn hint(ran: &cp_testkit::Outcome) -> String {
    let error = ran.first_error();
    assert_eq!((ran.status, error["code"].as_str().unwrap()), (4, "E_CONFIG"), "{}", ran.stdout);
    assert!(error["message"].as_str().unwrap().contains("no backend is configured"), "{error}");
    error["details"]["hint"].as_str().unwrap().to_owned()
}

#[test]
fn missing_backend_error_names_local_server() {
    let server = ollama(&["smollm2:135m"]);
    let llm = with(&server);
    let hint_of = hint(&llm.run(&["hi"]));
    for way in ["cp-ask keys set", "ANTHROPIC_API_KEY", "ollama serve", "--backend stub"] {
        assert!(hint_of.contains(way), "{hint_of}");
    }
    assert_eq!(server.requests().len(), 0);
    let ran = llm.run(&["-m", "ollama/smollm2:135m", "hi"]);
    assert_eq!((ran.status, &ran.only()["data"]["endpoint"]), (0, &json!("ollama")), "{}", ran.stdout);
}

#[test]
fn doctor_lists_endpoints() {
    let server = ollama(&["a", "b"]);
    let llm = with(&server);
    let checks = |llm: &Llm| {
        let ran = llm.run(&["doctor"]);
        let record = ran.records().remove(0);
        let result = [&record["data"], &record["error"]["details"]].into_iter().find(|result| result.is_object());
        let checks: Vec<Value> = result.unwrap()["checks"].as_array().unwrap().clone();
        checks
            .iter()
            .map(|check| format!("{} {} {}", check["check"], check["status"], check["message"]))
            .collect::<Vec<_>>()
            .join("\n")
    };
    llm.home.write(
        "config/cp.toml",
        format!(
            "backend = \"good\"\n[endpoints.good]\ndialect = \"openai\"\nbase_url = \"{}/v1\"\n[endpoints.down]\ndialect = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\n",
            server.url()
        ),
    );
    let found = checks(&llm);
    assert!(found.contains("\"backend\" \"pass\" \"good has 2 models"), "{found}");
    assert!(found.contains("\"endpoint\" \"warn\" \"down: 127.0.0.1:9"), "{found}");
    llm.policy("[llm]\nnetwork = \"token\"\n");
    let asked = server.requests().len();
    assert!(checks(&llm).contains("only with a token"));
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn models_lists_one_endpoint_or_all() {
    let server = ollama(&["b", "a"]);
    let llm = with(&server);
    let ids = |arguments: &[&str]| -> Vec<Value> {
        let ran = llm.run(arguments);
        assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
        ran.only()["data"]["items"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect()
    };
    assert_eq!(ids(&["models", "--backend", "ollama"]), ["a", "b"]);
    let table = |name: &str, url: &str| format!("[endpoints.{name}]\ndialect = \"openai\"\nbase_url = \"{url}\"\n");
    llm.home.write("config/cp.toml", table("one", &format!("{}/v1", server.url())));
    assert_eq!(ids(&["models"]), ["a", "b"]);
    let several = table("one", &format!("{}/v1", server.url())) + &table("two", &format!("{}/v1", server.url()));
    llm.home.write("config/cp.toml", several + &table("down", "http://127.0.0.1:9/v1"));
    assert_eq!(ids(&["models"]), ["one/a", "one/b", "two/a", "two/b"]);
    assert!(llm.run(&["models"]).stderr.contains("down"));
    let none = table("down", "http://127.0.0.1:9/v1") + &table("out", "http://127.0.0.1:9/v1");
    llm.home.write("config/cp.toml", none);
    assert_eq!(llm.run(&["models"]).first_error()["code"], "E_NETWORK");
}

#[test]
fn not_found_error_suggests_base_url_with_path() {
    let server = ollama(&[]);
    for (backend, path) in [("openai", "/v1"), ("openai-responses", "/v1"), ("gemini", "/v1beta")] {
        let llm = Llm::asking(backend, &server);
        let base = if backend == "gemini" { "GEMINI_BASE_URL" } else { "OPENAI_BASE_URL" };
        let hint_of = |llm: &Llm| {
            llm.run(&["-m", "m", "hi"]).first_error()["details"]["hint"].as_str().unwrap_or_default().to_owned()
        };
        let hint = hint_of(&llm.set(base, &server.url()));
        assert!(hint.contains(&format!("{}{path}", server.url())), "{backend}: {hint}");
        let whole = Llm::asking(backend, &server).set(base, &format!("{}/elsewhere", server.url()));
        assert!(!hint_of(&whole).contains("base URL"), "{backend}");
    }
}

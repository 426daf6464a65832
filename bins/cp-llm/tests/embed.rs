//! `cp-llm embed`.

use cp_testkit::server::{Request, json as reply, reply as whole};
use cp_testkit::{Outcome, Server};
use serde_json::{Value, json};

use crate::llm::Llm;

/// Rows with this number of texts.
fn rows(count: usize) -> String {
    (0..count).map(|n| json!({"text": format!("text {n}"), "row": {"n": n}}).to_string() + "\n").collect()
}

/// A server of vectors: `text 7` has the vector `[7.10]`. The vectors are out of order and on several lines.
fn vectors(request: &Request) -> String {
    let input = request.json()["input"].as_array().unwrap().clone();
    let one = |(at, text): (usize, &Value)| {
        let number = text.as_str().unwrap().rsplit(' ').next().unwrap();
        format!("{{\"index\": {at}, \"embedding\": [\n  {number}.10,\n  -1e-7\n]}}")
    };
    let list: Vec<String> = input.iter().enumerate().map(one).rev().collect();
    format!("{{\"model\":\"v-1\",\"data\":[{}],\"usage\":{{\"prompt_tokens\":{}}}}}", list.join(","), input.len())
}

fn items(ran: &Outcome) -> Vec<Value> {
    ran.of("item")
}

#[test]
fn embed_batches_texts_and_keeps_order() {
    let server = Server::replying(|request| whole(200, "application/json", "", vectors(request).as_bytes()));
    let llm = Llm::asking("openai", &server);
    llm.home.write("config/prices.toml", "[v]\ninput = 1000.0\noutput = 0.0\n");
    let ran = llm.feed(&["embed", "-m", "v", "--rows", "--batch-size", "2", "--dimensions", "2"], &rows(5)).success();
    let sent: Vec<Value> = server.requests().iter().map(Request::json).collect();
    assert!(server.requests()[0].line().contains("/v1/embeddings"));
    assert_eq!(sent.iter().map(|sent| sent["input"].as_array().unwrap().len()).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!((&sent[0]["model"], &sent[0]["dimensions"]), (&json!("v"), &json!(2)));
    let items = items(&ran);
    assert_eq!(items.iter().map(|item| item["row"]["n"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    // With numbers as the server printed them, on one line.
    assert!(ran.stdout.lines().nth(3).unwrap().contains("\"embedding\":[3.10,-1e-7]"), "{}", ran.stdout);
    assert_eq!((&items[3]["dimensions"], &items[3]["model"]), (&json!(2), &json!("v-1")));
    let costs: Vec<Option<f64>> = items.iter().map(|item| item["usage"]["cost_usd"].as_f64()).collect();
    assert_eq!(costs, [Some(0.002), None, Some(0.002), None, Some(0.001)]);
    let ledger = llm.ledger();
    let events: Vec<&Value> = ledger.iter().filter(|line| line["event"] == "llm.response").collect();
    assert_eq!((events.len(), &events[0]["data"]["stop_reason"]), (3, &json!("embedding")));
    assert!(!llm.home.read("ledger/cp-llm.jsonl").contains("text 1"), "what is sent is not kept");
}

#[test]
fn embed_limits_bytes_of_request() {
    let server = Server::replying(|request| whole(200, "application/json", "", vectors(request).as_bytes()));
    let llm = Llm::asking("openai", &server);
    let long = "x".repeat(100 << 10);
    let rows: String = (0..5).map(|n| json!({"text": format!("{long} {n}")}).to_string() + "\n").collect();
    llm.feed(&["embed", "-m", "v", "--rows"], &rows).success();
    assert_eq!(server.requests().len(), 3);
    let ran = llm.run(&["embed", "-m", "v", "--format", "text", "--", "my secret 4"]).success();
    assert_eq!(ran.stdout, "4.10 -1e-7\n");
    let refused = llm.run(&["embed", "-m", "v", "--batch-size", "0", "my secret"]).code(2);
    assert!(!llm.home.read("ledger/cp-llm.jsonl").contains("my secret"), "{}", refused.stdout);
}

#[test]
fn embed_uses_formats_of_gemini_and_ollama() {
    let server = Server::playing(vec![reply(200, &json!({"embeddings":[{"values":[0.5]},{"values":[0.25]}]}))]);
    let ran = Llm::asking("gemini", &server).feed(&["embed", "-m", "e", "--rows", "--dimensions", "1"], &rows(2));
    assert_eq!(items(&ran)[1]["embedding"], json!([0.25]), "{}", ran.stdout);
    assert!(server.requests()[0].line().contains("/v1beta/models/e:batchEmbedContents"));
    let one = json!({"model":"models/e","content":{"parts":[{"text":"text 1"}]},"outputDimensionality":1});
    assert_eq!(server.requests()[0].json()["requests"][1], one);
    let server = Server::playing(vec![reply(200, &json!({"model":"n","embeddings":[[0.5]],"prompt_eval_count":7}))]);
    let llm = Llm::new().set("OPENAI_BASE_URL", &format!("{}/api", server.url()));
    let item = llm.run(&["embed", "-m", "n", "hi"]).only()["data"].clone();
    assert_eq!((&item["embedding"], &item["usage"]["input_tokens"]), (&json!([0.5]), &json!(7)));
    assert!(server.requests()[0].line().ends_with("/api/embed"));
}

#[test]
fn embed_retries_transient_errors_and_fails_all_texts() {
    let good = whole(200, "application/json", "", b"{\"data\":[{\"embedding\":[1.0]}]}");
    let server = Server::playing(vec![reply(503, &json!({})), good.clone()]);
    let llm = Llm::asking("openai", &server);
    llm.run(&["embed", "-m", "v", "hi"]).success();
    assert_eq!(llm.ledger().iter().filter(|line| line["event"] == "llm.response").count(), 2);
    let server = Server::playing(vec![reply(400, &json!({"error":{"message":"too long"}})), good.clone()]);
    let llm = Llm::asking("openai", &server);
    let ran = llm.feed(&["embed", "-m", "v", "--rows", "--batch-size", "2"], &rows(3)).code(1);
    let failed: Vec<Value> = ran.of("error");
    assert_eq!((items(&ran).len(), failed.len()), (1, 2), "{}", ran.stdout);
    let records = ran.records();
    assert_eq!(
        (&records[1]["error"]["details"]["index"], &records[1]["error"]["code"]),
        (&json!(1), &json!("E_VALIDATION"))
    );
    let details = &records[1]["error"]["details"];
    assert_eq!((&details["row"], &details["_untrusted"]), (&json!({"n":1}), &json!(["/upstream_message", "/row"])));
    assert!(llm.ledger().iter().any(|line| line["hash"] == details["receipt"]["hash"]), "{details}");
    // One vector for two texts would be assigned to the wrong text.
    let ran = Llm::asking("openai", &Server::playing(vec![good])).feed(&["embed", "-m", "v", "--rows"], &rows(2));
    assert_eq!(ran.first_error()["code"], "E_SERVER", "{}", ran.stdout);
    for bad in [
        json!({"data":[{"embedding":"AAAA"}]}),
        json!({"data":[{"embedding":[]}]}),
        json!({"data":[{"embedding":[1,null]}]}),
        json!({}),
    ] {
        let llm = Llm::asking("openai", &Server::playing(vec![reply(200, &bad)]));
        assert_eq!(llm.run(&["embed", "-m", "v", "--retries", "0", "hi"]).error()["code"], "E_SERVER", "{bad}");
    }
}

#[test]
fn embed_stops_at_budget_and_rejects_backend_without_embeddings() {
    let llm = Llm::new().set("CP_BACKEND", "stub");
    let ran = llm.feed(&["embed", "--rows", "--batch-size", "1", "--budget-tokens", "3"], &rows(5)).code(9);
    assert_eq!(items(&ran).len(), 2, "two words each: {}", ran.stdout);
    llm.run(&["embed", "--backend", "anthropic", "-m", "m", "hi"]).failed(4, "E_CONFIG");
    llm.run(&["embed", " "]).failed(2, "E_VALIDATION");
    let llm = Llm::asking("openai", &Server::playing(vec![reply(200, &json!({}))])).set("CP_MODEL", "chat");
    llm.run(&["embed", "hi"]).failed(4, "E_CONFIG");
    llm.home.write("config/policy.toml", "[llm]\nnetwork = \"token\"\n");
    llm.run(&["embed", "-m", "v", "hi"]).failed(4, "E_FORBIDDEN");
}

#[test]
fn embed_stub_accepts_prompts_and_messages() {
    let llm = Llm::new().set("CP_BACKEND", "stub").set("CP_EMBEDDING_MODEL", "words");
    let message = llm.run(&["--", "hello"]).stdout;
    let prompt = json!({"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":"stub Response 1"}]}});
    let ran = llm.feed(&["embed"], &format!("{prompt}\n{message}")).success();
    let found = items(&ran);
    assert_eq!((found.len(), &found[0]["embedding"]), (2, &found[1]["embedding"]), "{}", ran.stdout);
    assert_eq!((&found[0]["dimensions"], &found[0]["model"]), (&json!(64), &json!("words")));
    let length: f64 = found[0]["embedding"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap().powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-6, "{length}");
}

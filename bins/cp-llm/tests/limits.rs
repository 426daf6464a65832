//! Limits of a batch: schemas, budgets, the rate, and resumed runs.

use std::io::Write as _;

use cp_testkit::server::Request;
use cp_testkit::{Server, server};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{rows, whole};

fn priced(llm: &Llm) {
    llm.home.write("config/prices.toml", "[stub]\ninput = 1000.0\noutput = 1000.0\n");
}

#[test]
fn schema_mismatch_is_asked_again_once() {
    let schema = r#"{"type":"object","required":["age"],"properties":{"age":{"type":"integer"}}}"#;
    for (answers, status, requests) in [
        (["{\"age\": 3}", "unused"], 0, 1),
        (["```json\n{\"age\":\"x\"}\n```", "{\"age\": 3}"], 0, 2),
        (["", "{\"age\": 3}"], 0, 2),
        (["{}", "still no JSON"], 2, 2),
    ] {
        let server = Server::playing(answers.map(|text| whole("openai", text)).to_vec());
        let llm = Llm::asking("openai", &server);
        let file = llm.work.write("person.json", schema);
        let ran = llm.run(&["-m", "m", "--schema", file.to_str().unwrap(), "how old?"]);
        assert_eq!((ran.status, server.requests().len()), (status, requests), "{}", ran.stdout);
        let sent: Vec<Value> = server.requests().iter().map(Request::json).collect();
        assert_eq!(sent[0]["response_format"]["json_schema"]["schema"]["required"], json!(["age"]));
        let only = ran.only();
        if status == 0 {
            assert_eq!(only["data"]["parsed"], json!({"age":3}));
            assert_eq!(only["data"]["input"].as_array().unwrap().len(), 1);
            assert_eq!(only["data"]["usage"]["output_tokens"], 3 * requests);
        } else {
            assert_eq!(
                (&only["error"]["code"], &only["error"]["details"]["reason"]),
                (&json!("E_VALIDATION"), &json!("schema"))
            );
            assert_eq!(only["error"]["details"]["partial"], "still no JSON");
        }
        if requests == 2 {
            let turns =
                ["/messages/1/content", "/messages/2/content"].map(|at| sent[1].pointer(at).unwrap().to_string());
            assert!(turns[0] != "\"\"" && turns[1].contains("fit the schema"), "{turns:?}");
        }
    }
}

#[test]
fn call_is_answer_to_schema_only_if_tools_are_offered() {
    let llm = Llm::new().set("CP_BACKEND", "stub");
    let tools = llm.work.write("tools.json", r#"[{"name":"weather","input_schema":{}}]"#).display().to_string();
    let (call, json) = (json!({"tool_calls": [{"name": "weather"}]}), json!({"content": "{\"age\":3}"}));
    for (offered, second, status) in [
        (&[][..], &call, 2),
        (&[], &json, 0),
        (&["--tool-schemas", &tools], &call, 0),
        (&["-o", "tools=[{}]"], &call, 0),
    ] {
        let script = llm.work.write("script.jsonl", format!("{call}\n{second}\n")).display().to_string();
        let words = [&["--stub-script", &script, "--schema", "age int"], offered, &["--", "how old?"]].concat();
        let ran = llm.run(&words);
        assert_eq!((ran.status, ran.stderr.contains("asking again")), (status, offered.is_empty()), "{ran:?}");
        let only = ran.only();
        assert_eq!(only["data"]["parsed"] == json!({"age": 3}), offered.is_empty() && status == 0, "{ran:?}");
        assert_eq!(only["error"]["details"]["reason"] == "schema", status == 2, "{ran:?}");
        let id = llm.run(&[&["batch", "submit"], &words[..]].concat()).records()[0]["data"]["job_id"].clone();
        let row = llm.run(&["batch", "result", id.as_str().unwrap()]);
        assert_eq!(row.status, if offered.is_empty() { 2 } else { 0 }, "{row:?}");
    }
}

#[test]
fn budget_exhaustion_ends_stream() {
    // Each row costs two words and three of the answer.
    let llm = Llm::new();
    let ran = llm.feed(&["--backend", "stub", "--rows", "--budget-tokens", "12"], &rows(9));
    let error = ran.closing()["error"].clone();
    assert_eq!((ran.status, error["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
    assert_eq!((&error["details"]["succeeded"], &error["details"]["action"]), (&json!(3), &json!("raise_budget")));
    assert!(error["details"]["hint"].as_str().unwrap().contains("--skip-done"), "{error}");
    // A backend that costs nothing needs no price.
    assert_eq!(llm.run(&["--backend", "stub", "--budget-usd", "1", "hi"]).status, 0);
    priced(&llm);
    let ran = llm.feed(&["--backend", "stub", "--rows", "--budget-usd", "0.012"], &rows(9));
    assert_eq!((ran.status, &ran.closing()["error"]["details"]["succeeded"]), (9, &json!(3)));
    assert_eq!(ran.records()[0]["data"]["usage"]["cost_usd"], json!(0.005));
}

#[test]
fn request_id_repeated_sends_once() {
    let server =
        Server::playing(vec![server::json(500, &json!({})), whole("openai", "first"), whole("openai", "second")]);
    let llm = Llm::asking("openai", &server);
    let ask = |arguments: &[&str]| llm.run(&[&["-m", "m", "--retries", "0", "--request-id", "r1"], arguments].concat());
    // An error has no effect, so the id is not used up.
    assert_eq!(ask(&["hi"]).status, 7);
    let first = ask(&["hi"]);
    let again = ask(&["hi"]);
    assert_eq!((first.only()["data"].clone(), server.requests().len()), (again.only()["data"].clone(), 2));
    assert_eq!(ask(&["other"]).first_error()["code"], "E_CONFLICT");
    assert_eq!(ask(&["--jobs", "2", "hi"]).first_error()["code"], "E_USAGE");
    assert_eq!(server.requests().len(), 2);
    assert_eq!(ask(&["--request-id", "", "hi"]).first_error()["code"], "E_USAGE");
}

#[test]
fn request_id_is_sent_as_idempotency_key() {
    let keys = |server: &Server| {
        let requests = server.requests();
        let key = |sent: &Request| sent.header("idempotency-key").unwrap_or_default().to_string();
        requests.iter().map(key).collect::<Vec<_>>()
    };
    let broken = || server::json(500, &json!({}));
    let refused = || server::json(400, &json!({"error": {"message": "stream_options is unknown"}}));
    for api in ["openai", "anthropic", "gemini"] {
        let sent = |replies: Vec<server::Reply>, words: &[&str], input: &str| {
            let server = Server::playing(replies);
            let options = ["-m", "m", "--retries", "1", "--retry-max-wait", "0"];
            let ran = Llm::asking(api, &server).feed(&[&options, words].concat(), input);
            assert_eq!(ran.status, 0, "{api}: {ran:?}");
            keys(&server)
        };
        let ok = || whole(api, "7");
        assert_eq!(sent(vec![broken(), ok()], &["--request-id", "K"], "hi"), ["K", "K"], "{api}: a retry");
        let three = || vec![ok(), broken(), ok(), ok()];
        assert_eq!(sent(three(), &["--request-id", "K", "--rows"], &rows(3)), ["K", "K#1", "K#1", "K#2"], "{api}");
        assert_eq!(sent(three(), &["--rows"], &rows(3)), [""; 4], "{api}: no request id");
        assert_eq!(sent(vec![ok()], &["--request-id", "é\n"], "hi"), [""], "{api}: not the value of a header");
        let schema = ["--request-id", "K", "--schema", r#"{"type":"string"}"#];
        assert_eq!(sent(vec![ok(), whole(api, "\"a\"")], &schema, "hi"), ["K", "K#corrected"], "{api}: another body");
    }
    let server = Server::playing(vec![refused(), whole("openai", "7")]);
    Llm::asking("openai", &server).run(&["-m", "m", "--request-id", "K", "--stream", "hi"]);
    assert_eq!(keys(&server), ["K", "K#unmeasured"], "another body");
}

#[test]
fn memory_is_independent_of_rows() {
    use std::io::BufWriter;
    use std::time::Duration;
    // All rows take a debug build most of a minute.
    let many = cp_testkit::times(20_000, 100_000);
    let llm = Llm::new();
    let mut child =
        llm.command(&["--backend", "stub", "--rows", "--jobs", "16"]).limit(Duration::from_mins(10)).start();
    let mut input = BufWriter::new(child.take_stdin());
    let (more, wanted) = std::sync::mpsc::channel::<usize>();
    let feeder = std::thread::spawn(move || {
        for count in wanted {
            for _ in 0..count {
                input
                    .write_all(b"{\"messages\":[{\"role\":\"user\",\"content\":\"a row of ordinary length\"}]}\n")
                    .unwrap();
            }
            input.flush().unwrap();
        }
    });
    let mut peak_after = |count: usize| {
        more.send(count).unwrap();
        assert!((0..count).all(|_| child.line().contains("stub")));
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid())).unwrap();
        let member = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
        // Without the pages of the program itself, which depend on how it was built.
        let [peak, own] = ["VmHWM:", "RssFile:"].map(|name| member(name).unwrap().parse::<i64>().unwrap());
        peak - own
    };
    let few = peak_after(2000);
    let all = peak_after(many - 2000);
    // Buffers and threads grow at the beginning. Memory kept for each row would add up to more.
    assert!(all - few < 3 << 10, "{few} KiB after 2000 rows, {all} KiB after {many}");
    assert!(all < 12 << 10, "{all} KiB");
    drop(more);
    feeder.join().unwrap();
    assert!(child.line().contains(&format!("\"total\":{many}")));
    child.wait().success();
}

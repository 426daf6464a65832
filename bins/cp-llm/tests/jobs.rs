//! Batches: answers equal those of direct requests, and are paid for once.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cp_testkit::{BatchProvider, Conduct, Outcome, Server, Signal, server, until};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{body, whole};

const BACKENDS: [&str; 3] = ["anthropic", "openai", "openai-responses"];

fn rows(texts: &[&str]) -> String {
    let row = |(n, text): (usize, &&str)| {
        json!({"messages":[{"role":"user","content":text}],"row":{"n":n},"agent":"a"}).to_string() + "\n"
    };
    texts.iter().enumerate().map(row).collect()
}

fn submit(llm: &Llm, input: &str) -> Outcome {
    llm.feed(&["batch", "submit", "-m", "m", "--max-tokens", "20", "--rows"], input)
}

/// The id of the only job that was submitted.
#[track_caller]
fn id_of(ran: &Outcome) -> String {
    assert_eq!(ran.status, 0, "{ran:?}");
    let jobs = ran.of("item");
    assert_eq!(jobs.len(), 1, "{}", ran.stdout);
    jobs[0]["job_id"].as_str().unwrap().to_owned()
}

/// Records without members that differ between runs and servers.
fn plain(ran: &Outcome) -> Vec<Value> {
    let mut records = ran.records();
    for record in &mut records {
        for block in record.pointer_mut("/data/blocks").and_then(Value::as_array_mut).into_iter().flatten() {
            block["origin"].as_object_mut().unwrap().remove("endpoint");
        }
        record.as_object_mut().unwrap().remove("meta");
        if let Some(data) = record.get_mut("data").and_then(Value::as_object_mut) {
            data.remove("receipt");
        }
    }
    records
}

#[test]
fn batch_result_equals_direct_run() {
    for backend in BACKENDS {
        let (llm, provider) = Llm::batching(backend, Conduct { rounds: 2, ..Conduct::default() });
        let input = rows(&["one", "two", "three"]) + "no row\n" + &rows(&["four"]);
        let submitted = submit(&llm, &input);
        let job = submitted.records().into_iter().find(|record| record["type"] == "item").unwrap()["data"].clone();
        assert_eq!((&job["count"], &job["status"]), (&json!(4), &json!("running")), "{backend}: {job}");
        assert_eq!(submitted.records()[0]["error"]["details"]["index"], 3, "{}", submitted.stdout);
        let id = job["job_id"].as_str().unwrap();

        let early = llm.run(&["batch", "result", id]);
        assert_eq!((early.status, &early.first_error()["details"]["reason"]), (6, &json!("not_ended")), "{early:?}");
        // The first request for the state was that of `submit`.
        let ended = llm.run(&["batch", "status", id]);
        assert_eq!((ended.status, &ended.records()[0]["data"]["status"]), (0, &json!("succeeded")), "{ended:?}");

        // The same rows one by one, at a server that gives the same answers.
        let answers: Vec<_> = ["one", "two", "three", "four"].map(|text| whole(backend, text)).into();
        let server = Server::playing(answers);
        let llm_now = Llm::asking(backend, &server);
        let now = llm_now.feed(&["-m", "m", "--max-tokens", "20", "--rows"], &input);
        let later = llm.run(&["batch", "result", id]);
        let mut expected = plain(&now);
        // The invalid row was reported by submit.
        expected.remove(3);
        *expected.last_mut().unwrap() = json!({"ok":true,"schema_version":"1.0","type":"summary","data":{"total":4,"succeeded":4,"failed":0,"skipped":0}});
        assert_eq!(plain(&later), expected, "{backend}");
        assert_eq!(later.records()[3]["data"]["index"], 4);

        // The request that creates the batch has its id as the idempotency key.
        let requests = provider.server.requests();
        let keys: Vec<_> = requests.iter().filter_map(|request| request.header("idempotency-key")).collect();
        assert_eq!(keys, [id], "{backend}");
        // The requests are those of the direct run, byte for byte.
        let direct: Vec<Value> = server.requests().iter().map(server::Request::json).collect();
        let batched: Vec<Value> = match backend {
            "anthropic" => provider.server.requests()[0].json()["requests"].as_array().unwrap().clone(),
            _ => provider.file(0).lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        };
        let batched: Vec<Value> =
            batched.iter().map(|row| row.get("params").or_else(|| row.get("body")).unwrap().clone()).collect();
        assert_eq!(batched, direct, "{backend}");

        // A second one reads from disk, with the same receipts.
        let asked = provider.server.requests().len();
        let again = llm.run(&["batch", "result", id]);
        assert_eq!(again.records()[..4], later.records()[..4]);
        assert_eq!(provider.server.requests().len(), asked);
    }
}

#[test]
fn batch_result_reports_failed_row_as_failed_item() {
    for backend in BACKENDS {
        let (llm, _provider) = Llm::batching(backend, Conduct { ends: Some("expired"), ..Conduct::default() });
        let id = id_of(&submit(&llm, &rows(&["good", "refuse", "expire", "cancel", "lose", "fine"])));
        let state = if backend == "anthropic" { "cancelled" } else { "failed" };
        assert_eq!(llm.run(&["batch", "status", &id]).records()[0]["data"]["status"], state);
        let ran = llm.run(&["batch", "result", &id]);
        let codes: Vec<Value> = ran.records()[..6].iter().map(|record| record["error"]["code"].clone()).collect();
        let expected = json!([null, "E_VALIDATION", "E_TIMEOUT", "E_CONFLICT", "E_SERVER", null]);
        assert_eq!(Value::from(codes), expected, "{backend}: {}", ran.stdout);
        assert_eq!(ran.records()[4]["error"]["details"]["reason"], "missing");
        assert_eq!(ran.records()[1]["error"]["details"]["index"], 1);
        assert!(ran.records()[1]["error"]["message"].as_str().unwrap().contains("not this"), "{}", ran.stdout);
        let closing = ran.closing();
        assert_eq!((ran.status, &closing["error"]["code"]), (1, &json!("E_PARTIAL")), "{closing}");
        assert_eq!(closing["error"]["details"], json!({"total":6,"succeeded":2,"failed":4,"skipped":0}));
        let polled = llm.run(&["batch", "status", &id, "BAT-ffffffffffffffff"]);
        assert_eq!((polled.status, &polled.closing()["error"]["code"]), (1, &json!("E_PARTIAL")), "{polled:?}");
        assert_eq!(llm.run(&["batch", "status", &id]).status, 0, "the control");
        // Each request on the ledger has its answer, except the one whose result may still arrive.
        let named = |event: &str| -> Vec<Value> {
            let entries = llm.entries(event).into_iter();
            entries.map(|entry| json!([entry["data"]["batch"], entry["data"]["request_hash"]])).collect()
        };
        let mut answered = named("llm.response");
        // The results arrive in another order.
        answered.sort_by_key(ToString::to_string);
        let mut asked = named("llm.request");
        asked.remove(4);
        assert_eq!(asked, answered, "{backend}");
        assert_eq!(answered.len(), 5);
    }
}

#[test]
fn batch_submit_repeated_input_submits_once() {
    for backend in BACKENDS {
        let (llm, provider) = Llm::batching(backend, Conduct::default());
        let first = id_of(&submit(&llm, &rows(&["one"])));
        assert_eq!(id_of(&submit(&llm, &rows(&["one"]))), first);
        assert_eq!(provider.batches(), 1);
        let start = |_| {
            let mut child = llm.start(&["batch", "submit", "-m", "m", "--max-tokens", "20", "--rows"]);
            child.write(rows(&["two"]));
            child
        };
        let together: Vec<_> = (0..4).map(start).collect();
        let ids: Vec<String> = together.into_iter().map(|child| id_of(&child.finish())).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && *id != first), "{ids:?}");
        assert_eq!(provider.batches(), 2);
        let named =
            |text: &str| llm.feed(&["batch", "submit", "-m", "m", "--rows", "--request-id", "r"], &rows(&[text]));
        let by_name = id_of(&named("one"));
        assert!(by_name != first && by_name == id_of(&named("one")));
        let other = named("other");
        assert_eq!((other.status, &other.closing()["error"]["details"]["reason"]), (6, &json!("other_arguments")));
        assert_eq!(provider.batches(), 3);
    }
}

/// Submits to a provider that does not answer, and ends the program by a signal while it waits.
fn ended(llm: &Llm, provider: &BatchProvider, conduct: Conduct, signal: Signal) {
    provider.conduct(conduct);
    let mut child = llm.start(&["batch", "submit", "-m", "m", "--max-tokens", "20", "--rows"]);
    child.write(rows(&["one"]));
    child.close_stdin();
    let is_asked = |request: &server::Request| request.line().ends_with("/batches");
    until("the batch", || provider.server.requests().iter().any(is_asked));
    child.signal(signal);
    if signal == Signal::KILL {
        child.kill();
    } else {
        let ran = child.finish();
        let error = &ran.closing()["error"];
        assert_eq!((ran.status, &error["retryable"]), (9, &json!(false)), "{ran:?}");
        assert_eq!(error["details"]["action"], "resolve_unfinished_batch", "{ran:?}");
    }
    provider.conduct(Conduct::default());
}

/// The provider may have the batch or not, so a person looks before it is submitted again.
#[test]
fn batch_submit_after_kill_requires_human() {
    let backends = [("anthropic", true), ("openai", true), ("anthropic", false), ("openai", false)];
    let signals = [Signal::KILL, Signal::INT];
    for ((backend, is_mute), signal) in backends.into_iter().flat_map(|of| signals.map(|signal| (of, signal))) {
        let (conduct, made) = (Conduct { is_mute, is_deaf: !is_mute, ..Conduct::default() }, usize::from(is_mute));
        let (llm, provider) = Llm::batching(backend, Conduct::default());
        ended(&llm, &provider, conduct, signal);
        let polled = llm.run(&["batch", "status"]);
        assert_eq!(polled.first_error()["details"]["action"], "resolve_unfinished_batch", "{polled:?}");
        assert_eq!(polled.status, 9);
        let early = submit(&llm, &rows(&["one"]));
        let details = early.closing()["error"]["details"].clone();
        assert_eq!((early.status, &details["action"]), (9, &json!("resolve_unfinished_batch")), "{early:?}");
        assert!(details["hint"].as_str().unwrap().contains(details["console"].as_str().unwrap()), "{details}");
        let batch = details["resume"].as_str().unwrap().strip_prefix("cp-llm batch cancel ").unwrap();
        assert_eq!(provider.batches(), made);
        assert_eq!(llm.run(&["batch", "cancel", batch]).status, 0);
        let id = id_of(&submit(&llm, &rows(&["one"])));
        assert_eq!(provider.batches(), made + 1);
        assert_eq!(llm.run(&["batch", "result", &id]).records()[0]["data"]["content"], "one");
    }
}

/// A whole answer in batch results of Anthropic.
fn result_line(number: usize) -> String {
    let message = body("anthropic", &format!("answer {number}"), "end_turn");
    json!({"custom_id":format!("row-{number}"),"result":{"type":"succeeded","message":message}}).to_string() + "\n"
}

#[test]
fn batch_result_asks_again_for_rows_without_result() {
    let lines = [0, 1, 2].map(result_line);
    let whole = lines.concat();
    let before_end = whole[..whole.len() - 20].to_owned();
    let twice = lines[0].clone() + &lines[1] + &lines[1];
    for cut in [lines[..2].concat(), before_end, twice] {
        let (results, is_cut) = (whole.clone(), AtomicBool::new(true));
        let server = Server::replying(move |request| {
            if request.line().contains("/results") {
                let found = if is_cut.swap(false, Ordering::SeqCst) { &cut } else { &results };
                return server::reply(200, "application/x-jsonl", "", found.trim_end().as_bytes());
            }
            let counts = json!({"processing":0,"succeeded":3,"errored":0,"canceled":0,"expired":0});
            server::json(200, &json!({"id":"msgbatch_0","processing_status":"ended","request_counts":counts}))
        });
        let llm = Llm::asking("anthropic", &server);
        let id = id_of(&submit(&llm, &rows(&["a", "b", "c"])));
        let first = llm.run(&["batch", "result", &id]);
        assert_eq!((first.status, first.of("message").len()), (1, 2), "{first:?}");
        assert_eq!(first.records()[2]["error"]["details"]["reason"], "missing", "{first:?}");
        let second = llm.run(&["batch", "result", &id]);
        assert_eq!((second.status, second.of("message").len()), (0, 3), "{second:?}");
        assert_eq!(second.records()[..2], first.records()[..2]);
        assert_eq!(llm.entries("llm.response").len(), 3);
    }
}

/// A kill between the ledger and the state file leaves the state file as it was.
#[test]
fn batch_result_after_kill_records_rows_once() {
    for backend in BACKENDS {
        let (llm, _provider) = Llm::batching(backend, Conduct::default());
        let id = id_of(&submit(&llm, &rows(&["one", "two"])));
        let file = llm.home.join(format!("state/batches/{id}.json"));
        let before = std::fs::read(&file).unwrap();
        let first = llm.run(&["batch", "result", &id]);
        std::fs::write(&file, before).unwrap();
        let again = llm.run(&["batch", "result", &id]);
        assert_eq!(again.records()[..2], first.records()[..2], "{backend}");
        assert_eq!(llm.entries("llm.response").len(), 2);
    }
}

#[test]
fn batch_result_reads_files_of_answers_and_of_errors() {
    let line = |number: usize, status: u16| {
        let body = if status == 200 { body("openai", "yes", "stop") } else { json!({"error":{"message":"no"}}) };
        json!({"custom_id":format!("row-{number}"),"response":{"status_code":status,"body":body}}).to_string() + "\n"
    };
    for (good, last) in [(line(0, 200), json!("E_SERVER")), (line(0, 200) + &line(2, 200), Value::Null)] {
        let bad = line(1, 400);
        let job = json!({"id":"batch_0","status":"completed","output_file_id":"good","error_file_id":"bad"});
        let server = Server::replying(move |request| match request.line() {
            line if line.contains("good") => server::reply(200, "application/x-jsonl", "", good.as_bytes()),
            line if line.contains("bad") => server::reply(200, "application/x-jsonl", "", bad.as_bytes()),
            _ => server::json(200, &job),
        });
        let llm = Llm::asking("openai", &server);
        let id = id_of(&submit(&llm, &rows(&["a", "b", "c"])));
        let ran = llm.run(&["batch", "result", &id]);
        let found: Vec<Value> = ran.records()[..3].iter().map(|record| record["error"]["code"].clone()).collect();
        assert_eq!(Value::from(found), json!([null, "E_VALIDATION", last]), "{ran:?}");
    }
}

#[test]
fn batch_result_of_refused_file_is_error_of_provider() {
    let errors = json!({"data":[{"code":"invalid_json_line","message":"not a row","line":1}]});
    let job = json!({"id":"batch_0","status":"failed","errors":errors});
    let server = Server::replying(move |_| server::json(200, &job));
    let llm = Llm::asking("openai", &server);
    let id = id_of(&submit(&llm, &rows(&["a"])));
    let ran = llm.run(&["batch", "result", &id]);
    assert_eq!((ran.status, &ran.closing()["error"]["code"]), (2, &json!("E_VALIDATION")), "{ran:?}");
    assert!(ran.closing()["error"]["message"].as_str().unwrap().contains("not a row"), "{ran:?}");
}

#[test]
fn batch_submit_rejected_keeps_no_batch() {
    for backend in BACKENDS {
        let (llm, provider) = Llm::batching(backend, Conduct { refuses: Some(400), ..Conduct::default() });
        let refused = submit(&llm, &rows(&["one"]));
        assert_eq!((refused.status, provider.batches()), (2, 0), "{backend}: {refused:?}");
        let succeeded = refused.closing()["error"]["details"]["succeeded"].as_u64().unwrap_or_default();
        assert_eq!((succeeded, &llm.entries("llm.batch")[0]["data"]["code"]), (0, &json!("E_VALIDATION")));
        assert_eq!(llm.run(&["batch", "status"]).closing()["data"]["total"], 0);
        provider.conduct(Conduct::default());
        id_of(&submit(&llm, &rows(&["one"])));
        assert_eq!(provider.batches(), 1);
    }
    // The connection was refused, so the next submit need not search for a batch.
    let llm = Llm::new().set("ANTHROPIC_BASE_URL", "http://127.0.0.1:1").set("CP_BACKEND", "anthropic");
    assert_eq!(submit(&llm, &rows(&["one"])).status, 7);
    assert_eq!(llm.run(&["batch", "status"]).closing()["data"]["total"], 0);
}

#[test]
fn batch_budget_is_checked_before_submission() {
    let (llm, provider) = Llm::batching("openai", Conduct::default());
    let price = "[m-1]\ninput = 1000000.0\noutput = 1000000.0\n";
    for (prices, cost) in [(price.to_owned(), 5.0), (format!("{price}batch = 0.1\n"), 1.0)] {
        llm.home.write("config/prices.toml", &prices);
        let id = id_of(&submit(&llm, &rows(&[&format!("cost {cost}")])));
        assert_eq!(llm.run(&["batch", "result", &id]).records()[0]["data"]["usage"]["cost_usd"], cost);
    }
    let made = provider.batches();
    let limited = |tokens: &str| {
        llm.feed(
            &["batch", "submit", "-m", "m", "--rows", "--max-tokens", "100", "--budget-tokens", tokens],
            &rows(&["a", "b"]),
        )
    };
    let refused = limited("200");
    let error = &refused.closing()["error"];
    assert_eq!((refused.status, &error["code"]), (9, &json!("E_BUDGET_EXHAUSTED")), "{refused:?}");
    assert_eq!((&error["details"]["reason"], provider.batches()), (&json!("estimate"), made));
    id_of(&limited("1000"));
    assert_eq!(provider.batches(), made + 1);
    let unbounded = llm.feed(&["batch", "submit", "-m", "m", "--rows", "--budget-tokens", "9"], &rows(&["a"]));
    assert_eq!((unbounded.status, provider.batches()), (2, made + 1));
}

#[test]
fn batch_has_one_model() {
    let row = |model: &str| json!({"model":model,"messages":[{"role":"user","content":model}]}).to_string() + "\n";
    for backend in ["openai", "anthropic"] {
        let (llm, provider) = Llm::batching(backend, Conduct::default());
        let mixed = llm.feed(&["batch", "submit", "--rows"], &["a", "b"].map(row).concat());
        assert_eq!((mixed.status, provider.batches()), (2, 0), "{mixed:?}");
        assert!(mixed.closing()["error"]["message"].as_str().unwrap().contains("one model"), "{mixed:?}");
        id_of(&llm.feed(&["batch", "submit", "--rows"], &["a", "a"].map(row).concat()));
    }
}

#[test]
fn batch_result_applies_schema_and_fail_on() {
    let (llm, _provider) = Llm::batching("anthropic", Conduct::default());
    let schema = llm.work.write("s.json", r#"{"type":"object","required":["a"]}"#);
    let words = ["batch", "submit", "-m", "m", "--rows", "--schema", schema.to_str().unwrap()];
    let id = id_of(&llm.feed(&words, &rows(&[r#"{"a":1}"#, "no"])));
    std::fs::remove_file(schema).unwrap();
    let ran = llm.run(&["batch", "result", &id]);
    assert_eq!(ran.records()[0]["data"]["parsed"], json!({"a":1}), "{ran:?}");
    assert_eq!(ran.records()[1]["error"]["details"]["reason"], "schema");
    let id = id_of(&llm.feed(&["batch", "submit", "-m", "m", "--rows", "--fail-on", "end_turn"], &rows(&["x"])));
    assert_eq!(llm.run(&["batch", "result", &id]).first_error()["details"]["reason"], "end_turn");
}

#[test]
fn batch_files_are_private_and_have_no_key() {
    let (llm, _provider) = Llm::batching("openai", Conduct::default());
    let id = id_of(&submit(&llm, &rows(&["my key is key-of-the-test-0123456789"])));
    let fetched = llm.run(&["batch", "result", &id]);
    assert_eq!(fetched.records()[0]["data"]["content"], "my key is [REDACTED]");
    let files = std::fs::read_dir(llm.home.join("state/batches")).unwrap().flatten();
    for entry in files.inspect(|entry| assert!(entry.file_name().to_str().unwrap().starts_with(&*id))) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.path());
    }
}

/// The loop of the manual asks until the batch has ended, also if the network fails in between, and ends at another
/// error.
#[test]
fn batch_is_waited_for_by_the_loop_of_the_manual() {
    let manual = include_str!("../../../man/cp-llm.1").lines();
    let lines: Vec<_> = manual.skip_while(|line| !line.starts_with("$ while cp-llm batch")).take(3).collect();
    let script = lines.join("\n").replace("\n> ", "\n").replace("sleep 60", "sleep 0.1; echo again");
    let script = format!("{}; cat state", &script[2..]);
    for (known, ended) in [(true, "again\nagain\n{\"ok\":true"), (false, "{\"ok\":false")] {
        let polls = AtomicUsize::new(0);
        let server = Server::replying(move |_| match polls.fetch_add(1, Ordering::SeqCst) {
            0..3 => server::json(200, &json!({"id":"msgbatch_0","processing_status":"in_progress"})),
            3 => server::json(503, &json!({"error":{"message":"busy"}})),
            _ => server::json(200, &json!({"id":"msgbatch_0","processing_status":"ended"})),
        });
        let llm = Llm::asking("anthropic", &server);
        let id = id_of(&submit(&llm, &rows(&["one"])));
        llm.work.write("batch", if known { &id } else { "BAT-0" });
        let ran = llm.script(&script).run();
        assert!(ran.status == 0 && ran.stdout.starts_with(ended), "{ran:?}");
    }
    let (llm, _provider) = Llm::batching("openai", Conduct { rounds: 1000, ..Conduct::default() });
    let id = id_of(&submit(&llm, &rows(&["one"])));
    let cancelled = llm.run(&["batch", "cancel", &id]);
    assert_eq!(cancelled.only()["data"]["status"], "cancelled", "{cancelled:?}");
    let ended = llm.run(&["batch", "status", &id]);
    assert_eq!((ended.status, &ended.records()[0]["data"]["status"]), (0, &json!("cancelled")));
}

#[test]
fn batch_submit_rejects_backend_and_options_before_reading() {
    let llm = Llm::new().set("GEMINI_API_KEY", "k");
    let refused = llm.run(&["batch", "submit", "--backend", "gemini", "-m", "m", "--", "hi"]);
    assert_eq!(refused.status, 2);
    assert!(refused.only()["error"]["details"]["hint"].as_str().unwrap().contains("openai"), "{refused:?}");
    for option in [&["--stream"][..], &["--jobs", "2"], &["--cache", "c"], &["--dry-run"], &["--retries", "0"]] {
        let words = [&["batch", "submit", "--backend", "stub"], option, &["--", "hi"]].concat();
        let ran = llm.run(&words);
        assert_eq!(ran.status, 2, "{option:?}");
        assert!(ran.only()["error"]["message"].as_str().unwrap().contains(option[0]), "{ran:?}");
    }
    assert_eq!(llm.run(&["batch", "result", "BAT-0"]).status, 3);
    assert_eq!(llm.run(&["batch", "submit", "--backend", "stub", "--", "hi"]).status, 0);
}

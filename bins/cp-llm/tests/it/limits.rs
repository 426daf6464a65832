//! What bounds a batch: shapes, budgets, the pace, and what was done before.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::messages::whole;
use crate::server::{Program, Server};

fn rows(count: usize) -> String {
    let row = |n| json!({"messages":[{"role":"user","content":format!("row {n}")}]}).to_string() + "\n";
    (0..count).map(row).collect::<Vec<_>>().concat()
}

fn priced(program: &Program) {
    std::fs::create_dir_all(program.home.path().join("config")).unwrap();
    std::fs::write(program.home.path().join("config/prices.toml"), "[stub]\ninput = 1000.0\noutput = 1000.0\n")
        .unwrap();
}

#[test]
fn an_answer_that_fits_is_parsed_and_one_that_does_not_is_asked_for_once_more() {
    let schema = r#"{"type":"object","required":["age"],"properties":{"age":{"type":"integer"}}}"#;
    for (answers, status, requests) in [
        (["{\"age\": 3}", "unused"], 0, 1),
        (["```json\n{\"age\":\"x\"}\n```", "{\"age\": 3}"], 0, 2),
        (["{}", "still no JSON"], 2, 2),
    ] {
        let server = Server::start(answers.map(|text| whole("openai", text)).to_vec());
        let program = Program::asking("openai", &server);
        let file = program.home.path().join("person.json");
        std::fs::write(&file, schema).unwrap();
        let ran = program.run(&["-m", "m", "--schema", file.to_str().unwrap(), "how old?"]);
        assert_eq!((ran.status, server.requests().len()), (status, requests), "{}", ran.stdout);
        let sent: Vec<Value> = server.requests().iter().map(crate::server::Request::json).collect();
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
            let repair =
                sent[1]["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
            assert!(repair.contains("age"), "{repair}");
        }
    }
}

#[test]
fn a_budget_ends_the_stream_where_it_is_used_up() {
    // Each row costs two words and three of the answer.
    let program = Program::new();
    let ran = program.run_with(&["--backend", "stub", "--rows", "--budget-tokens", "12"], &rows(9));
    let error = ran.last()["error"].clone();
    assert_eq!((ran.status, error["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
    assert_eq!((&error["details"]["succeeded"], &error["details"]["action"]), (&json!(3), &json!("raise_budget")));
    assert!(
        error["details"]["resume"].as_str().unwrap().ends_with("--backend stub --rows --budget-tokens=24"),
        "{error}"
    );
    let unpriced = program.run(&["--backend", "stub", "--budget-usd", "1", "hi"]);
    assert_eq!(unpriced.error()["code"], "E_CONFIG");
    priced(&program);
    let ran = program.run_with(&["--backend", "stub", "--rows", "--budget-usd", "0.012"], &rows(9));
    assert_eq!((ran.status, &ran.last()["error"]["details"]["succeeded"]), (9, &json!(3)));
    assert_eq!(ran.records()[0]["data"]["usage"]["cost_usd"], json!(0.005));
}

#[test]
fn processes_share_a_budget_file() {
    let program = Program::new();
    let file = program.home.path().join("budget");
    let arguments = ["--backend", "stub", "--rows", "--budget-tokens", "100", "--budget-file", file.to_str().unwrap()];
    let ran = program.run_with(&arguments, &rows(10));
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    let sums: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(sums["tokens"], json!(50.0));
    let ran = program.run_with(&arguments, &rows(20));
    assert_eq!((ran.status, &ran.last()["error"]["details"]["succeeded"]), (9, &json!(10)), "{}", ran.stdout);
}

#[test]
fn the_pace_is_kept() {
    let start = std::time::Instant::now();
    let ran = Program::new().run_with(&["--backend", "stub", "--rows", "--jobs", "4", "--rpm", "1200"], &rows(6));
    assert_eq!(ran.status, 0);
    assert!(start.elapsed() >= std::time::Duration::from_millis(250), "{:?}", start.elapsed());
}

#[test]
fn what_an_earlier_run_has_done_is_not_asked_again() {
    let program = Program::new();
    let out = program.home.path().join("out.jsonl");
    let input = rows(10);
    let whole_run = program.run_with(&["--backend", "stub", "--rows"], &input);
    // Killed in the middle of its fifth line.
    let cut = whole_run.stdout.match_indices('\n').nth(3).unwrap().0 + 40;
    std::fs::write(&out, &whole_run.stdout[..cut]).unwrap();
    let ran = program.run_with(&["--backend", "stub", "--rows", "--resume", out.to_str().unwrap()], &input);
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    assert_eq!(ran.last()["data"], json!({"total":10,"succeeded":6,"failed":0,"skipped":4}));
    let mut file = std::fs::OpenOptions::new().append(true).open(&out).unwrap();
    file.write_all(ran.stdout.as_bytes()).unwrap();
    let lines = crate::server::lines_of(&out);
    let places: Vec<u64> =
        lines.iter().filter(|l| l["type"] == "message").map(|l| l["data"]["index"].as_u64().unwrap()).collect();
    assert_eq!(places, (0..10).collect::<Vec<_>>());
    let other = program.run_with(
        &["--backend", "stub", "--rows", "--resume", out.to_str().unwrap()],
        &rows(1).replace("row", "other"),
    );
    assert_eq!((other.status, other.error()["code"].as_str().unwrap().to_owned()), (6, "E_CONFLICT".to_owned()));
}

#[test]
fn killed_in_the_middle_and_run_again_each_row_is_there_once() {
    use std::process::{Command, Stdio};
    let mut answer = whole("openai", "fine");
    answer.insert(0, crate::server::Step::Wait(5));
    let server = Server::start(vec![answer]);
    let program = Program::asking("openai", &server);
    let (input, out) = (program.home.path().join("in.jsonl"), program.home.path().join("out.jsonl"));
    std::fs::write(&input, rows(300)).unwrap();
    let start = || {
        let append = std::fs::OpenOptions::new().create(true).append(true).open(&out).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("cp-llm"));
        command.env_clear().env("CP_HOME", program.home.path()).env("OPENAI_BASE_URL", format!("{}/v1", server.url()));
        command.args(["-m", "m", "--rows", "--jobs", "8", "--resume", out.to_str().unwrap()]);
        command
            .stdin(std::fs::File::open(&input).unwrap())
            .stdout(Stdio::from(append))
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let printed = || std::fs::read_to_string(&out).unwrap_or_default().lines().count();
    for least in [40, 120] {
        let mut child = start();
        while printed() < least && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(start().wait().unwrap().success());
    let lines = crate::server::lines_of(&out);
    let places: Vec<u64> =
        lines.iter().filter(|l| l["type"] == "message").map(|l| l["data"]["index"].as_u64().unwrap()).collect();
    assert_eq!(places, (0..300).collect::<Vec<_>>());
    // What was in flight when it was killed is all that was asked twice.
    assert!(server.requests().len() <= 300 + 2 * 8 * 5, "{}", server.requests().len());
}

#[test]
fn the_same_request_id_is_not_sent_twice() {
    let server =
        Server::start(vec![crate::server::json(500, &json!({})), whole("openai", "first"), whole("openai", "second")]);
    let program = Program::asking("openai", &server);
    let ask =
        |arguments: &[&str]| program.run(&[&["-m", "m", "--retries", "0", "--request-id", "r1"], arguments].concat());
    // A failure has no effect, so the id is still free.
    assert_eq!(ask(&["hi"]).status, 7);
    let first = ask(&["hi"]);
    let again = ask(&["hi"]);
    assert_eq!((first.only()["data"].clone(), server.requests().len()), (again.only()["data"].clone(), 2));
    assert_eq!(ask(&["other"]).error()["code"], "E_CONFLICT");
    assert_eq!(ask(&["--jobs", "2", "hi"]).error()["code"], "E_USAGE");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn memory_does_not_grow_with_the_number_of_rows() {
    use std::io::{BufRead as _, BufReader, BufWriter};
    use std::process::{Command, Stdio};
    // The whole number takes a debug build most of a minute.
    let many = if std::env::var("CI").is_ok_and(|ci| ci == "true") { 100_000 } else { 20_000 };
    let program = Program::new();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("cp-llm"))
        .env_clear()
        .env("CP_HOME", program.home.path())
        .args(["--backend", "stub", "--rows", "--jobs", "16"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = BufWriter::new(child.stdin.take().unwrap());
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
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut peak_after = |count: usize| {
        more.send(count).unwrap();
        assert_eq!(answers.by_ref().take(count).filter(|line| line.as_ref().unwrap().contains("stub")).count(), count);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
        peak.parse::<i64>().unwrap()
    };
    let few = peak_after(2000);
    let all = peak_after(many - 2000);
    // Buffers find their size in the beginning, threads at their own time. What is kept of each row would add up to more.
    assert!(all - few < 3 << 10, "{few} KiB after 2000 rows, {all} KiB after {many}");
    assert!(all < 20 << 10, "{all} KiB");
    drop(more);
    feeder.join().unwrap();
    assert!(answers.next().unwrap().unwrap().contains(&format!("\"total\":{many}")));
    assert!(child.wait().unwrap().success());
}

//! Rows of many processes: each has one outcome and is paid for once, for any division of the input.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};

use cp_testkit::server::{Step, json as json_answer};
use cp_testkit::{Background, Outcome, Server, until};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{echo, whole};

/// A row with this text.
fn row(n: usize, text: &str) -> String {
    json!({"messages":[{"role":"user","content":text}],"row":{"n":n}}).to_string() + "\n"
}

fn rows(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|n| row(n, &format!("row {n}"))).collect()
}

/// The options of a part of the rows.
fn part_of<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["-m", "m", "--rows", "--row-failures", "ok"], more].concat()
}

/// The outcome of each row: the text or the code. Errors without a row are counted by code.
fn outcomes(records: &[Value]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for record in records.iter().filter(|record| record["type"] != "summary") {
        let (row, what) = match &record["error"] {
            Value::Null => (&record["data"]["row"], &record["data"]["content"]),
            error => (&error["details"]["row"], &error["code"]),
        };
        assert_eq!(found.insert(row.to_string(), what.to_string()), None, "two records of {row}");
    }
    found
}

/// The ledger entry of a receipt.
fn on_the_ledger(llm: &Llm, receipt: &Value) -> Value {
    let ledger = llm.ledger();
    let line = ledger[usize::try_from(receipt["seq"].as_u64().unwrap()).unwrap()].clone();
    assert_eq!((&line["hash"], &line["event"]), (&receipt["hash"], &json!("llm.response")), "{receipt}");
    assert!(
        receipt["origin"].is_string() && receipt["origin"] == ledger[0]["data"]["origin"],
        "{receipt}: {}",
        ledger[0]
    );
    line
}

#[test]
fn row_outcome_is_independent_of_shards() {
    let server = echo(3);
    let mut input = rows(0..62);
    input.extend([row(62, "bad"), row(63, "known before"), json!({"messages":[],"row":{"n":64}}).to_string() + "\n"]);
    input.push("no row\n".to_owned());
    let mut first = None;
    for count in [1, 3, 8, 64] {
        let llm = Llm::asking("openai", &server);
        llm.feed(&["-m", "m", "--rows", "--cache=c"], &input[63]).success();
        let size = input.len().div_ceil(count);
        let (mut records, mut totals) = (Vec::new(), [0; 3]);
        for number in 0..count {
            let from = (number * size).min(input.len());
            let part = &input[from..(from + size).min(input.len())];
            let ran = llm.feed(&part_of(&["--jobs", "4", "--cache=c"]), &part.concat());
            let summary = ran.closing();
            assert_eq!((ran.status, &summary["type"]), (0, &json!("summary")));
            assert_eq!(
                (&summary["data"]["total"], ran.records().len()),
                (&json!(part.len()), part.len() + 1),
                "{summary}"
            );
            for (sum, member) in totals.iter_mut().zip(["total", "succeeded", "failed"]) {
                *sum += summary["data"][member].as_u64().unwrap();
            }
            records.extend(ran.records());
        }
        assert_eq!(totals, [66, 63, 3]);
        let cached = records.iter().filter(|record| record["data"]["cached"] == true);
        assert_eq!(cached.map(|record| &record["data"]["row"]["n"]).collect::<Vec<_>>(), [63]);
        let outcomes = outcomes(&records);
        assert_eq!(outcomes.len(), 66);
        assert_eq!((&*outcomes["{\"n\":62}"], &*outcomes["{\"n\":0}"]), ("\"E_VALIDATION\"", "\"row 0\""));
        assert_eq!(first.get_or_insert_with(|| outcomes.clone()), &outcomes);
    }
    let ran = Llm::new().feed(&["--rows"], "");
    assert_eq!((ran.status, &ran.only()["data"]["total"]), (0, &json!(0)));
}

#[test]
fn row_errors_have_row_and_receipt() {
    let key = "AKIAIOSFODNN7EXAMPLE";
    let bad = json!({"messages":[{"role":"user","content":"bad"}],"row":{"id":key}}).to_string() + "\n";
    let invalid = json!({"messages":"x","row":{"id":2},"secret":"not the row"}).to_string() + "\n";
    let input = [&row(0, "fine"), &bad, &invalid, "{\"messages\":1}\n", "{\"row\":\n"].concat();
    for jobs in ["1", "4"] {
        let server = echo(3);
        let llm = Llm::asking("openai", &server);
        let ran = llm.feed(&part_of(&["--jobs", jobs, "--cache=c"]), &input);
        let records = ran.records();
        let answer = &records[0]["data"];
        let line = on_the_ledger(&llm, &answer["receipt"]);
        assert_eq!(&line["data"]["request_hash"], &answer["request_hash"]);
        let details = |n: usize| records[n]["error"]["details"].clone();
        assert_eq!(
            (&details(1)["row"], &details(1)["_untrusted"]),
            (&json!({"id":key}), &json!(["/upstream_message", "/row"]))
        );
        assert_eq!(on_the_ledger(&llm, &details(1)["receipt"])["data"]["code"], "E_VALIDATION");
        assert_eq!((&details(2)["row"], &details(2)["receipt"]), (&json!({"id":2}), &Value::Null));
        for n in 1..5 {
            assert_eq!((&details(n)["index"], &details(n)["line"]), (&json!(n), &json!(n + 1)), "{}", details(n));
            assert!(n < 3 || details(n).get("row").is_none());
        }
        // A cached answer has a receipt of this run.
        let again = llm.feed(&part_of(&["--jobs", jobs, "--cache=c"]), &row(0, "fine")).records()[0]["data"].clone();
        let line = on_the_ledger(&llm, &again["receipt"]);
        assert_eq!(line["data"]["cached"], true, "{line}");
        assert_eq!((&again["request_hash"], &again["cached"]), (&answer["request_hash"], &json!(true)));
    }
}

/// Starts to resume an output, with a redirection as a shell makes it.
fn resume(llm: &Llm, out: &str, arguments: &[&str], input: &str) -> Background {
    let input_file = llm.work.write(format!("{out}.in"), input);
    let append = OpenOptions::new().create(true).append(true).open(llm.work.join(out)).unwrap();
    let command = llm.command(&[&["-m", "m", "--rows", "--skip-done", out], arguments].concat());
    command.stdin_from(File::open(input_file).unwrap()).stdout_to(append).start()
}

#[test]
fn resume_is_exclusive() {
    let (llm, server) = Llm::playing("openai", vec![vec![Step::Stall], whole("openai", "fine")]);
    let input = rows(0..3).concat();
    assert_eq!(
        llm.feed(&["-m", "m", "--rows", "--skip-done", "out", "--dry-run"], &input).success().of("item").len(),
        3
    );
    assert!(!llm.work.join("out").exists());
    // The test creates the output.
    let mut first = llm.start(&["-m", "m", "--rows", "--skip-done", "out"]);
    first.write(&input);
    until("the first has asked", || server.requests().len() == 1);
    let second = llm.feed(&["-m", "m", "--rows", "--skip-done", "out"], &input);
    let error = second.failed(6, "E_CONFLICT");
    assert!(error["message"].as_str().unwrap().contains("another process"), "{error}");
    assert_eq!((server.requests().len(), llm.work.read("out")), (1, String::new()));
    // An incomplete line is removed after its writer has ended.
    first.kill();
    llm.work.write("out", "{\"ok\":tr");
    let third = resume(&llm, "out", &[], &input).wait().success();
    assert_eq!((third.stdout.len(), server.requests().len()), (0, 4));
    assert_eq!(outcomes(&llm.work.records("out")).len(), 3);
}

/// What `--skip-done` names is only ever cut or continued if all of it is records.
#[test]
fn resume_of_other_files_changes_nothing_and_asks_nothing() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "fine"); 3]);
    let input = rows(0..3).concat();
    let record = llm.feed(&["-m", "m", "--rows"], &rows(0..1)[0]).stdout;
    let asked = server.requests().len();
    let others = ["id,text\n1,one\n2,two", "hello", "hello\n", "{\"a\":1}\n", "\n", "{\"ok", "{\"ok\":true}"];
    for (number, other) in others.into_iter().enumerate() {
        // The control is the beginning of a record, which a kill leaves.
        let is_torn = "{\"ok\":true,".starts_with(other) && !other.ends_with('}');
        for before in ["", &record] {
            let (name, text) = (format!("out{number}{}", before.len()), format!("{before}{other}"));
            llm.work.write(&name, &text);
            let ran = llm.feed(&["-m", "m", "--rows", "--dry-run", "--skip-done", &name], &input);
            assert_eq!((ran.status, llm.work.read(&name)), (if is_torn { 0 } else { 2 }, text), "{other:?} {ran:?}");
            if !is_torn {
                let ran = llm.feed(&["-m", "m", "--rows", "--skip-done", &name], &input);
                let error = ran.failed(2, "E_VALIDATION");
                let line = 1 + before.lines().count();
                assert!(error["message"].as_str().unwrap().contains(&format!("line {line} is")), "{error}");
                assert_eq!(llm.work.read(&name), format!("{before}{other}"));
            }
        }
    }
    // A table cannot be continued, and says so before anything is paid.
    for format in ["text", "raw"] {
        let ran = resume(&llm, "table", &["--format", format], &input).wait();
        assert!(ran.status == 2 && ran.stderr.contains("records"), "{ran:?}");
    }
    assert_eq!((server.requests().len(), llm.work.read("table")), (asked, String::new()));
}

#[test]
fn resume_of_running_output_conflicts() {
    let (llm, server) = Llm::playing("openai", vec![vec![Step::Stall], whole("openai", "fine")]);
    let input = rows(0..2).concat();
    let input_file = llm.work.write("in", &input);
    let out = File::create(llm.work.join("out")).unwrap();
    let command = llm.command(&["-m", "m", "--rows"]).stdin_from(File::open(input_file).unwrap()).stdout_to(out);
    let first = command.start();
    until("the first has asked", || server.requests().len() == 1);
    llm.feed(&["-m", "m", "--rows", "--skip-done", "out"], &input).failed(6, "E_CONFLICT");
    assert_eq!(server.requests().len(), 1);
    first.kill();
    llm.feed(&["-m", "m", "--rows", "--skip-done", "out"], &input).success();
}

#[test]
fn resume_with_other_requests_conflicts() {
    let server = Server::replying(|request| match &request.json() {
        asked if asked["model"] == "down" => json_answer(500, &json!({})),
        asked if asked["messages"].to_string().contains("corrected") => whole("openai", "{\"name\":\"x\"}"),
        _ => whole("openai", "fine"),
    });
    let llm = Llm::asking("openai", &server);
    let input = rows(0..2).concat();
    let ask = |system: &str, more: &[&str]| -> Outcome {
        let asked = ["--rows", "--retries", "0", "--skip-done", "out", "-s", system];
        llm.feed(&[&asked, more].concat(), &input)
    };
    let first = ask("be brief", &["-m", "m"]).success();
    llm.work.write("out", &first.stdout);
    let asked = server.requests().len();
    assert_eq!(ask("be brief", &["-m", "m"]).success().closing()["data"]["skipped"], 2);
    assert_eq!(ask("be brief", &["-m", "m", "--stream"]).success().closing()["data"]["skipped"], 2);
    let others: [(&str, &[&str]); 5] = [
        ("be long", &["-m", "m"]),
        ("be brief", &["-m", "other"]),
        ("be brief", &["-m", "m", "--temperature", "1"]),
        ("be brief", &["-m", "m", "-o", "top_p=0.5"]),
        ("be brief", &["-m", "m", "--schema", "name"]),
    ];
    for (system, other) in others {
        for jobs in ["1", "4"] {
            let ran = ask(system, &[other, &["--jobs", jobs]].concat());
            let error = ran.closing()["error"].clone();
            assert_eq!((ran.status, &error["code"]), (6, &json!("E_CONFLICT")), "{other:?}: {}", ran.stdout);
            assert_eq!(
                (&error["details"]["index"], error["details"]["hint"].is_string()),
                (&json!(0), true),
                "{error}"
            );
        }
    }
    assert_eq!(server.requests().len(), asked);
    // If an answer took two requests, the hash is of the first.
    let schema = ["-m", "m", "--schema", "name"];
    llm.work.write("out", "");
    llm.work.write("out", ask("be brief", &schema).success().stdout);
    assert_eq!(server.requests().len(), asked + 4);
    assert_eq!(ask("be brief", &schema).success().closing()["data"]["skipped"], 2);
}

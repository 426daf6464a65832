//! Options for daily use: `--extract`, the short notation of schemas, pipes instead of files.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::llm::Llm;
use crate::messages::row;

/// Answers of the stub, as text and as its script.
fn playing(texts: &[&str]) -> (Llm, String) {
    let llm = Llm::new().set("CP_BACKEND", "stub");
    let lines: Vec<String> =
        texts.iter().map(|text| json!({"content": text, "delay_ms": 5}).to_string() + "\n").collect();
    let script = llm.work.write("script.jsonl", lines.concat());
    (llm, script.display().to_string())
}

const CODE: &str = "Here:\n\n~~~py\nprint(1)\n~~~\n\nDone.";

#[test]
fn extract_prints_first_code_block() {
    let (llm, script) = playing(&[CODE, CODE, "no block"]);
    let run = |options: &[&str]| llm.run(&[options, &["--stub-script", &script, "--", "hi"]].concat());
    for options in [&["-x", "--format", "text"][..], &["--extract", "--stream", "--format", "text"]] {
        let ran = run(options).success();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("print(1)\n", ""));
    }
    let data = run(&["-x"]).data();
    assert_eq!(data["extracted"], json!({"language": "py", "text": "print(1)"}));
    assert_eq!(data["content"], CODE);
    assert!(data["_untrusted"].as_array().unwrap().contains(&json!("/extracted")));
    let rows = row("x").repeat(3);
    let options = ["-x", "--stub-script", &script, "--rows", "--jobs", "3", "--format"];
    let ran = llm.feed(&[&options[..], &["text", "--stream"]].concat(), &rows).success();
    assert_eq!(ran.stdout, "print(1)\nprint(1)\nno block\n");
    assert!(ran.stderr.contains("no fenced code block"), "{}", ran.stderr);
    let messages = llm.feed(&[&options[..], &["json"]].concat(), &rows).of("message");
    assert!(messages[1]["extracted"].is_object() && messages[2]["extracted"].is_null());
}

#[test]
fn schema_is_file_json_or_notation() {
    let (llm, script) = playing(&["{\"name\":\"Ada\",\"age\":36}"]);
    // The file begins with a byte order mark, as those of some editors.
    let marked = "\u{feff}{\"type\":\"object\",\"required\":[\"age\"]}";
    let file = llm.work.write("person.json", marked).display().to_string();
    let tools = llm.work.write("tools.json", "\u{feff}[{\"name\":\"t\",\"input_schema\":{}}]").display().to_string();
    llm.run(&["--dry-run", "--tool-schemas", &tools, "--", "who?"]).success();
    for schema in [&file, r#"{"type":"object","required":["age"]}"#, "name, age int: in years"] {
        let data = llm.run(&["--stub-script", &script, "--schema", schema, "--", "who?"]).data();
        assert_eq!(data["parsed"]["age"], 36, "{schema}");
    }
    let request = |option, schema| llm.run(&["--dry-run", option, schema, "--", "who?"]);
    let error = request("--schema", "name, age nit").failed(2, "E_VALIDATION");
    assert_eq!(error["details"]["field"], 2);
    request("--schema", "nothing.json").failed(3, "E_NOT_FOUND");
    request("--schema", "{").failed(2, "E_VALIDATION");
    request("--tool-schemas", &file).failed(2, "E_VALIDATION");
}

#[test]
fn option_files_may_be_pipes() {
    let (llm, script) = playing(&["[1]"]);
    let bash = |line: &str| llm.shell("bash", line).env("CP_BACKEND", "stub").limit(Duration::from_secs(20)).run();
    let whole =
        bash(&format!("cp-llm --stub-script <(cat {script}) --schema <(echo '{{\"type\":\"array\"}}') -- hi")).data();
    assert_eq!(whole["parsed"], json!([1]));
    let sent =
        bash("cp-llm --dry-run --tool-schemas <(echo '[{\"name\":\"t\",\"input_schema\":{}}]') -s @<(echo sys) -- hi")
            .data();
    assert_eq!((&sent["request"]["system"], &sent["request"]["tools"][0]["name"]), (&json!("sys"), &json!("t")));
    assert_eq!(bash("echo sys | cp-llm --dry-run -s @- -- hi").data()["request"]["system"], "sys");
    bash("cp-llm --record tape.jsonl -- hi").success();
    assert_eq!(bash("cp-llm --replay <(cat tape.jsonl) -- hi").data()["content"], "stub response 1");
    bash(
        "printf '{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}\\n' a b >in; cp-llm --rows <in | head -1 >out",
    )
    .success();
    let resumed = bash("cp-llm --rows --skip-done <(cat out; printf {\\\"ok\\\":tr) <in").success();
    let answers = resumed.of("message");
    assert_eq!((resumed.closing()["data"]["skipped"].as_u64(), answers.len()), (Some(1), 1));
    assert_eq!(answers[0]["index"], 1, "the place in the input");
    bash("echo x | cp-llm --tool-schemas - -s @-").failed(2, "E_USAGE");
    bash("echo x | cp-llm --schema /dev/stdin").failed(2, "E_USAGE");
}

#[test]
fn signal_ends_wait_for_pipe() {
    let llm = Llm::new().set("CP_BACKEND", "stub");
    for option in ["--tool-schemas", "--skip-done", "--replay", "--stub-script", "--schema"] {
        let began = Instant::now();
        let ran = llm
            .shell("bash", &format!("mkfifo f 2>/dev/null; timeout -s INT 0.3 cp-llm --backend stub {option} f -- hi"))
            .run();
        assert!(ran.stdout.contains("E_INTERRUPTED"), "{option}: {}", ran.stdout);
        assert!(began.elapsed() < Duration::from_secs(10), "{option}");
    }
}

//! `--lines`, `--csv`, `--tsv`: a prompt for each record of a table, and a table of answers.

use cp_testkit::Server;
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{asked, echo, whole};

fn echoing() -> (Llm, Server) {
    let server = echo(0);
    (Llm::asking("openai", &server), server)
}

fn contents(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["data"]["content"].as_str()).collect()
}

#[test]
fn each_line_is_prompt() {
    let (llm, _server) = echoing();
    for jobs in ["1", "4"] {
        let records = |words: &[&str]| {
            let words = [&["-m", "m", "--jobs", jobs], words].concat();
            llm.feed(&words, "a\n\nb, \"c\"\r\n").records()
        };
        assert_eq!(contents(&records(&["--lines"])), ["a", "b, \"c\""]);
        assert_eq!(contents(&records(&["--lines", "Say"])), ["Say\n\na", "Say\n\nb, \"c\""]);
        let found = records(&["--lines", "Say {{ text }}!"]);
        assert_eq!(contents(&found), ["Say a!", "Say b, \"c\"!"]);
        assert_eq!((&found[1]["data"]["row"], &found[1]["data"]["index"]), (&json!({"text": "b, \"c\""}), &1.into()));
    }
}

#[test]
fn answers_of_table_are_table_with_failed_rows() {
    let (llm, _server) = echoing();
    let commas = ("--csv", ",", "id,text\n1,\"x, y\"\n2,bad\n3\n4,\"two\nlines\"\n", "two\nlines");
    let tabs = ("--tsv", "\t", "id\ttext\n1\tx, y\n2\tbad\n3\n4\t\"two lines\n", "\t\"two lines");
    for ((option, delimiter, table, last), jobs) in [(commas, "--jobs=1"), (commas, "--jobs=4"), (tabs, "--jobs=4")] {
        let ran = llm.feed(&["-m", "m", "--format", "text", "--stream", "{{text}}", option, jobs], table);
        assert_eq!(ran.status, 1, "{ran:?}");
        let lines: Vec<&str> = ran.stdout.lines().collect();
        let joined = |cells: [&str; 4]| cells.join(delimiter);
        assert_eq!(lines[0], joined(["id", "text", "answer", "error"]), "{ran:?}");
        assert!(lines[1].starts_with('1') && lines[1].matches("x, y").count() == 2, "{ran:?}");
        assert!(lines[2].starts_with(&joined(["2", "bad", "", ""])) && lines[2].contains("400"), "{ran:?}");
        assert!(lines[3].starts_with(&joined(["3", "", "", ""])) && lines[3].contains("line 4"), "{ran:?}");
        assert_eq!(ran.stdout.matches(last).count(), 2, "{ran:?}");
    }
}

#[test]
fn damaged_record_keeps_its_fields() {
    let (llm, server) = echoing();
    for (record, row) in [
        (&b"2"[..], json!({"id": "2"})),
        (b"3,a,\"b,\"", json!({"id": "3", "text": "a,b,"})),
        (b"4,\xFF!", json!({"id": "4", "text": "\u{fffd}!"})),
        (b"5,\0", json!({"id": "5", "text": "\0"})),
        (b"6,\"a\"b", json!({"id": "6"})),
        (b"7,a\rb", json!({"id": "7"})),
        (b"8,\"open", json!({"id": "8"})),
    ] {
        let table = [b"id,text\n1,whole\n", record, b"\n"].concat();
        let records = llm.command(&["-m", "m", "--csv", "{{text}}"]).stdin(table).run().records();
        let (control, details) = (&records[0]["data"], &records[1]["error"]["details"]);
        assert_eq!(control["row"], json!({"id": "1", "text": "whole"}), "{records:?}");
        assert_eq!((&details["row"], &details["_untrusted"]), (&row, &json!(["/row"])), "{records:?}");
        assert_eq!(details["line"], 3, "{records:?}");
    }
    assert_eq!(server.requests().len(), 7, "only the whole records are sent");
}

#[test]
fn property_of_schema_is_column() {
    let server = Server::replying(|_| whole("openai", "Here it is:\n```json\n{\"mood\":\"good\",\"n\":2}\n```\nDone."));
    let llm = Llm::asking("openai", &server);
    let words = ["-m", "m", "--csv", "--format", "text", "--schema", "mood, n int", "{{a}}"];
    let ran = llm.feed(&words, "a\nx\n");
    assert_eq!(ran.stdout, "a,mood,n,error\nx,good,2,\n", "{ran:?}");
    let ran = llm.run(&["-m", "m", "--format", "text", "--schema", "mood, n int", "--", "hi"]);
    assert_eq!(ran.stdout, "{\"mood\":\"good\",\"n\":2}\n", "{ran:?}");
}

#[test]
fn table_without_column_or_beside_other_input_is_usage_error() {
    let (llm, server) = echoing();
    let bad = [&["--csv"][..], &["--csv", "no column"], &["--csv", "--lines"], &["--csv", "--rows"], &["--lines", "-"]];
    for words in bad {
        let words = [&["-m", "m"], words].concat();
        llm.feed(&words, "a\nx\n").failed(2, "E_USAGE");
    }
    llm.feed(&["-m", "m", "--csv", "{{b}}"], "a\nx\n").failed(2, "E_VALIDATION");
    assert_eq!(server.requests().len(), 0);
    let ran = llm.feed(&["-m", "m", "--csv", "{{a}}"], "a\nx\n");
    assert_eq!((ran.status, server.requests().len()), (0, 1), "the control: {ran:?}");
}

#[test]
fn second_pass_replaces_its_own_columns_only() {
    let (llm, _server) = echoing();
    let run =
        |words: &[&str], table: &str| llm.feed(&[&["-m", "m", "--format", "text", "--csv"], words].concat(), table);
    let words = ["--delimiter", ";", "{{text}}"];
    let first = run(&words, "id;text\n1;\"a;b\"\n2;c,d\n").success().stdout;
    assert_eq!(first, "id;text;answer;error\n1;\"a;b\";\"a;b\";\n2;c,d;c,d;\n");
    let second = run(&words, &first).success().stdout;
    assert_eq!(run(&words, &second).success().stdout, first);
    // A column that no pass wrote is never replaced, wherever it is in a table that ends like one of answers.
    for table in ["id,text,note,answer,error", "text,answer,id,error", "text,error,answer", "id,error", "error"] {
        let ran = run(&["--column", "text", "{{id}}"], &format!("{table}\n{}\n", table.replace("answer", "gold")));
        assert!(ran.status == 2 && ran.stderr.contains("repeated column: `"), "{table}: {ran:?}");
    }
    for words in [&["--column", ""][..], &["--column", " "], &["--schema", "text, n int"]] {
        let ran = run(&[words, &["{{text}}"]].concat(), "text\nx\n");
        assert!(ran.status == 2 && ran.stderr.contains("rename it in the table"), "{ran:?}");
    }
    for words in [&["{{text}}"][..], &["--column", "text", "{{text}}"], &["--column", "error", "{{text}}"]] {
        let ran = run(words, "text,answer\nx,gold\n");
        assert!(ran.status == 2 && ran.stderr.contains("--column"), "{ran:?}");
    }
    for (words, table, hint) in
        [("{{text}}", first.as_str(), "--delimiter ';'"), ("{{my text}}", "my text\nx\n", "{{row[")]
    {
        let ran = run(&[words], table);
        assert!(ran.status == 2 && ran.stderr.contains(hint), "{ran:?}");
    }
    for words in
        [&["--lines", "--delimiter", ";"][..], &["--csv", "--delimiter", "\"", "{{a}}"], &["--column", "a", "b"]]
    {
        llm.feed(&[&["-m", "m"], words].concat(), "a\nx\n").failed(2, "E_USAGE");
    }
}

#[test]
fn number_in_table_is_as_it_was_written() {
    let parsed = r#"{"id": 98765432109876543210, "price": 19.90, "all": [1.0, {"b": 1e2}], "none": null}"#;
    let server = Server::replying(move |_| whole("openai", parsed));
    let llm = Llm::asking("openai", &server);
    let schema = r#"{"properties":{"id":{},"price":{},"all":{},"none":{}}}"#;
    let ran = llm.feed(&["-m", "m", "--tsv", "--format", "text", "--schema", schema, "{{a}}"], "a\nx\n").success();
    assert_eq!(ran.stdout, "a\tid\tprice\tall\tnone\terror\nx\t98765432109876543210\t19.90\t[1.0,{\"b\":1e2}]\t\t\n");
}

#[test]
fn fields_between_tabs_are_read_and_written_as_they_are() {
    let server = Server::replying(|request| match &*asked(request) {
        r"C:\new" => whole("openai", "C:\\a\tb\n"),
        other => whole("openai", &format!("not {other}")),
    });
    let llm = Llm::asking("openai", &server);
    let mut table = "C:\\p\nC:\\new\n".to_owned();
    for _ in 0..2 {
        let words = ["-m", "m", "--tsv", "--format", "text", r#"{{row["C:\\p"]}}"#];
        table = llm.feed(&words, &table).success().stdout;
        assert_eq!(table, "C:\\p\tanswer\terror\nC:\\new\tC:\\\\a\\tb\\n\t\n");
    }
}

#[test]
fn answer_without_text_that_calls_tools_is_warned_about() {
    let llm = Llm::new();
    let call = json!([{"name": "weather", "input": {}}]);
    for (content, calls, format, is_warned) in [
        ("", &call, "text", true),
        ("", &call, "json", false),
        ("Let me see.", &call, "text", false),
        ("Let me see.", &json!([]), "text", false),
    ] {
        let script = llm.home.write("answers", format!("{}\n", json!({"content": content, "tool_calls": calls})));
        let words = ["--backend", "stub", "--stub-script", script.to_str().unwrap(), "--format", format];
        for (more, input) in [(&["--", "hi"][..], ""), (&["--csv", "{{a}}"], "a\nx\n")] {
            let ran = llm.feed(&[&words[..], more].concat(), input);
            assert_eq!((ran.status, ran.stderr.contains("the model calls weather")), (0, is_warned), "{ran:?}");
        }
    }
}

#[test]
fn answered_records_are_skipped() {
    let (llm, _server) = echoing();
    let words = ["-m", "m", "--csv", "--row-failures", "ok", "{{a}}"];
    let first = llm.feed(&words, "a\nx\nbad\ny\n");
    let out = llm.home.write("out", &first.stdout);
    let words = [&words[..], &["--skip-done", out.to_str().unwrap()]].concat();
    let closing = llm.feed(&words, "a\nx\nbad\ny\n").closing();
    assert_eq!((&closing["data"]["skipped"], &closing["data"]["failed"]), (&2.into(), &1.into()), "{closing}");
}

#[test]
fn fault_of_template_has_line_of_row() {
    let (llm, _server) = echoing();
    let text = "{% if id == '2' %}{{nope}}{% endif %}{{text}}";
    let ran = llm.feed(&["-m", "m", "--csv", text], "id,text\n1,a\n2,b\n");
    let error = ran.first_error();
    let lines = (&error["details"]["line"], &error["details"]["template_line"]);
    assert_eq!((ran.status, lines), (1, (&json!(3), &json!(1))), "{ran:?}");
    assert_eq!(error["message"], "`nope` is not defined");
}

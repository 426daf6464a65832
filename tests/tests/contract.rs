//! The contract suite: every program, every verb that its `reference` lists. A new verb is covered by being listed; one
//! that is not listed fails.

use cp_testkit::{PROGRAMS, Place, until};
use cp_tests::{Verb, check_contract, reference, verbs};
use serde_json::Value;

/// Splits an example before its last command: what `;` and `&&` separate outside of quotes and `$(...)`.
fn split(example: &str) -> (&str, &str) {
    let (mut depth, mut quote, mut last) = (0, None, 0);
    for (at, c) in example.char_indices() {
        match c {
            _ if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(c),
            '(' if quote.is_none() => depth += 1,
            ')' if quote.is_none() => depth -= 1,
            ';' | '&' if quote.is_none() && depth == 0 => last = at + 1,
            _ => {}
        }
    }
    example.split_at(last)
}

/// An example whose last command is the program itself prints the program's own lines.
pub(crate) fn prints_envelopes(program: &str, example: &str) -> bool {
    let last = split(example).1.split("$(").next().unwrap_or_default();
    let last = last.rsplit('|').next().unwrap_or_default().trim();
    last.starts_with(program) && !["--format", ">", "--help", "--version"].iter().any(|word| last.contains(word))
}

/// The example with only its last command heard.
pub(crate) fn with_silent_prelude(example: &str) -> String {
    match split(example) {
        ("", last) => last.to_owned(),
        (prelude, last) => format!("{{ {}; }} >/dev/null\n{last}", prelude.trim_end_matches([';', '&', ' '])),
    }
}

#[test]
fn wrong_command_line_is_a_usage_error_that_names_the_nearest() {
    let refused = |line: &str| {
        let ran = Place::new().sh(line);
        check_contract(&ran);
        ran.failed(2, "E_USAGE")["details"].clone()
    };
    for program in PROGRAMS {
        assert_eq!(refused(&format!("{program} refrence"))["nearest"], "reference", "{program}");
        for wrong in ["reference surplus", "completions", "context --format xml", "context --fields nonsense"] {
            refused(&format!("{program} {wrong}"));
        }
    }
    for verb in verbs() {
        let details = refused(&format!("{} --formaat json", verb.words()));
        let hint = "did you mean `--format`?";
        assert_eq!((&details["nearest"], &details["hint"]), (&"--format".into(), &hint.into()), "{verb:?}");
    }
    let hint = |line: &str| refused(line)["hint"].clone();
    assert_eq!(hint("cp-log query --nothing-like-it"), "`cp-log query --help` lists the options");
    assert_eq!(hint("cp-llm -5"), "write -- before a text that begins with a hyphen");
    assert_eq!(hint("cp-toolloop undo"), "`cp-toolloop runs` lists them");
    // A suggestion is at most a third of its letters away, or the rest of a word.
    for (line, near) in [
        ("cp-log tail", ""),
        ("cp-log log", ""),
        ("cp-log completions tcsh", ""),
        ("cp-log query --fields nope", ""),
        ("cp-log qurey", "query"),
        ("cp-log completions bsh", "bash"),
        ("cp-llm --budget 3", "--budget-usd"),
        ("cp-exec hook instal claude", "install"),
    ] {
        assert_eq!(refused(line)["nearest"].as_str().unwrap_or_default(), near, "{line}");
    }
}

#[test]
fn a_reader_that_leaves_ends_a_program_quietly() {
    for program in PROGRAMS {
        let ran = Place::new().sh(&format!("{{ {program} reference; echo status $? >&2; }} | exec true"));
        // The reader may leave before or after: in both cases nothing is printed and the status is 0.
        assert_eq!(ran.stderr.trim(), "status 0", "{program}");
    }
}

/// The verbs that read a stream: they take `--input`. What each of them needs in an empty home: commands before it, and
/// options.
fn streaming_verbs() -> Vec<(Verb, &'static str, &'static str)> {
    let verbs: Vec<_> = verbs().filter(|verb| verb.has("--input")).map(with_needs).collect();
    assert!(verbs.len() >= 6, "{verbs:?}");
    verbs
}

fn with_needs(verb: Verb) -> (Verb, &'static str, &'static str) {
    let (before, options) = match verb.words().as_str() {
        "cp-llm" | "cp-llm batch submit" | "cp-toolloop" => ("", "--backend stub"),
        "cp-mcp call" => ("", "--mcp 'cp=cp-mcp serve'"),
        "cp-log check-proof" => (
            "{ cp-log keygen K; seq 9 | cp-log append -f L; cp-log checkpoint -f L --sign-with K; } >/dev/null
            cp-log prove 5 -f L --format raw >p; ",
            "--trust K.pub p",
        ),
        "cp-session append" | "cp-session tee" => {
            ("CP_SESSION=$(cp-session start | jq -r .data.session_id); export CP_SESSION; ", "")
        }
        _ => ("", ""),
    };
    (verb, before, options)
}

#[test]
fn empty_input_is_a_validation_error_and_a_bad_line_an_item_error_with_its_index() {
    for (verb, before, options) in streaming_verbs() {
        let words = verb.words();
        let ran = Place::new().sh(&format!("{before}{words} {options} </dev/null"));
        check_contract(&ran);
        assert_eq!(ran.error()["code"], "E_VALIDATION", "{ran:?}");
        // tee passes every line, whatever it is; its own tests say so.
        if !words.ends_with(" tee") {
            let ran = Place::new().sh(&format!("{before}echo '{{\"ok\":true,' | {words} {options} --input records"));
            check_contract(&ran);
            let error = &ran.records()[0]["error"];
            assert_eq!((&error["code"], &error["details"]["index"]), (&"E_VALIDATION".into(), &0.into()), "{ran:?}");
        }
    }
}

#[test]
fn a_failure_from_upstream_comes_through_with_its_exit() {
    let failure = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_NOT_FOUND","message":"gone","details":{},"retryable":false},"meta":{"duration_ms":1}}"#;
    let table = reference("cp-log")["exit_codes"].as_object().unwrap();
    for (verb, before, options) in streaming_verbs() {
        let exits: Vec<String> = verb.entry["exit_codes"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert!(table.keys().all(|exit| exits.contains(exit)), "{verb:?}: upstream may fail with any of {table:?}");
        let ran = Place::new().sh(&format!("{before}echo '{failure}' | {} {options}", verb.words()));
        assert!(ran.status == 3 && ran.stdout.contains("\"E_NOT_FOUND\""), "{ran:?}");
        check_contract(&ran);
    }
}

#[test]
fn an_argument_is_the_whole_input_even_when_standard_input_stays_open() {
    for (program, words) in [
        ("cp-llm", &["--backend", "stub", "--", "a text"][..]),
        ("cp-compose", &["--", "a text"]),
        ("cp-toolloop", &["--backend", "stub", "--", "a text"]),
        ("cp-log", &["append", "a text"]),
    ] {
        let place = Place::new();
        let mut child = place.program(program).args(words).start();
        until("its end, with its standard input open", || child.has_ended());
        child.wait().success();
    }
}

#[test]
fn a_record_comes_out_before_the_input_ends() {
    let prompt =
        r#"{"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":"a"}]}}"#;
    for jobs in ["1", "4"] {
        let place = Place::new();
        let mut child = place.program("cp-llm").args(["--backend", "stub", "--jobs", jobs]).start();
        for _ in 0..3 {
            child.write(format!("{prompt}\n"));
            assert!(child.line().starts_with("{\"ok\":true"));
        }
        child.finish().success();
    }
}

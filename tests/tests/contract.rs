//! The contract suite: every program, every verb that its `reference` lists. A new verb is covered by being listed; one
//! that is not listed fails.

use std::time::Duration;

use cp_testkit::{PROGRAMS, Place, Signal};
use cp_tests::{check_contract, reference, verbs};
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
fn every_example_of_every_verb_runs_and_keeps_the_contract() {
    for program in PROGRAMS {
        let reference = reference(program);
        for command in reference["commands"].as_array().unwrap() {
            let verb = format!("{program} {}", command["path"].as_str().unwrap());
            let output = command["output_schema"].as_str().unwrap();
            let properties = &reference["schemas"][output]["json_schema"]["properties"];
            let has_fields = properties.as_object().is_some_and(|fields| !fields.is_empty());
            assert!(has_fields || output == "passed", "{verb}: the schema has no fields");
            let examples = command["examples"].as_array().unwrap();
            assert!(!examples.is_empty(), "{verb}: no example");
            let mut checked = 0;
            for example in examples.iter().map(|example| example.as_str().unwrap()) {
                println!("{example}"); // shown when the test fails
                let ran = Place::new().sh(&with_silent_prelude(example));
                assert_eq!(ran.status, 0, "{example}\n{}\n{}", ran.stdout, ran.stderr);
                if verb.ends_with(" tee") || verb == "cp-shell " {
                    checked += 1; // what a tee prints is what it was given, and a request's answer has its own form
                } else if prints_envelopes(program, example) {
                    check_contract(&ran);
                    // What the lines say is looked at in `answers`; a projection is less than the verb prints.
                    checked += usize::from(!example.contains("--fields"));
                }
            }
            assert!(checked > 0, "{verb}: no example shows the verb's own output");
        }
    }
}

#[test]
fn doctor_warns_of_a_program_that_is_not_stable() {
    for program in PROGRAMS {
        let reference = reference(program);
        let doctor = Place::new().sh(&format!("{program} doctor")).closing();
        let checks = doctor["data"]["checks"].as_array().unwrap().clone();
        let ready = checks.iter().find(|check| check["check"] == "release_readiness").unwrap();
        let expected = match reference["release_readiness"]["level"].as_str() {
            Some("stable") => "pass",
            Some("beta") => "warn",
            _ => "fail",
        };
        assert_eq!(
            (ready["status"].as_str(), ready["fix"].is_string()),
            (Some(expected), expected != "pass"),
            "{program}"
        );
    }
}

#[test]
fn a_slip_in_a_verb_or_an_option_is_a_usage_error_that_names_the_nearest() {
    for program in PROGRAMS {
        let place = Place::new();
        let ran = place.sh(&format!("{program} refrence"));
        check_contract(&ran);
        assert_eq!(ran.closing()["error"]["code"], "E_USAGE", "{program}");
        assert_eq!(ran.closing()["error"]["details"]["nearest"], "reference", "{program}");
    }
    for (verb, _) in verbs() {
        let ran = Place::new().sh(&format!("{verb} --formaat json"));
        check_contract(&ran);
        assert_eq!(ran.closing()["error"]["code"], "E_USAGE", "{verb}");
        assert_eq!(ran.closing()["error"]["details"]["nearest"], "--format", "{verb}");
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

/// The verbs that read a stream: they take `--input`.
fn streaming_verbs() -> Vec<(String, Value)> {
    let is_stream = |verb: &Value| verb["params"].as_array().unwrap().iter().any(|param| param["name"] == "--input");
    let verbs: Vec<_> = verbs().into_iter().filter(|(_, verb)| is_stream(verb)).collect();
    assert!(verbs.len() >= 6, "{verbs:?}");
    verbs
}

/// What a streaming verb needs beside its input, in an empty home.
fn needs(verb: &str) -> (&'static str, &'static str) {
    match verb {
        "cp-llm" | "cp-llm batch submit" | "cp-toolloop" => ("", "--backend stub"),
        "cp-mcp call" => ("", "--mcp 'cp=cp-mcp serve'"),
        "cp-log check-proof" => (
            "{ cp-log keygen K; seq 9 | cp-log append -f L; cp-log checkpoint -f L --sign-with K; } >/dev/null; cp-log prove 5 -f L --format raw >p; ",
            "--trust K.pub p",
        ),
        "cp-session append" | "cp-session tee" => {
            ("CP_SESSION=$(cp-session start | jq -r .data.session_id); export CP_SESSION; ", "")
        }
        _ => ("", ""),
    }
}

#[test]
fn empty_input_is_a_validation_error() {
    for (verb, _) in streaming_verbs() {
        let (before, options) = needs(&verb);
        let ran = Place::new().sh(&format!("{before}{verb} {options} </dev/null"));
        check_contract(&ran);
        assert_eq!(ran.closing()["error"]["code"], "E_VALIDATION", "{verb}: {}", ran.stdout);
    }
}

#[test]
fn a_bad_line_in_a_stream_is_an_item_error_with_its_index() {
    for (verb, _) in streaming_verbs() {
        if verb.ends_with(" tee") {
            continue; // tee passes every line, whatever it is; its own tests say so
        }
        let (before, options) = needs(&verb);
        let ran = Place::new().sh(&format!("{before}printf '%s\\n' '{{\"ok\":true,\"schema_version\":\"1.0\",\"type\":' | {verb} {options} --input records"));
        check_contract(&ran);
        let lines = ran.records();
        assert_eq!(lines[0]["error"]["code"], "E_VALIDATION", "{verb}: {}", ran.stdout);
        assert_eq!(lines[0]["error"]["details"]["index"], 0, "{verb}: {}", ran.stdout);
    }
}

#[test]
fn a_failure_from_upstream_comes_through_with_its_exit() {
    let failure = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_NOT_FOUND","message":"gone","details":{},"retryable":false},"meta":{"duration_ms":1}}"#;
    for (verb, command) in streaming_verbs() {
        let exits: Vec<String> = command["exit_codes"].as_array().unwrap().iter().map(ToString::to_string).collect();
        let table = reference("cp-log")["exit_codes"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert!(table.iter().all(|exit| exits.contains(exit)), "{verb}: upstream may fail with any of {table:?}");
        let (before, options) = needs(&verb);
        let ran = Place::new().sh(&format!("{before}echo '{failure}' | {verb} {options}"));
        assert_eq!(ran.status, 3, "{verb}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("\"E_NOT_FOUND\""), "{verb}: {}", ran.stdout);
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
        cp_testkit::until("its end, with its standard input open", || child.has_ended());
        child.wait().success();
    }
}

#[test]
fn a_signal_leaves_a_closing_line_and_130() {
    for (verb, _) in streaming_verbs() {
        if verb.ends_with(" tee") {
            continue; // tee drains to the end of its input first
        }
        let place = Place::new();
        let (before, options) = needs(&verb);
        let script = format!("{before}exec {verb} {options} --input records");
        let child = place.shell("sh", &script).start();
        std::thread::sleep(Duration::from_millis(600));
        child.signal(Signal::INT);
        // Its standard input stays open: only the signal ends it.
        child.wait().failed(130, "E_INTERRUPTED");
    }
}

#[test]
fn a_record_comes_out_before_the_input_ends() {
    let prompt =
        r#"{"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":"a"}]}}"#;
    let place = Place::new();
    let mut child = place.program("cp-llm").args(["--backend", "stub"]).start();
    child.write(format!("{prompt}\n"));
    assert!(child.line().starts_with("{\"ok\":true"));
    child.finish().success();
}

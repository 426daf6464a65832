//! Two and more programs in one pipe: what the wire promises between them.

use cp_testkit::{Outcome, Place};
use cp_tests::check_contract;

fn types(ran: &Outcome) -> Vec<String> {
    ran.records().iter().map(|line| line["type"].as_str().unwrap_or("answer").to_owned()).collect()
}

const PROMPT: &str =
    r#"{"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":"a"}]}}"#;

/// Inputs of a model: what makes them, the kinds of the lines that come out, and the exit status.
const STREAMS: [(&str, &[&str], i32); 8] = [
    // Streams are concatenated, and closed once.
    ("{ cp-compose a; cp-compose b; } | LLM", &["message", "message", "summary"], 0),
    // A failure among successes is passed, and becomes the code of the end.
    (
        "{ cp-compose a; cp-compose --agent nobody b; cp-compose c; } | LLM",
        &["message", "error", "message", "summary"],
        3,
    ),
    // A bad line is an item error, and the rest goes on unless nothing may.
    (
        "printf '%s\\n' 'PROMPT' '{\"ok\":true' 'PROMPT' | LLM --strict-exit",
        &["message", "error", "message", "summary"],
        1,
    ),
    ("printf '%s\\n' '{\"ok\":true,' 'PROMPT' | LLM --continue-on-error false", &["error", "summary"], 2),
    // Repeated names, and bytes that are not text.
    (
        r#"echo '{"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[],"messages":[]}}' | LLM --input records"#,
        &["error", "summary"],
        2,
    ),
    (r#"printf '{"ok":true,"schema_version":"1.0","type":"\377"}\n' | LLM --input records"#, &["error", "summary"], 2),
    // Carriage returns and a first mark are tolerated.
    ("printf '\\357\\273\\277%s\\r\\n\\r\\n' 'PROMPT' | LLM", &["message", "summary"], 0),
    // Rows need no envelope.
    (
        r#"printf 'a\nb\n' | jq -Rc '{messages:[{role:"user",content:.}]}' | LLM --rows"#,
        &["message", "message", "summary"],
        0,
    ),
];

#[test]
fn each_line_of_a_stream_has_its_answer_and_one_line_closes_it() {
    for (script, kinds, status) in STREAMS {
        let script = script.replace("LLM", "cp-llm --backend stub").replace("PROMPT", PROMPT);
        let ran = Place::new().sh(&script);
        check_contract(&ran);
        assert_eq!(
            (types(&ran), ran.status),
            (kinds.iter().map(|kind| (*kind).to_owned()).collect(), status),
            "{script}"
        );
        let lines = ran.records();
        for (at, line) in lines[..lines.len() - 1].iter().enumerate() {
            let index = if line["ok"] == true { &line["data"]["index"] } else { &line["error"]["details"]["index"] };
            assert!(*index == at || line["error"]["code"] == "E_NOT_FOUND", "{script}: {line}");
        }
    }
}

#[test]
fn input_that_ends_without_its_closing_line_is_noted_or_refused() {
    let ran = Place::new().sh(&format!("echo '{PROMPT}' | cp-llm --backend stub"));
    check_contract(&ran);
    assert_eq!(ran.status, 0);
    assert_eq!(ran.closing()["meta"]["notices"][0]["type"], "input_not_closed");
    assert!(ran.stderr.is_empty(), "the last line is whole: {}", ran.stderr);
    let torn = Place::new().sh(&format!("printf %s '{PROMPT}' | cp-llm --backend stub"));
    assert!(torn.stderr.contains("closing line"), "{}", torn.stderr);
    let closed = Place::new().sh(&format!("echo '{PROMPT}' | cp-llm --backend stub --closed"));
    check_contract(&closed);
    assert_eq!(closed.closing()["error"]["code"], "E_IO");
    assert_eq!(types(&closed), ["message", "summary"], "what came is processed");
}

#[test]
fn strangers_pass_and_a_program_that_saw_only_strangers_says_so() {
    let place = Place::new();
    let ran = place.sh("cp-log append one >/dev/null; cp-log query | cp-llm --backend stub");
    check_contract(&ran);
    assert_eq!(ran.closing()["error"]["code"], "E_VALIDATION");
    assert!(
        ran.closing()["error"]["message"].as_str().unwrap().contains("`entry` records, expected prompt"),
        "{}",
        ran.stdout
    );
    let stranger =
        r#"{"ok":true,"schema_version":"1.0","type":"item","data":{"big":123456789012345678901234567890,"e":1e2}}"#;
    let mixed = place.sh(&format!("{{ echo '{stranger}'; cp-compose a; }} | cp-llm --backend stub"));
    assert_eq!(mixed.status, 0, "{}", mixed.stdout);
    assert_eq!(mixed.stdout.lines().next().unwrap(), stranger, "byte for byte");
}

#[test]
fn text_formats_are_words_and_errors_go_to_standard_error() {
    let place = Place::new();
    assert_eq!(place.sh("echo hi | cp-llm --backend stub --format text | wc -l").stdout.trim(), "1");
    let ran = place.sh("cp-compose --agent nobody hi --format text");
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.starts_with("✗ ") && ran.stderr.contains("\n  Hint: "), "{}", ran.stderr);
}

/// Commands whose input is their command line.
const WHOLE_INPUT: [&str; 3] = ["cp-llm --backend stub hi", "cp-toolloop --backend stub hi", "cp-log append hi"];

#[test]
fn argument_with_unread_file_is_usage_error_before_any_effect() {
    for command in WHOLE_INPUT {
        let ran = Place::new().sh(&format!("echo x >f; {command} <f; echo $?; find \"$CP_HOME\" 2>/dev/null"));
        assert!(ran.stdout.contains("\"E_USAGE\"") && ran.stdout.contains("/dev/null"), "{command}: {ran:?}");
        assert!(ran.stdout.ends_with("\n2\n"), "{command}: {ran:?}");
        // The control: an empty file, a file that was read, and a device have nothing to read.
        for input in ["</dev/null", "<empty", "<f"] {
            let ran = Place::new().sh(&format!("echo x >f; : >empty; {{ cat >/dev/null; {command}; }} {input}"));
            assert_eq!((ran.status, ran.stderr.contains("was not read")), (0, false), "{command} {input}: {ran:?}");
        }
    }
}

#[test]
fn argument_with_unread_pipe_warns_in_every_format() {
    for command in WHOLE_INPUT {
        for format in ["json", "text", "raw"] {
            let ran = Place::new().sh(&format!("echo x | {{ sleep 0.1; {command} --format {format}; cat; }}"));
            assert!(ran.stderr.contains("standard input was not read"), "{command} {format}: {ran:?}");
            // The bytes are still there for the next program.
            assert!(ran.status == 0 && ran.stdout.ends_with("x\n"), "{command} {format}: {ran:?}");
        }
        let ran = Place::new().sh(&format!("mkfifo f; exec 3<>f; timeout 10 {command} <&3; echo $?"));
        assert!(ran.stdout.contains("\n0\n") && !ran.stderr.contains("was not read"), "{command}: {ran:?}");
    }
}

#[test]
fn loop_over_list_keeps_its_list() {
    for command in WHOLE_INPUT.iter().chain(&["cp-exec --format raw -- true"]) {
        let script = format!(
            "cp-exec policy init >&2; printf 'a\\nb\\nc\\n' >list; while read -r f; do {command} >&2 && echo $f; done <list"
        );
        let ran = Place::new().sh(&script);
        assert_eq!(ran.stdout, "a\nb\nc\n", "{command}: {ran:?}");
    }
}

#[test]
fn an_at_sign_before_a_system_text_names_a_file_in_every_program() {
    let place = Place::new();
    place.work.write("soul.md", "Be brief.\n");
    let answer = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"1","role":"assistant","content":"x","model":"m","backend":"b","stop_reason":"end_turn","usage":{}}}"#;
    place
        .work
        .executable("model", format!("#!/bin/sh\nread -r line\nprintf '%s\\n' \"$line\" >asked\necho '{answer}'\n"));
    for (given, meant) in [("@soul.md", "Be brief."), ("@@home", "@home")] {
        let asked = place.sh(&format!(
            "cp-compose -s '{given}' x | jq -r .data.system
            cp-llm --backend anthropic -m m --dry-run -s '{given}' x | jq -r .data.request.system
            cp-toolloop --llm ./model -s '{given}' x >/dev/null; jq -r .data.system asked"
        ));
        assert_eq!(asked.stdout, format!("{meant}\n").repeat(3), "{asked:?}");
    }
    for program in ["cp-compose", "cp-llm --backend stub", "cp-toolloop --backend stub"] {
        place.sh(&format!("{program} -s @none x")).failed(3, "E_NOT_FOUND");
    }
}

#[test]
fn no_name_of_a_session_leads_out_of_the_sessions() {
    let place = Place::new();
    place.policy("[exec]\nallowed_commands = [\"true\"]\n");
    assert_eq!(place.sh("cp-exec -- true >/dev/null").status, 0, "the control runs");
    for named in ["..", "../..", ".", "SES-1/../..", "./"] {
        for line in
            ["cp-exec --session NAME -- true", "cp-llm --backend stub --session NAME hi", "cp-session count NAME"]
        {
            let ran = place.sh(&line.replace("NAME", named));
            assert!([2, 3].contains(&ran.status), "{line} with {named}: {ran:?}");
        }
    }
    place.sh("for id in SES-20260101-aaaaaaaa SES-20260101-aaaaaaab; do mkdir -p \"$CP_HOME/planes/ho1/sessions/$id\"; touch \"$CP_HOME/planes/ho1/sessions/$id/session.jsonl\"; done");
    for line in [
        "cp-exec --session SES-2026 -- true",
        "cp-llm --backend stub --session SES-2026 hi",
        "cp-session count SES-2026",
    ] {
        let ran = place.sh(line);
        ran.failed(2, "E_VALIDATION");
        assert_eq!(ran.closing()["error"]["details"]["candidates"].as_array().map(Vec::len), Some(2), "{line}");
    }
    let outside: Vec<String> = place.home.names().into_iter().filter(|name| name.contains(".jsonl")).collect();
    assert!(outside.is_empty() && !place.home.join("planes/ledger").exists(), "{outside:?}");
}

#[test]
fn failed_rows_are_empty_lines_in_text_format() {
    let place = Place::new();
    for failed in 0..16_u32 {
        let row = |at: u32| if failed >> at & 1 == 1 { "{\"messages\":0}\n" } else { ROW };
        let rows: String = (0..4).map(row).collect();
        let ran = place.program("cp-llm").args(["--backend", "stub", "--rows", "--format", "text"]).stdin(&rows).run();
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines.len(), 4, "{ran:?}");
        for (at, line) in (0..4).zip(lines) {
            let is_failed = failed >> at & 1 == 1;
            assert_eq!(line.is_empty(), is_failed, "{ran:?}");
            assert_eq!(ran.stderr.contains(&format!("✗ line {}: ", at + 1)), is_failed, "{ran:?}");
        }
    }
    let alone =
        place.program("cp-llm").args(["--backend", "stub", "--format", "text"]).stdin("{\"messages\":0}\n").run();
    assert_eq!(alone.stdout.lines().filter(|line| line.is_empty()).count(), 0, "{alone:?}");
}

const ROW: &str = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n";

#[test]
fn format_of_a_person_is_none_of_the_programs_that_programs_start() {
    let place = Place::new();
    for format in ["json", "text", "raw"] {
        for line in ["cp-toolloop hi", "cp-ask hi", "cp-ask -c hi"] {
            place.home.write("config/cp.toml", "");
            let by_variable = format!("export CP_BACKEND=stub CP_FORMAT={format}; {line}");
            assert!(place.sh(&by_variable).success().stdout.contains("stub response"), "{by_variable}");
            place.home.write("config/cp.toml", format!("format = \"{format}\"\n"));
            let by_file = format!("CP_BACKEND=stub {line}");
            assert!(place.sh(&by_file).success().stdout.contains("stub response"), "{by_file} {format}");
        }
    }
}

//! The first line that a person types of each program, in the text format.

use cp_testkit::Place;
use predicates::str::contains;

/// Lines, and what a person reads on standard output.
const LINES: [(&str, &str); 9] = [
    ("cp-log append --event deploy --ledger l.jsonl 'version 7' && cp-log query l.jsonl", "version 7"),
    ("cp-session start", "SES-"),
    ("cp-compose -s 'be brief' hello", "be brief"),
    ("cp-llm --backend stub hello", "stub response 1"),
    ("cp-exec policy init >init && cp-exec -- echo hello", "hello"),
    ("cp-toolloop tools", "filesystem"),
    ("cp-ask --backend stub hello", "stub response 1"),
    (r#"echo '{"operation":"governed_roots"}' | cp-shell"#, "governed_prompts"),
    (r#"echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | cp-mcp serve --format raw"#, r#""id":1"#),
];

#[test]
fn each_program_answers_the_first_line_that_a_person_types() {
    for (line, expected) in LINES {
        let ran = Place::new().shell("sh", line).env("CP_FORMAT", "text").run();
        ran.assert().success().stdout(contains(expected));
    }
}

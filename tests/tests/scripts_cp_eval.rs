//! `scripts/cp-eval`: grades of each kind, a summary, resume, and the exit status.

use cp_testkit::{Outcome, Place, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const SUITE: &str = "cases = \"cases.csv\"\nprompts = [\"p.md\"]\nmodels = [\"stub\"]\n";

/// A suite with these graders, three cases, and the answers `4`, `hi` and `Red`.
fn suite(graders: &str) -> Place {
    let place = Place::new();
    let cases = "id,question,expected\n1,\"two, plus two\",4\n2,\"say \"\"hi\"\"\nplease\",Hi\n3,a colour,blue|red\n";
    place.work.write("cases.csv", cases);
    place.work.write("p.md", "{{ question }}\n");
    place.work.write("answers", "{\"content\":\"4\"}\n{\"content\":\"hi\"}\n{\"content\":\"Red\"}\n");
    place.work.write("suite.toml", format!("{SUITE}{graders}"));
    place
}

fn eval(place: &Place, script: &str) -> Outcome {
    place.shell("sh", script).env("CP_STUB_SCRIPT", place.work.join("answers")).run()
}

fn rows(place: &Place) -> Vec<Value> {
    place.work.records("suite.eval/rows.jsonl")
}

#[test]
fn format_of_a_person_is_none_of_the_programs_of_an_evaluation() {
    for format in ["json", "text", "raw"] {
        let place = suite("[[graders]]\ntype = \"equals\"\n");
        place.home.write("config/cp.toml", format!("format = \"{format}\"\n"));
        for set in ["", "export CP_FORMAT=text;", "export CP_FORMAT=raw;"] {
            eval(&place, &format!("{set} cp-eval suite.toml --out out{}", set.len())).success();
        }
    }
}

#[test]
fn grader_of_each_kind_grades_each_answer() {
    for (grader, scores) in [
        ("type = \"equals\"", [1.0, 0.0, 0.0]),
        ("type = \"contains\"\nvalue = 'i'", [0.0, 1.0, 0.0]),
        ("type = \"regex\" # a comment", [1.0, 0.0, 0.0]),
        ("type = \"regex\"\nvalue = '(?i)^(hi|red)$'", [0.0, 1.0, 1.0]),
        ("type = \"jq\"\nexpression = '.answer | length / 4'", [0.25, 0.5, 0.75]),
        ("type = \"jq\"\nexpression = 'error'", [0.0, 0.0, 0.0]),
        // One score for each answer, and nothing but a score.
        ("type = \"jq\"\nexpression = '.answer | select(. != \"4\") | true'", [0.0, 1.0, 1.0]),
        ("type = \"jq\"\nexpression = '.answer, true'", [0.0, 0.0, 0.0]),
        ("type = \"jq\"\nexpression = '.answer'", [0.0, 0.0, 0.0]),
        ("type = \"shell\"\ncommand = \"grep -q i\"", [0.0, 1.0, 0.0]),
    ] {
        let place = suite(&format!("[[graders]]\n{grader}\n"));
        place.policy("[exec]\nallowed_commands = [\"grep\"]\n");
        let ran = eval(&place, "cp-eval suite.toml");
        assert_eq!(ran.status, 0, "{grader}: {}{}", ran.stdout, ran.stderr);
        let rows = rows(&place);
        let found: Vec<f64> = rows.iter().map(|row| row["score"].as_f64().unwrap()).collect();
        assert_eq!(found, scores, "{grader}");
        // Each grade names the line of a ledger.
        for row in &rows {
            assert!(row["grades"][0]["receipt"]["seq"].is_u64(), "{row}");
        }
        assert_eq!(
            place.work.records("suite.eval/ledger.jsonl").iter().filter(|row| row["event"] == "eval.row").count(),
            3
        );
    }
}

#[test]
fn judge_and_schema_grade_by_records() {
    let place = suite("[[graders]]\ntype = \"judge\"\nprompt = \"judge.md\"\nmodel = \"stub/\"\n");
    place.work.write("judge.md", "{{ question }}: {{ answer }}\n");
    let verdict = |score: &str| format!("{}\n", json!({"content": format!("{{\"score\":{score},\"reason\":\"r\"}}")}));
    // Judge and model have the same script, so that the answers are grades, too.
    place.work.write("answers", ["1", "0.5", "0"].map(verdict).concat());
    assert_eq!(eval(&place, "cp-eval suite.toml").status, 0);
    assert_eq!(
        rows(&place).iter().map(|row| row["score"].clone()).collect::<Vec<_>>(),
        [json!(1), json!(0.5), json!(0)]
    );
    assert_eq!(rows(&place)[1]["grades"][0]["reason"], "r");

    // A judge that gives no score is an error, and not a bad grade.
    place.work.write("answers", ["1", "null", "0"].map(verdict).concat());
    let failed = eval(&place, "cp-eval suite.toml --out other");
    assert!(failed.status == 1 && failed.stderr.contains("1 of 3 answers of stub to p.md are errors"), "{failed:?}");

    let place = suite("schema = \"s.json\"\noptions = [\"--retries=0\"]\n[[graders]]\ntype = \"schema\"\n");
    place.work.write("s.json", "{\"type\":\"integer\"}");
    assert_eq!(eval(&place, "cp-eval suite.toml").status, 0);
    assert_eq!(rows(&place).iter().map(|row| row["score"].clone()).collect::<Vec<_>>(), [json!(1), json!(0), json!(0)]);
}

#[test]
fn summary_decides_the_exit_status() {
    let place = suite("repeats = 1\n[[graders]]\ntype = \"jq\"\nexpression = '.answer | length < 3'\n");
    let ran = eval(&place, "cp-eval suite.toml");
    assert!(ran.success().stdout.ends_with("stub   p.md    3      0.6667  0.2077 to 0.9385  0       -\n"));
    let summary = place.work.records("suite.eval/summary.jsonl")[0].clone();
    assert_eq!((&summary["cases"], &summary["mean"]), (&json!(3), &json!(0.6667)));
    assert_eq!(summary["interval"], json!([0.2077, 0.9385]));
    // A reader that leaves early does not change the verdict.
    for (options, reader, exit) in [("--min 0.66", "cat", 0), ("--min 0.7", "cat", 1), ("--min 0.7", "true", 1)] {
        let script = format!("(cp-eval suite.toml {options}; echo $? >status) | {reader}; exit $(cat status)");
        let ran = eval(&place, &script);
        assert_eq!(ran.status, exit, "{options} {reader}");
        assert_eq!(
            ran.stderr.contains("cp-eval: the mean 0.6667 of stub with p.md is below 0.7"),
            exit == 1,
            "{options}"
        );
    }
    // A change of the suite does not mix with the answers of another.
    place.work.write("p.md", "Please: {{ question }}\n");
    assert_eq!(eval(&place, "cp-eval suite.toml").status, 6);
}

#[test]
fn evaluation_resumes_and_replays_without_a_request() {
    let place = suite("repeats = 2\n[[graders]]\ntype = \"equals\"\n");
    let requests = "grep -c '\"event\":\"llm.request\"' $CP_HOME/ledger/cp-llm.jsonl";
    place.work.write(
        "answers",
        "{\"content\":\"4\"}\n{\"content\":\"4\"}\n{\"error\":{\"code\":\"E_AUTH\",\"message\":\"no\"}}\n",
    );
    let stopped = eval(&place, "cp-eval suite.toml --record r.jsonl --jobs 1");
    assert_eq!(stopped.status, 4, "{}", stopped.stdout);
    let before: u32 = eval(&place, requests).stdout.trim().parse().unwrap();
    place.work.write("answers", "{\"content\":\"4\"}\n".repeat(4));
    assert_eq!(eval(&place, "cp-eval suite.toml --record r.jsonl").status, 0);
    let after: u32 = eval(&place, requests).stdout.trim().parse().unwrap();
    assert_eq!(after - before, 4, "the two answers are kept");
    let replayed = eval(
        &place,
        "cp-eval suite.toml --out again --replay r.jsonl --min 0.3; cmp suite.eval/summary.jsonl again/summary.jsonl",
    );
    assert_eq!(replayed.status, 0, "{}{}", replayed.stdout, replayed.stderr);
    assert_eq!(eval(&place, requests).stdout.trim(), after.to_string());
}

#[test]
fn answer_that_failed_is_an_error_and_not_a_grade() {
    let place = suite("options = [\"--retries=0\"]\n[[graders]]\ntype = \"equals\"\n");
    let failed = "{\"error\":{\"code\":\"E_VALIDATION\",\"message\":\"too long\"}}\n";
    place.work.write("answers", format!("{{\"content\":\"4\"}}\n{failed}{{\"content\":\"blue|red\"}}\n"));
    let ran = eval(&place, "cp-eval suite.toml");
    assert!(
        ran.status == 1 && ran.stderr.contains("1 of 3 answers of stub to p.md are errors, the first: E_VAL"),
        "{ran:?}"
    );
    let summary = place.work.records("suite.eval/summary.jsonl")[0].clone();
    assert_eq!((&summary["mean"], &summary["errors"], &summary["cases"]), (&json!(1), &json!(1), &json!(2)));
}

/// Each table with its damaged line, and the control, whose cells come to the model as they are.
#[test]
fn damaged_table_stops_before_the_first_request_with_its_line() {
    let evaluate = |file: &str, table: &str| {
        let place = suite("[[graders]]\ntype = \"contains\"\nvalue = \"stub\"\n");
        place.work.write("suite.toml", place.work.read("suite.toml").replace("cases.csv", file));
        place.work.write(file, table);
        let ran = place.shell("sh", "cp-eval suite.toml --min 1").run();
        (ran, place)
    };
    for (file, table, line) in [
        ("t.csv", "id,question\n1,a\n2,\"b\n3,c\n", 3),
        ("t.csv", "id,question\n1,\"a\" b\n2,b\n", 2),
        ("t.csv", "id,question\n1,a\n2,b,x\n", 3),
        ("t.csv", "id,question\n1\n2,b\n", 2),
        ("t.csv", "id,\"question\n1,a\n", 1),
        ("t.tsv", "id\tquestion\n1\ta\n2\tb\tx\n", 3),
        ("t.jsonl", "{\"question\":\"a\"}\n{\"question\":\n{\"question\":\"c\"}\n", 2),
    ] {
        let (ran, place) = evaluate(file, table);
        assert!(ran.status == 2 && ran.stderr.contains(&format!("{file}: line {line}: ")), "{table:?}: {ran:?}");
        assert!(!place.work.join("suite.eval/answers.jsonl").exists(), "{table:?}");
    }
    for (file, table) in [
        ("t.csv", "id,question\n1,\"{\"\"k\"\":\"\"\"\"}\"\n2,a \"\" b\n"),
        ("t.tsv", "id\tquestion\n1\t{\"k\":\"\"}\n2\ta \"\" b\n"),
        ("t.jsonl", "{\"question\":\"{\\\"k\\\":\\\"\\\"}\"}\n{\"question\":\"a \\\"\\\" b\"}\n"),
    ] {
        let (ran, place) = evaluate(file, table);
        assert_eq!(ran.status, 0, "the control: {table:?}: {ran:?}");
        let answers = place.work.records("suite.eval/answers.jsonl");
        let sent: Vec<_> = answers.iter().filter_map(|answer| answer["data"]["input"][0]["content"].as_str()).collect();
        assert_eq!(sent, ["{\"k\":\"\"}", "a \"\" b"], "{table:?}");
        // A price that is not known is not a cost of 0.
        assert_eq!(place.work.records("suite.eval/summary.jsonl")[0]["cost_usd"], Value::Null);
    }
}

#[test]
fn wrong_suite_is_an_error_with_its_reason() {
    for (text, exit) in [("cases = 1x\n", 2), ("cases = \"cases.csv\"\n", 2), ("nonsense\n", 2)] {
        let place = suite("");
        place.work.write("suite.toml", text);
        assert_eq!(eval(&place, "cp-eval suite.toml").status, exit, "{text}");
    }
    let place = suite("[[graders]]\ntype = \"feeling\"\n");
    assert_eq!(eval(&place, "cp-eval suite.toml").status, 2);
    assert_eq!(eval(&place, "cp-eval nowhere").status, 3);
    assert_eq!(eval(&place, "cp-eval suite.toml --min x").status, 2);
    // The fault of a grader is named once, without the words of jq.
    for (grader, exit, reason) in [
        ("jq\"\nexpression = '.answer |'", 2, "the grader jq: syntax error, unexpected"),
        ("jq\"\nexpression = 'nofun'", 2, "the grader jq: nofun/0 is not defined"),
        ("regex\"\nvalue = '('", 2, "the grader regex: "),
        ("shell\"\ncommand = 'grep -q i'", 1, "E_FORBIDDEN: there is no policy, so no command is allowed"),
    ] {
        let ran = eval(&suite(&format!("[[graders]]\ntype = \"{grader}\n")), "cp-eval suite.toml");
        assert_eq!(ran.status, exit, "{grader}: {ran:?}");
        assert!(ran.stderr.matches(reason).count() == 1 && !ran.stderr.contains("jq: error"), "{grader}: {ran:?}");
    }
    for (options, reason) in
        [("--json", "unknown option --json"), ("--frob=1 x", "unknown option --frob"), ("--min", "--min needs a value")]
    {
        let ran = eval(&place, &format!("cp-eval {options}"));
        assert_eq!((ran.status, ran.stderr), (2, format!("cp-eval: {reason}\n")), "{options}");
    }
    assert_eq!(eval(&place, "cp-eval --version").stdout, eval(&place, "cp-llm -V").stdout.replace("llm", "eval"));
    let help = eval(&place, "cp-eval --help").success().stdout;
    assert!(help.lines().all(|line| line.len() <= 80), "{help}");
}

/// Each grader that compares, with each expectation of a case: what is not there does not pass, whatever the answer.
#[test]
fn missing_expectation_stops_before_the_first_request() {
    let texts = ["", "\"expected\":null,", "\"expected\":\"\",", "\"expected\":\" \","].map(|text| (text, ""));
    let present = ["false", "0", "\"stub\"", "[1]", "{}"].map(|value| format!("\"expected\":{value},"));
    let present: Vec<_> = present.iter().map(|text| (text.as_str(), "")).chain([("", "value = \"x\"")]).collect();
    let others = [("\"expected\":\"x\",", "value = null")];
    for grader in ["equals", "contains", "regex"] {
        for (member, key) in texts.iter().chain(&others).chain(&present) {
            let place = suite(&format!("[[graders]]\ntype = \"{grader}\"\n{key}\n"));
            place.work.write("suite.toml", place.work.read("suite.toml").replace(".csv", ".jsonl"));
            let good = "{\"expected\":\"x\",\"question\":\"a\"}";
            place.work.write("cases.jsonl", format!("{good}\n{{{member}\"id\":\"b\",\"question\":\"c\"}}\n"));
            let ran = eval(&place, "cp-eval suite.toml --min 0");
            // An answer can be empty, but each answer contains an empty text.
            let is_there = present.contains(&(*member, *key)) || grader == "equals" && member.contains("\" ");
            let is_there = is_there || grader == "equals" && member.contains("\"\"");
            let case = format!("{grader} {member} {key}: {ran:?}");
            assert_eq!(place.work.join("suite.eval/answers.jsonl").exists(), is_there, "{case}");
            if is_there {
                ran.success();
                continue;
            }
            let named = if key.contains("null") { "case 1: " } else { "case b: " };
            let named = format!("{named}the grader {grader} has nothing to compare with");
            assert!(ran.status == 2 && ran.stderr.contains(&named), "{case}");
        }
    }
    // False and 0 are expectations like others.
    for (value, score) in [("false", 1.0), ("true", 0.0)] {
        let place = suite("[[graders]]\ntype = \"equals\"\n[[graders]]\ntype = \"contains\"\n");
        place.work.write("suite.toml", place.work.read("suite.toml").replace(".csv", ".jsonl"));
        place.work.write("cases.jsonl", format!("{{\"question\":\"a\",\"expected\":{value}}}\n"));
        place.work.write("answers", "{\"content\":\"false\"}\n");
        eval(&place, "cp-eval suite.toml").success();
        assert_eq!(rows(&place)[0]["score"], score, "{value}");
    }
}

/// Each key of a suite without its last letter, and the control, the suite that has them all.
#[test]
fn unknown_or_missing_key_of_suite_is_named() {
    let graders = [
        "type = \"equals\"\nname = \"one\"",
        "type = \"contains\"\nvalue = \"x\"",
        "type = \"schema\"",
        "type = \"jq\"\nexpression = \"true\"",
        "type = \"shell\"\ncommand = \"grep -q i\"",
        "type = \"judge\"\nprompt = \"p.md\"\nmodel = \"stub\"",
    ];
    let whole = format!(
        "{SUITE}repeats = 1\nschema = \"s.json\"\noptions = []\n[[graders]]\n{}\n",
        graders.join("\n[[graders]]\n")
    );
    let keys = whole.lines().enumerate().filter_map(|(at, line)| Some((at, line.split_once(" = ")?.0)));
    for (at, key) in keys.map(|(at, key)| (Some(at), key)).chain([(None, "")]) {
        let place = suite("");
        place.policy("[exec]\nallowed_commands = [\"grep\"]\n");
        place.work.write("s.json", "true");
        let wrong = &key[..key.len().saturating_sub(1)];
        let lines = whole.lines().enumerate();
        let lines =
            lines.map(|(line, text)| if Some(line) == at { text.replacen(key, wrong, 1) } else { text.to_owned() });
        place.work.write("suite.toml", lines.collect::<Vec<_>>().join("\n"));
        let ran = place.shell("sh", "cp-eval suite.toml").run();
        assert_eq!(place.work.join("suite.eval/answers.jsonl").exists(), at.is_none(), "{key}: {ran:?}");
        if at.is_none() {
            continue;
        }
        let named = if key == "type" {
            "`null` is not a grader: equals,".to_owned()
        } else {
            format!("no key `{wrong}`, but ")
        };
        assert!(ran.status == 2 && ran.stderr.contains(&named), "{key}: {ran:?}");
    }
    for grader in ["jq", "shell", "judge"] {
        let ran = eval(&suite(&format!("[[graders]]\ntype = \"{grader}\"\n")), "cp-eval suite.toml");
        let reason = format!("a grader of type {grader} needs the key `");
        assert!(ran.status == 2 && ran.stderr.contains(&reason), "{ran:?}");
    }
}

/// Each signal in each stage that waits: what runs ends with the script, and the same command goes on from there.
#[test]
fn signal_ends_the_evaluation_which_resumes() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for (stage, grader) in [
            ("answers", "type = \"equals\""),
            ("judge", "type = \"judge\"\nprompt = \"p.md\"\nmodel = \"stub\""),
            ("shell", "type = \"shell\"\ncommand = \"sleep 30\""),
        ] {
            let place = suite(&format!("[[graders]]\n{grader}\n"));
            place.policy("[exec]\nallowed_commands = [\"sleep\"]\n");
            let slow = |count: usize| "{\"content\":\"{\\\"score\\\":1}\",\"delay_ms\":400}\n".repeat(count);
            place.work.write("answers", slow(3));
            let answers =
                place.work.join(if stage == "judge" { "suite.eval/judge.0" } else { "suite.eval/answers.jsonl" });
            let lines = || std::fs::read_to_string(&answers).map_or(0, |text| text.lines().count());
            let intents = || place.home.records("ledger/cp-exec.jsonl").len();
            let ran =
                place.shell("sh", "exec cp-eval suite.toml").env("CP_STUB_SCRIPT", place.work.join("answers")).start();
            until(stage, || if stage == "shell" { intents() > 1 } else { lines() > 0 });
            ran.signal(signal);
            let ended = ran.wait();
            assert_eq!(ended.status, 130, "{stage} {signal:?}: {ended:?}");
            assert!(ended.stderr.contains("cp-eval: the evaluation was interrupted: repeat it to resume"), "{ended:?}");
            // Nothing goes on after the end.
            let before = (lines(), intents());
            std::thread::sleep(std::time::Duration::from_millis(600));
            assert_eq!((lines(), intents()), before, "{stage} {signal:?}");
            if stage == "answers" {
                let resumed =
                    eval(&place, "cp-eval suite.toml; grep -c '\"event\":\"llm.request\"' $CP_HOME/ledger/*llm*");
                // One request was under way.
                assert!(["3", "4"].contains(&resumed.stdout.lines().last().unwrap()), "{resumed:?}");
                assert_eq!(rows(&place).len(), 3, "{resumed:?}");
            }
        }
    }
}

#[test]
fn failure_that_is_not_of_the_answers_has_its_status() {
    for (options, exit) in [
        (">/dev/full", 1),
        (">&-", 1),
        ("--out cases.csv/x", 1),
        ("--jobs 0", 2),
        ("--min .", 2),
        ("; rm p.md; cp-eval suite.toml --out other", 3),
        ("| true", 0),
    ] {
        let place = suite("[[graders]]\ntype = \"equals\"\n");
        let ran = eval(&place, &format!("cp-eval suite.toml {options}"));
        assert_eq!(ran.status, exit, "{options}: {ran:?}");
        assert_eq!(ran.stderr.contains("cp-eval: "), exit != 0, "{options}: {ran:?}");
        assert!(!ran.stderr.contains("resume"), "repeating it does not help: {options}: {ran:?}");
    }
}

#[test]
fn files_of_the_person_are_kept_wherever_the_results_go() {
    let place = suite("[[graders]]\ntype = \"contains\"\nvalue = \"i\"\n");
    let names = ["case.md", "cases", "problem", "suite.json", "items", "graded", "appended", "commands", "grades.0"];
    for name in names {
        place.work.write(format!("out/{name}"), "mine\n");
    }
    eval(&place, "cp-eval suite.toml --out out").success();
    for name in names {
        assert_eq!(place.work.read(format!("out/{name}")), "mine\n", "{name}");
    }
    eval(&place, "cp-eval suite.toml --out fresh");
    let made = place.sh("ls fresh").success().stdout;
    assert!(names.iter().all(|name| !made.lines().any(|line| line == *name)), "{made}");
    for out in [".", "out/.."] {
        let refused = eval(&place, &format!("cp-eval suite.toml --out {out}"));
        assert!(refused.status == 2 && refused.stderr.contains("give another --out"), "{refused:?}");
    }
}

//! Many requests at once: answers in the order of the requests, nothing lost when it ends early.

use std::fmt::Write as _;

use cp_testkit::{Signal, required, until};
use serde_json::Value;

use crate::exec::{Exec, Who, alive, everyone, policy_with};

fn sh(script: &str) -> String {
    format!("{}\n", serde_json::json!({"tool": "shell", "arguments": {"argv": ["sh", "-c", script]}}))
}

#[test]
fn concurrent_requests_are_answered_in_order() {
    for who in everyone() {
        let exec = Exec::new(who);
        // The first waits for the last, which can only be if they run together.
        let mut input = sh("while ! test -e last; do sleep 0.01; done; echo first");
        input += &sh("exit 3");
        input += "{\"tool\":\"shell\",\"arguments\":{\"argv\":[\"shred\",\"x\"]}}\n";
        input += "{\"tool\":\"system\",\"operation\":\"get_info\"}\n";
        input += &sh("echo last > last; echo last");
        let (answers, status) = exec.answers(&["--jobs", "4", "--timeout", "20"], &input);
        assert_eq!(status, 1, "{answers:?}");
        let index = |answer: &Value| {
            let index =
                if answer["ok"] == true { &answer["data"]["index"] } else { &answer["error"]["details"]["index"] };
            index.as_u64()
        };
        let order: Vec<_> = answers[..5].iter().map(index).collect();
        assert_eq!(order, (0..5).map(Some).collect::<Vec<_>>(), "{answers:?}");
        assert_eq!(answers[0]["data"]["stdout"], "first\n");
        assert_eq!(answers[1]["error"]["details"]["return_code"], 3);
        assert_eq!(answers[2]["error"]["details"]["rule"], "restricted");
        assert_eq!(answers[4]["data"]["stdout"], "last\n");
        assert_eq!(
            (answers[5]["error"]["details"]["succeeded"].as_u64(), answers[5]["error"]["details"]["failed"].as_u64()),
            (Some(3), Some(2))
        );
        assert_eq!((exec.entries("exec.intent").len(), exec.entries("exec.result").len()), (3, 3));
    }
}

#[test]
fn more_requests_than_jobs_are_all_answered_and_leave_nothing() {
    let exec = crate::paths::project(Who::Me);
    let input = (0..40).fold(String::new(), |mut input, n| {
        let _ = write!(input, "{}", sh(&format!("echo {n}")));
        input
    });
    let (answers, _) = exec.answers(&["--jobs", "3"], &input);
    let said: Vec<&str> = answers[..40].iter().map(|answer| answer["data"]["stdout"].as_str().unwrap()).collect();
    assert_eq!(said, (0..40).map(|n| format!("{n}\n")).collect::<Vec<_>>());
    assert_eq!(answers[40]["data"]["succeeded"], 40);
    assert_eq!(exec.work.names(), Vec::<String>::new());
}

#[test]
fn signal_ends_all_runs_and_records_results() {
    for who in everyone() {
        let exec = Exec::new(who);
        let word = format!("jobs-{}-{who:?}", std::process::id());
        let mut child = exec.command(&["--jobs", "2"]).start();
        for n in 0..6 {
            child.write(sh(&format!("echo {n}; touch began{n}; sleep 600 # {word}")));
        }
        until("two of them", || exec.work.join("began0").exists() && exec.work.join("began1").exists());
        child.signal(Signal::TERM);
        let asked = std::time::Instant::now();
        // Its standard input stays open.
        let ran = child.wait();
        // Their own deadline would be 30 seconds from their start.
        assert!(asked.elapsed() < std::time::Duration::from_secs(20), "it waited for them");
        assert_eq!(ran.status, 130, "{who:?} {ran:?}");
        let answers = ran.records();
        let partial: Vec<&Value> = answers.iter().map(|answer| &answer["error"]["details"]["stdout"]).collect();
        assert!(partial.contains(&&"0\n".into()) && partial.contains(&&"1\n".into()), "{answers:?}");
        assert!(!alive(&word), "{who:?}: something survived");
        let (intents, results) = (exec.entries("exec.intent").len(), exec.entries("exec.result").len());
        assert!(intents >= 2 && intents == results, "{intents} intents, {results} results");
    }
}

#[test]
fn first_failure_stops_stream_after_running_requests() {
    let exec = Exec::new(Who::Me);
    // The first fails once the second has begun.
    let input = sh("while ! test -e began; do sleep 0.01; done; exit 1")
        + &sh("touch began; sleep 0.2; echo late > late")
        + &sh("echo third");
    let (answers, status) = exec.answers(&["--jobs", "2", "--row-failures", "stop"], &input);
    assert_eq!(status, 1, "{answers:?}");
    assert_eq!(answers.last().unwrap()["ok"], false);
    assert_eq!(exec.entries("exec.intent").len(), exec.entries("exec.result").len());
    assert!(exec.work.join("late").exists());
}

#[test]
fn ledger_has_keyed_hashes_of_variable_values() {
    let exec = Exec::with_policy(Who::Me, &policy_with("env_allow = [\"WORD\"]"));
    for value in ["swordfish", "swordfish", "haddock"] {
        assert_eq!(exec.ask(&["--env", &format!("WORD={value}"), "--", "sh", "-c", "echo $WORD"]).1, 0);
    }
    let intents = exec.entries("exec.intent");
    assert!(intents.iter().all(|intent| !intent.to_string().contains("swordfish")), "{intents:?}");
    let hash = |n: usize| intents[n]["data"]["env"]["WORD"].as_str().unwrap();
    assert!(hash(0).starts_with("hmac-sha256:") && hash(0) == hash(1) && hash(0) != hash(2));
}

#[test]
fn large_program_hash_is_cached_and_recorded() {
    let exec = Exec::new(Who::Me);
    let large = std::fs::metadata("/usr/bin/python3").is_ok_and(|meta| meta.len() >= 1 << 20);
    if !required("a large /usr/bin/python3, of which something is kept", large) {
        return;
    }
    for _ in 0..2 {
        assert_eq!(exec.ask(&["--", "python3", "-c", "1"]).1, 0);
    }
    let known: Vec<bool> =
        exec.entries("exec.intent").iter().map(|entry| entry["data"]["exe"]["cached"].as_bool().unwrap()).collect();
    assert_eq!(known, [false, true]);
}

#[test]
fn unread_standard_input_is_noticed() {
    let exec = Exec::new(Who::Me);
    let (answers, _) = exec.answers(&["--", "sh", "-c", "sleep 0.1; cat"], "forgotten\n");
    assert_eq!(answers[0]["data"]["stdout"], "", "{answers:?}");
    assert_eq!(answers[0]["meta"]["notices"][0]["type"], "stdin_ignored", "{answers:?}");
    let file = exec.write("in", "x");
    let ran = exec.command(&["--", "cat"]).stdin_from(std::fs::File::open(file).unwrap()).run();
    assert_eq!((ran.status, &ran.records()[0]["error"]["code"]), (2, &"E_USAGE".into()), "{ran:?}");
    let answer = exec.ask(&["--", "true"]).0;
    assert!(answer["meta"]["notices"].as_array().is_none_or(|all| all.iter().all(|n| n["type"] != "stdin_ignored")));
}

//! Requests on standard input: answers in their order, nothing lost when it ends early.

use cp_testkit::{Signal, required, until};

use crate::exec::{Exec, Who, alive, everyone, policy_with};

fn sh(script: &str) -> String {
    format!(
        "{}\n",
        serde_json::json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": ["sh", "-c", script]}})
    )
}

#[test]
fn requests_are_answered_in_order_and_leave_nothing() {
    for who in everyone() {
        let exec = Exec::new(who);
        let mut input = sh("exit 3")
            + "{\"tool\":\"shell\",\"operation\":\"execute_command\",\"arguments\":{\"argv\":[\"shred\",\"x\"]}}\n";
        input += "{\"tool\":\"system\",\"operation\":\"get_info\"}\n";
        input.extend((3..20).map(|n| sh(&format!("echo {n}"))));
        let (answers, status) = exec.answers(&[], &input);
        assert_eq!((status, answers.len()), (1, 21), "{answers:?}");
        for (n, answer) in (0..20_u64).zip(&answers) {
            let of = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
            assert_eq!(of["index"], n, "{answer}");
            assert!(n < 3 || answer["data"]["stdout"] == format!("{n}\n"), "{answer}");
        }
        assert_eq!(answers[0]["error"]["details"]["return_code"], 3);
        assert_eq!(answers[1]["error"]["details"]["rule"], "restricted");
        let counts = &answers[20]["error"]["details"];
        assert_eq!((counts["succeeded"].as_u64(), counts["failed"].as_u64()), (Some(18), Some(2)));
        assert_eq!((exec.entries("exec.intent").len(), exec.entries("exec.result").len()), (18, 18));
        assert_eq!(exec.work.names(), Vec::<String>::new());
    }
}

#[test]
fn signal_ends_run_and_records_result() {
    for who in everyone() {
        let exec = Exec::new(who);
        let word = format!("requests-{}-{who:?}", std::process::id());
        let mut child = exec.command(&[]).start();
        for n in 0..3 {
            child.write(sh(&format!("echo {n}; touch began{n}; sleep 600 # {word}")));
        }
        until("the first", || exec.work.join("began0").exists());
        child.signal(Signal::TERM);
        let asked = std::time::Instant::now();
        // Its standard input stays open.
        let ran = child.wait();
        // Its own deadline would be 30 seconds from its start.
        assert!(asked.elapsed() < std::time::Duration::from_secs(20), "it waited for the run");
        assert_eq!(ran.status, 130, "{who:?} {ran:?}");
        let answers = ran.records();
        assert_eq!(answers[0]["error"]["details"]["stdout"], "0\n", "{answers:?}");
        assert!(!alive(&word), "{who:?}: something survived");
        assert!(!exec.work.join("began1").exists(), "{who:?}: the next request began");
        assert_eq!((exec.entries("exec.intent").len(), exec.entries("exec.result").len()), (1, 1));
    }
}

#[test]
fn refused_request_is_recorded_without_values_of_variables() {
    let exec = Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"true\"]\n");
    let input = r#"{"command":"absent","env":{"LANG":"word7"}}"#;
    for request in [
        format!(r#"{{"tool":"shell","operation":"execute_command","arguments":{input}}}"#),
        format!(
            r#"{{"ok":true,"schema_version":"1.0","type":"tool_call","data":{{"id":"1","name":"shell","input":{input}}}}}"#
        ),
        format!(r#"{{"schema_version":"1.0","type":"tool_call","data":{{"id":"1","name":"shell","input":{input}}}}}"#),
    ] {
        exec.command(&[]).stdin(request.clone()).run();
        let recorded = exec.entries("exec.refused").pop().unwrap()["data"]["asked"].to_string();
        assert!(recorded.contains(r#""env":{"LANG":"…"}"#) && recorded.contains("absent"), "{request}: {recorded}");
    }
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

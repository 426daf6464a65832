//! Behaviour at a terminal: words that look like options, quoted control characters, and a hangup.

use std::time::Duration;

use crate::exec::{Exec, POLICY, Who};

#[test]
fn words_after_dashes_belong_to_command() {
    let names = POLICY.replace("\"git\",", "\"git\", \"sort\", \"grep\", \"df\",");
    let exec = Exec::with_policy(Who::Me, &names);
    exec.write("f", "x\n");
    for words in [&["git", "--version"][..], &["sort", "-V", "f"], &["grep", "-h", "x", "f"], &["df", "-h", "."]] {
        let (answer, status) = exec.ask(&[&["--"], words].concat());
        assert_eq!((status, &answer["data"]["return_code"]), (0, &0.into()), "{words:?}: {answer}");
        assert_eq!(answer["data"]["argv"].as_array().unwrap().len(), words.len());
    }
    // The control: before the dashes they are cp-exec's own.
    assert!(exec.command(&["-h", "--", "git"]).run().success().stdout.contains("cp-exec"));
}

#[test]
fn request_of_contract_runs() {
    let exec = Exec::new(Who::Me);
    let request = r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"git --version","cwd":"CWD","env":{"CI":"1"},"timeout":60}}"#;
    let (answers, status) = exec.answers(&[], &request.replace("CWD", exec.work.to_str().unwrap()));
    assert_eq!((status, &answers[0]["data"]["argv"]), (0, &serde_json::json!(["git", "--version"])), "{answers:?}");
}

#[test]
fn escape_sequence_is_quoted_except_in_raw_output() {
    cp_testkit::needs!("python3");
    let exec = Exec::new(Who::Me);
    let osc = "\x1b]0;owned\x07\u{202e}";
    for format in ["json", "text", "raw"] {
        let ran = exec.command(&["--format", format, "--", osc]).run();
        assert_ne!(ran.status, 0);
        assert!(ran.stderr.contains("^[]0;owned^G<U+202E>"), "{format}: {:?}", ran.stderr);
        assert!(!ran.stderr.contains('\x1b'), "{format}: {:?}", ran.stderr);
    }
    let words = ["--", "python3", "-c", "print('\\x1b[2Jx')"];
    let shown = |format: &str| exec.command(&[&["--format", format], &words[..]].concat()).run().success().stdout;
    assert_eq!(shown("text"), "^[[2Jx\n");
    assert_eq!(shown("raw"), "\x1b[2Jx\n");
}

#[test]
fn hangup_writes_closing_line_unless_ignored() {
    let exec = Exec::new(Who::Me);
    let program = exec.command(&["--", "sleep", "1.5"]);
    let running = program.start();
    wait_for_intent(&exec);
    running.signal(rustix::process::Signal::HUP);
    let ran = running.finish();
    let answer = ran.records().pop().unwrap();
    assert_eq!((ran.status, &answer["error"]["code"]), (130, &"E_INTERRUPTED".into()), "{ran:?}");
    assert_eq!(exec.entries("exec.result").len(), 1);

    // The control: under `nohup` it goes on to its own end.
    let exec = Exec::new(Who::Me);
    let line = format!("trap '' HUP; exec {} --home {} -- sleep 1.5", program_path(), exec.home.display());
    let running = exec.program("sh").without_env("CP_HOME").args(["-c", &line]).start();
    wait_for_intent(&exec);
    running.signal(rustix::process::Signal::HUP);
    assert_eq!(running.finish().status, 0);
}

fn program_path() -> String {
    cp_testkit::program("cp-exec").display().to_string()
}

fn wait_for_intent(exec: &Exec) {
    for _ in 0..500 {
        if exec.ledger().exists() && !exec.entries("exec.intent").is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no command was begun");
}

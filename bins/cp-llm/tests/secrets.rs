//! Keys are placed in all sources, and searched for in all output.

use std::path::Path;

use cp_testkit::Server;
use cp_testkit::server::json as json_answer;
use serde_json::json;

use crate::llm::Llm;
use crate::messages::{played, stream, whole};

const KEY: &str = "sk-planted-0123456789abcdefghij";

fn everything_in(directory: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.push_str(&everything_in(&path));
        } else {
            all.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
    all
}

#[test]
fn key_repeated_in_error_is_redacted() {
    let echo = json!({"error":{"type":KEY,"message":format!("the key {KEY} is wrong")}});
    for (backend, variable) in [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")] {
        for status in [200, 401, 429, 500] {
            let script = if status == 200 { whole(backend, "fine") } else { json_answer(status, &echo) };
            let server = Server::playing(vec![script]);
            let llm = Llm::asking(backend, &server).set(variable, KEY).set("OTHER_SECRET", KEY);
            for arguments in [
                &["-m", "m", "--retry-max-wait", "0", "hi"][..],
                &["-m", "m", "--retry-max-wait", "0", "--stream", "--format", "text", "hi"],
                &["-m", "m", "--dry-run", "hi"],
                &["context"],
                &["doctor"],
                &["models"],
                &["reference"],
            ] {
                let ran = llm.run(arguments);
                assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(KEY), "{arguments:?} {status}: {ran:?}");
            }
            let sent = server.requests()[0].head.clone();
            assert!(sent.contains(KEY), "the server did get it");
            assert!(!everything_in(&llm.root).contains(KEY), "the ledger has it");
        }
    }
}

#[test]
fn key_repeated_in_answer_is_redacted() {
    for backend in ["anthropic", "openai"] {
        let variable = if backend == "anthropic" { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        for is_stream in [false, true] {
            let said = format!("your key is {KEY}, and sk-plan is none");
            let pieces: Vec<&str> =
                said.as_bytes().chunks(2).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            // The pieces have two bytes, so that no event has the whole key.
            let script = if is_stream { played(&stream(backend, &[], &pieces)) } else { whole(backend, &said) };
            let server = Server::playing(vec![script]);
            let llm = Llm::asking(backend, &server).set(variable, KEY);
            for format in ["json", "text"] {
                let tape = llm.work.join(format!("tape-{format}"));
                let arguments = ["-m", "m", "--format", format, "--record", tape.to_str().unwrap(), "hi"];
                let ran = llm.run(&[&arguments[..], if is_stream { &["--stream"] } else { &[] }].concat());
                assert_eq!(ran.status, 0, "{}", ran.stdout);
                let all = ran.stdout.clone() + &std::fs::read_to_string(&tape).unwrap();
                assert!(!all.contains(KEY), "{backend} {is_stream}: {all}");
                let text = if format == "text" { ran.stdout } else { content_of(&ran) };
                assert_eq!(text.trim_end(), "your key is [REDACTED], and sk-plan is none", "{backend} {is_stream}");
            }
            assert!(!everything_in(&llm.root).contains(KEY));
        }
    }
}

fn content_of(ran: &cp_testkit::Outcome) -> String {
    let deltas: String = ran.of("delta").iter().map(|delta| delta["text"].as_str().unwrap().to_owned()).collect();
    let content = ran.of("message")[0]["content"].as_str().unwrap().to_owned();
    assert!(deltas.is_empty() || deltas == content, "{deltas}");
    content
}

#[test]
fn key_file_is_read_and_reported_in_context() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "fine")]);
    let file = llm.work.write("key", format!("{KEY}\n"));
    let llm = llm.set("OPENAI_API_KEY", "").set("OPENAI_API_KEY_FILE", file.to_str().unwrap());
    assert_eq!(llm.run(&["-m", "m", "hi"]).status, 0);
    assert_eq!(server.requests()[0].header("authorization").unwrap(), format!("Bearer {KEY}"));
    let direct = llm.command(&["-m", "m", "hi"]).env("OPENAI_API_KEY", "key-in-variable-0123");
    direct.run().success();
    assert_eq!(server.requests()[1].header("authorization").unwrap(), "Bearer key-in-variable-0123");
    let credentials = llm.run(&["context"]).only()["data"]["credentials"].clone();
    assert_eq!(
        credentials,
        json!({
            "configured": true,
            "valid": null,
            "expires_at": null,
            "refreshable": false,
            "sources": [{"provider":"openai","source":"OPENAI_API_KEY_FILE"}],
        })
    );
}

#[test]
fn two_keys_need_model_or_backend() {
    let server = Server::playing(vec![whole("openai", "fine")]);
    let llm = Llm::asking("openai", &server).set("ANTHROPIC_API_KEY", KEY).set("CP_BACKEND", "");
    assert_eq!(llm.run(&["-m", "some", "hi"]).first_error()["code"], "E_CONFIG");
    assert_eq!(llm.run(&["-m", "gpt-x", "hi"]).only()["data"]["backend"], "openai");
    assert_eq!(llm.run(&["-m", "some", "--backend", "openai", "hi"]).status, 0);
    assert_eq!(llm.set("CP_BACKEND", "openai").run(&["-m", "some", "hi"]).status, 0);
}

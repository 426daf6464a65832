//! What holds for every verb of every program, whatever it does: how it ends at a signal, what it does with bytes, secrets and streams.

use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, Instant};

use cp_testkit::{Background, PROGRAMS, Place, Signal};
use serde_json::Value;

/// Longer than the promise, for machines that do other things meanwhile.
const SOON: Duration = Duration::from_secs(2);

fn reference(program: &str) -> Value {
    Place::new().program(program).arg("reference").run().success().closing()["data"].clone()
}

/// The words of every verb.
fn verbs() -> Vec<Vec<String>> {
    let mut verbs = Vec::new();
    for program in PROGRAMS {
        for command in reference(program)["commands"].as_array().unwrap() {
            let path = command["path"].as_str().unwrap().split_whitespace();
            verbs.push(std::iter::once(program).chain(path).map(str::to_owned).collect());
        }
    }
    assert!(verbs.len() > 70, "{verbs:?}");
    verbs
}

/// A named pipe: whoever opens it waits for the other side.
fn pipe(place: &Place, name: &str) {
    place.program("mkfifo").arg(name).run().success();
}

#[track_caller]
fn ends_at(signal: Signal, child: Background) {
    std::thread::sleep(Duration::from_millis(300));
    let sent = Instant::now();
    child.signal(signal);
    child.wait().failed(130, "E_INTERRUPTED");
    assert!(sent.elapsed() < SOON, "it took {:?}", sent.elapsed());
}

#[test]
fn work_that_does_not_look_for_signals_is_ended_by_them() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new();
        place.program("cp-log").args(["append", "-f", "L", "one"]).run().success();
        pipe(&place, "f");
        for words in [
            &["cp-log", "query", "--jq", "def f: f; f", "L"][..],
            &["cp-log", "append", "--plain", "-f", "f", "x"],
            &["cp-log", "query", "f"],
            &["cp-log", "verify", "f"],
            &["cp-compose", "-s", "@f", "--", "text"],
        ] {
            ends_at(signal, place.program(words[0]).args(&words[1..]).start());
        }
    }
}

#[test]
fn every_program_ends_at_a_signal_while_it_waits_for_its_settings() {
    let place = Place::new();
    place.home.write("config/unused", "");
    pipe(&place, &place.home.join("config/cp.toml").display().to_string());
    for program in PROGRAMS {
        for verb in ["reference", "doctor"] {
            ends_at(Signal::TERM, place.program(program).arg(verb).start());
        }
    }
}

#[test]
fn a_wait_for_a_lock_ends_at_a_signal_and_the_lock_is_had_without_one() {
    let place = Place::new();
    place.program("cp-log").args(["append", "-f", "L", "one"]).run().success();
    let held = std::fs::File::open(place.work.join("L")).unwrap();
    held.lock().unwrap();
    ends_at(Signal::TERM, place.program("cp-log").args(["append", "-f", "L", "two"]).start());
    let waits = place.program("cp-log").args(["append", "-f", "L", "three"]).start();
    std::thread::sleep(Duration::from_millis(100));
    held.unlock().unwrap();
    assert_eq!(waits.wait().success().closing()["data"]["seq"], 2);
}

#[test]
fn what_waits_for_a_child_ends_with_it() {
    let place = Place::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", server.local_addr().unwrap());
    let session = place.program("cp-session").arg("start").run().success().closing()["data"]["session_id"].clone();
    let session = session.as_str().unwrap();
    for role in ["user", "assistant"].repeat(3) {
        let words = ["append", "--session", session, "--role", role, "--", "words"];
        place.program("cp-session").args(words).run().success();
    }
    let words = ["compact", "--session", session, "--keep", "2", "--backend", "openai", "--model", "m"];
    let compact = place.program("cp-session").args(words);
    ends_at(Signal::TERM, compact.env("OPENAI_API_KEY", "key-of-the-test").env("OPENAI_BASE_URL", &base).start());
    let doctor = place.program("cp-llm").arg("doctor");
    ends_at(Signal::INT, doctor.env("OPENAI_API_KEY", "key-of-the-test").env("OPENAI_BASE_URL", &base).start());
    let left = place.program("pgrep").args(["-f", &format!("cp-llm.*{session}")]).run();
    assert_eq!(left.stdout, "", "the child is still there");
}

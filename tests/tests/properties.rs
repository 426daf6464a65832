//! What holds for every verb of every program, whatever it does: how it ends at a signal, what it does with bytes,
//! secrets and streams.

mod bytes;
mod modes;
mod rows;
mod secrets;
mod streams;
mod waits;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, Instant};

use cp_testkit::{Background, PROGRAMS, Place, Signal};

/// Longer than the promise, for machines that do other things meanwhile.
const SOON: Duration = Duration::from_secs(2);

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
    // What asks the model is a cp-llm of this test: the kernel lists it with the home.
    let children = || -> usize {
        let home = format!("CP_HOME={}", place.home.display());
        let read = |path: &std::path::Path, file: &str| std::fs::read(path.join(file)).unwrap_or_default();
        let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        let paths = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| has(&read(path, "cmdline"), "cp-llm") && has(&read(path, "environ"), &home)).count()
    };
    let compact = place.program("cp-session").args(words);
    let compact = compact.env("OPENAI_API_KEY", "key-of-the-test").env("OPENAI_BASE_URL", &base).start();
    cp_testkit::until("the model is asked", || children() > 0);
    ends_at(Signal::TERM, compact);
    assert_eq!(children(), 0, "the child is still there");
    let doctor = place.program("cp-llm").arg("doctor");
    ends_at(Signal::INT, doctor.env("OPENAI_API_KEY", "key-of-the-test").env("OPENAI_BASE_URL", &base).start());
}

/// A file name in an encoding of old: not UTF-8.
fn name_in_latin_1() -> OsString {
    OsString::from_vec(b"caf\xe9.jsonl".to_vec())
}

#[test]
fn paths_are_bytes_and_come_back_as_bytes() {
    let place = Place::new();
    let ledger = name_in_latin_1();
    let llm = place.program("cp-llm").args(["--backend", "stub", "--ledger"]).arg(&ledger).args(["--", "text"]).run();
    let receipt = llm.success().closing()["data"]["receipt"].clone();
    let named = place.work.join(&ledger);
    assert!(named.is_file(), "the ledger has another name: {:?}", place.work.names());
    let decoded = place.program("base64").arg("-d").stdin(receipt["ledger_bytes"].as_str().unwrap()).run();
    assert_eq!(decoded.bytes(), std::os::unix::ffi::OsStrExt::as_bytes(named.as_os_str()));
    let audited = place.program("cp-log").args(["query", "--event", "command"]).arg(&ledger).run().success();
    let line = &audited.of("entry")[0]["data"];
    let at = line["argv"].as_array().unwrap().iter().position(|word| word == "caf\u{fffd}.jsonl").unwrap();
    assert_eq!(line["argv_bytes"][at], "Y2Fm6S5qc29ubA==", "{line}");
    assert!(line["argv_bytes"][0].is_null(), "{line}");
    place.program("cp-log").arg("verify").arg(&ledger).run().success();
    let absent = place.program("cp-log").arg("tip").arg(OsString::from_vec(b"no\xe9".to_vec())).run();
    assert!(absent.failed(3, "E_NOT_FOUND")["details"]["file_bytes"].is_string());
}

#[test]
fn a_home_of_any_bytes_is_handed_on_to_every_program() {
    let place = Place::new();
    let home = place.root.join(OsString::from_vec(b"h\xe9".to_vec()));
    let run =
        |program: &str, words: &[&str]| place.program(program).arg("--home").arg(&home).args(words).run().success();
    run("cp-shell", &["init"]);
    let session = run("cp-session", &["start"]).closing()["data"]["session_id"].as_str().unwrap().to_owned();
    run("cp-session", &["append", "--session", &session, "--", "hello"]);
    let composed = run("cp-compose", &["--session", &session, "--", "again"]);
    assert_eq!(composed.closing()["data"]["messages"].as_array().unwrap().len(), 2, "{composed:?}");
    run("cp-toolloop", &["--backend", "stub", "--", "task"]);
    assert!(run("cp-log", &["context"]).closing()["data"]["home_bytes"].is_string());
    assert!(home.join("planes").is_dir());
}

#[test]
fn base_of_every_verb_must_be_an_existing_directory() {
    let world = rows::World::new("022");
    for verb in rows::verbs() {
        for (base, code) in [("nowhere", "E_NOT_FOUND"), ("lines/none", "E_NOT_FOUND"), ("lines", "E_VALIDATION")] {
            let line = format!("{} --base {base} {}", verb.row.verb, verb.row.words);
            let ran = world.script(&verb.row, &line).run();
            assert!(ran.stdout.contains(code) || ran.stderr.contains(code), "{line}: {ran:?}");
        }
    }
}

/// A key that nobody has, made here so that no scanner takes this file for a leak.
fn canary() -> String {
    format!("ghp_{}", &"a1B2c3D4e5".repeat(4)[..36])
}

#[test]
fn no_verb_repeats_a_secret_that_was_typed_in_the_wrong_place() {
    let canary = canary();
    for verb in cp_tests::verbs().map(|verb| verb.words()) {
        let place = Place::new();
        for words in [&[canary.as_str()][..], &["--dry-run", &canary], &["--ledger", "l", "--session", &canary]] {
            // cp-llm and cp-compose take a text, which is their answer.
            if !verb.contains(' ') && words.len() == 1 {
                continue;
            }
            let ran = place.program("sh").args(["-c", "exec $0 \"$@\"", &verb]).args(words).with_programs().run();
            assert!(!ran.stderr.contains(&canary), "{verb}: {}", ran.stderr);
            if ran.status != 0 {
                assert!(!ran.stdout.contains(&canary), "{verb}: {}", ran.stdout);
            }
        }
        // Files that were asked for by that name are the caller's own; what the programs keep is not.
        let found = place.program("grep").args(["-rls", &canary, "l"]).arg(&place.home).run();
        assert_eq!(found.stdout, "", "{verb}");
    }
    // The same words with a name that is no secret are repeated.
    assert!(Place::new().program("cp-log").args(["tip", "plain-name"]).run().stdout.contains("plain-name"));
}

#[test]
fn the_record_of_a_command_line_has_its_true_exit() {
    let place = Place::new();
    let last = || {
        let lines =
            place.program("cp-log").args(["query", "--event", "error"]).arg(place.home.join("ledger/cp-llm.jsonl"));
        lines.run().of("entry").pop().map(|entry| entry["data"].clone())
    };
    let script = place.work.join("script");
    std::fs::write(&script, "{\"error\":{\"code\":\"E_SERVER\",\"message\":\"down\"}}\n").unwrap();
    let rows = "{\"messages\":7}\n{\"messages\":8}\n";
    let ran = place.program("cp-llm").args(["--backend", "stub", "--rows"]).stdin(rows).run();
    assert_eq!(ran.status, 2, "{ran:?}");
    let record = last().expect("a record of the failure");
    assert_eq!((&record["exit"], &record["code"]), (&2.into(), &"E_VALIDATION".into()), "{record}");
    let ran = place.program("cp-llm").args(["--backend", "stub"]).stdin("one text").run();
    assert_eq!(ran.status, 0);
    assert_eq!(last().unwrap(), record, "a success adds no record of a failure");
}

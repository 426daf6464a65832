//! Command lines of any bytes and any words.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use cp_testkit::{Outcome, is_sampled, times};
use cp_tests::check_contract;

use super::rows::{Row, SHARED, Verb, World, verbs};

/// What came out is what programs may print: lines of the contract, or the bytes that a tee passes on.
#[track_caller]
fn check_output(verb: &Verb, ran: &Outcome) {
    assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    let own = !verb.passes_lines() && !["cp-shell"].contains(&verb.row.verb.as_str());
    if own && !verb.row.verb.ends_with(" completions") || ran.status != 0 {
        check_contract(ran);
    }
}

#[test]
fn words_for_help_are_data_after_the_dashes() {
    let world = World::new("022");
    for (at, verb) in verbs().into_iter().enumerate() {
        let row = Row { before: "", ..verb.row.clone() };
        let backend = if verb.has("--backend") && verb.row.words.contains("--backend") { "--backend stub" } else { "" };
        let words = ["--help", "-h", "help", "--version", "-V", "version", "update"];
        for (_, word) in words.iter().enumerate().filter(|(word, _)| is_sampled(*word, at, 4)) {
            let ran = world.script(&row, &format!("{} {backend} -- {word} </dev/null", row.verb)).run();
            check_output(&verb, &ran);
            assert!(!ran.stdout.contains("Usage: "), "{ran:?}");
        }
    }
}

#[test]
fn bytes_that_are_not_text_are_a_path_or_an_error_that_names_the_option() {
    let world = World::new("022");
    let bad = OsString::from_vec(b"caf\xe9".to_vec());
    let (mut seen, mut tried, mut faults) = (0, 0, Vec::new());
    for (at, verb) in verbs().iter().enumerate() {
        for param in verb.params().iter().filter(|param| param["type"] != "flag") {
            let name = param["name"].as_str().unwrap();
            if SHARED.contains(&name) && (at + 6) % 10 != 0 {
                continue;
            }
            seen += 1;
            if !is_sampled(seen, 0, 3) {
                continue;
            }
            tried += 1;
            let line = verb.with(param, "\"$BAD\"");
            let ran = world.script(&verb.row, &line).env("BAD", &bad).run();
            check_output(verb, &ran);
            if ran.status == 0 {
                continue;
            }
            let error = ran.error();
            let told = format!("{} {}", error["message"], error["details"]);
            // A word of a command is taken too, and quoted as bash does.
            let names = [name, param["short"].as_str().unwrap_or(name), "caf\u{fffd}", "not UTF-8", "$'caf"];
            // The path was taken, and what the verb is about is not there or lies outside of the base.
            let is_outside =
                name == "--base" && error["details"]["rule"].as_str().is_some_and(|rule| rule.starts_with("paths"));
            let is_answered = error["details"]["reason"] == "schema";
            // A key was read and is another one.
            let is_other_key = error["code"] == "E_INTEGRITY";
            let is_taken = error["code"] == "E_NOT_FOUND"
                || is_other_key
                || error["message"] == "the input is empty"
                || is_outside
                || is_answered;
            if !is_taken && !names.iter().any(|name| told.contains(name)) {
                faults.push(format!("{line}: {error}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(tried > times(100, 300), "{tried}");
}

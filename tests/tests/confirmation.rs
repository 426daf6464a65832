//! Confirm tokens and request ids, of every verb that `reference` lists as a write or an append. A verb that is new
//! needs a row in `confirmation.toml`.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cp_testkit::{Outcome, Place, until};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use serde_json::Value;
use sha2::Sha256;

/// How verbs are tried, each in a place of its own.
#[derive(Deserialize)]
struct Rows {
    write: Vec<Write>,
    append: Vec<Append>,
}

/// How a write is tried: what makes its place, the command, the same one about something else, and what changes what
/// the command is about.
#[derive(Deserialize)]
struct Write {
    verb: String,
    setup: String,
    command: String,
    other: String,
    change: String,
}

/// How an append is tried; `other` is empty if there is nothing else that it could be about.
#[derive(Deserialize)]
struct Append {
    verb: String,
    #[serde(default)]
    setup: String,
    command: String,
    #[serde(default)]
    other: String,
}

fn rows() -> Rows {
    toml::from_str(include_str!("confirmation.toml")).unwrap()
}

/// Two sessions with turns, which rows name so.
const SESSIONS: &str = "for n in 1 2; do cp-session start --format text >S$n; for m in a b c; do cp-session append --session \"$(cat S$n)\" -- $m; cp-session append --session \"$(cat S$n)\" --role assistant -- $m; done; done";

/// Verbs that are tried with their programs: one asks a person, the others take no request id.
const ELSEWHERE: [&str; 3] = ["cp-exec approve", "cp-log tee", "cp-session tee"];

/// The verbs of a class.
fn verbs(class: &str) -> Vec<String> {
    cp_tests::verbs().filter(|verb| verb.entry["type"] == class).map(|verb| verb.words()).collect()
}

/// Every file of home and working directory, but the keys, and the ledgers that record what is asked of the programs.
fn files(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![place.home.to_path_buf(), place.work.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let below = path.strip_prefix(&*place.home).unwrap_or(Path::new(""));
            if below.starts_with("keys") || below.components().any(|part| part.as_os_str() == "ledger") {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                files.insert(path.display().to_string(), Vec::new());
                directories.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap_or_default();
                // The command line itself is on the ledger of the session that it names.
                let lines = bytes.split_inclusive(|byte| *byte == b'\n');
                let is_audit = |line: &&[u8]| String::from_utf8_lossy(line).contains("\"argv\":[");
                let kept = lines.filter(|line| !is_audit(line)).collect::<Vec<_>>().concat();
                files.insert(path.display().to_string(), kept);
            }
        }
    }
    files
}

/// What home's ledgers say happened, but for the command lines themselves.
fn effects(place: &Place) -> Vec<Value> {
    let ledgers = place.home.at("ledger");
    let entries = ledgers.names().into_iter().flat_map(|name| ledgers.records(name)).collect::<Vec<_>>();
    let of_ledger = |entry: &Value| entry["event"] == "ledger.open" || entry["event"] == "ledger.made";
    let audits = |entry: &Value| entry["data"]["argv"].is_array() || of_ledger(entry);
    entries.into_iter().filter(|entry| !audits(entry)).collect()
}

type State = (BTreeMap<String, Vec<u8>>, Vec<Value>);

/// All that a request could change.
fn state(place: &Place) -> State {
    let mut files = files(place);
    files.retain(|path, _| {
        !path.contains("/state/") && !path.ends_with("/state") && *path != place.home.display().to_string()
    });
    (files, effects(place))
}

/// Fails with what differs.
#[track_caller]
fn same(now: &State, before: &State, what: &str) {
    let text = |bytes: Option<&Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    for path in now.0.keys().chain(before.0.keys()) {
        assert_eq!(text(now.0.get(path)), text(before.0.get(path)), "{what}: {path}");
    }
    assert_eq!(now.1, before.1, "{what}");
}

fn ready(setup: &str) -> Place {
    let place = Place::new();
    let setup = if setup == "SESSIONS" { SESSIONS } else { setup };
    if !setup.is_empty() {
        let ran = place.sh(&format!("set -e; {{ {setup}; }} >/dev/null"));
        assert_eq!(ran.status, 0, "{setup}: {}", ran.stderr);
    }
    place
}

#[track_caller]
fn refused(ran: &Outcome, reason: &str) {
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap_or_default()).unwrap();
    let error = &last["error"];
    assert_eq!((ran.status, &error["code"]), (6, &Value::from("E_CONFLICT")), "{ran:?}");
    assert_eq!(error["details"]["reason"], reason, "{error}");
}

fn token(place: &Place, command: &str) -> String {
    let shown = place.sh(&format!("{command} --dry-run")).data();
    assert!(shown["preview"]["changes"].as_array().is_some_and(|changes| !changes.is_empty()), "{command}: {shown}");
    shown["confirm_token"].as_str().unwrap().to_owned()
}

/// A token of this home that expired a while ago: made with its key, as the format says.
fn expired(place: &Place, token: &str) -> String {
    let mac = |key: &[u8], parts: &[&[u8]]| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes()
    };
    let digits = (3..token.len()).step_by(2).map(|at| u8::from_str_radix(&token[at..at + 2], 16).unwrap());
    let mut bytes: Vec<u8> = digits.collect();
    let (expiry, _) = bytes.split_first_chunk_mut::<8>().unwrap();
    *expiry = (u64::from_be_bytes(*expiry) - 1_000_000_000).to_be_bytes();
    let key = mac(&place.home.bytes("keys/confirm.key"), &[b"place\0", place.home.as_os_str().as_bytes()]);
    let seal = mac(&key, &[b"seal\0", &bytes[..32]]);
    bytes[32..].copy_from_slice(&seal[..8]);
    bytes.iter().fold("ct_".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn every_write_needs_the_token_of_exactly_this_and_uses_it_once() {
    let listed: Vec<String> = verbs("write");
    let writes = rows().write;
    assert_eq!(writes.len(), listed.len(), "{listed:?}");
    for Write { verb, setup, command, other, change } in &writes {
        assert!(listed.iter().any(|listed| listed == verb), "{verb}");
        println!("{verb}");
        let place = ready(setup);
        let before = (files(&place), effects(&place));
        let token = token(&place, command);
        same(&(files(&place), effects(&place)), &before, &format!("{verb}: a dry run changes nothing"));
        let confirm = |command: &str, token: &str| place.sh(&format!("{command} --confirm '{token}'"));
        place.sh(command).failed(5, "E_CONFIRMATION_REQUIRED");
        let last = if token.ends_with('0') { '1' } else { '0' };
        for forged in ["", "ct_", "yes", &format!("{}{last}", &token[..token.len() - 1])] {
            refused(&confirm(command, forged), "forged");
        }
        refused(&confirm(command, &expired(&place, &token)), "expired");
        refused(&confirm(other, &token), "changed");
        refused(&confirm(&format!("{command} --request-id r"), &token), "changed");
        assert!((files(&place), effects(&place)).1 == before.1, "{verb}: nothing was done");

        let copy = ready(setup);
        let for_what_was = self::token(&copy, command);
        assert_eq!(copy.sh(change).status, 0, "{change}");
        refused(&copy.sh(&format!("{command} --confirm {for_what_was}")), "changed");

        let done = confirm(command, &token);
        assert_eq!(done.status, 0, "{verb}: {}", done.stdout);
        let after = state(&place);
        refused(&confirm(command, &token), "replayed");
        refused(&confirm(other, &token), "replayed");
        same(&state(&place), &after, &format!("{verb}: a token that was used does nothing"));
        for (path, bytes) in files(&place).into_iter().chain(ledgers(&place)) {
            let text = String::from_utf8_lossy(&bytes);
            // The mark of a token that was used has its name.
            let is_mark = path.contains("/state/tokens/");
            assert!((is_mark || !path.contains(&token)) && !text.contains(&token), "{verb}: {path} has the token");
        }
    }
}

fn ledgers(place: &Place) -> Vec<(String, Vec<u8>)> {
    let ledgers = place.home.at("ledger");
    ledgers.names().into_iter().map(|name| (name.clone(), ledgers.bytes(name))).collect()
}

#[test]
fn a_write_with_a_request_id_answers_again_as_it_did() {
    for Write { verb, setup, command, other, .. } in &rows().write {
        println!("{verb}");
        let place = ready(setup);
        let named = format!("{command} --request-id r");
        let token = token(&place, &named);
        let confirmed = format!("{named} --confirm {token}");
        let first = place.sh(&confirmed);
        assert_eq!(first.status, 0, "{verb}: {}", first.stdout);
        let after = state(&place);
        let again = place.sh(&confirmed);
        assert_eq!((again.status, data(&again)), (0, data(&first)), "{verb}");
        refused(&place.sh(&format!("{other} --request-id r --confirm {token}")), "other_arguments");
        same(&state(&place), &after, &format!("{verb}: no second effect"));
    }
}

#[test]
fn of_two_that_confirm_at_once_one_does_it() {
    for Write { verb, setup, command, .. } in &rows().write {
        let place = ready(setup);
        let token = token(&place, command);
        let script =
            format!("for n in 1 2 3 4; do ( {command} --confirm {token} >out$n; echo $? >status$n ) & done; wait");
        place.sh(&script);
        let statuses: Vec<String> = (1..=4).map(|n| place.work.read(format!("status{n}")).trim().to_owned()).collect();
        assert_eq!(statuses.iter().filter(|status| *status == "0").count(), 1, "{verb}: {statuses:?}");
        assert_eq!(statuses.iter().filter(|status| *status == "6").count(), 3, "{verb}: {statuses:?}");
    }
}

/// What an answer says, byte for byte, without what differs each time.
fn data(ran: &Outcome) -> Vec<String> {
    ran.stdout.lines().map(|line| line.split(",\"meta\":").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_append_with_a_request_id_is_done_once() {
    let mut listed = verbs("append");
    listed.push("cp-session compact".to_owned());
    listed.retain(|verb| !ELSEWHERE.contains(&verb.as_str()));
    let appends = rows().append;
    for verb in &listed {
        assert!(appends.iter().any(|row| row.verb == *verb), "{verb} has no row");
    }
    assert_eq!(appends.len(), listed.len(), "{listed:?}");
    for Append { verb, setup, command, other } in &appends {
        println!("{verb}");
        let place = ready(setup);
        let before = state(&place);
        let with = |command: &str, options: &str| {
            // The options belong to the program under test, which is the last of the line.
            match (command.split_once(" -- "), command.split_once(" <")) {
                (Some((head, text)), _) => place.sh(&format!("{head} {options} -- {text}")),
                (None, Some((head, file))) => place.sh(&format!("{head} {options} <{file}")),
                (None, None) => place.sh(&format!("{command} {options}")),
            }
        };
        let tried = with(command, "--dry-run");
        assert_eq!(tried.status, 0, "{verb}: {}{}", tried.stdout, tried.stderr);
        let tried = state(&place);
        same(&tried, &before, &format!("{verb}: a dry run changes nothing"));

        let first = with(command, "--request-id r");
        assert_eq!(first.status, 0, "{verb}: {}{}", first.stdout, first.stderr);
        let after = state(&place);
        assert!(after != before, "{verb}: it does something");
        let again = with(command, "--request-id r");
        assert_eq!((again.status, data(&again)), (0, data(&first)), "{verb}: {}", again.stderr);
        same(&state(&place), &after, &format!("{verb}: no second effect"));
        if !other.is_empty() {
            refused(&with(other, "--request-id r"), "other_arguments");
        }
        same(&state(&place), &after, &format!("{verb}: other arguments do nothing"));

        // An attempt that left no answer may have had its effect.
        for name in place.home.at("state/requests").names() {
            let path = format!("state/requests/{name}");
            let mut slot: Value = serde_json::from_str(&place.home.read(&path)).unwrap();
            assert!(slot.as_object_mut().unwrap().remove("outcome").is_some());
            place.home.write(&path, slot.to_string());
        }
        let unfinished = with(command, "--request-id r");
        refused(&unfinished, "unfinished");
        assert!(unfinished.stdout.contains("repeat the request with a new id"), "{verb}");
    }
}

fn first_name(place: &Place) -> String {
    format!("state/requests/{}", place.home.at("state/requests").names()[0])
}

#[test]
fn a_failure_that_is_final_is_the_answer_again_and_one_that_is_not_is_tried_again() {
    let place = Place::new();
    place.work.write("K", "mine");
    let first = place.sh("cp-log keygen K --request-id k");
    first.failed(6, "E_CONFLICT");
    place.sh("rm K");
    let again = place.sh("cp-log keygen K --request-id k");
    assert_eq!((again.status, data(&again)), (6, data(&first)));
    assert!(!place.work.join("K").exists());
    place.sh("cp-log keygen K --request-id l").success();

    place.sh("cp-log append -f L m; printf 'torn\\nmore' >>L").success();
    let append = || place.sh("cp-log append -f L n --request-id m");
    assert_eq!(append().status, 1, "a damaged ledger takes nothing");
    let token = token(&place, "cp-log repair L");
    place.sh(&format!("cp-log repair L --confirm {token}")).success();
    append().success();
}

#[test]
fn an_answer_is_kept_in_its_home_for_a_week() {
    let place = Place::new();
    let append = || place.sh("cp-log append -f L m --request-id r").success().data()["seq"].clone();
    let first = append();
    assert_eq!(append(), first);
    assert_ne!(place.sh("cp-log --home other append -f L m --request-id r").success().data()["seq"], first);
    let file = place.home.join(first_name(&place));
    assert_eq!(place.sh(&format!("touch -d '8 days ago' '{}'", file.display())).status, 0);
    assert_ne!(append(), first);
}

#[test]
fn a_second_process_with_the_same_id_waits_for_the_answer_of_the_first() {
    let place = ready(SESSIONS);
    place.sh("for n in 1 2 3 4; do cp-log append -f L m --request-id r >out$n & done; wait").success();
    until("four answers", || (1..=4).all(|n| !place.work.read_if_there(format!("out{n}")).is_empty()));
    let answers: Vec<Value> = (1..=4).map(|n| place.work.records(format!("out{n}"))[0]["data"].clone()).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.is_object()), "{answers:?}");
}

#[test]
fn a_token_is_for_the_policy_that_was_in_force_and_for_the_place_that_was_meant() {
    let place = ready(&rows().write[0].setup);
    let token = token(&place, "cp-log repair L");
    place.work.write("elsewhere/L", place.work.bytes("L"));
    refused(&place.sh(&format!("cd elsewhere && cp-log repair L --confirm {token}")), "changed");
    place.policy("[exec]\n");
    refused(&place.sh(&format!("cp-log repair L --confirm {token}")), "changed");
    place.sh("cp-log append -f N m --request-id r").success();
    place.policy("[exec]\nallowed_commands = []\n");
    refused(&place.sh("cp-log append -f N m --request-id r"), "other_arguments");
}

//! The cache shared by processes: a stored answer is found, even after damage to the file and killed processes.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use cp_testkit::{Background, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{echo, row};

const CACHED: [&str; 4] = ["-m", "m", "--rows", "--cache=c"];

/// The question, the answer and `cached` of each message.
fn said(ran: &Outcome) -> Vec<(String, String, bool)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = ran.of("message").into_iter();
    messages.map(|data| (text(&data["input"][0]["content"]), text(&data["content"]), data["cached"] == true)).collect()
}

fn cached(ran: &Outcome) -> usize {
    said(ran).iter().filter(|(.., is_cached)| *is_cached).count()
}

fn start(llm: &Llm, rows: &str) -> Background {
    let mut child = llm.start(&[&CACHED[..], &["--jobs", "4"]].concat());
    child.write(rows);
    child.close_stdin();
    child
}

#[test]
fn cache_is_the_file_that_is_named_and_no_other_file_of_the_home() {
    let server = echo(0);
    let llm = Llm::asking("openai", &server);
    for (file, text) in [("a", "one"), ("b", "two"), ("a", "one")] {
        llm.run(&["-m", "m", &format!("--cache={file}"), text]).success();
    }
    assert_eq!((llm.work.names(), server.requests().len()), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert!(!llm.home.join("state/llm-cache.jsonl").exists());
    let inside = llm.home.join("config/policy.toml");
    assert_eq!(llm.run(&["-m", "m", &format!("--cache={}", inside.display()), "x"]).status, 4);
    assert!(!inside.exists());
    for device in ["/dev/null", "/dev/zero", "/dev/full"] {
        let ran = llm.script(&format!("ulimit -v 4000000; cp-llm -m m --cache={device} x")).run();
        assert_eq!(ran.failed(4, "E_CONFIG")["details"]["file"], device);
    }
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn equal_requests_at_the_same_time_are_sent_once_and_have_one_hash_on_the_ledger() {
    let server = echo(300);
    let llm = Llm::asking("openai", &server);
    let ran = llm.feed(&[&CACHED[..], &["--jobs", "8"]].concat(), &row("same").repeat(8)).success();
    assert_eq!((server.requests().len(), said(&ran).len(), cached(&ran)), (1, 8, 7), "{}", ran.stdout);
    let ledger = llm.ledger();
    let hashes: Vec<&str> = ledger.iter().filter_map(|entry| entry["data"]["request_hash"].as_str()).collect();
    assert!(hashes.len() == 9 && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    assert_eq!(llm.work.names(), ["c"]);
}

#[test]
fn cache_finds_answers_of_other_processes() {
    let server = echo(0);
    let llm = Llm::asking("openai", &server);
    let mut runs = llm.start(&CACHED);
    for (question, requests) in [("first", 1), ("second", 2), ("third", 3)] {
        llm.feed(&CACHED, &row(question)).success();
        runs.write(row(question));
        assert_eq!((runs.record()["data"]["cached"].clone(), server.requests().len()), (json!(true), requests));
    }
    runs.write(row("own"));
    runs.record();
    runs.close_stdin();
    runs.wait().success();
    assert_eq!(llm.work.records("c").len(), 4);
}

#[test]
fn cache_skips_incomplete_lines_with_warning() {
    let server = echo(0);
    let llm = Llm::asking("openai", &server);
    llm.feed(&CACHED, &row("one")).success();
    let tears = ["{\"key\":\"sha256:00", "{\"key\":\"x\",\"backend\":\"b\",\"request\":{}}"];
    for tear in tears {
        OpenOptions::new().append(true).open(llm.work.join("c")).unwrap().write_all(tear.as_bytes()).unwrap();
        let ran = llm.feed(&CACHED, &(row("one") + &row(tear))).success();
        assert_eq!((cached(&ran), said(&ran).len()), (1, 2), "{}", ran.stdout);
    }
    let ran = llm.feed(&CACHED, &["one", tears[0], tears[1]].map(row).concat()).success();
    assert!(cached(&ran) == 3 && ran.stderr.contains("c: skipped lines that are not complete recordings: 2"));
    assert_eq!(server.requests().len(), 3);
    llm.work.write("c", "notes of mine\n");
    llm.feed(&CACHED, &row("one")).failed(4, "E_CONFIG");
    assert_eq!(llm.work.read("c"), "notes of mine\n");
}

/// An event in the life of a cache.
#[derive(Clone, Debug)]
enum Event {
    /// Four processes send requests, each from its own question on; one may be killed after a delay in milliseconds.
    Ask([u8; 4], Option<u8>),
    /// A process uses another file, and the files are joined.
    Merge(u8, bool),
    Tear(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (any::<[u8; 4]>(), any::<Option<u8>>()).prop_map(|(from, killed)| Event::Ask(from, killed)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(from, in_place)| Event::Merge(from, in_place)),
        1 => any::<u8>().prop_map(Event::Tear),
    ]
}

fn questions(from: u8) -> String {
    (0..6).map(|n| row(&format!("question {}", (from / 4 + n) % 40))).collect()
}

fn happen(llm: &Llm, event: &Event) {
    match event {
        Event::Ask(from, killed) => {
            let mut children: Vec<_> = from.iter().map(|from| start(llm, &questions(*from))).collect();
            if let Some(after) = killed {
                std::thread::sleep(Duration::from_millis(u64::from(after / 2)));
                children.remove(0).kill();
            }
            for child in children {
                child.wait().success();
            }
        }
        Event::Merge(from, in_place) => {
            llm.feed(&["-m", "m", "--rows", "--cache=d"], &questions(*from)).success();
            llm.sh(if *in_place { "cp c e; cat d e > c" } else { "cat c d > e; mv e c" });
        }
        Event::Tear(at) => {
            let text = llm.work.read_if_there("c");
            let torn = &text[..text.len().min(usize::from(*at))];
            let mut file = OpenOptions::new().append(true).create(true).open(llm.work.join("c")).unwrap();
            file.write_all(torn.trim_end().as_bytes()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cp_testkit::times(3, 64)))]

    #[test]
    fn cache_survives_any_sequence_of_events(
        events in prop::collection::vec(event(), 4..12)
    ) {
        let llm = Llm::asking("openai", &echo(5));
        for event in &events {
            happen(&llm, event);
        }
        let mut kept = BTreeSet::new();
        for line in llm.work.read_if_there("c").lines() {
            if let Ok(recording) = serde_json::from_str::<Value>(line) {
                kept.insert(recording["request"]["messages"][0]["content"].as_str().unwrap().to_owned());
            }
        }
        let all: String = (0..40).map(|n| row(&format!("question {n}"))).collect();
        let ran = llm.feed(&CACHED, &all).success();
        let said = said(&ran);
        prop_assert!(said.iter().all(|(question, answer, _)| question == answer), "{:?}", said);
        let found: BTreeSet<String> = said.into_iter().filter(|(.., is_cached)| *is_cached).map(|(question, ..)| question).collect();
        prop_assert_eq!(found, kept);
    }
}

//! `cp-shell init`: the home that the programs then work in.

use std::os::unix::fs::PermissionsExt as _;

use cp_testkit::Place;
use cp_tests::check_contract;

#[test]
fn init_makes_what_is_absent_and_nothing_twice() {
    let place = Place::new();
    let first = place.sh("cp-shell init");
    check_contract(&first);
    let items = first.closing()["data"]["items"].as_array().unwrap().clone();
    assert!(items.iter().all(|item| item["action"] == "created"), "{}", first.stdout);
    for item in &items {
        let path = place.home.join(item["path"].as_str().unwrap());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    place.home.write("agents/default/soul.md", "mine\n");
    let second = place.sh("cp-shell init");
    assert!(
        second.closing()["data"]["items"].as_array().unwrap().iter().all(|item| item["action"] == "kept"),
        "{}",
        second.stdout
    );
    assert_eq!(place.home.read("agents/default/soul.md"), "mine\n");
}

#[test]
fn each_file_is_on_the_ledger_with_its_hash() {
    let place = Place::new();
    let made = place.sh("cp-shell init").closing();
    let ran = place.sh(
        r#"cd "$CP_HOME"; jq -r 'select(.event == "init.created") | "\(.data.sha256 | ltrimstr("sha256:"))  \(.data.path)"' ledger/cp-log.jsonl | sha256sum -c --quiet && cp-log verify | jq -s 'all(.ok)'"#,
    );
    assert_eq!(ran.stdout, "true\n", "{}", ran.stderr);
    let count = place.sh("grep -c init.created $CP_HOME/ledger/cp-log.jsonl").stdout;
    assert_eq!(count.trim(), made["data"]["count"].to_string());
}

#[test]
fn a_dry_run_makes_nothing() {
    let place = Place::new();
    assert_eq!(place.sh("cp-shell init --dry-run").status, 0);
    assert!(!place.home.exists());
}

#[test]
fn the_same_request_id_gives_the_first_answer() {
    let place = Place::new();
    let first = place.sh("cp-shell init --request-id a").closing();
    let second = place.sh("cp-shell init --request-id a").closing();
    assert_eq!(first["data"], second["data"]);
    let other = place.sh("cp-shell init --request-id a --home other; cp-shell init --request-id a").closing();
    assert_eq!(first["data"], other["data"], "ids belong to a home");
}

#[test]
fn the_agent_that_init_makes_speaks() {
    let place = Place::new();
    let ran = place.sh("cp-shell init >/dev/null; cp-compose hello | jq -r .data.system");
    assert!(ran.stdout.contains("careful assistant"), "{}", ran.stdout);
}

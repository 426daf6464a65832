//! `cp-session start`, as a shell user meets it.

use cp_testkit::Place;
use std::os::unix::fs::PermissionsExt as _;

use crate::sessions::Sessions;

#[test]
fn a_session_is_a_private_directory_with_three_ledgers_and_one_start() {
    let place = Sessions::new();
    let data = place.run(&["start", "--mode", "isolated", "--tier", "ho2"]).data();
    let id = data["session_id"].as_str().unwrap();
    assert_eq!((id.len(), &id[..4]), (21, "SES-"));
    assert_eq!((&data["agent"], &data["mode"], &data["tier"]), (&"default".into(), &"isolated".into(), &"ho2".into()));
    let directory = place.home.join("planes/ho2/sessions").join(id);
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for name in ["session.jsonl", "ledger/exec.jsonl", "ledger/evidence.jsonl"] {
        assert_eq!(directory.join(name).metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let text = std::fs::read_to_string(directory.join("session.jsonl")).unwrap();
    assert_eq!(text.matches("\"event\":\"session_start\"").count(), 1);
    assert!(text.contains(data["receipt"]["hash"].as_str().unwrap()));
}

#[test]
fn unknown_agent_is_reported_with_the_nearest() {
    let place = Sessions::new();
    let error = place.run(&["start", "--agent", "defualt"]).failed(3, "E_NOT_FOUND");
    assert_eq!(error["details"]["nearest"], "default");
    place.home.directory("agents/ada");
    assert_eq!(place.run(&["start", "--agent", "ada"]).data()["agent"], "ada");
}

#[test]
fn start_that_fails_leaves_no_session() {
    let place = Place::of("cp-session");
    let first = place.run(&["start"]).data()["session_id"].as_str().unwrap().to_owned();
    for words in ["start", "start --name other", &format!("fork {first}")] {
        // Each write of a file fails.
        let failed = place.sh(&format!("trap '' XFSZ; ulimit -f 0; cp-session {words} | cat"));
        assert!(failed.stdout.contains("E_IO"), "{words}: {failed:?}");
        let listed = place.run(&["list"]);
        assert_eq!(listed.data()["items"].as_array().unwrap().len(), 1, "{words}: {listed:?}");
        assert!(!listed.stderr.contains("no readable session"), "{words}: {listed:?}");
    }
    place.sh("cp-session start && cp-log verify").success();
}

//! Deleting and clearing, with a fault at each system call: a session is there whole or not at all, and the ledger says
//! which.

use cp_testkit::Sweep;

use crate::sessions::{Sessions, message};

fn with_turns(place: &Sessions) -> String {
    let session = place.run(&["start", "--mode", "isolated"]).data()["session_id"].as_str().unwrap().to_owned();
    place.feed(&["tee", &session], message("old", "answer")).success();
    session
}

#[test]
fn deleting() {
    let place = Sessions::new();
    let (session, kept) = (with_turns(&place), with_turns(&place));
    let verb = ["delete", &session, "--dangerous"];
    let token = |spent: &str| {
        loop {
            // Of the same second it would be the one that was spent.
            let preview = place.run(&[&verb[..], &["--dry-run"]].concat()).data();
            let token = preview["confirm_token"].as_str().unwrap().to_owned();
            if token != spent {
                return token;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let confirmed = token("");
    Sweep::new(&place, &[&verb[..], &["--confirm", &confirmed]].concat()).run(|done, fault| {
        // The next session that is started finishes what was begun.
        place.run(&["start"]).success();
        let there = place.run(&["count", &session]);
        assert!(there.status == 3 || done.status != 0, "{fault}: {done:?}");
        if there.status == 0 {
            assert_eq!(there.data()["count"], 2, "{fault}");
            place.run(&[&verb[..], &["--confirm", &token(&confirmed)]].concat()).success();
        }
        place.run(&["count", &session]).failed(3, "E_NOT_FOUND");
        assert!(place.home.read("ledger/cp-log.jsonl").contains("\"event\":\"session_delete\""), "{fault}");
        let left = std::fs::read_dir(place.home.join("planes/ho1/sessions/.deleting")).unwrap().count();
        assert_eq!(left, 0, "{fault}");
        assert_eq!(place.count(&kept), 2, "{fault}");
        let log = place.home.join("ledger/cp-log.jsonl");
        let verified = place.program("cp-log").args(["verify".as_ref(), log.as_os_str()]).run();
        assert_eq!(verified.status, 0, "{fault}: {verified:?}");
    });
}

#[test]
fn clearing() {
    let place = Sessions::new();
    let session = with_turns(&place);
    Sweep::new(&place, &["clear", &session]).run(|done, fault| {
        let next = place.run(&["append", "--session", &session, "--", "next"]);
        assert_eq!(next.status, 0, "{fault}: {next:?}");
        let count = place.count(&session);
        assert!(count == 1 || count == 3 && done.status != 0, "{fault}: {count}");
        // However it ended, the session begins again as it was started.
        assert_eq!(place.run(&["load", &session]).success().data()["mode"], "isolated", "{fault}");
        let verified = place.program("cp-log").arg("verify").arg(place.file(&session)).run();
        assert_eq!(verified.status, 0, "{fault}: {verified:?}");
    });
}

//! `cp-session delete`, as a shell user meets it.

use crate::sessions::Sessions;

#[test]
fn one_token_deletes_each_session_once_and_may_stop_at_the_first_failure() {
    let place = Sessions::new();
    place.run(&["delete", "--dangerous"]).failed(2, "E_VALIDATION");
    // The session that does not exist is the first, the second or the last.
    let cases = [("true", 0), ("true", 1), ("true", 2), ("false", 0), ("false", 1), ("false", 2)];
    for (goes_on, at) in cases {
        let mut names = vec![place.start(), place.start()];
        names.insert(at, "SES-none".to_owned());
        let counts = if goes_on == "true" { [3, 2, 1, 0] } else { [3, at as u64, 1, 2 - at as u64] };
        let ids = format!("{},{},{0}", names[1], names[2]);
        let all = ["delete", &names[0], "--ids", &ids, "--continue-on-error", goes_on];
        place.run(&all).failed(5, "E_CONFIRMATION_REQUIRED");
        let preview = place.run(&[&all[..], &["--dangerous", "--dry-run"]].concat()).data();
        assert_eq!(preview["preview"]["changes"].as_array().unwrap().len(), 2);
        let token = preview["confirm_token"].as_str().unwrap();
        let done = place.run(&[&all[..], &["--dangerous", "--confirm", token]].concat()).closing();
        // A set of which nothing was deleted has failed.
        let result = if counts[1] == 0 { &done["error"]["details"] } else { &done["data"] };
        let summary = &result["summary"];
        let found = ["total", "succeeded", "failed", "skipped"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(found, counts, "{done}");
        assert_eq!(result["items"][at]["error"]["code"], "E_NOT_FOUND", "{done}");
        let left = place.run(&["list"]).data();
        assert_eq!(left["count"], counts[3]);
        for session in left["items"].as_array().unwrap() {
            let id = session["session_id"].as_str().unwrap();
            let write = ["delete", id, "--dangerous"];
            let token = place.run(&[&write[..], &["--dry-run"]].concat()).data()["confirm_token"].clone();
            place.run(&[&write[..], &["--confirm", token.as_str().unwrap()]].concat()).success();
        }
    }
}

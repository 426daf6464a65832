//! `cp-session delete`, as a shell user meets it.

use crate::sessions::Sessions;

#[test]
fn one_token_deletes_each_session_once_and_may_stop_at_the_first_failure() {
    let place = Sessions::new();
    place.run(&["delete", "--dangerous"]).failed(2, "E_VALIDATION");
    for (goes_on, counts) in [("true", [3, 2, 1, 0]), ("false", [3, 1, 1, 1])] {
        let (one, two) = (place.start(), place.start());
        let all = ["delete", &one, "--ids", &format!("SES-none,{two},{one}"), "--continue-on-error", goes_on];
        place.run(&all).failed(5, "E_CONFIRMATION_REQUIRED");
        let preview = place.run(&[&all[..], &["--dangerous", "--dry-run"]].concat()).data();
        assert_eq!(preview["preview"]["changes"].as_array().unwrap().len(), 2);
        let token = preview["confirm_token"].as_str().unwrap();
        let done = place.run(&[&all[..], &["--dangerous", "--confirm", token]].concat()).closing();
        let summary = &done["data"]["summary"];
        let found = ["total", "succeeded", "failed", "skipped"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(found, counts, "{done}");
        assert_eq!(done["data"]["items"][1]["error"]["code"], "E_NOT_FOUND", "{done}");
        assert_eq!(place.run(&["list"]).data()["count"], counts[3]);
    }
}

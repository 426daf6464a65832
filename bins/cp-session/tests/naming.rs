//! How a command line names a session.

use crate::sessions::Sessions;

#[test]
fn a_session_is_named_by_id_beginning_path_option_or_environment() {
    let place = Sessions::new();
    let session = place.start();
    let directory = place.file(&session).parent().unwrap().display().to_string();
    let file = place.file(&session).display().to_string();
    for name in [session.as_str(), &session[..20], &directory, &file] {
        assert_eq!(place.run(&["count", name]).data()["session_id"], session.as_str(), "{name}");
        assert_eq!(place.run(&["count", "--session", name]).data()["session_id"], session.as_str(), "{name}");
    }
    place.subject().arg("count").env("CP_SESSION", &session).run().success();
}

#[test]
fn unknown_session_is_reported_with_the_nearest() {
    let place = Sessions::new();
    let session = place.start();
    let wrong = format!("{}zz", &session[..19]);
    let error = place.run(&["count", &wrong]).failed(3, "E_NOT_FOUND");
    assert_eq!(error["details"]["nearest"], session.as_str());
    place.run(&["count", "./nowhere"]).failed(3, "E_NOT_FOUND");
}

#[test]
fn ambiguous_prefix_is_refused_with_candidates() {
    let place = Sessions::new();
    let (one, two) = (place.start(), place.start());
    let error = place.run(&["count", "SES-"]).failed(2, "E_VALIDATION");
    let listed = error["details"]["candidates"].to_string();
    assert!(listed.contains(&one) && listed.contains(&two));
}

#[test]
fn another_file_is_no_session() {
    let place = Sessions::new();
    place.work.write("other.jsonl", "{}\n");
    place.run(&["count", "./other.jsonl"]).failed(2, "E_VALIDATION");
    place.run(&["count"]).failed(2, "E_USAGE");
}

#[test]
fn a_name_that_was_given_stands_for_the_id() {
    let place = Sessions::new();
    let named = place.run(&["start", "--name", "bug"]).data()["session_id"].as_str().unwrap().to_owned();
    let other = place.start();
    for words in [&["count", "bug"][..], &["count", "--session", "bug"]] {
        assert_eq!(place.run(words).data()["session_id"], named.as_str());
    }
    assert_eq!(place.run(&["show", "bug"]).data()["name"], "bug");
    place.run(&["rename", &other, "bug"]).failed(6, "E_CONFLICT");
    place.run(&["start", "--name", "bug"]).failed(6, "E_CONFLICT");
    place.run(&["rename", &named, "a/b"]).failed(2, "E_VALIDATION");
    place.run(&["rename", "bug", "fix"]).data();
    place.run(&["rename", &other, "bug"]).data();
    let listed = place.run(&["list"]).data();
    let shown: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
    assert!(shown.contains(&"fix".into()) && shown.contains(&"bug".into()), "{shown:?}");
}

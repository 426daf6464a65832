//! `cp-session list`, `show` and `search`.

use crate::sessions::{Sessions, message};

#[test]
fn list_pages_answer_last_written_first() {
    let place = Sessions::new();
    let mut ids: Vec<String> = (0..5).map(|_| place.start()).collect();
    ids.sort();
    // Two were written at the same time: their ids decide.
    for (id, seconds) in ids.iter().zip([30, 50, 10, 50, 20]) {
        let ledger = std::fs::File::options().append(true).open(place.file(id)).unwrap();
        ledger.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    for has_more in [true, true, false] {
        let options = if cursor.is_empty() { vec![] } else { vec!["--cursor", &cursor] };
        let page = place.run(&[&["list", "--limit", "2"], &options[..]].concat()).data();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["session_id"].clone()));
        assert_eq!((&page["has_more"], page["next_cursor"].is_string()), (&has_more.into(), has_more));
        cursor = page["next_cursor"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(seen, [1, 3, 0, 4, 2].map(|at: usize| ids[at].as_str()));
    assert_eq!(place.run(&["list", "--agent", "ada"]).data()["count"], 0);
}

#[test]
fn show_prints_state_and_path() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "x"]);
    let data = place.run(&["show", &session]).data();
    assert_eq!(data["path"], place.file(&session).to_str().unwrap());
    assert_eq!((&data["turns"], &data["ended"], &data["tier"]), (&1.into(), &false.into(), &"ho1".into()));
    assert!(data["started_at"].as_str().unwrap() <= data["updated_at"].as_str().unwrap());
}

#[test]
fn turns_are_found_in_one_session_or_all_whatever_their_case() {
    let place = Sessions::new();
    let (one, two) = (place.start(), place.start());
    place.feed(&["tee", &one], message("Where is the Harbour?", "by the sea"));
    place.run(&["append", "--session", &two, "--", "Meet in İstanbul at the harbour on Friday"]);
    for (query, session, found) in [
        ("harbour", None, 2),
        ("HARBOUR", Some(&one), 1),
        ("friday", Some(&one), 0),
        ("İstanbul", None, 1),
        ("istanbul", None, 1),
        ("ISTANBUL", Some(&two), 1),
    ] {
        let options = session.map_or(vec![], |session| vec!["--session", session]);
        let data = place.run(&[&["search", query], &options[..]].concat()).data();
        assert_eq!(data["count"], found, "{query}");
    }
    let first = place.run(&["search", "harbour", "--limit", "1"]).data();
    assert!(first["items"][0]["text"].as_str().unwrap().to_lowercase().contains("harbour"));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = place.run(&["search", "harbour", "--limit", "1", "--cursor", cursor]).data();
    assert_eq!(second["has_more"], false);
    assert_ne!(second["items"][0]["session_id"], first["items"][0]["session_id"]);
    place.run(&["search", " "]).failed(2, "E_VALIDATION");
}

#[test]
fn session_that_cannot_be_read_hides_no_other() {
    let place = Sessions::new();
    let (good, bad) = (place.start(), place.start());
    for session in [&good, &bad] {
        place.run(&["append", "--session", session, "--", "harbour"]);
    }
    assert_eq!(place.run(&["search", "harbour"]).data()["count"], 2, "the control");
    std::fs::remove_file(place.file(&bad)).unwrap();
    std::fs::create_dir(place.file(&bad)).unwrap();
    for words in [&["search", "harbour"][..], &["list"]] {
        let ran = place.run(words).success();
        assert_eq!((&ran.data()["count"], &ran.data()["items"][0]["session_id"]), (&1.into(), &good.clone().into()));
        assert!(ran.stderr.contains(&format!("{bad}: no readable session")), "{ran:?}");
    }
    place.run(&["search", "harbour", "--session", place.file(&good).to_str().unwrap()]).success();
}

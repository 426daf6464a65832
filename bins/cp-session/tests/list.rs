//! `cp-session list`, as a shell user meets it.

use crate::sessions::Sessions;

#[test]
fn list_pages_answer_last_written_first() {
    let place = Sessions::new();
    assert_eq!(place.run(&["list"]).data()["count"], 0);
    let mut ids: Vec<String> = (0..5).map(|_| place.start()).collect();
    ids.sort();
    // Two were written at the same time: their ids decide.
    for (id, seconds) in ids.iter().zip([30, 50, 10, 50, 20]) {
        let ledger = std::fs::File::options().append(true).open(place.file(id)).unwrap();
        ledger.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }
    let newest_first = [1, 3, 0, 4, 2].map(|at: usize| ids[at].clone());
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["list", "--limit", "2", "--fields", "session_id"];
        if let Some(cursor) = &cursor {
            arguments.extend(["--cursor", cursor]);
        }
        let page = place.run(&arguments).data();
        for item in page["items"].as_array().unwrap() {
            assert_eq!(item.as_object().unwrap().len(), 1);
            seen.push(item["session_id"].as_str().unwrap().to_owned());
        }
        assert_eq!(page["has_more"].as_bool().unwrap(), page["next_cursor"].is_string());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, newest_first);
}

#[test]
fn only_the_open_ones_and_only_known_members() {
    let place = Sessions::new();
    let (one, two) = (place.start(), place.start());
    place.run(&["end", &one]);
    let data = place.run(&["list", "--open"]).data();
    assert_eq!((&data["count"], &data["items"][0]["session_id"]), (&1.into(), &two.into()));
    assert_eq!(place.run(&["list", "--agent", "ada"]).data()["count"], 0);
    place.run(&["list", "--fields", "nonsense"]).failed(2, "E_USAGE");
}

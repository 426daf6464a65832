//! `--explain` and `--fit-tokens`.

use cp_testkit::Place;

use crate::session::session_prints;

#[test]
fn prompt_over_limit_is_refused() {
    let place = Place::of("cp-compose");
    let error = place.run(&["--fit-tokens", "3", "--", &"word ".repeat(50)]).failed(2, "E_VALIDATION");
    assert!(error["details"]["estimated_tokens"].as_u64().unwrap() > 3);
    place.run(&["--fit-tokens", "300", "--", &"word ".repeat(50)]).data();
    // The tokens of an image follow its area, not its bytes.
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(200_000, 7);
    place.work.write("a.png", &image);
    place.run(&["--fit-tokens", "2000", "--attach", "a.png", "--", "x"]).data();
    place.run(&["--fit-tokens", "1000", "--attach", "a.png", "--", "x"]).failed(2, "E_VALIDATION");
}

#[test]
fn explain_lists_every_kind_of_part() {
    let place = Place::of("cp-compose");
    let session = session_prints(&place, include_str!("data/conversation.json"));
    for (file, text) in [("agents/default/soul.md", "s"), ("agents/default/context/c.md", "c")] {
        place.home.write(file, text);
    }
    for (file, text) in [("n.md", "password=hunter2hunter"), ("t.md", "t")] {
        place.work.write(file, text);
    }
    let options = ["--session", "SES-1", "-s", "more", "--context", "n.md", "--attach", "t.md"];
    let more = ["--memory", "fact", "--explain", "--", "hello"];
    let data = place.run(&[&options[..], &more].concat()).data();
    assert_eq!(session.last_call().arguments.split(" --limit").next(), Some("recall --kind fact"));
    let parts = data["parts"].as_array().unwrap();
    let kinds: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["soul", "context", "system", "context", "attachment", "memory", "user", "history"]);
    assert!(parts.iter().all(|part| part["bytes"].as_u64().unwrap() > 0), "{data}");
    assert!(parts.iter().all(|part| part["sha256"].as_str().unwrap().len() == 71), "{data}");
    assert!(parts[0]["source"].as_str().unwrap().ends_with("agents/default/soul.md"), "{data}");
    assert_eq!((&parts[3]["redactions"], data["estimated_tokens"].as_u64() > Some(0)), (&1.into(), true), "{data}");
}

//! `cp-session load`, as a shell user meets it.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::sessions::{Sessions, message};

#[test]
fn the_newest_turns_come_in_their_order() {
    let place = Sessions::new();
    let session = place.start();
    for n in 0..5 {
        place.run(&["append", "--session", &session, "--sync", "none", "--", &format!("m{n}")]);
    }
    let data = place.run(&["load", &session, "--last", "2"]).data();
    assert_eq!((&data["messages"][0]["content"], &data["messages"][1]["content"]), (&"m3".into(), &"m4".into()));
    assert_eq!((&data["count"], &data["has_more"]), (&2.into(), &true.into()));
    assert_eq!(place.run(&["load", &session, "--last", "0"]).data()["count"], 0);
}

#[test]
fn load_skips_and_reports_damaged_lines() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "before"]);
    let mut file = std::fs::OpenOptions::new().append(true).open(place.file(&session)).unwrap();
    file.write_all(b"{\"role\":\"user\",\"content\":\"from ano{\"fused\":1}\n\0\0\0\n{\"seq\":9,\"torn").unwrap();
    let ran = place.run(&["load", &session]);
    assert_eq!(ran.data()["messages"][0]["content"], "before");
    assert_eq!(ran.closing()["meta"]["notices"][0]["type"], "lines_skipped");
}

/// Every verb leaves out a turn that was altered, wherever its line was changed.
#[test]
fn an_altered_turn_is_left_out_and_reported() {
    let place = Sessions::new();
    let session = place.start();
    for text in ["first", "amended", "last"] {
        place.run(&["append", "--session", &session, "--", text]).success();
    }
    assert_eq!(place.run(&["load", &session]).data()["count"], 3, "the control");
    let stored = std::fs::read_to_string(place.file(&session)).unwrap();
    std::fs::write(place.file(&session), stored.replace("amended", "altered")).unwrap();
    let ran = place.run(&["load", &session]);
    let texts: Vec<Value> =
        ran.data()["messages"].as_array().unwrap().iter().map(|turn| turn["content"].clone()).collect();
    assert_eq!(texts, ["first", "last"]);
    assert_eq!(ran.closing()["meta"]["notices"][0]["type"], "lines_skipped");
    assert_eq!(place.count(&session), 2);
    assert_eq!(place.run(&["search", "altered"]).data()["items"], json!([]));
}

#[test]
fn the_blocks_of_an_answer_come_back_as_they_were_stored_however_large() {
    let place = Sessions::new();
    let session = place.start();
    let block = |signature: &str| {
        serde_json::json!({"type": "thinking", "thinking": "hm", "origin": {"endpoint": "e", "dialect": "d"},
            "raw": {"signature": signature, "n": 1.5}})
    };
    let large = "c2ln".repeat(1 << 19);
    for (n, signature) in ["c2ln", large.as_str()].into_iter().enumerate() {
        let mut line: serde_json::Value = serde_json::from_str(&message("one", "two")).unwrap();
        line["data"]["blocks"] = serde_json::json!([block(signature)]);
        place.feed(&["tee", &session], format!("{line}\n")).success();
        let data = place.run(&["load", &session]).data();
        let turn = &data["messages"][2 * n + 1];
        assert_eq!(turn, &serde_json::json!({"role": "assistant", "content": "two", "blocks": [block(signature)]}));
    }
    let fork = place.run(&["fork", &session]).data()["session_id"].as_str().unwrap().to_owned();
    let (whole, forked) = (place.run(&["load", &session]).data(), place.run(&["load", &fork]).data());
    assert_eq!(whole["messages"], forked["messages"]);
    let row = serde_json::json!({"role": "assistant", "content": "x", "blocks": [block("s")]}).to_string();
    place.feed(&["append", "--session", &session, "--rows"], row).success();
    assert_eq!(place.run(&["load", &session, "--last", "1"]).data()["messages"][0]["blocks"][0], block("s"));
}

#[test]
fn a_call_without_a_result_is_followed_by_one() {
    let place = Sessions::new();
    let session = place.start();
    let turns = [
        ("user", json!("time and place?")),
        (
            "assistant",
            json!([{"type": "tool_use", "id": "t1", "name": "clock", "input": {}},
            {"type": "tool_use", "id": "t2", "name": "place", "input": {}}]),
        ),
        ("user", json!([{"type": "tool_result", "tool_use_id": "t2", "content": "here"}])),
        ("assistant", json!([{"type": "tool_use", "id": "t3", "name": "clock", "input": {}}])),
        ("user", json!([{"type": "tool_result", "tool_use_id": "t3", "content": "now"}])),
        ("assistant", json!([{"type": "tool_use", "id": "t4", "name": "clock", "input": {}}])),
    ];
    let rows = turns.map(|(role, content)| format!("{}\n", json!({"role": role, "content": content})));
    place.feed(&["append", "--session", &session, "--rows"], rows.concat()).success();
    let fork = place.run(&["fork", &session]).data()["session_id"].as_str().unwrap().to_owned();
    for session in [&session, &fork] {
        let loaded = place.run(&["load", session]).data()["messages"].clone();
        let results: Vec<(&Value, bool)> = loaded
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|turn| {
                Some((turn["content"].get(0)?.get("tool_use_id")?, turn["content"][0]["is_error"] == true))
            })
            .collect();
        let expected =
            [("t1", true), ("t2", false), ("t3", false), ("t4", true)].map(|(id, is_error)| (json!(id), is_error));
        assert!(results.iter().map(|(id, is_error)| ((*id).clone(), *is_error)).eq(expected), "{loaded}");
        assert_eq!(place.count(session), 6, "nothing is written");
    }
}

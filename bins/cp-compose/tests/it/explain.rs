use crate::house::House;

#[test]
fn every_part_is_told_with_its_source_size_and_hash() {
    let house = House::new();
    house.write("agents/default/soul.md", "You are brief.");
    house.write("notes.md", "password=hunter2hunter");
    let data = house.run(&["--explain", "-s", "more", "--context", "notes.md", "--", "x"]).data();
    let parts = data["parts"].as_array().unwrap();
    let kinds: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["soul", "system", "context", "user"]);
    assert_eq!((&parts[0]["bytes"], &parts[2]["redactions"]), (&14.into(), &1.into()));
    assert!(parts[0]["source"].as_str().unwrap().ends_with("agents/default/soul.md"));
    assert!(parts.iter().all(|part| part["sha256"].as_str().unwrap().len() == 71));
    assert!(data["estimated_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn a_prompt_that_cannot_fit_is_refused() {
    let house = House::new();
    let error = house.run(&["--fit-tokens", "3", "--", &"word ".repeat(50)]).failed(2, "E_VALIDATION");
    assert!(error["details"]["estimated_tokens"].as_u64().unwrap() > 3);
    house.run(&["--fit-tokens", "300", "--", &"word ".repeat(50)]).data();
}

#[test]
fn an_image_counts_by_its_area() {
    let house = House::new();
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(200_000, 7);
    std::fs::write(house.root.path().join("a.png"), &image).unwrap();
    house.run(&["--fit-tokens", "2000", "--attach", "a.png", "--", "x"]).data();
    house.run(&["--fit-tokens", "1000", "--attach", "a.png", "--", "x"]).failed(2, "E_VALIDATION");
}

#[test]
fn every_kind_of_part_is_told() {
    let house = House::new();
    house.session_says(
        r#"{"ok":true,"schema_version":"1.0","data":{"session_id":"SES-1","agent":"default","mode":"persistent","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"count":2,"has_more":false,"items":[{"text":"remembered"}]},"meta":{"duration_ms":1}}"#,
    );
    for (file, text) in [
        ("agents/default/soul.md", "s"),
        ("agents/default/context/c.md", "c"),
        ("AGENTS.md", "a"),
        ("n.md", "n"),
        ("t.md", "t"),
    ] {
        house.write(file, text);
    }
    house.write("tools.json", r#"[{"name":"x","description":"d","input_schema":{"type":"object"}}]"#);
    let options = ["--session", "SES-1", "-s", "more", "--agents-md", "--context", "n.md", "--attach", "t.md"];
    let more = ["--tools", "tools.json", "--memory", "fact", "--explain", "--", "hello"];
    let data = house.run(&[&options[..], &more].concat()).data();
    let parts = data["parts"].as_array().unwrap();
    let kinds: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["soul", "context", "system", "tools", "agents_md", "context", "attachment", "memory", "user", "history"]
    );
    assert!(parts.iter().all(|part| part["bytes"].as_u64().unwrap() > 0 && part["sha256"].is_string()), "{data}");
}

//! A text, a system text and an agent become a prompt.

use cp_testkit::Place;

#[test]
fn text_becomes_prompt_of_default_agent() {
    let place = Place::of("cp-compose");
    let ran = place.run(&["--", "hello"]);
    let data = ran.data();
    assert_eq!(ran.closing()["type"], "prompt");
    assert_eq!(
        data,
        serde_json::json!({"agent": "default", "messages": [{"role": "user", "content": "hello"}], "history": 0})
    );
    assert_eq!(place.feed(&[], "hello\n").data()["messages"][0]["content"], "hello");
}

#[test]
fn system_text_is_read_from_option_or_file() {
    let place = Place::of("cp-compose");
    place.work.write("s.md", "from a file\n");
    assert_eq!(place.run(&["-s", "be brief", "--", "x"]).data()["system"], "be brief");
    assert_eq!(place.run(&["-s", "@s.md", "--", "x"]).data()["system"], "from a file");
    assert_eq!(place.run(&["-s", "@@home", "--", "x"]).data()["system"], "@home");
    assert!(
        place.run(&["-s", "@none.md", "--", "x"]).failed(3, "E_NOT_FOUND")["message"].to_string().contains("none.md")
    );
}

#[test]
fn agent_adds_soul_context_and_model() {
    let place = Place::of("cp-compose");
    place.home.write("config/agents.json", r#"{"ada":{"soul":"agents/ada/soul.md","model":"m1"}}"#);
    place.home.write("agents/ada/soul.md", "You are Ada.\n");
    place.home.write("agents/ada/context/2.md", "second\n");
    place.home.write("agents/ada/context/1.md", "first\n");
    let data = place.run(&["--agent", "ada", "-s", "be brief", "--", "x"]).data();
    assert_eq!(data["system"], "You are Ada.\n\nfirst\n\nsecond\n\nbe brief");
    assert_eq!((&data["agent"], &data["model"]), (&"ada".into(), &"m1".into()));
}

#[test]
fn unknown_agent_and_missing_soul_are_named() {
    let place = Place::of("cp-compose");
    place.home.write("config/agents.json", r#"{"ada":{"soul":"agents/ada/soul.md"}}"#);
    assert_eq!(place.run(&["--agent", "adda", "--", "x"]).failed(3, "E_NOT_FOUND")["details"]["nearest"], "ada");
    let error = place.run(&["--agent", "ada", "--", "x"]).failed(3, "E_NOT_FOUND");
    assert!(error["message"].as_str().unwrap().contains("agents/ada/soul.md"));
    place.run(&["--agent", "../../etc", "--", "x"]).failed(3, "E_NOT_FOUND");
    place.home.write("config/agents.json", "{");
    place.run(&["--", "x"]).failed(4, "E_CONFIG");
}

#[test]
fn context_files_are_marked_redacted_and_reported() {
    let place = Place::of("cp-compose");
    place.work.write("notes.md", "the password=hunter2hunter\n");
    let data = place.run(&["--context", "notes.md", "--", "what now?"]).data();
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.starts_with("<context id=") && content.ends_with("what now?"), "{content}");
    assert!(!content.contains("hunter2"));
    assert_eq!(data["report"]["redacted"][0]["source"], "notes.md");
    assert_eq!(data["_untrusted"][0], "/messages");
    let open = place.run(&["--context", "notes.md", "--no-redact", "--", "x"]).data();
    assert!(open["messages"][0]["content"].as_str().unwrap().contains("hunter2") && open.get("report").is_none());
    place.run(&["--context", "none.md", "--", "x"]).failed(3, "E_NOT_FOUND");
}

#[test]
fn messages_are_extended_and_prompts_refused() {
    let place = Place::of("cp-compose");
    let prompt = place.run(&["-s", "one", "--", "hello"]).stdout;
    // It is not passed on either, because the next program would send it.
    let refused = place.feed(&["-s", "two"], &prompt);
    assert!(
        refused.failed(2, "E_VALIDATION")["message"] == "a prompt is not extended" && refused.of("prompt").is_empty()
    );
    place.feed(&["--rows"], "{\"a\":1}\n").failed(2, "E_USAGE");
    place.run(&["--var", "a=b", "--", "x"]).failed(2, "E_USAGE");
    let message = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"role":"assistant","content":"a draft"},"meta":{"duration_ms":1}}"#;
    let data = place.feed(&["-s", "judge this"], message).data();
    assert_eq!(data["messages"], serde_json::json!([{"role": "user", "content": "a draft"}]));
}

#[test]
fn byte_order_mark_does_not_reach_model() {
    let place = Place::of("cp-compose");
    let mark = "\u{feff}";
    for name in ["context.md", "system.md"] {
        place.work.write(name, format!("{mark}text {mark} of {name}"));
    }
    let ran = place.feed(&["--context", "context.md", "--system", "@system.md", "-"], format!("{mark}question"));
    let text = ran.success().stdout;
    // A mark inside a text is part of it.
    assert_eq!(text.matches(mark).count(), 2, "{text}");
    assert!(text.contains("question") && text.contains("of context.md") && text.contains("of system.md"));
}

//! Prompts on standard input, and the parts that are added to them.

use cp_testkit::Place;

fn place() -> Place {
    let place = Place::of("cp-compose");
    place.work.write("n.md", "a note\n");
    place
}

#[test]
fn context_and_attachments_extend_given_prompt() {
    let place = place();
    let prompt = place.run(&["--", "hello"]).stdout;
    for option in ["--context", "--attach"] {
        let data = place.feed(&[option, "n.md"], &prompt).data();
        let content = data["messages"][0]["content"].as_str().unwrap();
        assert!(content.contains("a note") && content.ends_with("hello"), "{option}: {content}");
        assert_eq!(data["_untrusted"][0], "/messages");
    }
    place.work.write("a.png", b"\x89PNG\r\n\x1a\n");
    let once = place.feed(&["--attach", "a.png"], &prompt);
    assert_eq!(once.data()["messages"][0]["content"][1]["text"], "hello");
    let twice = place.feed(&["--context", "n.md"], &once.stdout).data();
    let kinds: Vec<&str> =
        twice["messages"][0]["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "text"]);
}

#[test]
fn given_prompt_keeps_history() {
    let place = place();
    let line = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"history":2}"#;
    let data = place.feed(&["--rows", "--context", "n.md"], format!("{line}\n"));
    let first: serde_json::Value = serde_json::from_str(data.stdout.lines().next().unwrap()).unwrap();
    let messages = &first["data"]["messages"];
    assert_eq!((&messages[0]["content"], &messages[1]["content"]), (&"a".into(), &"b".into()));
    assert!(messages[2]["content"].as_str().unwrap().contains("a note"), "{messages}");
    assert_eq!((messages.as_array().unwrap().len(), &first["data"]["history"]), (3, &2.into()));
}

#[test]
fn context_without_question_is_an_error() {
    let place = place();
    let result = r#"{"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"}]}]},"meta":{"duration_ms":1}}"#;
    assert_eq!(place.feed(&[], result).data()["messages"][0]["content"][0]["type"], "tool_result");
    place.feed(&["--context", "n.md"], result).failed(2, "E_VALIDATION");
}

#[test]
fn template_refuses_prompt_and_variables_need_template() {
    let place = place();
    place.work.write("t.md", "{{ text }}!");
    let prompt = place.run(&["--", "hello"]).stdout;
    place.feed(&["--template", "t.md"], &prompt).failed(2, "E_VALIDATION");
    place.run(&["--var", "a=b", "--", "x"]).failed(2, "E_USAGE");
}

#[test]
fn governed_prompt_id_follows_its_text() {
    let place = place();
    let governed = r#"{"ok":true,"schema_version":"1.0","type":"prompt","data":{"system":"Be kind.","prompt_id":"PRM-KIND-001","messages":[{"role":"user","content":"x"}]},"meta":{"duration_ms":1}}"#;
    assert_eq!(place.feed(&[], governed).data()["prompt_id"], "PRM-KIND-001");
    let other = place.feed(&["-s", "Be unkind."], governed).data();
    assert_eq!((&other["system"], other.get("prompt_id")), (&"Be unkind.".into(), None));
}

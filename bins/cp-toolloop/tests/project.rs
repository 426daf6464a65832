//! A run that may only look.

use serde_json::json;

use crate::mcp::{server, tool};
use crate::toolloop::{Results, ToolLoop};

#[test]
fn read_only_run_offers_no_writes() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    place.tool("reads", r#","read_only":true"#, "echo x >by_tool 2>/dev/null && echo wrote || echo not");
    place.tool("writes", "", "echo x >by_tool && echo wrote");
    let [may_read, may_write] = [true, false].map(|reads| json!({ "readOnlyHint": reads }));
    let offered = json!([tool("look", &may_read), tool("change", &may_write), tool("unsaid", &json!({}))]);
    let server = format!("s={}", server(&place, &offered, "    return name"));
    place.policy("[exec]\nallowed_commands = [\"touch\", \"sh\"]\n");
    let names = |options: &[&str]| {
        let listed = place.with_tools(&[&["tools", "--mcp", &server], options].concat()).closing();
        let items = listed["data"]["items"].as_array().unwrap().iter();
        items.filter_map(|item| item["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let all = ["change", "look", "reads", "unsaid", "writes", "filesystem", "system", "shell", "bash"];
    assert_eq!(names(&[]), all, "the control");
    assert_eq!(names(&["--read-only"]), ["look", "reads", "filesystem", "system", "shell", "bash"]);

    let calls = json!({"tool_calls": [
        {"name": "shell", "input": {"command": "touch by_command"}},
        {"name": "filesystem", "input": {"operation": "write_file", "path": "by_file", "content": "x"}},
        {"name": "reads"},
        {"name": "writes"},
    ]});
    let done = json!({"content": "done"});
    place.script(&[&calls.to_string(), &done.to_string()]);
    let ran = place.with_tools(&["--read-only", "x"]);
    let results = ran.results();
    assert!(results[0].contains("Read-only file system"), "{ran:?}");
    assert!(results[1].contains("do not fit its schema"), "{ran:?}");
    assert_eq!((results[2].trim(), results[3].as_str()), ("not", "Tool not permitted: writes"), "{ran:?}");
    let made = ["by_command", "by_file", "by_tool"];
    assert_eq!(made.map(|name| place.work.join(name).exists()), [false; 3], "{ran:?}");

    place.script(&[&calls.to_string(), &done.to_string()]);
    let control = place.with_tools(&["x"]);
    assert_eq!(made.map(|name| place.work.join(name).exists()), [true; 3], "the control: {control:?}");
}

#[test]
fn read_only_run_stays_read_only_after_resume() {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"touch\"]\n");
    let touch = json!({"tool_calls": [{"name": "shell", "input": {"command": "touch made"}}]}).to_string();
    place.script(&[&touch, &touch]);
    let stopped = place.run(&["--read-only", "--max-iterations", "1", "x"]);
    let resumed = place.run(&crate::toolloop::words_of(&stopped.detail("resume")));
    assert!(resumed.results()[0].contains("Read-only file system"), "{resumed:?}");
    assert!(!place.work.join("made").exists());
    place.script(&[&touch]);
    place.run(&["x"]);
    assert!(place.work.join("made").exists(), "the control");
}

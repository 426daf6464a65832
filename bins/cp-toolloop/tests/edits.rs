//! Edits by the names and forms of other programs: what the model calls, what is recorded, and what undo restores.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::toolloop::{Results, ToolLoop};

fn place(calls: &[(&str, Value)]) -> ToolLoop {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"echo\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    let lines = calls.iter().map(|(name, input)| json!({"tool_calls": [{"name": name, "input": input}]}).to_string());
    let lines: Vec<String> = lines.chain([r#"{"content":"done"}"#.to_owned()]).collect();
    place.script(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    place
}

#[test]
fn call_by_name_of_other_program_is_made_by_builtin_tool() {
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** End Patch\n";
    let long = format!("{}\n", "2".repeat(20_000));
    let editor = "str_replace_based_edit_tool";
    for (name, input, written) in [
        ("apply_patch", json!({"input": patch}), "2\n"),
        ("shell", json!({"command": ["apply_patch", patch]}), "2\n"),
        (editor, json!({"command": "str_replace", "path": "a", "old_str": "1", "new_str": "2"}), "2\n"),
        ("Write", json!({"file_path": "a", "content": "2\n"}), "2\n"),
        (
            "filesystem",
            json!({"tool": "filesystem", "operation": "edit_file", "arguments": {"path": "a", "old": "1", "new": "2"}}),
            "2\n",
        ),
        ("Edit", json!({"file_path": "a", "old_string": "1", "new_string": "true", "replace_all": "true"}), "true\n"),
        ("edit_file", json!("{\"path\": \"a\", \"old\": \"1\", \"new\": \"2\"}"), "2\n"),
        (
            "Edit",
            json!({"file_path": "a", "old_string": "1", "new_string": "2".repeat(20_000), "replace_all": "true"}),
            &long,
        ),
    ] {
        let place = place(&[(name, input.clone())]);
        place.work.write("a", "1\n");
        let ran = place.run(&["x"]);
        assert_eq!((ran.status, place.written("a").as_str()), (0, written), "{name} {input}: {ran:?}");
        let call = &ran.of("tool_call")[0];
        assert_eq!((&call["name"], call["input"]["operation"].is_string()), (&json!("filesystem"), true), "{call}");
        // The ledger has the call as the model wrote it, and as it was made.
        let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
        let ledger = place.home.join(format!("planes/ho1/runs/{run}.jsonl")).display().to_string();
        place.program("cp-log").args(["audit", &ledger]).run().success();
    }
    let image = place(&[
        ("Read", json!({"file_path": "a", "offset": 2, "limit": 1})),
        ("Bash", json!({"command": "echo hi", "timeout": 120_000, "description": "say it"})),
    ]);
    image.work.write("a", "1\n2\n3\n");
    assert_eq!(image.run(&["x"]).results(), ["2\n[lines 2 to 2 of 3]", "hi\n"]);
}

#[test]
fn patch_of_three_files_is_one_call_that_undo_restores() {
    let patch = "*** Begin Patch\n*** Update File: a.sh\n@@\n-1\n+2\n*** Delete File: d/gone\n*** Update File: b\n*** Move to: e/c\n@@\n-x\n+y\n*** Add File: new\n+n\n*** End Patch";
    let place = place(&[("apply_patch", json!({"input": patch}))]);
    let files: [(&str, &[u8], u32); 3] =
        [("a.sh", b"1\r\n\xff", 0o751), ("d/gone", b"\0g", 0o600), ("b", b"x\n", 0o444)];
    for (name, bytes, mode) in files {
        let file = place.work.write(name, bytes);
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
    let ran = place.run(&["--name", "three", "x"]);
    assert_eq!(ran.of("tool_result")[0]["is_error"], false, "{ran:?}");
    assert_eq!(ran.of("tool_call").len(), 1);
    let mode = |name: &str| fs::metadata(place.work.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(place.work.bytes("a.sh"), b"2\r\n\xff");
    assert_eq!((mode("a.sh"), mode("e/c"), place.written("e/c").as_str()), (0o751, 0o444, "y\n"));
    assert!(!place.work.join("d/gone").exists() && !place.work.join("b").exists() && place.written("new") == "n\n");
    let undone = place.run(&["undo", "three"]);
    assert_eq!(undone.status, 0, "{undone:?}");
    for (name, bytes, expected) in files {
        assert_eq!((place.work.bytes(name).as_slice(), mode(name)), (bytes, expected), "{name}");
    }
    assert!(!place.work.join("new").exists() && !place.work.join("e/c").exists());
}

#[test]
fn refused_call_has_next_step() {
    let place = place(&[
        ("filesystm", json!({"operation": "read_file", "path": "a"})),
        ("teleport", json!({})),
        ("filesystem", json!({"operation": "read_file", "path": "a", "colour": 1})),
        ("filesystem", json!({"operation": "read_file", "path": "weather"})),
        ("shell", json!({"command": "cat a"})),
    ]);
    place.work.write("a", "1\n");
    let results = place.run(&["x"]).results();
    for (result, step) in results.iter().zip([
        "did you mean filesystem?",
        "Tool not permitted: teleport",
        "the arguments are operation, path",
        "list_directory shows what is there",
        r#"filesystem {"operation":"read_file","path":"…"}"#,
    ]) {
        assert!(result.contains(step), "{step}: {result}");
    }
    assert_eq!(results.len(), 5);
    // The call of the hint is accepted.
    let hint = results[4].split("send filesystem ").nth(1).unwrap();
    let input = hint.split('}').next().unwrap().to_owned() + "}";
    let input = input.replace('…', "a");
    let again = self::place(&[("filesystem", serde_json::from_str(&input).unwrap())]);
    again.work.write("a", "1\n");
    assert_eq!(again.run(&["x"]).results(), ["1\n"]);
}

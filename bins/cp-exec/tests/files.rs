//! Files that are edited, read by lines, removed and put back: what a model's tool calls do, and what is kept of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_ledger::blob;
use cp_ledger::format::line::Hash;
use serde_json::{Value, json};

use crate::exec::{Exec, Who, everyone};

/// The answer to a file operation of a run.
fn ask(exec: &Exec, operation: &str, arguments: &Value) -> Value {
    exec.file(&["--run", "RUN-1"], operation, arguments)
}

fn value(answer: &Value) -> &Value {
    assert_eq!(answer["ok"], true, "{answer}");
    &answer["data"]["value"]
}

/// The code, the message and the hint of a refusal.
fn refusal(answer: &Value) -> (String, String) {
    let error = &answer["error"];
    let text = format!("{} {}", error["message"], error["details"]["hint"]);
    (error["code"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned(), text)
}

/// The last change of the run, and the content that is kept of the file before it.
fn last_change(exec: &Exec) -> (Value, Vec<u8>) {
    let mut entries = exec.home.records(exec.home.join("planes/ho1/runs/RUN-1.jsonl"));
    entries.retain(|entry| entry["event"] == "exec.changes");
    let change = entries.pop().unwrap()["data"]["files"][0].clone();
    let hash = Hash::parse(change["before"]["sha256"].as_str().unwrap()).unwrap();
    (change, blob::load(&exec.home.join("state/kept/objects"), &hash).unwrap())
}

#[test]
fn edit_replaces_unique_text_and_keeps_old_content() {
    for who in everyone() {
        let exec = Exec::new(who);
        let path = exec.write("a.sh", "one\ntwo\nthree");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
        let answer = ask(&exec, "edit_file", &json!({"path": "a.sh", "old": "two\n", "new": "2\r\n"}));
        assert_eq!(value(&answer)["change"], "changed", "{answer}");
        assert_eq!(exec.work.read("a.sh"), "one\n2\r\nthree");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751, "{who:?}");
        let (change, kept) = last_change(&exec);
        assert_eq!((kept.as_slice(), &change["change"]), (&b"one\ntwo\nthree"[..], &json!("changed")));
        assert_eq!(change["after"]["sha256"], Hash::of(b"one\n2\r\nthree").to_string());
        assert_eq!([&change["before"]["permissions"], &change["after"]["permissions"]], ["751", "751"]);
    }
}

#[test]
fn edit_without_unique_match_fails() {
    let exec = Exec::new(Who::Me);
    exec.write("a", "x\ny\nx\n");
    for (old, code, said) in [
        ("z", "E_VALIDATION", "does not occur"),
        ("x", "E_VALIDATION", "2 times, at lines 1, 3"),
        ("", "E_CONFLICT", "already exists"),
    ] {
        let answer = ask(&exec, "edit_file", &json!({"path": "a", "old": old, "new": "n"}));
        assert!(refusal(&answer).0 == code && refusal(&answer).1.contains(said), "{answer}");
    }
    assert_eq!(exec.work.read("a"), "x\ny\nx\n");
    let answer = ask(&exec, "edit_file", &json!({"path": "a", "old": "x", "new": "n", "all": true}));
    assert_eq!((value(&answer)["change"].as_str(), exec.work.read("a").as_str()), (Some("changed"), "n\ny\nn\n"));
}

#[test]
fn edit_keeps_non_utf8_bytes() {
    let exec = Exec::new(Who::Me);
    exec.work.write("b", b"\xff\x00old\r\n\xfe");
    value(&ask(&exec, "edit_file", &json!({"path": "b", "old": "old", "new": "new"})));
    assert_eq!(exec.work.bytes("b"), b"\xff\x00new\r\n\xfe");
}

#[test]
fn edit_of_file_changed_since_read_is_refused() {
    let exec = Exec::new(Who::Me);
    let edit = |old: &str, new: &str| ask(&exec, "edit_file", &json!({"path": "a", "old": old, "new": new}));
    exec.write("a", "one\ntwo\n");
    value(&ask(&exec, "read_file", &json!({"path": "a"})));
    value(&edit("one", "1"));
    value(&edit("1", "one"));
    exec.write("a", "one\ntwo\nthree\n");
    let (code, text) = refusal(&edit("one", "1"));
    assert!(code == "E_CONFLICT" && text.contains("changed by others") && text.contains("read it again"), "{text}");
    // A part tells what the whole file was.
    value(&ask(&exec, "read_file", &json!({"path": "a", "line": 2, "lines": 1})));
    value(&edit("two", "zwei"));
    exec.write("a", "one\ntwo\nfour\n");
    assert_eq!(refusal(&edit("two", "zwei")).0, "E_CONFLICT");
    // Another run knows nothing of it, and its text matches.
    let edited = exec.file(&["--run", "RUN-2"], "edit_file", &json!({"path": "a", "old": "two", "new": "2"}));
    assert_eq!(edited["ok"], true);
}

#[test]
fn remove_file_requires_read_and_is_undone() {
    let exec = Exec::new(Who::Me);
    let path = exec.write("a", "held");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let (code, text) = refusal(&ask(&exec, "remove_file", &json!({"path": "a"})));
    assert!(code == "E_CONFLICT" && text.contains("read it first") && path.exists(), "{text}");
    value(&ask(&exec, "read_file", &json!({"path": "a"})));
    value(&ask(&exec, "remove_file", &json!({"path": "a"})));
    assert!(!path.exists());
    exec.confirmed(&["undo", "all", "--run", "RUN-1"]);
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!((exec.work.read("a").as_str(), mode), ("held", 0o640));
}

#[test]
fn read_file_returns_lines_and_counts_all() {
    let exec = Exec::new(Who::Me);
    let text = (1..=5000).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n") + "\n";
    exec.write("long", &text);
    let read = |more: &Value| {
        let mut arguments = json!({"path": "long"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(&exec, "read_file", &arguments)
    };
    let answer = read(&json!({"line": 10, "lines": 2, "numbered": true}));
    let part = value(&answer);
    assert_eq!(part["content"], "10\tline 10\n11\tline 11\n");
    assert_eq!((&part["line"], &part["lines"], &part["total_lines"]), (&json!(10), &json!(2), &json!(5000)));
    assert_eq!(part["has_more"], true);
    assert_eq!(value(&read(&json!({"line": 1001})))["lines"], 4000);
    let answer = read(&json!({"line": 4999, "lines": 9}));
    let last = value(&answer);
    assert_eq!((last["content"].as_str(), &last["has_more"]), (Some("line 4999\nline 5000\n"), &json!(false)));
    assert!(refusal(&read(&json!({"line": 5001}))).1.contains("has 5000 lines"));
    exec.work.write("long", b"a\n\xff\nc");
    assert_eq!(value(&read(&json!({"line": 2})))["content"], "\u{fffd}\nc");
    exec.work.write("long", "");
    assert_eq!((&value(&read(&json!({"line": 1})))["total_lines"], &json!(0)), (&json!(0), &json!(0)));
}

#[test]
fn read_file_handles_large_file() {
    let exec = Exec::new(Who::Me);
    let text = format!("{}\n{}", "x".repeat(6 << 20), "y\n".repeat(10));
    exec.write("large", &text);
    let answer = ask(&exec, "read_file", &json!({"path": "large", "line": 2}));
    assert_eq!((&value(&answer)["total_lines"], &value(&answer)["lines"]), (&json!(11), &json!(10)));
    let cut = ask(&exec, "read_file", &json!({"path": "large", "line": 1, "lines": 1}));
    assert_eq!((value(&cut)["content"].as_str().unwrap().len(), &value(&cut)["has_more"]), (4 << 20, &json!(true)));
    let patch = "*** Begin Patch\n*** Update File: large\n@@\n-y\n+z\n*** End of File\n*** End Patch";
    value(&ask(&exec, "edit_file", &json!({"patch": patch})));
    assert!(exec.work.read("large").ends_with("y\nz\n"));
    let sparse = fs::File::create(exec.work.join("larger")).unwrap();
    for (length, is_read) in [(64 << 20, true), ((64 << 20) + 1, false)] {
        sparse.set_len(length).unwrap();
        let answer = ask(&exec, "read_file", &json!({"path": "larger"}));
        assert_eq!(answer["ok"], is_read, "{answer}");
        assert!(is_read || refusal(&answer).1.contains("`tail`"), "{answer}");
    }
}

#[test]
fn read_file_text_for_model_has_note_in_brackets() {
    let exec = Exec::new(Who::Me);
    exec.write("a", "1\n2\n3\n");
    let call = |input: &Value| exec.call(&["--run", "RUN-1"], "filesystem", input)["data"].clone();
    let read = call(&json!({"operation": "read_file", "path": "a", "lines": 2}));
    assert_eq!(read["content"], "1\n2\n[lines 1 to 2 of 3]", "{read}");
    assert_eq!(call(&json!({"operation": "read_file", "path": "a"}))["content"], "1\n2\n3\n");
    call(&json!({"operation": "edit_file", "path": "a", "old": "2", "new": "two"}));
    let entries = exec.home.records(exec.home.join("planes/ho1/runs/RUN-1.jsonl"));
    let edit = entries.iter().find(|entry| entry["data"]["operation"] == "filesystem.edit_file").unwrap();
    assert_eq!((&edit["event"], &edit["data"]["call"]), (&json!("exec.changes"), &json!("c1")));
    let missing = call(&json!({"operation": "edit_file", "path": "b", "old": "2", "new": "two"}));
    assert!(missing["is_error"] == true && missing["content"].as_str().unwrap().contains("write_file"), "{missing}");
}

#[test]
fn concurrent_edits_are_all_applied() {
    let exec = Exec::new(Who::Me);
    let text = |open: &str, close: &str| (0..6).map(|n| format!("{open}{n}{close}")).collect::<Vec<_>>().join("\n");
    // Long enough that each is at work while others are.
    let rest = "\n".to_owned() + &"x".repeat(1 << 20);
    exec.write("a", &(text("<", ">") + &rest));
    let running: Vec<_> = (0..6)
        .map(|n| {
            let arguments = json!({"path": "a", "old": format!("<{n}>"), "new": format!("[{n}]")});
            let request = json!({"tool": "filesystem", "operation": "edit_file", "arguments": arguments});
            exec.command(&["--run", "RUN-1"]).stdin(format!("{request}\n")).start()
        })
        .collect();
    for child in running {
        child.finish().success();
    }
    assert!(exec.work.read("a") == text("[", "]") + &rest);
}

#[test]
fn missing_directories_are_created_within_writable_paths() {
    for who in everyone() {
        let exec = Exec::with_policy(who, "[paths]\nread = [\".\"]\nwrite = [\"out\"]\n");
        exec.write("out/x", "");
        for (path, is_written) in
            [("out/a/b/c", true), ("other/a", false), ("out/../b/c", false), ("out/.git/hooks/x", false)]
        {
            let answer = ask(&exec, "write_file", &json!({"path": path, "content": "text"}));
            assert_eq!(answer["ok"], is_written, "{who:?} {path}: {answer}");
            let parent = exec.work.join(path).parent().unwrap().to_path_buf();
            assert_eq!(parent.is_dir(), is_written, "{who:?} {path}");
        }
        exec.confirmed(&["undo", "all", "--run", "RUN-1"]);
        assert_eq!(exec.work.at("out").names(), ["x"], "{who:?}");
    }
}

#[test]
fn overwrite_is_an_edit_that_can_be_undone() {
    let exec = Exec::new(Who::Me);
    let write = |run: &[&str], content: &str| {
        let input = json!({"operation": "write_file", "path": "a", "content": content, "mode": "overwrite"});
        exec.call(run, "filesystem", &input)
    };
    exec.write("a", "one");
    assert_eq!(write(&["--run", "RUN-1"], "two")["data"]["is_error"], false);
    let (change, kept) = last_change(&exec);
    assert_eq!((kept, &change["after"]["sha256"]), (b"one".to_vec(), &json!(Hash::of(b"two").to_string())));
    // Equal bytes are written too; only the permissions did not change.
    assert_eq!(write(&["--run", "RUN-1"], "two")["data"]["is_error"], false);
    assert_eq!(last_change(&exec).0["change"], "changed");
    // The file changed since: the run has to read it again.
    exec.write("a", "other");
    let answer = write(&["--run", "RUN-1"], "three");
    assert!(answer["data"]["content"].as_str().unwrap().contains("read it again"), "{answer}");
    assert_eq!(exec.work.read("a"), "other");
    // Without a run nothing is known of the file, and the overwrite can be undone too.
    assert_eq!(write(&[], "three")["data"]["is_error"], false);
    exec.confirmed(&["undo", "last"]);
    assert_eq!(exec.work.read("a"), "other");
}

#[test]
fn failed_change_of_one_file_takes_back_the_others() {
    // An ordinary user cannot remove a file in a read-only directory, which is the last of the changes.
    let exec = Exec::new(*everyone().last().unwrap());
    for name in ["a", "d/b"] {
        exec.write(name, "1\n");
    }
    let set_mode =
        |name: &str, mode| fs::set_permissions(exec.work.join(name), fs::Permissions::from_mode(mode)).unwrap();
    set_mode("a", 0o640);
    set_mode("d", 0o555);
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Delete File: d/b\n*** Add File: e/f/new\n+n\n*** End Patch";
    let answer = ask(&exec, "edit_file", &json!({ "patch": patch }));
    assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
    let mode = || fs::metadata(exec.work.join("a")).unwrap().permissions().mode() & 0o777;
    assert_eq!((exec.work.read("a").as_str(), exec.work.read("d/b").as_str(), mode()), ("1\n", "1\n", 0o640));
    assert!(!exec.work.join("e").exists());
    set_mode("d", 0o755);
    value(&ask(&exec, "edit_file", &json!({ "patch": patch })));
    assert!(exec.work.read("a") == "2\n" && exec.work.read("e/f/new") == "n\n" && !exec.work.join("d/b").exists());
    assert_eq!(mode(), 0o640);
}

/// The data of the tool result of a read.
fn read_call(exec: &Exec, input: &Value) -> Value {
    let mut input = input.clone();
    input["operation"] = "read_file".into();
    exec.call(&["--run", "RUN-1"], "filesystem", &input)["data"].clone()
}

#[test]
fn read_file_of_image_has_image_block() {
    let exec = Exec::new(Who::Me);
    let body = [0_u8, 255, 7].repeat(300);
    for (head, media_type) in [
        (&b"\x89PNG\r\n\x1a\n"[..], Some("image/png")),
        (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
        (b"GIF89a", Some("image/gif")),
        (b"RIFF\x01\x02\x03\x04WEBP", Some("image/webp")),
        (b"\x7fELF", None),
    ] {
        exec.work.write("image", [head, &body].concat());
        let result = read_call(&exec, &json!({"path": "image"}));
        let block = &result["images"][0];
        assert_eq!(block["source"]["media_type"].as_str(), media_type, "{result}");
        assert_eq!(result["content"].as_str().unwrap().starts_with("[image/"), media_type.is_some());
        // A part has no image.
        let part = read_call(&exec, &json!({"path": "image", "line": 1}));
        assert_eq!(part["images"], Value::Null);
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_base64_and_edits_do_not_find_their_text() {
    let exec = Exec::new(Who::Me);
    let sentence = "Äpfel\n";
    let latin: Vec<u8> = sentence.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let utf_16: Vec<u8> = [0xfeff].into_iter().chain(sentence.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    for (bytes, is_text) in [(latin, false), (utf_16, false), (sentence.as_bytes().to_vec(), true)] {
        let path = exec.work.write("text", &bytes);
        let content = read_call(&exec, &json!({"path": "text"}))["content"].clone();
        let row = value(&ask(&exec, "read_file", &json!({"path": "text"}))).clone();
        let encoded = BASE64_STANDARD.encode(&bytes);
        let (expected, encoding) = if is_text { (sentence, "utf-8") } else { (encoded.as_str(), "base64") };
        assert_eq!((&row["content"], &row["encoding"]), (&json!(expected), &json!(encoding)));
        let noted = if is_text { sentence.to_owned() } else { format!("{expected}\n[not UTF-8: ") };
        assert!(content.as_str().unwrap().starts_with(&noted), "{content}");
        let edit = ask(&exec, "edit_file", &json!({"path": "text", "old": sentence, "new": "x"}));
        assert_eq!(edit["ok"], is_text, "{edit}");
        assert!(is_text || refusal(&edit).1.contains("does not occur") && fs::read(&path).unwrap() == bytes, "{edit}");
    }
}

//! Running: results, failures, requests, tools, formats and the record.

use cp_testkit::{Signal, until};
use serde_json::json;

use crate::exec::{Exec, POLICY, Who, everyone, program};
use crate::guard::trusted;

#[test]
fn failed_command_error_has_members_of_result() {
    for who in everyone() {
        let exec = Exec::new(who);
        let (good, status) = exec.sh("echo out; echo err >&2");
        assert_eq!((status, good["type"].as_str()), (0, Some("exec_result")), "{good}");
        assert_eq!(good["data"]["stderr"], "err\n");
        let (bad, status) = exec.sh("echo out; exit 3");
        assert_eq!((status, bad["error"]["code"].as_str()), (1, Some("E_COMMAND_FAILED")), "{bad}");
        assert_eq!(bad["error"]["details"]["return_code"], 3);
        let members = |value: &serde_json::Value| -> Vec<String> {
            let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(members(&bad["error"]["details"]), members(&good["data"]));
        let (killed, _) = exec.sh("kill -9 $$");
        assert_eq!(killed["error"]["details"]["signal"], 9, "{killed}");
    }
}

#[test]
fn failed_command_prints_its_output_in_text_format() {
    let exec = Exec::new(Who::Me);
    for (end, status) in [("exit 0", 0), ("exit 3", 1), ("kill -9 $$", 1)] {
        let script = format!("echo out; echo err >&2; {end}");
        let ran = exec.command(&["--format", "text", "--", "sh", "-c", &script]).run();
        assert_eq!((ran.status, ran.stdout.as_str()), (status, "out\nerr\n"), "{end}: {ran:?}");
    }
    let ran = exec.command(&["--format", "text", "--", "sh", "-c", "exit 3"]).run();
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("sh exited with 3"), "{ran:?}");
}

#[test]
fn ledger_has_intent_before_result_and_refusals() {
    let exec = Exec::new(Who::Me);
    exec.ask(&["--", "true"]);
    exec.ask(&["--", "shred", "-f", "/"]);
    exec.ask(&["-c", "   "]);
    let (intents, results) = (exec.entries("exec.intent"), exec.entries("exec.result"));
    assert_eq!((intents.len(), results.len()), (1, 1));
    assert_eq!(results[0]["data"]["intent"], intents[0]["seq"]);
    assert!(intents[0]["data"]["exe"]["sha256"].as_str().unwrap().starts_with("sha256:"));
    assert!(intents[0]["data"]["command_hash"].is_string() && results[0]["data"]["result_hash"].is_string());
    assert_eq!(results[0]["data"]["enforcement"]["seccomp"], true);
    let refused = exec.entries("exec.refused");
    let rules: Vec<&str> = refused.iter().map(|entry| entry["data"]["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["restricted", "empty"]);
}

#[test]
fn raw_format_is_a_chain_loader() {
    let exec = Exec::new(Who::Me);
    for (args, expected) in [
        (vec!["--", "true"], 0),
        (vec!["--", "sh", "-c", "exit 7"], 7),
        (vec!["--", "sh", "-c", "kill -TERM $$"], 143),
        (vec!["--timeout", "0.5", "--", "sleep", "60"], 124),
        (vec!["--", "shred", "x"], 126),
        (vec!["--", "/usr/bin/nothing-like-it"], 126),
        (vec!["--ledger", "/proc/none/x.jsonl", "--", "sh", "-c", "touch ran"], 125),
    ] {
        let output = exec.command(&[&["--format", "raw"], args.as_slice()].concat()).run();
        assert_eq!(output.status, expected, "{args:?}: {output:?}");
    }
    assert!(!exec.work.join("ran").exists(), "without a ledger nothing runs");
    let missing = Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"nothing-like-it\"]\n");
    assert_eq!(missing.command(&["--format", "raw", "--", "nothing-like-it"]).run().status, 127);
    let output = exec.command(&["--format", "raw", "--", "sh", "-c", r"printf 'a\0\377b'; echo err >&2"]).run();
    assert_eq!((output.bytes(), output.stderr.as_str()), (&b"a\0\xffb"[..], "err\n"));
}

#[test]
fn output_is_counted_truncated_and_base64_if_it_is_not_text() {
    let exec = Exec::new(Who::Me);
    let result = exec.inside(r"printf 'a\377\376'");
    assert_eq!((&result["stdout"], &result["streams"]["stdout"]["bytes"]), (&json!("a\u{fffd}\u{fffd}"), &json!(3)));
    assert_eq!(result["streams"]["stdout"]["base64"], "Yf/+");
    let result = exec.inside("echo begin; head -c 30000000 /dev/zero; echo end");
    let (out, bytes) = (result["stdout"].as_str().unwrap(), &result["streams"]["stdout"]["bytes"]);
    assert_eq!((&result["truncated"], bytes), (&json!(true), &json!(30_000_010)));
    assert!(out.starts_with("begin\n") && out.ends_with("end\n") && out.contains("bytes left out"));
    assert!(out.len() < 1_100_000);
}

#[test]
fn requests_are_answered_before_end_of_input() {
    for who in everyone() {
        let exec = Exec::new(who);
        let mut child = exec.command(&["--closed"]).start();
        for word in ["one", "two"] {
            let call = format!(
                r#"{{"ok":true,"schema_version":"1.0","type":"tool_call","data":{{"id":"c-{word}","name":"shell","input":{{"argv":["echo","{word}"]}}}}}}"#
            );
            child.write(call + "\n");
            let answer = child.record();
            assert_eq!(answer["type"], "tool_result", "{answer}");
            assert_eq!(answer["data"]["id"], format!("c-{word}"));
            assert_eq!(answer["data"]["content"], format!("{word}\n"));
            assert_eq!(answer["data"]["is_error"], false);
            assert!(answer["meta"].is_null());
        }
        child.write("{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"summary\",\"data\":{\"total\":2,\"succeeded\":2,\"failed\":0,\"skipped\":0},\"meta\":{\"duration_ms\":1}}\n");
        child.close_stdin();
        let last = child.record();
        assert_eq!((last["type"].as_str(), last["ok"].as_bool()), (Some("summary"), Some(true)), "{last}");
        child.wait().success();
    }
}

#[test]
fn executable_tool_gets_arguments_and_describes_itself() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let tool = "#!/usr/bin/env python3\nimport json, sys\nif sys.argv[1:] == ['--describe']:\n    print(json.dumps({'name': 'adder', 'parameters': {}}))\n    sys.exit()\na = json.load(sys.stdin)\nassert json.loads(sys.argv[1]) == a\nif a['x'] < 0: sys.exit('negative')\nprint(a['x'] + a['y'])\n";
        exec.executable("tools/adder", tool);
        // Existing files stay, even if a tool that describes itself must not write.
        exec.executable(".git/hooks/pre-commit", "#!/bin/sh\n");
        let tools = exec.work.join("tools");
        let tools = tools.to_str().unwrap();
        let call = |operation: &str, arguments: &str| {
            format!(r#"{{"tool":"adder","operation":"{operation}","arguments":{arguments}}}"#) + "\n"
        };
        let input = call("describe", "{}") + &call("call", r#"{"x":1,"y":2}"#) + &call("call", r#"{"x":-1,"y":2}"#);
        let (answers, _) = exec.answers(&["--tools", tools], &input);
        assert!(answers[0]["data"]["stdout"].as_str().unwrap().contains("adder"), "{answers:?}");
        assert_eq!(answers[1]["data"]["stdout"], "3\n");
        assert_eq!(answers[2]["error"]["code"], "E_COMMAND_FAILED");
        assert_eq!(answers[2]["error"]["details"]["stderr"], "negative\n");
        assert!(exec.work.join(".git/hooks/pre-commit").exists());

        // Without a policy a tool runs too; one that a policy leaves out does not.
        std::fs::remove_file(exec.home.join("config/policy.toml")).unwrap();
        let (answers, _) = exec.answers(&["--tools", tools], &call("call", r#"{"x":1,"y":2}"#));
        assert_eq!(answers[0]["data"]["stdout"], "3\n", "{answers:?}");
        std::fs::write(exec.home.join("config/policy.toml"), "[tools]\nallow = [\"other*\"]\n").unwrap();
        let record = r#"{"ok":true,"schema_version":"1.0","type":"tool_call","data":{"id":"1","name":"adder","input":{"x":1,"y":2}}}"#;
        let (answers, _) = exec.answers(&["--tools", tools], record);
        assert!(
            answers[0]["data"]["content"].as_str().unwrap().starts_with("Tool not permitted: adder"),
            "{answers:?}"
        );
        assert_eq!(answers[0]["data"]["is_error"], true);
        for name in ["../home/config/policy.toml", ".adder", "none", "adder/"] {
            let (answers, _) = exec
                .answers(&["--tools", tools], &format!(r#"{{"tool":"{name}","operation":"call","arguments":{{}}}}"#));
            assert_eq!(answers[0]["error"]["code"], "E_NOT_FOUND", "{name}: {answers:?}");
        }
    }
}

#[test]
fn file_operations_follow_policy_paths() {
    for who in everyone() {
        let policy = format!(
            "{POLICY}\n[paths]\nread = [\".\"]\nwrite = [\"out\"]\npristine = [\"out/keep\"]\nforbidden = [\"**/*.key\"]\n"
        );
        let exec = Exec::with_policy(who, &policy);
        for name in ["a", "x.key", "out/a", "out/keep/a", "out/old", "out/.bashrc", "out/.env"] {
            exec.write(name, "text");
        }
        exec.root.write("secret", "text");
        for (at, to) in [("out/link", exec.root.join("secret")), ("out/up", exec.root.to_path_buf())] {
            std::os::unix::fs::symlink(to, exec.work.join(at)).unwrap();
        }
        let ask = |operation: &str, path: &str| {
            exec.file(
                &["--run", "RUN-1"],
                operation,
                &match operation {
                    "edit_file" => json!({"path": path, "old": "text", "new": "new"}),
                    "write_file" => json!({"path": path, "content": "n"}),
                    _ => json!({"path": path}),
                },
            )
        };
        let listing = ask("list_directory", ".");
        assert_eq!(listing["data"]["value"]["entries"][0]["name"], "a", "{listing}");
        for (operation, path, code) in [
            ("read_file", "x.key", "E_FORBIDDEN"),
            ("read_file", "out/link", "E_FORBIDDEN"),
            ("read_file", "/etc/passwd", "E_FORBIDDEN"),
            ("read_file", "none", "E_NOT_FOUND"),
            ("read_file", ".", "E_VALIDATION"),
            ("list_directory", "../home", "E_FORBIDDEN"),
            ("write_file", "b", "E_FORBIDDEN"),
            ("write_file", "out/keep/b", "E_FORBIDDEN"),
            ("write_file", "out/old", "E_CONFLICT"),
        ] {
            let answer = ask(operation, path);
            assert_eq!(answer["error"]["code"], code, "{who:?} {operation} {path}: {answer}");
        }
        for path in ["a", "out/keep/a", "out/.bashrc", "out/.env", "out/link", "out/up/secret", "out/../a"] {
            for operation in ["edit_file", "remove_file", "write_file"] {
                let answer = ask(operation, path);
                assert!(answer["error"]["details"]["rule"].is_string(), "{who:?} {operation} {path}: {answer}");
            }
        }
        assert_eq!([exec.work.read("a"), exec.work.read("out/keep/a"), exec.root.read("secret")], ["text"; 3]);
        for (operation, path) in [
            ("read_file", "a"),
            ("write_file", "out/new"),
            ("read_file", "out/old"),
            ("remove_file", "out/old"),
            ("edit_file", "out/a"),
        ] {
            let answer = ask(operation, path);
            assert_eq!(answer["ok"], true, "{who:?} {operation} {path}: {answer}");
        }
    }
}

#[test]
fn git_in_hostile_repository_runs_nothing() {
    for who in everyone() {
        let exec = Exec::with_policy(who, "[exec]\nallowed_commands = [\"git\"]\n");
        let root = &exec.work;
        let setup = format!(
            "cd {} && git init -q . && git -c user.email=a -c user.name=a commit -q --allow-empty -m a && git config core.fsmonitor '{}/evil' && git config core.pager '{}/evil' && printf '#!/bin/sh\\ntouch {}/escaped\\n' > evil && chmod +x evil",
            root.display(),
            root.display(),
            root.display(),
            root.display()
        );
        trusted(exec.program("sh").args(["-c", &setup])).run().success();
        for line in ["git status", "git log", "git checkout -b other", "git add evil"] {
            let (answer, status) = exec.ask(&["-c", line]);
            assert_eq!(status, 0, "{who:?} {line}: {answer}");
            assert!(!root.join("escaped").exists(), "{who:?} {line} ran something");
        }
        // The control: without the sandbox and its environment it does run.
        trusted(exec.program("git").arg("status")).run().success();
        assert!(root.join("escaped").exists(), "the control did not run");
    }
}

#[test]
fn bad_request_is_reported_and_stream_continues() {
    let exec = Exec::new(Who::Me);
    let input = [
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"echo $(id)"}}"#,
        r#"{"tool":"shell","operation":"read_file","arguments":{"path":"x"}}"#,
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"true","shel":1}}"#,
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"true","timeout":601}}"#,
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"true","env":{"LD_PRELOAD":"x"}}}"#,
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"true","cwd":"/etc"}}"#,
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"true","argv":["true"]}}"#,
        r#"{"tool":"shell","operation":"execute_command","arguments":{"argv":[]}}"#,
        r#"{"tool":"filesystem","operation":"red_file","arguments":{"path":"x"}}"#,
        r"not json",
        r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"true"}}"#,
    ]
    .join("\n");
    let (answers, status) = exec.answers(&[], &input);
    let rules: Vec<&str> = answers[..6].iter().map(|a| a["error"]["details"]["rule"].as_str().unwrap_or("?")).collect();
    assert_eq!(rules, ["command_substitution", "operation", "request", "timeout", "env_never", "cwd"], "{answers:?}");
    assert!(answers[0]["error"]["details"]["hint"].as_str().unwrap().contains("run that command first"));
    assert!(answers[5]["error"]["message"].as_str().unwrap().starts_with("Capability denied: execute on /etc"));
    assert!(answers[1].to_string().contains("filesystem") && answers[2].to_string().contains("shel"), "{answers:?}");
    assert!(answers[8]["error"]["details"]["hint"].as_str().unwrap().contains("read_file"), "{answers:?}");
    assert!(answers[6..10].iter().all(|answer| answer["ok"] == false), "{answers:?}");
    assert_eq!(answers[9]["error"]["code"], "E_VALIDATION");
    assert_eq!(answers[10]["data"]["return_code"], 0);
    assert_eq!((status, &answers[11]["error"]["details"]["failed"]), (1, &10.into()));
    exec.command(&["--", "true"]).run().only();
    // S1-01: a request names its operation; the input of a tool call, and a line of bash, need none.
    let words = json!({"command": "touch made"});
    let read = json!({"operation": "read_file", "path": "x"});
    for operation in [None, Some("read_file"), Some("Execute_Command"), Some("")] {
        for (tool, arguments) in [("shell", &words), ("filesystem", &read), ("system", &read), ("adder", &words)] {
            let mut request = json!({"tool": tool, "arguments": arguments});
            if let Some(operation) = operation {
                request["operation"] = operation.into();
            }
            let answer = exec.answers(&[], &request.to_string()).0.remove(0);
            assert_eq!(answer["error"]["code"], "E_VALIDATION", "{request}: {answer}");
            let hint = answer["error"]["details"]["hint"].as_str().unwrap();
            assert!(hint.contains("execute_command"), "{request}: {answer}");
        }
    }
    assert!(!exec.work.join("made").exists());
    for (tool, operation) in [("shell", Some("execute_command")), ("bash", Some("execute_command")), ("bash", None)] {
        let request = json!({"tool": tool, "operation": operation, "arguments": {"command": "echo a"}});
        assert_eq!(exec.answers(&[], &request.to_string()).0[0]["data"]["stdout"], "a\n", "{request}");
        assert_eq!(exec.call(&[], tool, &request["arguments"])["data"]["content"], "a\n", "{request}");
    }
}

#[test]
fn deadline_during_start_is_timeout() {
    for who in everyone() {
        let exec = Exec::new(who);
        for timeout in ["0.0001", "0.0005", "0.001", "0.002", "0.004", "0.008"] {
            let (answer, status) = exec.ask(&["--timeout", timeout, "--", "sleep", "5"]);
            assert_eq!((status, &answer["error"]["code"]), (8, &"E_TIMEOUT".into()), "{who:?} {timeout}: {answer}");
            assert_eq!(answer["error"]["details"]["timed_out"], true, "{answer}");
        }
        assert_eq!(exec.command(&["--format", "raw", "--timeout", "0.0001", "--", "true"]).run().status, 124);
        assert_eq!(exec.ask(&["--timeout", "20", "--", "true"]).1, 0, "the control");
        assert_eq!(exec.entries("exec.intent").len(), exec.entries("exec.result").len());
    }
}

/// The description of the tool tells models of these members.
#[test]
fn system_has_what_its_description_names() {
    for who in everyone() {
        let exec = Exec::new(who);
        let value = |operation: &str| {
            let (answers, _) = exec.answers(&[], &format!(r#"{{"tool":"system","operation":"{operation}"}}"#));
            answers[0]["data"]["value"].clone()
        };
        let (info, status) = (value("get_info"), value("get_status"));
        let id =
            exec.inside("id -un").get("stdout").and_then(|name| name.as_str()).unwrap_or_default().trim().to_owned();
        let numbered = info["uid"].to_string();
        assert!([id.as_str(), numbered.as_str()].contains(&info["user"].as_str().unwrap()), "{who:?}: {info}");
        assert!(["os", "architecture", "hostname"].iter().all(|name| info[name].is_string()), "{info}");
        assert_eq!(status["load"].as_array().map(Vec::len), Some(3), "{status}");
        let bytes = ["memory_total_bytes", "memory_available_bytes", "disk_free_bytes"];
        assert!(bytes.iter().all(|name| status[name].as_u64() > Some(0)), "{status}");
    }
}

#[test]
fn operand_of_any_bytes_reaches_command() {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let exec = Exec::with_policy(Who::Me, "[exec]\nallowed_commands = [\"cat\", \"printf\"]\nintent = \"off\"\n");
    let bytes: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    for part in bytes.chunks(60) {
        // The last byte is not UTF-8 by itself.
        let name = std::ffi::OsString::from_vec([part, b"\xff"].concat());
        std::fs::write(exec.work.join(&name), name.as_bytes().len().to_string()).unwrap();
        let ran = exec.command(&["--", "cat", "--"]).arg(&name).run();
        assert_eq!(ran.closing()["data"]["stdout"], name.as_bytes().len().to_string(), "{ran:?}");
        let ran = exec.command(&["--format", "raw", "--", "printf", "%s"]).arg(&name).arg("a b").run();
        assert_eq!(ran.bytes(), [name.as_bytes(), b"a b"].concat(), "{ran:?}");
    }
    let bad = std::ffi::OsStr::from_bytes(b"\xff");
    assert_eq!(exec.command(&["--", "shred"]).arg(bad).run().first_error()["code"], "E_FORBIDDEN");
    let ran = exec.command(&["--env"]).arg(std::ffi::OsStr::from_bytes(b"A=\xff")).args(["--", "cat"]).run();
    assert_eq!((ran.status, ran.first_error()["code"].as_str()), (2, Some("E_USAGE")), "{ran:?}");
}

#[test]
fn project_directory_of_any_bytes_is_recorded_and_undone() {
    use std::os::unix::ffi::OsStrExt as _;
    for (who, name) in everyone().into_iter().zip([&b"\xff"[..], b"a\xc3 b\n"].into_iter().cycle()) {
        let exec = Exec::with_policy(who, POLICY);
        let directory = exec.work.join(std::ffi::OsStr::from_bytes(name));
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(&directory, exec.work.join("link")).unwrap();
        exec.own_all();
        for (place, git, made) in [(&directory, "init", "f"), (&exec.work.join("link"), "status", "g")] {
            let at = |words: &[&str]| exec.command(words).current_dir(place).run();
            let ran = at(&["-c", &format!("git {git} >&2 && echo hi >{made} && cat {made}")]).success();
            assert_eq!(ran.closing()["data"]["stdout"], "hi\n", "{ran:?}");
            assert!(directory.join(made).exists());
            let preview = at(&["undo", "last", "--dry-run"]).success();
            let token = preview.closing()["data"]["confirm_token"].as_str().unwrap().to_owned();
            at(&["undo", "last", "--confirm", &token]).success();
            assert!(!directory.join(made).exists());
        }
    }
}

#[test]
fn words_after_dashes_belong_to_command() {
    let names = POLICY.replace("\"git\",", "\"git\", \"sort\", \"grep\", \"df\",");
    let exec = Exec::with_policy(Who::Me, &names);
    exec.write("f", "x\n");
    for words in [&["git", "--version"][..], &["sort", "-V", "f"], &["grep", "-h", "x", "f"], &["df", "-h", "."]] {
        let (answer, status) = exec.ask(&[&["--"], words].concat());
        assert_eq!((status, &answer["data"]["return_code"]), (0, &0.into()), "{words:?}: {answer}");
        assert_eq!(answer["data"]["argv"].as_array().unwrap().len(), words.len());
    }
    // The control: before the dashes they are cp-exec's own.
    assert!(exec.command(&["-h", "--", "git"]).run().success().stdout.contains("cp-exec"));
}

#[test]
fn escape_sequence_is_quoted_except_in_raw_output() {
    cp_testkit::needs!("python3");
    let exec = Exec::new(Who::Me);
    let osc = "\x1b]0;owned\x07\u{202e}";
    for format in ["json", "text", "raw"] {
        let ran = exec.command(&["--format", format, "--", osc]).run();
        assert_ne!(ran.status, 0);
        assert!(ran.stderr.contains("^[]0;owned^G<U+202E>"), "{format}: {:?}", ran.stderr);
        assert!(!ran.stderr.contains('\x1b'), "{format}: {:?}", ran.stderr);
    }
    let words = ["--", "python3", "-c", "print('\\x1b[2Jx')"];
    let shown = |format: &str| exec.command(&[&["--format", format], &words[..]].concat()).run().success().stdout;
    assert_eq!(shown("text"), "^[[2Jx\n");
    assert_eq!(shown("raw"), "\x1b[2Jx\n");
}

#[test]
fn hangup_writes_closing_line_unless_ignored() {
    let exec = Exec::new(Who::Me);
    let running = exec.command(&["--", "sleep", "1.5"]).start();
    until("a run", || exec.ledger().exists() && !exec.entries("exec.intent").is_empty());
    running.signal(Signal::HUP);
    let ran = running.finish();
    let answer = ran.records().pop().unwrap();
    assert_eq!((ran.status, &answer["error"]["code"]), (130, &"E_INTERRUPTED".into()), "{ran:?}");
    assert_eq!(exec.entries("exec.result").len(), 1);

    // The control: under `nohup` it goes on to its own end.
    let exec = Exec::new(Who::Me);
    let line = format!("trap '' HUP; exec {} --home {} -- sleep 1.5", program().display(), exec.home.display());
    let running = exec.program("sh").without_env("CP_HOME").args(["-c", &line]).start();
    until("a run", || exec.ledger().exists() && !exec.entries("exec.intent").is_empty());
    running.signal(Signal::HUP);
    assert_eq!(running.finish().status, 0);
}

#[test]
fn variable_without_value_is_passed_on() {
    let exec = Exec::new(Who::Me);
    let run = |value: &str| exec.command(&["--env", "RUST_LOG", "-c", "echo $RUST_LOG"]).env("RUST_LOG", value).run();
    assert_eq!(run("debug").data()["stdout"], "debug\n");
    exec.command(&["--env", "RUST_LOG", "-c", "true"]).without_env("RUST_LOG").run().code(2);
}

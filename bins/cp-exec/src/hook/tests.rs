//! Recorded questions of hosts, and the answers to them.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum as _;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::policy::Access;

const RECORDED: &str = include_str!("../../tests/data/host-questions.jsonl");

fn tool(name: &str, input: &Value) -> Tool {
    Tool { name: name.to_owned(), input: input.as_object().unwrap().clone() }
}

fn files(name: &str, input: &Value) -> Vec<(Access, String)> {
    match effect_of(&tool(name, input), Path::new("/w")).unwrap() {
        ToolEffect::Files(files) => {
            files.into_iter().map(|(access, path)| (access, path.display().to_string())).collect()
        }
        effect => panic!("{name}: {effect:?}"),
    }
}

#[test]
fn decode_recorded_questions_of_each_host() {
    for line in RECORDED.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let named = Host::from_str(line["host"].as_str().unwrap(), false).unwrap();
        let event = decode(line["question"].to_string().as_bytes(), named).unwrap();
        let moment = match &event.moment {
            Moment::Before(_) => "before",
            Moment::After(..) => "after",
            Moment::Start => "start",
            Moment::End => "end",
            Moment::Other => "other",
        };
        assert_eq!((event.host, Some(moment)), (named, line["moment"].as_str()), "{line}");
        if matches!(moment, "before" | "after") {
            let found = decode(line["question"].to_string().as_bytes(), Host::Claude).unwrap();
            assert_eq!(found.host, named, "whoever the command line names: {line}");
        }
        assert!(!event.session.is_empty() && event.cwd.as_deref() == Some(Path::new("/work")), "{line}");
        assert_eq!(event.call.is_some(), line.to_string().contains("call_") || line.to_string().contains("toolu_"));
        if let Moment::Before(tool) = &event.moment {
            match effect_of(tool, Path::new("/work")).unwrap() {
                ToolEffect::Shell(line) => assert_eq!(
                    line.command,
                    "echo ran > ran.txt; echo hi"
                        .replace("ran.txt", if named == Host::Codex { "ran2.txt" } else { "ran.txt" })
                ),
                ToolEffect::Files(files) => assert_eq!(files, [(Access::Write, PathBuf::from("/work/new.txt"))]),
                ToolEffect::Other => panic!("{tool:?}"),
            }
        }
    }
}

#[test]
fn decode_unclear_question_fails() {
    let before =
        json!({"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Bash","tool_input":{"command":"id"}});
    assert!(decode(before.to_string().as_bytes(), Host::Claude).is_ok(), "the control");
    for name in ["session_id", "tool_name", "tool_input"] {
        let mut less = before.clone();
        less.as_object_mut().unwrap().remove(name);
        assert!(decode(less.to_string().as_bytes(), Host::Claude).is_err(), "{name}");
    }
    let twice = before.to_string().replacen('{', r#"{"tool_name":"Read","#, 1);
    for broken in ["", "{", "[]", "{}", "null", r#"{"a":1}"#, r#"{"input":{},"output":{}}"#, twice.as_str()] {
        assert!(decode(broken.as_bytes(), Host::Claude).is_err(), "{broken}");
    }
    let other = before.to_string().replace("PreToolUse", "SomethingNew");
    assert!(matches!(decode(other.as_bytes(), Host::Claude).unwrap().moment, Moment::Other));
}

#[test]
fn effect_of_file_tools_lists_their_files() {
    use Access::{Read, Write};
    let path = |access, path: &str| vec![(access, path.to_owned())];
    assert_eq!(files("Read", &json!({"file_path":"/a/b"})), path(Read, "/a/b"));
    assert_eq!(files("Write", &json!({"file_path":"lib/[id].ts","content":"*"})), path(Write, "/w/lib/[id].ts"));
    assert_eq!(files("NotebookEdit", &json!({"notebook_path":"n"})), path(Write, "/w/n"));
    assert_eq!(files("edit", &json!({"filePath":"~/x"})), path(Write, "~/x"));
    assert_eq!(files("view", &json!({"path":"../x"})), path(Read, "/w/../x"));
    assert_eq!(files("Grep", &json!({"pattern":"/x*"})), path(Read, "/w"));
    assert_eq!(files("LS", &json!({"path":"/etc"})), path(Read, "/etc"));
    for (pattern, looks) in
        [("/etc/*.d/x", "/etc/"), ("src/**", "/w/src/"), ("*", "/w"), ("a*/../../x", "/"), ("{/etc,a}", "/")]
    {
        assert_eq!(files("Glob", &json!({"pattern":pattern})), path(Read, looks), "{pattern}");
    }
    let text = "*** Begin Patch\n*** Update File: a b\n*** Move to: c\n@@\n-x\n*** Add File: /d\n*** Delete File: e\n*** End Patch";
    let all = ["/w/a b", "/w/c", "/d", "/w/e"].map(|path| (Write, path.to_owned()));
    assert_eq!(files("apply_patch", &json!({"command":text})), all);
    assert_eq!(files("patch", &json!({"patchText":text})), all);
}

#[test]
fn effect_of_unclear_tool_is_refused() {
    for (name, input) in [
        ("Read", json!({"file":"a"})),
        ("Write", json!({"content":"a"})),
        ("apply_patch", json!({"command":"no marks"})),
        ("Bash", json!({"command":["bash","-c","id"]})),
        ("shell", json!({})),
        ("write_bash", json!({"input":"rm -rf x\n"})),
        ("write_stdin", json!({"chars":"y"})),
    ] {
        assert!(effect_of(&tool(name, &input), Path::new("/w")).is_err(), "{name} {input}");
    }
    for (name, input) in
        [("write_stdin", json!({"chars":""})), ("TodoWrite", json!({})), ("mcp__a__b", json!({"path":"x"}))]
    {
        assert!(matches!(effect_of(&tool(name, &input), Path::new("/w")), Ok(ToolEffect::Other)), "{name}");
    }
}

fn rewriting(context: &[String]) -> Rewriter<'_> {
    Rewriter { program: Path::new("/opt/my tools/cp-exec"), context, hosted: "claude/s/c'1" }
}

fn line(command: &str) -> Line {
    Line { command: command.to_owned(), cwd: PathBuf::from("/w/it's"), timeout: Some(1.5) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rewritten_command_is_one_shell_word(command in "[^\0\r]{0,40}", more in r#"['"\\$`! *;|&\n]{0,12}"#) {
        let context = ["--home".to_owned(), "/h $HOME".to_owned()];
        let command = format!("{command}{more}");
        let rewritten = rewriting(&context).of(&line(&command), None);
        let script = format!("set -- {rewritten}; printf '%s\\0' \"$@\"");
        for shell in ["sh", "bash"] {
            let output = Command::new(shell).args(["-c", &script]).output().unwrap();
            let words = String::from_utf8(output.stdout).unwrap();
            let words: Vec<&str> = words.trim_end_matches('\0').split('\0').collect();
            let expected = [
                "/opt/my tools/cp-exec", "--home", "/h $HOME", "--hosted", "claude/s/c'1", "--format", "raw", "--cwd",
                "/w/it's", "--timeout", "1.5", "-c",
            ];
            prop_assert_eq!(&words[..12], expected, "{}", rewritten);
            prop_assert_eq!(words.get(12).copied().unwrap_or_default(), command.as_str(), "{}", rewritten);
        }
        let back = original_of(&line(&rewritten)).unwrap();
        prop_assert_eq!(back.command, command);
    }

    #[test]
    fn decode_random_text_does_not_panic(text in r#"[{}\[\]":, a-zA-Z_0-9]{0,80}"#) {
        let _ = decode(text.as_bytes(), Host::Claude);
        let _ = decode(json!({"hook_event_name":"PreToolUse","session_id":text,"tool_name":text,"tool_input":{&text:text}}).to_string().as_bytes(), Host::Claude);
        let _ = effect_of(&tool("Glob", &json!({"pattern":text})), Path::new("/w"));
    }
}

#[test]
fn answer_has_format_of_each_host() {
    let input: Map<String, Value> = json!({"command":"x"}).as_object().unwrap().clone();
    let said = |host, verdict: Verdict| serde_json::from_str::<Value>(&response(host, &verdict)).unwrap_or_default();
    for host in [Host::Claude, Host::Codex] {
        let specific = &said(host, Verdict::Rewrite(input.clone()))["hookSpecificOutput"];
        assert_eq!(
            *specific,
            json!({"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"cp-exec runs it in its sandbox","updatedInput":{"command":"x"}})
        );
        assert_eq!(said(host, Verdict::Deny("no".to_owned()))["hookSpecificOutput"]["permissionDecision"], "deny");
        assert_eq!(response(host, &Verdict::Pass), "", "a bare yes skips the host's own question");
    }
    let defer = said(Host::Claude, Verdict::Defer("why".to_owned()));
    assert_eq!(
        defer["hookSpecificOutput"],
        json!({"hookEventName":"PreToolUse","permissionDecision":"defer","permissionDecisionReason":"why"})
    );
    assert_eq!(
        said(Host::Gemini, Verdict::Rewrite(input.clone())),
        json!({"hookSpecificOutput":{"hookEventName":"BeforeTool","tool_input":{"command":"x"}}})
    );
    assert_eq!(
        said(Host::Copilot, Verdict::Rewrite(input.clone())),
        json!({"permissionDecision":"allow","modifiedArgs":{"command":"x"}})
    );
    assert_eq!(
        said(Host::Opencode, Verdict::Rewrite(input.clone())),
        json!({"decision":"allow","args":{"command":"x"}})
    );
    for host in [Host::Gemini, Host::Copilot, Host::Opencode] {
        for verdict in [
            Verdict::Deny("no".to_owned()),
            Verdict::Ask(input.clone(), "no".to_owned()),
            Verdict::Defer("no".to_owned()),
        ] {
            assert!(said(host, verdict.clone()).to_string().contains(r#"ecision":"deny""#), "{host:?} {verdict:?}");
        }
    }
}

#[test]
fn asks_only_attended_claude_code() {
    let question = |mode: &str| {
        let question = json!({"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"c","tool_name":"Bash","tool_input":{"command":"x"},"permission_mode":mode});
        decode(question.to_string().as_bytes(), Host::Claude).unwrap()
    };
    assert_eq!(question("default").prompt_mode(Host::Claude, Some(true)), PromptMode::Now);
    assert_eq!(question("default").prompt_mode(Host::Claude, Some(false)), PromptMode::Later);
    assert_eq!(question("default").prompt_mode(Host::Claude, None), PromptMode::Never);
    assert_eq!(question("bypassPermissions").prompt_mode(Host::Claude, Some(true)), PromptMode::Never);
    assert_eq!(
        question("default").prompt_mode(Host::Copilot, Some(true)),
        PromptMode::Never,
        "it asks in Claude's words"
    );
}

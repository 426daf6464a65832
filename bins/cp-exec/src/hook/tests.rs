//! Recorded questions of hosts, and the answers to them.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum as _;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::hosts::Does;
use crate::policy::Access;

const RECORDED: &str = include_str!("../../tests/data/host-questions.jsonl");

fn tool(host: Host, name: &str, input: &Value) -> Tool {
    Tool { name: name.to_owned(), input: input.as_object().unwrap().clone(), host }
}

/// The effects of a tool, as the examples of the tables write them.
fn effects(host: Host, name: &str, input: &Value) -> Vec<String> {
    let files = |files: Vec<(Access, PathBuf)>, kind: &str| {
        let file = |(access, path): (Access, PathBuf)| match access {
            Access::Read => format!("{kind}read {}", path.display()),
            Access::Write => format!("{kind}write {}", path.display()),
            Access::Execute => panic!("{name} executes {}", path.display()),
        };
        files.into_iter().map(file).collect::<Vec<_>>()
    };
    let Ok(effect) = effect_of(&tool(host, name, input), Path::new("/w")) else { return vec!["refused".to_owned()] };
    match (effect.does, effect.line) {
        (Does::Unknown, Some(line)) => vec![format!("unknown shell {}", line.line.unwrap())],
        (_, Some(line)) => vec![format!("shell {} in {}", line.line.unwrap(), line.cwd.unwrap())],
        (Does::Skill, None) => vec!["skill".to_owned()],
        (Does::Fetch, None) => vec!["fetch".to_owned()],
        (Does::Stdin | Does::None, None) => vec!["none".to_owned()],
        (Does::Unknown, None) => [vec!["unknown".to_owned()], files(effect.files, "unknown ")].concat(),
        (_, None) => files(effect.files, ""),
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
            Moment::Other => "other",
        };
        assert_eq!((event.host, Some(moment)), (named, line["moment"].as_str()), "{line}");
        assert!(!event.call.session.is_empty() && event.cwd.as_deref() == Some(Path::new("/work")), "{line}");
        assert_eq!(
            !event.call.call.is_empty(),
            line.to_string().contains("call_") || line.to_string().contains("toolu_")
        );
        if let Moment::Before(tool) = &event.moment {
            let effect = effect_of(tool, Path::new("/work")).unwrap();
            let line = "echo ran > ran.txt; echo hi"
                .replace("ran.txt", if named == Host::Codex { "ran2.txt" } else { "ran.txt" });
            match (effect.does, &effect.line) {
                (Does::Unknown, _) => panic!("{tool:?}: {effect:?}"),
                (_, Some(known)) => assert_eq!(known.line.as_ref(), Some(&line)),
                (_, None) => assert_eq!(effect.files, [(Access::Write, PathBuf::from("/work/new.txt"))]),
            }
        }
    }
}

#[test]
fn decode_unclear_question_fails() {
    let before = json!({"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"c","tool_name":"Bash","tool_input":{"command":"id"}});
    assert!(decode(before.to_string().as_bytes(), Host::Claude).is_ok(), "the control");
    for name in ["session_id", "tool_use_id", "tool_name", "tool_input"] {
        let mut less = before.clone();
        less.as_object_mut().unwrap().remove(name);
        assert!(decode(less.to_string().as_bytes(), Host::Claude).is_err(), "{name}");
    }
    let twice = before.to_string().replacen('{', r#"{"tool_name":"Read","#, 1);
    for broken in ["", "{", "[]", "{}", "null", r#"{"a":1}"#, r#"{"input":{},"output":{}}"#, twice.as_str()] {
        assert!(decode(broken.as_bytes(), Host::Claude).is_err(), "{broken}");
    }
    let mut other = before.clone();
    other["hook_event_name"] = "SomethingNew".into();
    assert!(decode(other.to_string().as_bytes(), Host::Claude).is_err(), "it could be the question before a call");
    other.as_object_mut().unwrap().remove("tool_name");
    assert!(matches!(decode(other.to_string().as_bytes(), Host::Claude).unwrap().moment, Moment::Other));
}

#[test]
fn known_tool_with_other_path_is_judged_like_unknown_one() {
    for host in Host::HOOKED {
        for row in &host.facts().tool {
            for (input, _) in &row.examples {
                let mut input: Value = serde_json::from_str(input).unwrap();
                input["other_paths"] = json!(["/home/me/.ssh"]);
                let found = effects(host, &row.names[0], &input);
                assert!(found[0].starts_with("unknown") || found == ["refused"], "{host:?} {input}: {found:?}");
            }
        }
    }
}

#[test]
fn effects_of_tools_are_those_of_the_tables() {
    for host in Host::HOOKED {
        let facts = host.facts();
        for row in &facts.tool {
            assert!(!row.examples.is_empty(), "{:?}", row.names);
            for (name, example) in row.names.iter().flat_map(|name| row.examples.iter().map(move |one| (name, one))) {
                let (input, expected) = example;
                let found = effects(host, name, &serde_json::from_str(input).unwrap());
                assert_eq!(&found, expected, "{host:?} {name} {input}");
            }
            let first = facts.tool(&row.names[0]).map(|found| &found.names);
            assert_eq!(first, Some(&row.names), "the name is in two rows");
        }
    }
}

#[test]
fn effect_of_unclear_tool_is_refused() {
    for (host, name, input) in [
        (Host::Claude, "Read", json!({"content":"a"})),
        (Host::Claude, "Write", json!({"content":"a"})),
        (Host::Codex, "apply_patch", json!({"command":"no marks"})),
        (Host::Claude, "Bash", json!({"command":["bash","-c","id"]})),
        (Host::Codex, "shell", json!({})),
        (Host::Codex, "write_stdin", json!({"chars":"y"})),
    ] {
        assert_eq!(effects(host, name, &input), ["refused"], "{name} {input}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn unknown_tool_never_counts_as_harmless(
        name in "[A-Za-z][A-Za-z_]{0,20}Zz",
        host in 0_usize..2,
        member in prop::sample::select(vec!["command", "cmd", "script", "code", "path", "filePath", "target_file", "dir", "cwd", "note"]),
        value in prop_oneof![Just(json!("/etc/x")), Just(json!(["/etc/x"])), Just(json!(7)), Just(json!({"a": "/etc/x"}))],
    ) {
        let nested = effects(Host::HOOKED[host], &name, &json!({"calls": [{"input": {member: value}}]}));
        prop_assert_eq!(nested, ["unknown"]);
        let found = effects(Host::HOOKED[host], &name, &json!({member: value, "other": 1}));
        let is_text = value.is_string() || value.is_array();
        let expected = match member {
            "command" | "cmd" if value.is_string() => vec!["unknown shell /etc/x"],
            "command" | "cmd" => vec!["refused"],
            "script" | "code" | "note" => vec!["unknown"],
            _ if is_text => vec!["unknown", "unknown write /etc/x"],
            _ => vec!["unknown"],
        };
        prop_assert_eq!(found, expected, "{} {}", member, value);
    }
}

fn rewriting(context: &[&str], line: &str) -> String {
    let options = ["--hosted", "claude/s/c'1", "--format", "raw", "--cwd", "/w/it's", "--timeout", "1.5"];
    let program = ["/opt/my tools/cp-exec"].iter().chain(context).chain(&options);
    rewritten(line, &program.map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

/// Parts of lines, of which each could end a quote, a list or a block if it were not quoted.
#[rustfmt::skip]
const SHELL_WORDS: [&str; 47] = [
    "touch FILE", "; touch FILE", "|| touch FILE", "&& touch FILE", "\ntouch FILE", "$(touch FILE)", "`touch FILE`",
    "fi; touch FILE; if false; then :", "done; touch FILE", "} ; touch FILE", "'; touch FILE; '", ">FILE", "<FILE",
    "2>&1", "'", "\"", "\\", "\\\n", "}", "{", ")", "(", "if", "then", "fi", "for", "do", "done", "case", "esac", "in",
    "function", "#", "# it's\n", "\n\n", "&", "|", "<<E", "<<'E'\nit's", "\nE\n", "-c 'x'", "--hosted", "' -c '", "!", "$x",
    "[[", "exec",
];
/// Texts after which a shell runs what follows.
const STARTS: [&str; 12] = [";", "\n", "&&", "||", "|", "&", "$(", "(", "; then", "; do", "; A=1", "; >FILE"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rewritten_command_is_one_shell_word(command in "[^\0\r]{0,40}", more in r#"['"\\$`! *;|&\n]{0,12}"#) {
        let command = format!("{command}{more}");
        let rewritten = rewriting(&["--home", "/h $HOME"], &command);
        let script = rewritten.replacen("'/opt/my tools/cp-exec'", r"printf '%s\0'", 1);
        for shell in ["sh", "bash"] {
            let output = Command::new(shell).args(["-c", &script]).output().unwrap();
            let words = String::from_utf8(output.stdout).unwrap();
            let words: Vec<&str> = words.strip_suffix('\0').unwrap_or_default().split('\0').collect();
            let expected = [
                "--home", "/h $HOME", "--hosted", "claude/s/c'1", "--format", "raw", "--cwd", "/w/it's", "--timeout", "1.5",
                "-c", command.as_str(),
            ];
            prop_assert_eq!(&words[..], expected, "{}", rewritten);
        }
    }

    #[test]
    fn words_for_rules_of_host_are_complete_and_never_run(
        before in prop::collection::vec(prop::sample::select(&SHELL_WORDS), 0..6),
        start in prop::sample::select(&STARTS),
        after in prop::collection::vec(prop::sample::select(&SHELL_WORDS), 0..4),
    ) {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ran").display().to_string();
        let text = |words: Vec<&str>| words.join(" ").replace("FILE", &file);
        let (before, after) = (text(before), text(after));
        let denied = "g'it' \"pu\"s\\h origin";
        for (command, is_denied) in
            [(format!("{before} {} {denied} {after}", start.replace("FILE", &file)), true), (format!("{before} {after}"), false)]
        {
            let rewritten = rewriting(&[], &command);
            let (listed, _) = rewritten.split_once("; '/opt/my tools/cp-exec'").unwrap();
            let has_words = listed.split(" && ").any(|words| words.starts_with("git 'push' 'origin'"));
            prop_assert_eq!(has_words, is_denied, "{}", rewritten);
            let script = rewritten.replacen("'/opt/my tools/cp-exec'", ":", 1);
            for shell in ["sh", "bash"] {
                let output = Command::new(shell).args(["-c", &script]).output().unwrap();
                prop_assert!(output.status.success() && output.stderr.is_empty(), "{} {:?}", rewritten, output);
            }
            prop_assert!(place.path().read_dir().unwrap().next().is_none(), "{}", rewritten);
        }
    }

    #[test]
    fn decode_random_text_does_not_panic(text in r#"[{}\[\]":, a-zA-Z_0-9]{0,80}"#) {
        let _ = decode(text.as_bytes(), Host::Claude);
        let _ = decode(json!({"hook_event_name":"PreToolUse","session_id":text,"tool_use_id":text,"tool_name":text,"tool_input":{&text:text}}).to_string().as_bytes(), Host::Claude);
        let _ = effect_of(&tool(Host::Claude, "Glob", &json!({"pattern":text})), Path::new("/w"));
    }
}

#[test]
fn answer_has_format_of_hosts() {
    let input: Map<String, Value> = json!({"command":"x"}).as_object().unwrap().clone();
    let said = |verdict: &Verdict| {
        serde_json::from_str::<Value>(&response(verdict).1).unwrap_or_default()["hookSpecificOutput"].take()
    };
    assert_eq!(
        said(&Verdict::Rewrite(input.clone())),
        json!({"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"cp-exec runs it in its sandbox","updatedInput":{"command":"x"}})
    );
    let ask = said(&Verdict::Ask(input, "why".to_owned()));
    assert_eq!((&ask["permissionDecision"], &ask["updatedInput"]["command"]), (&json!("ask"), &json!("x")));
    let denied = json!({"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"why"});
    assert_eq!(said(&Verdict::Deny("why".to_owned())), denied);
    assert_eq!(response(&Verdict::Pass), ("pass", String::new()), "a bare yes skips the host's own question");
}

#[test]
fn asks_only_claude_code_in_modes_that_ask() {
    let question = |mode: &str, host: Host| {
        let question = json!({"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"c","tool_name":"Bash","tool_input":{"command":"x"},"permission_mode":mode});
        decode(question.to_string().as_bytes(), host).unwrap()
    };
    assert!(question("default", Host::Claude).may_ask() && question("plan", Host::Claude).may_ask());
    assert!(!question("bypassPermissions", Host::Claude).may_ask());
    assert!(!question("default", Host::Codex).may_ask(), "Codex does not deny without an answer");
}

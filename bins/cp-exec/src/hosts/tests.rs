//! Property tests of adding and removing the hook, with texts as users write them.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Command, Host, SHELL_PREFIX, add_hook, lasting, lines_in as lines, remove_hook};

fn command(host: Host, program: &str) -> Command<'_> {
    Command { host, program, home: "/the/home", is_inside: false }
}

fn leaf() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1e2"),
        Just("-0.50"),
        Just("null"),
        Just("\"a \\u00e9 \\\" // /* x\""),
        Just("[]"),
        Just("{ }"),
        Just("[1,  2]"),
        Just("{\"hooks\": {\"PreToolUse\": []}}"),
        Just("12345678901234567890"),
    ]
    .prop_map(str::to_owned)
}

/// Handlers and groups of other tools, some of which resemble ours.
fn group() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#"{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint || exit 2"}]}"#),
        Just(
            r#"{"hooks":[{"type":"command","command":"my-cp-exec-log hook claude"},{"type":"http","url":"http://x"}]}"#
        ),
        Just(r#"{"type": "command", "bash": "./check cp-exec hook codex"}"#),
        Just(r#"{"hooks": []}"#),
        Just("{}"),
    ]
    .prop_map(str::to_owned)
}

/// Formats a container on several lines or on one.
fn written(open: char, parts: &[String], close: char, style: usize, depth: usize) -> String {
    let (newline, unit) = [("", ""), ("\n", "  "), ("\n", "\t"), ("\r\n", "    "), ("\n\n", " ")][style];
    let comma = if newline.is_empty() { ", ".to_owned() } else { format!(",{newline}{}", unit.repeat(depth + 1)) };
    if parts.is_empty() {
        return format!("{open}{newline}{close}");
    }
    format!("{open}{newline}{}{}{newline}{}{close}", unit.repeat(depth + 1), parts.join(&comma), unit.repeat(depth))
}

fn text() -> impl Strategy<Value = String> {
    let events =
        prop::sample::subsequence(vec!["PreToolUse", "PostToolUse", "Notification", "SessionStart", "Stop"], 0..4);
    let hooks = (events, prop::collection::vec(prop::collection::vec(group(), 0..3), 5));
    let env = prop::option::of(0..3_usize);
    (prop::collection::vec(leaf(), 0..4), prop::option::of(hooks), 0..5_usize, 0..4_usize, prop::bool::ANY, env)
        .prop_map(|(leaves, hooks, style, at, end, env)| {
            let mut members: Vec<String> =
                leaves.into_iter().enumerate().map(|(n, leaf)| format!("\"m{n}\":{leaf}")).collect();
            if let Some(count) = env {
                let variables = ["\"A\": \"1\"".to_owned(), "\"B\":\"\"".to_owned()];
                members.insert(0, format!("\"env\":{}", written('{', &variables[..count], '}', style, 1)));
            }
            if let Some((events, groups)) = hooks {
                let lists = events.iter().zip(groups);
                let lists =
                    lists.map(|(event, groups)| format!("\"{event}\": {}", written('[', &groups, ']', style, 2)));
                let hooks = format!("\"hooks\" : {}", written('{', &lists.collect::<Vec<_>>(), '}', style, 1));
                members.insert(at.min(members.len()), hooks);
            }
            written('{', &members, '}', style, 0) + if end { "\n" } else { "" }
        })
}

/// All entries except ours.
fn of_others(host: Host, text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap();
    let Some(hooks) = value["hooks"].as_object_mut() else { return value };
    for list in hooks.values_mut().filter_map(Value::as_array_mut) {
        list.retain(|group| {
            !group.to_string().contains(&format!("/bin/cp-exec --home /the/home hook {}", host.name()))
        });
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hook_added_and_removed_restores_every_byte(text in text(), host in prop::sample::select(&Host::HOOKED)) {
        let own = command(host, "/usr/bin/cp-exec");
        let with = add_hook(&own, Some(&text)).unwrap();
        let count = lines(host, &with).unwrap().len();
        prop_assert!(count >= 4, "{with}");
        prop_assert_eq!(&add_hook(&own, Some(&with)).unwrap(), &with, "twice is once");
        // Other entries come before ours in the same order. New lists contain only our entry.
        let (before, mut after) = (serde_json::from_str::<Value>(&text).unwrap(), of_others(host, &with));
        if let Some(hooks) = after["hooks"].as_object_mut() {
            hooks.retain(|event, list| list != &json!([]) || before["hooks"].get(event).is_some());
        }
        if before.get("hooks").is_none() {
            after.as_object_mut().unwrap().shift_remove("hooks");
        }
        if let Some(env) = after.get_mut("env").and_then(Value::as_object_mut) {
            prop_assert_eq!(env.shift_remove(SHELL_PREFIX).is_some(), host == Host::Claude);
        }
        if before.get("env").is_none() {
            after.as_object_mut().unwrap().shift_remove("env");
        }
        prop_assert_eq!(&after, &before);
        let rest = remove_hook(host, &with).unwrap();
        prop_assert_eq!(rest.as_deref(), Some(text.as_str()));
        prop_assert_eq!(remove_hook(host, &text).unwrap(), Some(text));
    }

    #[test]
    fn add_hook_replaces_older_entry(text in text(), host in prop::sample::select(&Host::HOOKED)) {
        let old = add_hook(&command(host, "/home/o'neil/bin/cp-exec"), Some(&text)).unwrap();
        let new = add_hook(&command(host, "/usr/bin/cp-exec"), Some(&old)).unwrap();
        prop_assert!(!new.contains("neil"), "{}", new);
        prop_assert_eq!(lines(host, &new).unwrap().len(), lines(host, &old).unwrap().len());
    }
}

#[test]
fn remove_hook_deletes_file_only_without_other_entries() {
    for host in Host::HOOKED {
        let own = command(host, "/bin/cp-exec");
        let made = add_hook(&own, None).unwrap();
        assert_eq!(remove_hook(host, &made).unwrap(), None, "{made}");
        let more = made.replacen('{', "{\n  \"other\": true,", 1);
        let left = remove_hook(host, &more).unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&left).unwrap()["other"], true);
        assert!(!left.contains("cp-exec"), "{left}");
    }
}

#[test]
fn hook_is_added_to_empty_file() {
    for host in Host::HOOKED {
        let own = command(host, "/bin/cp-exec");
        let made = add_hook(&own, None).unwrap();
        for empty in ["", " \n"] {
            assert_eq!(add_hook(&own, Some(empty)).unwrap(), made);
        }
    }
}

#[test]
fn add_hook_beside_other_shell_program_fails() {
    let own = command(Host::Claude, "/bin/cp-exec");
    let text = |value: &str| format!("{{\"env\": {{\"{SHELL_PREFIX}\": \"{value}\"}}}}");
    assert!(add_hook(&own, Some(&text("/opt/wrapper"))).unwrap_err().message().contains("already `/opt/wrapper`"));
    let moved = add_hook(&own, Some(&text("/old/home/bin/claude-shell"))).unwrap();
    assert!(moved.contains("/the/home/bin/claude-shell") && !moved.contains("/old/"), "{moved}");
    assert_eq!(remove_hook(Host::Claude, &text("/opt/wrapper")).unwrap().unwrap(), text("/opt/wrapper"));
}

#[test]
fn remove_hook_keeps_other_handlers_of_group() {
    let text = r#"{"hooks": {"PreToolUse": [{"hooks": [{"command": "a"}, {"command": "'/x/cp-exec' --home /h hook claude"}, {"command": "b"}]},
        {"hooks": [{"command": "cp-exec hook claude"}, {"command": "cp-exec hook claude 2>&1"}]}, {"hooks": [{"command": "cp-exec hook codex"}]}]}}"#;
    let left: Value = serde_json::from_str(&remove_hook(Host::Claude, text).unwrap().unwrap()).unwrap();
    let expected =
        json!([{"hooks": [{"command": "a"}, {"command": "b"}]}, {"hooks": [{"command": "cp-exec hook codex"}]}]);
    assert_eq!(left["hooks"]["PreToolUse"], expected);
}

#[test]
fn add_hook_to_invalid_file_fails_with_position_and_text_to_paste() {
    let own = command(Host::Claude, "/bin/cp-exec");
    for (text, line, why) in [
        ("{\n  // mine\n  \"a\": 1\n}", Some(2), "expected a member name"),
        ("{\"a\": 1,}", Some(1), "expected a member name"),
        ("{", Some(1), "ends inside"),
        ("{\"a\": 1, \"a\": 2}", Some(1), "duplicate"),
        ("[]", None, "the text is not an object"),
        ("{\"hooks\": []}", None, "`hooks` is not an object"),
        ("{\"hooks\": {\"PreToolUse\": {}}}", None, "`hooks.PreToolUse` is not an array"),
    ] {
        let error = add_hook(&own, Some(text)).unwrap_err();
        assert!(error.message().contains(why), "{text}: {error}");
        assert_eq!(error.details().get("line").and_then(Value::as_u64), line, "{text}");
        assert!(error.details()["paste"]["hooks"]["PreToolUse"].is_array(), "{text}");
        let kept = line.is_none().then(|| Some(text.to_owned()));
        assert_eq!(remove_hook(Host::Claude, text).ok(), kept, "{text}");
    }
}

#[test]
fn file_of_each_host_in_project() {
    let file = |host: Host| host.hook_file(Some("/p".as_ref()), "/h".as_ref()).display().to_string();
    let files = Host::HOOKED.map(file);
    assert_eq!(files, ["/p/.claude/settings.local.json", "/p/.codex/hooks.json"]);
}

#[test]
fn written_path_of_program_outlives_its_release() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let release = |version: &str| {
        let bin = root.join("lib/cp-tools").join(version).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("cp-exec"), version).unwrap();
        bin.join("cp-exec")
    };
    let (old, new) = (release("0.1.0"), release("0.2.0"));
    assert_eq!(lasting(old.clone()), old, "no release is current: a build directory");
    let current = root.join("lib/cp-tools/current");
    symlink("0.1.0", &current).unwrap();
    let written = lasting(old.clone());
    assert_eq!((&written, lasting(new.clone())), (&current.join("bin/cp-exec"), new.clone()));
    std::fs::remove_file(&current).unwrap();
    symlink("0.2.0", &current).unwrap();
    std::fs::remove_dir_all(old.ancestors().nth(2).unwrap()).unwrap();
    assert_eq!(written.canonicalize().unwrap(), new);
}

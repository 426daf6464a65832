//! Property tests of adding and removing the hook, with texts as users write them.

use std::os::unix::fs::symlink;

use cp_common::Result;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Command, FAILED, Host, SHELL_PREFIX, lasting, with_hook};

fn command(host: Host, program: &str) -> Command {
    Command { host, program: program.to_owned(), home: "/the/home".to_owned(), is_inside: false }
}

fn add_hook(command: &Command, text: Option<&str>) -> Result<String> {
    with_hook(command.host, text.unwrap_or_default(), Some(command)).map(Option::unwrap)
}

fn remove_hook(host: Host, text: &str) -> Result<Option<String>> {
    with_hook(host, text, None)
}

/// Settings with handlers and groups of other tools, some of which resemble ours.
fn settings() -> impl Strategy<Value = Value> {
    let groups = vec![
        json!({"matcher": "Bash", "hooks": [{"type": "command", "command": "lint || exit 2"}]}),
        json!({"hooks": [{"command": "my-cp-exec-log hook claude"}, {"type": "http", "url": "http://x"}]}),
        json!({"type": "command", "bash": "./check cp-exec hook codex"}),
        json!({"hooks": []}),
        json!({}),
    ];
    let lists = prop::collection::vec(prop::collection::vec(prop::sample::select(groups), 0..3), 4);
    let events = prop::sample::subsequence(vec!["Stop", "PreToolUse", "Notification", "SessionStart"], 0..4);
    let env = prop::sample::select(vec![Value::Null, json!({}), json!({"B": "", "A": "1"})]);
    (prop::option::of((events, lists)), env).prop_map(|(hooks, env)| {
        let mut all = json!({"z": "\u{e9} \" // /* x", "a": [1, -0.5, null, {}], "o": {"hooks": {"PreToolUse": []}}});
        if let Some((events, lists)) = hooks {
            all["hooks"] = events.into_iter().zip(lists).map(|(event, list)| (event.to_owned(), json!(list))).collect();
        }
        if env.is_object() {
            all["env"] = env;
        }
        all
    })
}

/// The settings without lists and tables that have nothing in them.
fn filled(text: &str) -> String {
    let mut all: Map<String, Value> = serde_json::from_str(text).unwrap();
    for name in ["hooks", "env"] {
        all.get_mut(name)
            .and_then(Value::as_object_mut)
            .into_iter()
            .for_each(|of| of.retain(|_, one| *one != json!([])));
    }
    all.retain(|_, one| *one != json!({}));
    Value::Object(all).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hook_added_and_removed_keeps_all_else_in_its_order(
        settings in settings(), host in prop::sample::select(&Host::HOOKED),
    ) {
        let (own, text) = (command(host, "/usr/bin/cp-exec"), settings.to_string());
        let with = add_hook(&own, Some(&text)).unwrap();
        prop_assert_eq!(with.matches(FAILED).count(), host.facts().hook.events.len());
        prop_assert_eq!(with.contains(SHELL_PREFIX), host == Host::Claude);
        prop_assert_eq!(&add_hook(&own, Some(&with)).unwrap(), &with, "twice is once");
        let rest = remove_hook(host, &with).unwrap().unwrap();
        prop_assert_eq!(filled(&rest), filled(&text));
        prop_assert_eq!(remove_hook(host, &text).unwrap(), Some(text));
    }

    #[test]
    fn add_hook_replaces_older_entry(settings in settings(), host in prop::sample::select(&Host::HOOKED)) {
        let old = add_hook(&command(host, "/home/o'neil/bin/cp-exec"), Some(&settings.to_string())).unwrap();
        let new = add_hook(&command(host, "/usr/bin/cp-exec"), Some(&old)).unwrap();
        prop_assert!(!new.contains("neil"), "{}", new);
        prop_assert_eq!(new.matches(FAILED).count(), old.matches(FAILED).count());
    }
}

#[test]
fn remove_hook_deletes_file_only_without_other_entries() {
    for host in Host::HOOKED {
        let own = command(host, "/bin/cp-exec");
        let made = add_hook(&own, None).unwrap();
        assert_eq!(remove_hook(host, &made).unwrap(), None, "{made}");
        assert_eq!(["", " \n"].map(|empty| add_hook(&own, Some(empty)).unwrap()), [&made[..]; 2]);
        let more = made.replacen('{', "{\n  \"other\": true,", 1);
        let left = remove_hook(host, &more).unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&left).unwrap()["other"], true);
        assert!(!left.contains("cp-exec"), "{left}");
    }
}

#[test]
fn add_hook_beside_other_shell_program_fails() {
    let own = command(Host::Claude, "/bin/cp-exec");
    let text = |value: &str| format!("{{\"env\": {{\"{SHELL_PREFIX}\": \"{value}\"}}}}");
    assert!(add_hook(&own, Some(&text("/opt/wrapper"))).unwrap_err().message().contains("already \"/opt/wrapper\""));
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
        ("[]", None, "the text is already []"),
        ("{\"hooks\": []}", None, "hooks is already []"),
        ("{\"hooks\": {\"PreToolUse\": {}}}", None, "PreToolUse is already {}"),
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

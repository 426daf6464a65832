//! `hook install`, `remove` and `doctor`: the configuration of other agents as files of a person, the wrapper in a real
//! shell, and a host that asks its hook, does not, or cannot.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who, everyone};

const HOSTS: [(&str, &str); 2] = [("claude", ".claude/settings.json"), ("codex", ".codex/hooks.json")];

#[test]
fn hook_install_and_remove_restore_file() {
    for (host, file) in HOSTS {
        let exec = Exec::new(Who::Me);
        let install = ["hook", "install", host];
        let (shown, _) = exec.ask(&["hook", "install", host, "--dry-run"]);
        let difference = shown["data"]["preview"]["changes"][0]["after"]["difference"].as_str().unwrap();
        assert!(difference.contains('+') && difference.contains("hook"), "{difference}");
        assert!(!exec.user.join(file).exists(), "a dry run writes nothing");
        let (answer, status) = exec.ask(&install);
        assert_eq!((status, answer["error"]["code"].as_str()), (5, Some("E_CONFIRMATION_REQUIRED")), "{answer}");
        assert!(!exec.user.join(file).exists() && exec.entries("hook.install").is_empty());

        assert_eq!(exec.confirmed(&install)["changed"], true);
        let made = exec.user.read(file);
        assert!(made.contains("cp-exec") && made.contains(exec.home.to_str().unwrap()), "{made}");
        let (again, status) = exec.ask(&[&install[..], &["--dry-run"]].concat());
        assert_eq!((status, &again["data"]["changed"]), (0, &json!(false)), "{again}");
        let entries = exec.entries("hook.install");
        assert_eq!((entries.len(), &entries[0]["data"]["host"]), (1, &json!(host)), "{entries:?}");

        assert_eq!(exec.confirmed(&["hook", "remove", host])["sha256"], Value::Null);
        assert_eq!(exec.user.names(), Vec::<String>::new(), "an empty directory stays");
        assert_eq!(exec.entries("hook.remove").len(), 1);
        assert_eq!(exec.ask(&["hook", "remove", host]).0["data"]["changed"], false);
    }
}

#[test]
fn hook_install_keeps_link_mode_and_other_settings() {
    let exec = Exec::new(Who::Me);
    let text = "{\n    \"model\": \"opus\",\n    \"hooks\": {\"PreToolUse\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"lint\"}]}]}\n}\n";
    let real = exec.user.write("dotfiles/claude.json", text);
    fs::set_permissions(&real, Permissions::from_mode(0o600)).unwrap();
    let link = exec.user.directory(".claude").join("settings.json");
    symlink("../dotfiles/claude.json", &link).unwrap();
    exec.confirmed(&["hook", "install", "claude"]);
    assert!(link.is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let value: Value = serde_json::from_slice(&fs::read(&real).unwrap()).unwrap();
    assert_eq!((&value["model"], value["hooks"]["PreToolUse"].as_array().unwrap().len()), (&json!("opus"), 2));
    assert_eq!(fs::read_dir(exec.user.join("dotfiles")).unwrap().count(), 1, "no copy stays");
    exec.confirmed(&["hook", "remove", "claude"]);
    let value: Value = serde_json::from_slice(&fs::read(&real).unwrap()).unwrap();
    assert_eq!(value.to_string(), serde_json::from_str::<Value>(text).unwrap().to_string());
    // A link that leads nowhere yet is followed too.
    symlink(exec.user.join("dotfiles/hooks.json"), exec.user.directory(".codex").join("hooks.json")).unwrap();
    exec.confirmed(&["hook", "install", "codex"]);
    assert!(exec.user.join(".codex/hooks.json").is_symlink() && exec.user.join("dotfiles/hooks.json").is_file());
}

/// The hook names paths of one machine: whoever pulled it would have an agent whose every call fails.
#[test]
fn nothing_of_hook_is_committed() {
    for who in everyone() {
        for (host, file) in [("claude", ".claude/settings.local.json"), ("codex", ".codex/hooks.json")] {
            for (directory, list) in [("", Some("*.log\n")), ("a [b]/c", None), ("linked", Some("# mine\n"))] {
                let exec = Exec::new(who);
                let sh = |line: &str| exec.outside(line).run().success().stdout;
                sh(
                    "git init -q && git -c user.name=n -c user.email=e commit -q --allow-empty -m x && rm -f .git/info/exclude && mkdir -p .git/info",
                );
                if directory == "linked" {
                    sh("git worktree add -q linked");
                }
                sh(&format!("mkdir -p './{directory}' && echo x >'./{directory}/mine'"));
                list.map(|text| exec.work.write(".git/info/exclude", text));
                let project = exec.work.join(directory).display().to_string();
                let words = |verb: &'static str| ["hook", verb, host, "--project", &project].map(str::to_owned);
                let change = |verb| exec.confirmed(&words(verb).each_ref().map(String::as_str));
                let added = || sh(&format!("cd './{directory}' && git add -A -n"));
                let at = format!("{who:?} {host} {directory}");
                assert_eq!(change("install")["changed"], true, "{at}");
                assert!(exec.work.join(directory).join(file).exists(), "{at}");
                assert!(added().contains("mine") && !added().contains(&file[..6]), "{at}: {}", added());
                let words = words("install");
                let (again, _) = exec.ask(&[&words.each_ref().map(String::as_str)[..], &["--dry-run"]].concat());
                assert_eq!(again["data"]["changed"], false, "{at}: {again}");
                let kept = exec.work.read_if_there(".git/info/exclude");
                exec.work.write(".git/info/exclude", "");
                assert!(added().contains(&file[..6]), "{at}: the control: {}", added());
                exec.work.write(".git/info/exclude", kept);
                assert_eq!(change("remove")["changed"], true, "{at}");
                assert!(!exec.work.join(directory).join(file).exists(), "{at}");
                assert_eq!(exec.work.read_if_there(".git/info/exclude"), list.unwrap_or_default(), "{at}");
            }
        }
    }
}

/// At a terminal the person sees the difference and is asked; a program needs the token of a preview.
#[test]
fn hook_install_asks_at_terminal() {
    for (answer, is_there) in [("y\r", true), ("n\r", false), ("\r", false)] {
        let exec = Exec::new(Who::Me);
        let words = ["hook", "install", "claude", "--project", "."];
        let mut terminal = exec.command(&words).terminal(200);
        assert!(terminal.wait_for("[y/N]").contains('+'), "the difference");
        terminal.send(answer);
        let ended = terminal.end();
        assert_eq!(exec.work.join(".claude/settings.local.json").exists(), is_there, "{answer:?}: {ended:?}");
    }
}

/// An approval is for one question, so no call is asked about twice.
#[test]
fn hook_of_project_is_refused_beside_that_of_person() {
    for host in ["claude", "codex"] {
        let exec = Exec::new(Who::Me);
        let of_project = ["hook", "install", host, "--project", ".", "--dry-run"];
        assert_eq!(exec.ask(&of_project).1, 0, "the control");
        exec.confirmed(&["hook", "install", host]);
        let (answer, status) = exec.ask(&of_project);
        assert_eq!((status, &answer["error"]["code"]), (6, &json!("E_CONFLICT")), "{answer}");
        exec.confirmed(&["hook", "remove", host]);
        assert_eq!(exec.ask(&of_project).1, 0);
    }
}

#[test]
fn hook_install_in_invalid_file_changes_nothing() {
    let exec = Exec::new(Who::Me);
    let file = exec.user.write(".codex/hooks.json", "{\n  // mine\n  \"theme\": \"dark\"\n}\n");
    let before = fs::read(&file).unwrap();
    for verb in ["install", "remove"] {
        let (answer, status) = exec.ask(&["hook", verb, "codex", "--dry-run"]);
        let details = &answer["error"]["details"];
        assert_eq!((status, &details["rule"], &details["line"]), (6, &json!("format"), &json!(2)), "{answer}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);

    let file = exec.user.write(".claude/settings.json", "{}");
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let (answer, status) = exec.ask(&["hook", "install", "claude", "--dry-run"]);
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 4 && message.ends_with("the file is read-only"), "{answer}");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(exec.confirmed(&["hook", "install", "claude"])["changed"], true, "the control");

    assert_eq!(exec.ask(&["hook", "install", "claude", "--project", "nowhere", "--dry-run"]).1, 3);
    for host in ["emacs", "gemini", "copilot", "opencode"] {
        assert_eq!(exec.ask(&["hook", "install", host]).1, 2, "{host}");
    }
}

/// The line that is installed, with another program in the place of ours.
fn line_with(exec: &Exec, program: &str) -> String {
    exec.confirmed(&["hook", "install", "claude"]);
    let value: Value = serde_json::from_str(&exec.user.read(".claude/settings.json")).unwrap();
    let line = value["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().unwrap().to_owned();
    let (ours, rest) = line.split_once(" --home ").unwrap();
    assert!(ours.ends_with("cp-exec"), "{line}");
    format!("{program} --home {rest}")
}

#[test]
fn hook_wrapper_fails_closed() {
    let exec = Exec::new(Who::Me);
    exec.executable("fails", "#!/bin/sh\nexit 1\n");
    exec.executable("killed", "#!/bin/sh\nkill -9 $$\n");
    exec.executable("refuses", "#!/bin/sh\necho no >&2\nexit 2\n");
    exec.executable("allows", "#!/bin/sh\necho '{}'\n");
    exec.executable("panics", "#!/bin/sh\nkill -ABRT $$\n");
    let line = line_with(&exec, "PROGRAM");
    for (program, status, said) in [
        ("./fails", 2, "cp-exec hook failed"),
        ("./killed", 2, "cp-exec hook failed"),
        ("./panics", 2, "cp-exec hook failed"),
        ("./missing", 2, "cp-exec hook failed"),
        ("./refuses", 2, "no"),
        ("./allows", 0, ""),
    ] {
        for shell in ["sh", "bash"] {
            let ran = exec.program(shell).args(["-c", &line.replace("PROGRAM", program)]).run();
            let last = ran.stderr.lines().last().unwrap_or_default();
            assert_eq!((ran.status, last), (status, said), "{shell} {program}: {ran:?}");
        }
    }
}

/// A stand-in for a host: it asks the model, and does what it says as its mode tells.
const HOST: &str = include_str!("data/python/host.py");

#[test]
fn hook_doctor_detects_host_that_does_not_call_hook() {
    cp_testkit::needs!("python3");
    let exec = Exec::new(Who::Me);
    let bin = exec.root.directory("bin");
    let doctor = |mode: &str| {
        exec.work.write("mode", mode);
        let ran = exec.command(&["hook", "doctor", "claude"]).also_on_path(&bin).run();
        let answer = ran.closing();
        // The checks of a failure are details of the error.
        let data = if ran.status == 0 { &answer["data"] } else { &ran.failed(1, "E_PARTIAL")["details"] };
        let checks = data["checks"].as_array().unwrap().clone();
        let fails = checks.iter().any(|check| check["status"] == "fail");
        assert_eq!(fails, ran.status == 1, "{ran:?}");
        let found = |name: &str| checks.iter().find(|check| check["check"] == name).cloned().unwrap_or_default();
        (found("claude"), found("claude_hook"), found("claude_person"), found("claude_shell"))
    };
    let (program, hook, ..) = doctor("");
    assert_eq!((&program["status"], &hook["status"]), (&json!("warn"), &json!("fail")), "{program} {hook}");
    bin.executable("claude", HOST);
    assert_eq!(doctor("").3, Value::Null, "without a hook nothing is tried");
    exec.confirmed(&["hook", "install", "claude"]);
    for (mode, status, said) in [
        ("untrusted", "fail", "the hook was not asked"),
        ("broken", "warn", "cannot start"),
        ("a host of its own mind", "warn", "nor was refused by the hook: hook says: a host of its own mind"),
        ("cp-exec hook failed", "fail", "the hook was asked and fails"),
        ("asks", "pass", "refused or ran in the sandbox"),
        ("asks\n", "pass", "refused or ran in the sandbox"),
    ] {
        // The policy of the last mode refuses the line; the others allow it.
        if mode.ends_with('\n') {
            exec.policy("[exec]\nallowed_commands = []\n");
        }
        let (program, _, person, canary) = doctor(mode);
        assert_eq!(program["message"], bin.join("claude").display().to_string(), "{program}");
        assert_eq!(person["status"], "pass", "{person}");
        assert_eq!(canary["status"], status, "{mode}: {canary}");
        assert!(canary["message"].as_str().unwrap().contains(said), "{mode}: {canary}");
    }
    exec.policy(POLICY);
    let ran = exec.command(&["hook", "doctor", "claude"]).env("PATH", &bin).run();
    let checks = ran.data()["checks"].as_array().unwrap().clone();
    let routes = checks.iter().find(|check| check["check"] == "claude_routes").unwrap();
    assert_eq!((&routes["status"], &routes["message"]), (&json!("warn"), &json!("not tried: there is no python3")));
    // A host that runs in the sandbox what a rule of the user denies.
    exec.work.write("mode", "rules");
    let ran = exec.command(&["hook", "doctor", "claude", "--format", "text"]).also_on_path(&bin).run();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stdout.contains("✗ claude_deny_rule: OPEN") && ran.stdout.contains("✓ claude_shell"), "{ran:?}");
    // Hooks that are switched off are named; if the hook runs, the policy lacks the tools.
    for (mode, fix) in [("open", "has its hooks switched off"), ("lists", "[tools] allow")] {
        exec.work.write("mode", mode);
        let ran = exec.command(&["hook", "doctor", "claude"]).also_on_path(&bin).run();
        let checks = ran.failed(1, "E_PARTIAL")["details"]["checks"].as_array().unwrap().clone();
        let tool = checks.iter().find(|check| check["check"] == "claude_mcp_tool").unwrap();
        assert!(tool["status"] == "fail" && tool["fix"].as_str().unwrap().contains(fix), "{mode}: {tool}");
    }
    let text = exec.user.read(".claude/settings.json");
    for (from, to, why) in [
        ("/cp-exec --home", "/gone/cp-exec --home", "cp-exec"),
        ("exit 2;", "true;", "may not close"),
        ("{", "{,", "not strict JSON"),
    ] {
        exec.user.write(".claude/settings.json", text.replace(from, to));
        let (.., person, _) = doctor("asks");
        assert_eq!(person["status"], "fail", "{person}");
        assert!(person["message"].as_str().unwrap().contains(why), "{person}");
    }
}

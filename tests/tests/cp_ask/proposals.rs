//! `cp-ask` with conversations that have a name, calls that fail, and command lines.

use cp_testkit::{Place, counterpart};

use super::run;

/// A model that gives a command line, and a policy that allows one program.
fn with_command(answer: &str) -> Place {
    let place = Place::new();
    place.work.write("answers", format!("{}\n", serde_json::json!({ "content": answer })));
    place.policy("[exec]\nallowed_commands = [\"touch\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    place
}

const COMMAND: &str = "CP_STUB_SCRIPT=answers cp-ask -C make a file";

#[test]
fn a_command_line_is_printed_and_not_run_without_a_terminal() {
    let place = with_command("```sh\n\ttouch \u{1b}made\u{202e}\n```\nThis makes it.");
    let ran = run(&place, COMMAND);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "touch made\n"), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("policy: allow, "), "{}", ran.stderr);
    let ran =
        run(&place, "echo make a file | CP_STUB_SCRIPT=answers cp-ask --command; cp-session list | jq .data.count");
    assert_eq!(ran.stdout, "touch made\n0\n", "it is no conversation: {}", ran.stderr);
    assert!(!place.work.join("made").exists());
    let ran = run(&with_command("# Nothing does."), COMMAND);
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
    assert_eq!(ran.stderr, "✗ no command does this: Nothing does.\n");
    let place = with_command("rm made");
    place.policy("[exec]\nallowed_commands = []\n");
    let ran = run(&place, COMMAND);
    assert_eq!((ran.status, ran.stdout.as_str()), (4, "rm made\n"));
    assert!(ran.stderr.starts_with("policy: deny, "), "{}", ran.stderr);
    // An answer is one command, or a reason, or it is refused.
    for (answer, status, printed) in [
        ("Here is the command:\n```sh\ntouch x\n```\nDone.", 0, "touch x\n"),
        ("\n  touch x \r\n\n", 0, "touch x\n"),
        ("`touch x`", 0, "`touch x`\n"),
        ("$ touch x", 0, "$ touch x\n"),
        ("```sh\ntouch x", 0, "touch x\n"),
        ("Here is the command:\n\ntouch x", 2, ""),
        ("for f in *; do\n  touch x\ndone", 2, ""),
        ("```\nfor f in *; do\n  touch x\ndone\n```", 2, ""),
        ("# No command does.\nSorry.", 2, ""),
        ("# No command\n# does.", 3, ""),
        ("```sh\n```", 3, ""),
    ] {
        let ran = run(&with_command(answer), COMMAND);
        assert_eq!((ran.status, ran.stdout.as_str()), (status, printed), "{answer}: {}", ran.stderr);
        assert_eq!(status == 2, ran.stderr.contains("a command line has one"), "{answer}: {}", ran.stderr);
    }
    let options = "-s x|-c|--session x|--name x|--tools x|--agent x|--prompt x|-a x|-f x|-t x|-x|--schema x|-n|-u|--stream|\
        --dry-run|--no-redact|--save x";
    for option in options.split('|') {
        let ran = run(&place, &format!("cp-ask {option} -C text"));
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{option}: {}", ran.stderr);
    }
}

#[test]
fn the_words_that_ask_for_a_command_lose_their_secrets() {
    let place = with_command("touch made");
    let words = "log in with --password hunter2hunter2 and say it";
    let pad = "x".repeat(40 << 10);
    for (command, kept) in [
        (format!("cp-ask -C '{words}'"), "log in with --password [REDACTED:flag] and say it"),
        (format!("echo {words} | cp-ask -C"), "--password [REDACTED:flag] and say it"),
        (format!("echo {words} | cp-ask -C look here -"), "look here"),
        (format!("echo {words} {pad} | cp-ask -C"), "--password [REDACTED:flag] and say it"),
    ] {
        // The model is a program that keeps what it is sent.
        let model = "#!/bin/sh\nwhile read -r line; do printf %s \"$line\" >asked; cat answer; done\n";
        place.work.executable("model", model);
        let answer = serde_json::json!({"ok": true, "schema_version": "1.0", "type": "message",
            "data": {"id": "1", "role": "assistant", "content": "touch made", "model": "m", "backend": "b", "stop_reason": "end_turn", "usage": {}}});
        place.work.write("answer", format!("{answer}\n"));
        let ran = run(&place, &command.replace("cp-ask -C", "cp-ask --backend ./model -C"));
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "touch made\n"), "{}", ran.stderr);
        let asked = place.work.read("asked");
        assert!(asked.contains(kept) && asked.contains("[REDACTED:flag]"), "{command}: {asked}");
        assert!(!asked.contains("hunter2"), "{command}: {asked}");
    }
    let found = place.shell("sh", "grep -rl hunter2 \"$CP_HOME\" .").run();
    assert_eq!((found.status, found.stdout.as_str()), (1, ""), "nothing on the disk has it");
}

#[test]
fn at_a_terminal_a_command_line_runs_after_a_yes() {
    for (key, status, is_made) in [("n", 4, false), ("", 4, false), ("y", 0, true)] {
        let place = with_command("touch made");
        let mut terminal = place.shell("sh", COMMAND).env("CP_BACKEND", "stub").terminal(80);
        let shown = terminal.wait_for("Run it? [y/N] ");
        assert!(shown.starts_with("touch made\npolicy: allow, "), "{shown}");
        terminal.send(&format!("{key}\r"));
        assert_eq!(terminal.end(), Some(status), "{key}: {}", terminal.text());
        assert_eq!(place.work.join("made").exists(), is_made, "{key}");
    }
    let place = with_command("rm made");
    place.policy("[exec]\nallowed_commands = []\n");
    let mut terminal = place.shell("sh", COMMAND).env("CP_BACKEND", "stub").terminal(80);
    assert_eq!(terminal.end(), Some(4));
    assert!(!terminal.text().contains("Run it?"), "{}", terminal.text());
    let place = with_command("touch made");
    let asks = "[[exec.rule]]\ncommand = \"touch\"\ndecision = \"confirm\"\nreason = \"it is new\"\n";
    let policy = place.home.read("config/policy.toml").replace("[paths]", &format!("{asks}[paths]"));
    place.policy(&policy);
    let mut terminal = place.shell("sh", COMMAND).env("CP_BACKEND", "stub").terminal(80);
    terminal.wait_for("Run it? [y/N] ");
    terminal.send("yes\r");
    terminal.wait_for("touch made: needs approval; run cp-exec approve ");
    assert_eq!(terminal.end(), Some(126), "{}", terminal.text());
    assert!(!place.work.join("made").exists());
}

#[test]
fn widget_replaces_the_typed_line_and_runs_nothing() {
    let widgets = cp_testkit::repository().join("scripts/widgets");
    for (shell, options, load, bind) in [
        ("bash", &["--norc", "--noprofile", "-i"][..], ".", r#"bind -x '"\ea": cp_ask_widget'"#),
        ("zsh", &["-f", "-i"], ".", r"bindkey '\ea' cp-ask-widget"),
        ("fish", &["--no-config", "-i"], "source", r"bind \ea cp_ask_widget"),
    ] {
        if shell != "bash" && counterpart(shell).is_none() {
            continue;
        }
        // A command that the policy denies is proposed too, because the person runs it.
        let place = with_command("touch made");
        if shell == "bash" {
            place.policy("[exec]\nallowed_commands = []\n");
        }
        let command = place.program(shell).args(options).env("TERM", "xterm").env("PS1", "> ").with_programs();
        let command = command.env("CP_BACKEND", "stub").env("CP_STUB_SCRIPT", place.work.join("answers"));
        let mut terminal = command.terminal(200);
        terminal.send(&format!("{load} {}/cp-ask.{shell}; {bind}; echo read''y\r", widgets.display()));
        terminal.wait_for("ready");
        terminal.send("make a file\x1ba");
        terminal.wait_for("touch made");
        assert!(!place.work.join("made").exists(), "{shell}");
        terminal.send("\r");
        cp_testkit::until("the line is run by the person", || place.work.join("made").exists());
        terminal.send("exit\r");
        terminal.end();
    }
}

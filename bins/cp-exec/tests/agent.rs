//! A whole agent in the sandbox: its streams, its terminal, its state, and agents that misbehave.

use cp_testkit::Terminal;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who, alive, everyone, program, soon};

/// Starts an agent at a terminal.
fn terminal(exec: &Exec, words: &[&str]) -> Terminal {
    let command = exec.command(&[&["agent", "--"], words].concat());
    let user = ["--reuid=1000", "--regid=1000", "--clear-groups"];
    let command = if exec.who == Who::Ordinary { command.under("setpriv", user) } else { command };
    command.terminal(80)
}

#[test]
fn agent_without_terminal_has_live_streams_and_its_own_status() {
    for who in everyone() {
        let exec = Exec::new(who);
        let script = "while read -r line; do echo \"<$line>\"; done; echo wrong >&2; exit 7";
        let ran = exec.command(&["agent", "--", "sh", "-c", script]).stdin("a\nb\n").run();
        assert_eq!((ran.status, ran.stdout.as_str()), (7, "<a>\n<b>\n"), "{who:?} {ran:?}");
        assert!(
            ran.stderr.starts_with("wrong\n")
                && ran
                    .stderr
                    .contains("cp-exec agent: 0 tool calls (0 refused), 0 programs (0 refused), 0 files quarantined"),
            "{ran:?}"
        );

        // Each line is answered before the next one comes.
        let mut running = exec.command(&["agent", "--", "sh", "-c", script]).start();
        for line in ["one", "two"] {
            running.write(format!("{line}\n"));
            assert_eq!(running.line().trim_end(), format!("<{line}>"));
        }
        assert_eq!(running.finish().status, 7);
        let intents = exec.entries("exec.intent");
        assert_eq!(intents.len(), 2);
        assert_eq!(intents[0]["data"]["tool"], "agent");
        let (answer, status) = exec.ask(&["agent", "--json", "--", "sh", "-c", "echo out"]);
        assert_eq!((status, &answer["data"]["stdout"]), (0, &"out\n".into()), "{answer}");
    }
}

#[test]
fn agent_without_policy_is_refused() {
    let exec = Exec::without_policy();
    let (answer, status) = exec.ask(&["agent", "--", "true"]);
    assert_eq!((status, &answer["error"]["code"]), (4, &"E_CONFIG".into()), "{answer}");
    assert!(answer["error"]["details"]["hint"].as_str().unwrap().contains("cp-exec policy init --for ."), "{answer}");
}

#[test]
fn terminal_of_agent_has_keys_size_and_interrupts() {
    for who in everyone() {
        let exec = Exec::new(who);
        let script = "trap 'echo resized; stty size' WINCH; trap 'echo interrupted' INT; tty; stty size; read -r word; \
                      echo \"<$word>\"; (echo one; sleep 100); (echo two; sleep 100); echo again >/dev/tty; exit 5";
        let mut terminal = terminal(&exec, &["sh", "-c", script]);
        terminal.wait_for("/dev/pts/0\n24 80\n");
        terminal.send("word\r");
        terminal.wait_for("<word>\none\n");
        terminal.send("\x03");
        terminal.wait_for("interrupted\ntwo\n");
        terminal.resize(40);
        terminal.send("\x03");
        terminal.wait_for("interrupted");
        terminal.wait_for("again");
        assert_eq!(terminal.end(), Some(5), "{who:?} {}", terminal.text());
        assert!(terminal.text().contains("resized\n24 40\n"), "{}", terminal.text());
        assert_eq!(exec.entries("exec.result").len(), 1);
    }
}

/// The command line that runs this program in a shell of a test.
fn line(exec: &Exec, words: &str) -> String {
    format!("{} --home {} agent -- {words}", program().display(), exec.home.display())
}

#[test]
fn job_control_stops_and_continues_agent() {
    let exec = Exec::new(Who::Me);
    let shell = exec.program("bash").without_env("CP_HOME").env("PS1", "outer> ").args(["--norc", "--noprofile", "-i"]);
    let mut shell = shell.terminal(80);
    shell.wait_for("outer> ");
    shell.send("stty -g >before\r");
    shell.wait_for("outer> ");
    // It starts no programs meanwhile: a shell that waits for the start of one cannot stop before it.
    let script = "trap \"c=1\" CONT; echo ready; until test \"$c\"; do :; done; echo continued; stty size; read -r word; echo \"<$word>\"; exit 4";
    shell.send(&format!("{}\r", line(&exec, &format!("sh -c '{script}'"))));
    shell.wait_for("\nready\n");
    shell.send("\x1a");
    shell.wait_for("Stopped");
    shell.wait_for("outer> ");
    shell.send("stty -g >stopped\r");
    shell.wait_for("outer> ");
    shell.resize(50);
    shell.send("fg\r");
    shell.wait_for("continued\n24 50\n");
    shell.send("word\r");
    shell.wait_for("<word>");
    shell.wait_for("outer> ");
    shell.send("echo status=$?; stty -g >after\r");
    shell.wait_for("status=4");
    shell.wait_for("outer> ");
    let modes = ["before", "stopped", "after"].map(|name| exec.work.read(name));
    // The shell of the user edits its line in a mode of its own, and each command sees the ordinary one.
    assert!(modes[0] == modes[1] && modes[0] == modes[2], "{modes:?}");
    shell.send("exit\r");
    shell.end();
}

#[test]
fn end_of_program_leaves_no_process_and_restores_terminal() {
    for (signal, restores) in [(Signal::TERM, true), (Signal::HUP, true), (Signal::INT, true), (Signal::KILL, false)] {
        let exec = Exec::new(Who::Me);
        let word = format!("10{}.{}", signal.as_raw(), std::process::id());
        let agent = line(&exec, &format!("sh -c 'trap \"\" HUP; echo ready; sleep {word} & wait'"));
        let script = format!(
            "stty -g >before; sh -c 'echo $$ >pid; exec \"$@\"' x {agent}; stty -g >after; stty sane; echo end=$?"
        );
        let mut shell = exec.program("sh").without_env("CP_HOME").args(["-c", &script]).terminal(80);
        shell.wait_for("ready");
        assert!(soon(|| alive(&word)));
        let pid = Pid::from_raw(exec.work.read("pid").trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        shell.wait_for("end=");
        assert!(soon(|| !alive(&word)), "{signal:?} left a process behind");
        let is_restored = exec.work.read("before") == exec.work.read("after");
        assert_eq!(is_restored, restores, "{signal:?}");
        shell.end();
        // The next start settles a run that was killed.
        assert_eq!(exec.ask(&["--", "true"]).1, 0);
        assert_eq!(exec.entries("exec.intent").len(), exec.entries("exec.result").len(), "{signal:?}");
    }
}

#[test]
fn closed_terminal_ends_agent() {
    let exec = Exec::new(Who::Me);
    let word = format!("2000.{}", std::process::id());
    let script = format!("sh -c \"trap '' HUP TERM INT; echo ready; sleep {word}; sleep {word}\"");
    // The terminal of `script` is gone with it.
    let outer = exec.program("script").without_env("CP_HOME").args(["-qfc", &line(&exec, &script), "/dev/null"]);
    let mut terminal = outer.terminal(80);
    terminal.wait_for("ready");
    assert!(soon(|| alive(&word)));
    terminal.kill();
    assert!(soon(|| !alive(&word)), "the agent outlives its terminal");
}

#[test]
fn hostile_agent_ends_like_any_other() {
    for who in everyone() {
        let policy = POLICY.replace("[exec]", "[exec]\nscratch = 4194304\nprocesses = 340\n");
        for (script, shown) in [
            ("kill -9 1; kill -9 $PPID; kill -9 -1; echo alive; exit 3", Some("alive\n")),
            ("dd if=/dev/zero of=/tmp/full bs=1M count=64 2>/dev/null || echo full; exit 3", Some("full\n")),
            (
                "i=0; while [ $i -lt 500 ] && sleep 1000 & [ $? = 0 ]; do i=$((i+1)); [ $i = 500 ] && break; done; exit 3",
                None,
            ),
            (
                "echo x >>POLICY 2>/dev/null || echo refused; ls HOME/keys HOME/ledger 2>/dev/null || echo hidden; exit 3",
                Some("refused\nhidden\n"),
            ),
        ] {
            let exec = Exec::with_policy(who, &policy);
            let home = exec.home.display().to_string();
            let script = script.replace("POLICY", &format!("{home}/config/policy.toml")).replace("HOME", &home);
            let before = exec.home.read("config/policy.toml");
            let ran = exec.command(&["agent", "--", "sh", "-c", &script]).run();
            // A signal to all processes also kills the one that sends it, where the kernel allows that.
            assert!([2, 3, 137].contains(&ran.status), "{who:?} {script}: {ran:?}");
            if let Some(shown) = shown.filter(|_| ran.status == 3) {
                assert_eq!(ran.stdout, shown, "{who:?} {script}: {ran:?}");
            }
            assert_eq!(exec.home.read("config/policy.toml"), before);
            assert_eq!(exec.entries("exec.result").len(), 1);
        }
    }
}

#[test]
fn agent_that_stops_itself_continues_without_shell_of_user() {
    let exec = Exec::new(Who::Me);
    // The terminal's session has no shell that could continue the job.
    let mut terminal = terminal(&exec, &["sh", "-c", "for i in 1 2 3; do kill -STOP $$; echo again $i; done; exit 6"]);
    terminal.wait_for("again 3");
    assert_eq!(terminal.end(), Some(6));
}

#[test]
fn state_of_host_is_private_and_gets_no_settings_that_execute() {
    for who in everyone() {
        let exec = Exec::new(who);
        let settings = json!({
            "permissions": {"deny": ["Bash(rm:*)"]}, "hooks": {"PreToolUse": []}, "env": {"KEY": "secret"}, "apiKeyHelper": "x",
        });
        exec.user.write(".claude/settings.json", settings.to_string());
        exec.user.write(".claude/.credentials.json", "token");
        let host = |host: &str, script: &str| exec.command(&["agent", host, "--", "sh", "-c", script]).run();
        let script = "cat $CLAUDE_CONFIG_DIR/settings.json; ls -A $CLAUDE_CONFIG_DIR; echo kept >$CLAUDE_CONFIG_DIR/mine; cat USER/.claude/settings.json 2>&1";
        let script = script.replace("USER", &exec.user.display().to_string());
        let first = host("claude", &script).stdout;
        assert!(
            first.contains("Bash(rm:*)") && !first.contains("apiKeyHelper") && !first.contains("secret"),
            "{first}"
        );
        assert!(!first.contains(".credentials.json") && first.contains("No such file"), "{first}");
        // It is that of every project.
        let second = exec.root.directory("second");
        let again = exec.command(&["--base", &second.display().to_string(), "agent", "claude"]);
        let again = again.args(["--", "sh", "-c", "cat $CLAUDE_CONFIG_DIR/mine"]).run();
        assert_eq!(again.stdout, "kept\n", "{who:?}: {again:?}");
        // Another host, and an ordinary run, do not see it.
        let directory = format!("{}/hosts", exec.home.display());
        let other = host("codex", &format!("ls {directory}/claude; ls {directory}"));
        assert!(!other.stdout.contains("mine") && !other.stdout.contains("claude"), "{other:?}");
        assert!(!exec.inside(&format!("ls {directory}/*"))["stdout"].as_str().unwrap().contains("mine"));
        // The control: it is there.
        assert!(exec.home.join("hosts").read_dir().unwrap().count() == 2);
    }
}

#[test]
fn state_behind_link_of_agent_is_not_written() {
    let exec = Exec::new(Who::Me);
    exec.user.write(".gemini/settings.json", "{\"ui\":{}}");
    let host = |script: &str| exec.command(&["agent", "gemini", "--", "sh", "-c", script]).run();
    let outside = exec.root.directory("outside");
    host("true").success();
    let state = exec.home.join("hosts").read_dir().unwrap().next().unwrap().unwrap().path();
    assert!(state.join(".gemini/settings.json").exists(), "the control");
    let script = format!("rm -r $GEMINI_CLI_HOME/.gemini; ln -s {} $GEMINI_CLI_HOME/.gemini", outside.display());
    host(&script).success();
    host("true");
    assert_eq!(outside.names(), Vec::<String>::new());
}

#[test]
fn hook_inside_of_agent_is_recorded_by_supervisor() {
    for who in everyone() {
        let tools = format!("{POLICY}\n[tools]\nallow = [\"WebFetch\", \"TodoWrite\"]\napprove = [\"TodoWrite\"]\n");
        let exec = Exec::with_policy(who, &tools);
        let question = |tool: &str, input: &serde_json::Value| {
            json!({"hook_event_name": "PreToolUse", "session_id": "s", "tool_use_id": tool, "tool_name": tool, "tool_input": input}).to_string()
        };
        let ask = |question: &str| {
            let script = format!("{} hook claude", program().display());
            exec.command(&["agent", "--", "sh", "-c", &script]).stdin(question).run()
        };
        for (tool, input, status) in [
            ("Bash", json!({"command": "rm -rf /"}), 0),
            ("WebFetch", json!({"url": "http://x"}), 0),
            ("Frobnicate", json!({"url": "http://x"}), 2),
            ("TodoWrite", json!({"todos": []}), 2),
        ] {
            let ran = ask(&question(tool, &input));
            assert_eq!(ran.status, status, "{who:?} {tool}: {ran:?}");
            let (event, member) = if status == 0 { ("host.intent", "tool") } else { ("exec.refused", "rule") };
            let entry = exec.entries(event).pop().unwrap_or_else(|| panic!("{who:?} {tool}: {ran:?}"));
            let expected = match tool {
                _ if status == 0 => tool,
                "TodoWrite" => "tools.approve",
                _ => "tools.allow",
            };
            assert_eq!(entry["data"][member], expected);
            assert_eq!(
                (&entry["data"]["host"], &entry["data"]["host_call"]),
                (&"claude".into(), &tool.into()),
                "{entry}"
            );
        }
        // The verbs that change a configuration are not available.
        let script = format!("{} hook install claude", program().display());
        let ran = exec.command(&["agent", "--", "sh", "-c", &script]).run();
        assert!(ran.stdout.contains("executes a command, and nothing else"), "{ran:?}");
    }
}

#[test]
fn hook_of_state_counts_tool_calls_and_outlives_what_agent_does_to_it() {
    for who in everyone() {
        for (host, file) in [("claude", "settings.json"), ("codex", "hooks.json")] {
            let exec = Exec::with_policy(who, POLICY);
            let agent = |script: &str, input: &str| {
                exec.command(&["agent", host, "--", "sh", "-c", script]).stdin(input).run().success()
            };
            let place = exec.home.join("hosts").join(host).join(file);
            let line = || {
                let settings: Value = serde_json::from_slice(&std::fs::read(&place).unwrap()).unwrap();
                assert!(settings.get("env").is_none(), "{settings}");
                settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().unwrap().to_owned()
            };
            agent("true", "");
            let call = json!({"hook_event_name": "PreToolUse", "session_id": "s", "tool_use_id": "c", "tool_name": "Bash",
                "tool_input": {"command": "id"}});
            let ran = agent(&line(), &call.to_string());
            assert!(ran.stderr.contains("1 tool call (0 refused)"), "{who:?} {host}: {ran:?}");
            // A link of the agent is not followed, and a file that it broke is reported.
            let other = exec.root.write("other.json", "{\"secret\":1}");
            agent(
                &format!("cd {}; rm {file}; ln -s {} {file}", place.parent().unwrap().display(), other.display()),
                "",
            );
            let ran = agent("true", "");
            assert!(ran.stderr.contains("the hook is missing"), "{who:?} {host}: {ran:?}");
            assert_eq!(std::fs::read_to_string(&other).unwrap(), "{\"secret\":1}");
            agent(&format!("cd {}; rm {file}", place.parent().unwrap().display()), "");
            agent("true", "");
            assert!(line().contains(&format!("hook {host}")), "it is put back");
        }
    }
}

#[test]
fn tool_calls_are_recorded_for_agents_only() {
    let tell = "use Socket; use IO::Socket::UNIX; my $at = '/run/cp-exec/supervisor';
        my $s = IO::Socket::UNIX->new(Type => SOCK_SEQPACKET, Peer => $at) or die;
        print $s <STDIN>; print <$s>;";
    let call = json!({"host": "claude", "session": "s", "call": "c:3", "tool": "Read", "by_default": null, "data": {}});
    for who in everyone() {
        for (door, is_recorded) in [
            (&["agent", "--", "perl", "-e", tell][..], true),
            (&["--format", "raw", "--stdin", "-", "--", "perl", "-e", tell][..], false),
        ] {
            let exec = Exec::with_policy(who, POLICY);
            let ran = exec.command(door).stdin(call.to_string()).run();
            assert_eq!(ran.stdout.contains("cp-exec agent"), !is_recorded, "{who:?}: {ran:?}");
            assert_eq!(exec.entries("host.intent").len(), usize::from(is_recorded), "{who:?}: {ran:?}");
        }
    }
}

#[test]
fn agent_gets_shell_of_user_if_it_is_in_view() {
    let exec = Exec::new(Who::Me);
    let hidden = exec.root.join("outside/shell");
    exec.root.write("outside/shell", "");
    for (shell, expected) in [("/bin/bash", "</bin/bash>\n"), (hidden.to_str().unwrap(), "<>\n")] {
        let ran = exec.command(&["agent", "--", "sh", "-c", "echo \"<$SHELL>\""]).env("SHELL", shell).run();
        assert_eq!(ran.stdout, expected, "{ran:?}");
    }
}

#[test]
fn file_of_command_line_outside_of_view_is_named_and_read_on_request() {
    for who in everyone() {
        let exec = Exec::new(who);
        let picture = exec.user.join("Pictures/shot.png");
        exec.user.write("Pictures/shot.png", "pixels");
        exec.work.write("own.png", "own");
        let path = picture.display().to_string();
        let asked = format!("look @{path} and @own.png");
        let script = format!("cat {path} own.png; echo x >>{path}");
        let run = |options: &[&str]| {
            exec.command(&[&["agent"], options, &["--", "sh", "-c", &script, "x", &asked]].concat()).run()
        };
        let ran = run(&[]);
        assert!(ran.stderr.contains(&format!("--read {path} shows it")), "{who:?} {ran:?}");
        assert!(!ran.stderr.contains("own.png shows") && ran.stdout == "own", "{ran:?}");
        let directory = exec.user.join("Pictures").display().to_string();
        let ran = run(&["--read", &directory]);
        assert!(ran.stdout == "pixelsown" && !ran.stderr.contains("shows it"), "{who:?} {ran:?}");
        assert_eq!(exec.user.read("Pictures/shot.png"), "pixels");
    }
}

#[test]
fn provider_is_copied_with_its_definition_or_not_at_all() {
    let whole = "model_provider = \"corp\"\n[model_providers.corp]\nbase_url = \"https://llm.corp/v1\"\nwire_api = \"responses\"\nenv_key = \"CORP_KEY\"\n";
    let codex = |text: &str| {
        let exec = Exec::new(Who::Me);
        exec.user.write(".codex/config.toml", text);
        exec.command(&["agent", "codex", "--", "sh", "-c", "cat $CODEX_HOME/config.toml"]).run()
    };
    let ran = codex(whole);
    assert!(
        ran.stdout.contains("model_provider = \"corp\"") && ran.stdout.contains("env_key = \"CORP_KEY\""),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("was not copied"), "{ran:?}");
    for secret in ["experimental_bearer_token = \"s3cret\"", "http_headers = { key = \"s3cret\" }"] {
        let ran = codex(&format!("model = \"m\"\n{whole}{secret}\n"));
        assert!(ran.stdout.contains("model = \"m\"") && !ran.stdout.contains("corp"), "{ran:?}");
        assert!(!ran.stdout.contains("s3cret") && ran.stderr.contains("was not copied"), "{ran:?}");
    }
    let ran = codex(&whole.replace("https://", "https://me:s3cret@"));
    assert!(!ran.stdout.contains("s3cret") && ran.stderr.contains("was not copied"), "{ran:?}");
    for (key, copied) in [("{env:CORP_KEY}", true), ("s3cret", false)] {
        let exec = Exec::new(Who::Me);
        let provider = json!({"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": key}, "models": {"m": {}}});
        let settings = json!({"model": "local/m", "provider": {"local": provider}});
        exec.user.write(".config/opencode/opencode.json", settings.to_string());
        let script = "cat $XDG_CONFIG_HOME/opencode/opencode.json";
        let ran = exec.command(&["agent", "opencode", "--", "sh", "-c", script]).run();
        assert_eq!(ran.stdout.contains("local/m") && ran.stdout.contains("baseURL"), copied, "{ran:?}");
        assert!(!ran.stdout.contains("s3cret"), "{ran:?}");
    }
}

#[test]
fn first_start_lists_what_state_does_not_get() {
    let exec = Exec::new(Who::Me);
    exec.user.write(".claude.json", json!({"mcpServers": {"notes": {"command": "x"}}, "theme": "dark"}).to_string());
    exec.user.write(".claude/commands/deploy.md", "x");
    let start = || exec.command(&["agent", "claude", "--", "true"]).run().stderr;
    let first = start();
    for shown in ["mcpServers of", ".claude.json: notes", ".claude/commands: deploy.md"] {
        assert!(first.contains(shown), "{shown}: {first}");
    }
    assert!(!first.contains("skills"), "{first}");
    assert!(!start().contains("not in the agent's private state"));
}

#[test]
fn summary_names_quarantined_files_and_refused_connections() {
    let exec = Exec::with_policy(Who::Me, &POLICY.replace("[exec]", "[exec]\nnetwork = []\n"));
    // Telemetry and updates of the host are refused without a message.
    let quiet = ["ab.chatgpt.com", "github.com", "api.github.com", "raw.githubusercontent.com"];
    let asked = quiet.map(|name| format!("getent hosts {name}; ")).concat();
    let script = format!("echo x >.envrc; getent hosts a.example; {asked}true");
    let ran = exec.command(&["agent", "codex", "--", "sh", "-c", &script]).run();
    assert!(ran.stderr.contains("it is now "), "{ran:?}");
    assert!(ran.stderr.contains(".envrc"), "{ran:?}");
    assert!(ran.stderr.contains("refused), 1 file quarantined"), "{ran:?}");
    assert!(ran.stderr.contains("connection to a.example refused"), "{ran:?}");
    assert!(!quiet.iter().any(|name| ran.stderr.contains(name)), "{ran:?}");
    let other = exec.command(&["agent", "claude", "--", "sh", "-c", &script]).run();
    assert!(other.stderr.contains("connection to github.com refused"), "the control: {other:?}");
    let quiet = exec.command(&["agent", "codex", "--", "true"]).run();
    assert!(!quiet.stderr.contains("connection") && !quiet.stderr.contains("it is now "), "{quiet:?}");
}

#[test]
fn program_of_npm_prefix_is_found_by_its_link() {
    let exec = Exec::new(Who::Me);
    exec.user.write("npm/lib/node_modules/a/cli", "#!/bin/sh\nnotes");
    exec.user.write("npm/lib/node_modules/b/notes", "#!/bin/sh\necho notes here");
    std::fs::create_dir_all(exec.user.join("npm/bin")).unwrap();
    for (link, to) in [("a", "a/cli"), ("notes", "b/notes")] {
        let file = exec.user.join("npm/lib/node_modules").join(to);
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(format!("../lib/node_modules/{to}"), exec.user.join("npm/bin").join(link)).unwrap();
    }
    let agent = exec.user.join("npm/bin/a").display().to_string();
    let ran = exec.command(&["agent", "--", &agent]).run();
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "notes here\n"), "{ran:?}");
    // The control: an ordinary run does not see it.
    assert_ne!(exec.inside("notes")["return_code"], 0);
}

#[test]
fn run_below_repository_names_line_that_shows_it() {
    let exec = Exec::new(Who::Me);
    exec.work.write("packages/a/file", "");
    let below = exec.work.join("packages/a");
    let run = |words: &[&str]| exec.command(words).current_dir(&below).run().stderr;
    let failed: &[&str] = &["-c", "false"];
    assert!(!run(failed).contains("repository"), "the control");
    std::fs::create_dir(exec.work.join(".git")).unwrap();
    let line = format!("cd {}; cp-exec -C packages/a ...", exec.work.display());
    for words in [failed, &["agent", "--", "true"]] {
        assert_eq!(run(words).matches(&line).count(), 1, "{words:?}");
    }
    assert!(!run(&["-c", "true"]).contains("repository"));
    assert!(!exec.command(failed).run().stderr.contains("is not visible"));
}

//! `cp-exec allow`: each refusal names the line that lifts it, the line works when it is typed, and only in its
//! project.

use serde_json::{Value, json};

use crate::exec::{Exec, Who, everyone};

const POLICY: &str = "# mine\n[exec]\nallowed_commands = [\"sh\", \"cat\", \"touch\", \"mkdir\"] # few\nrestricted_commands = [\"shred\"]\nintent = \"off\"\n";

#[test]
fn line_of_each_refusal_lifts_it_in_this_project_only() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.root.write("data/file", "x\n");
        exec.root.directory("other");
        exec.executable("tool/run.sh", "#!/bin/sh\necho ran\n");
        let file = exec.root.join("data/file").display().to_string();
        let read = json!({"tool": "filesystem", "operation": "read_file", "arguments": {"path": file}}).to_string();
        let write = json!({"tool": "filesystem", "operation": "edit_file", "arguments": {"path": file, "old": "x", "new": "y"}});
        let write = write.to_string();
        let new = json!({"tool": "filesystem", "operation": "write_file", "arguments": {"path": exec.root.join("data/new"), "content": "x"}});
        let new = new.to_string();
        let requests: [(&[&str], &str); 8] = [
            (&["--", "seq", "1"], ""),
            (&["-c", "seq 1"], ""),
            (&["--env", "MINE=1", "--", "sh", "-c", ":"], ""),
            (&["--", "sh", "tool/run.sh"], ""),
            (&["--", "tool/run.sh"], ""),
            (&[], &read),
            (&[], &write),
            (&[], &new),
        ];
        for (arguments, input) in requests {
            // Every request starts with the same policy.
            exec.policy(POLICY);
            let asked = |directory: &str| {
                let ran = exec.command(arguments).current_dir(exec.root.join(directory)).stdin(input).run();
                ran.records()
                    .into_iter()
                    .find(|record| record["error"].is_object() || record["ok"] == true)
                    .unwrap_or_else(|| panic!("{ran:?}"))
            };
            let mut answer = asked("work");
            assert!(answer["error"].is_object(), "{who:?} {arguments:?}: {answer}");
            let mut lines = 0;
            while let Some(line) = answer["error"]["details"]["allow"].as_str().map(str::to_owned) {
                let hint = answer["error"]["details"]["hint"].as_str();
                assert!(hint.is_some_and(|hint| hint.contains(&line)), "{answer}");
                let words: Vec<&str> = line.split(' ').skip(1).collect();
                let done = exec.confirmed(&words);
                assert!(done["project"].as_str().unwrap().ends_with("/work"), "{done}");
                let text = exec.home.read("config/policy.toml");
                assert!(text.starts_with(POLICY), "{text}");
                let next = asked("work");
                assert_ne!(next["error"]["details"]["allow"], line.as_str(), "it changed nothing: {next}");
                answer = next;
                lines += 1;
            }
            assert!(lines == 1 || input.is_empty(), "{arguments:?} {input}: {lines} lines");
            assert!(answer["ok"] == true, "{who:?} {arguments:?}: {answer}");
            exec.root.write("data/file", "x\n");
            if input.is_empty() && !arguments.join(" ").contains("tool") {
                assert!(asked("other")["error"]["details"]["allow"].is_string(), "{arguments:?}: another project");
                exec.work.directory("below");
                assert!(asked("work/below")["ok"] == true, "{arguments:?}: below the project");
            }
        }
    }
}

#[test]
fn grant_everywhere_holds_in_other_projects() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    exec.root.directory("other");
    let done = exec.confirmed(&["allow", "program", "seq", "--everywhere"]);
    assert_eq!(done["project"], Value::Null);
    let ran = exec.command(&["--", "seq", "1"]).current_dir(exec.root.join("other")).run();
    ran.success();
    let (again, status) = exec.ask(&["allow", "program", "seq"]);
    assert_eq!((status, &again["data"]["changed"]), (0, &json!(false)), "{again}");
    // What the project has already is still to be granted to the others.
    let data = exec.root.directory("data").display().to_string();
    for (kind, value) in
        [("program", "uniq"), ("env", "MINE"), ("network", "a.test"), ("read", &data), ("write", &data)]
    {
        for everywhere in [&[][..], &["--everywhere"]] {
            let words = [&["allow", kind, value], everywhere].concat();
            assert_eq!(exec.confirmed(&words)["changed"], true, "{words:?}");
            let (again, _) = exec.ask(&words);
            assert_eq!(again["data"]["changed"], false, "{words:?}");
        }
    }
}

#[test]
fn hints_for_program_of_virtual_environment_lead_to_its_run() {
    let everyday = crate::exec::POLICY;
    for who in everyone() {
        // A name of the catalogue, another one, and one that the policy allows.
        for (policy, name) in
            [POLICY, everyday].map(|policy| ["pytest", "mytool", "cargo"].map(|name| (policy, name))).concat()
        {
            for door in ["--", "-c"] {
                let exec = Exec::with_policy(who, &policy.replacen("\"sh\"", "\"sh\", \"cargo\"", 1));
                let program = exec.executable(&format!(".venv/bin/{name}"), "#!/bin/sh\necho ran\n");
                let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
                let type_words = |words: &[&str]| exec.command(words).env("PATH", &path).run();
                let mut words = vec![door.to_owned(), name.to_owned()];
                for step in 0.. {
                    let words_now: Vec<&str> = words.iter().map(String::as_str).collect();
                    let ran = type_words(&[&["--format", "raw"], &words_now[..]].concat());
                    if ran.stdout == "ran\n" {
                        break;
                    }
                    assert!(step < 4, "{who:?} {name} {door}: the hints lead to no run: {ran:?}");
                    let (_, line) = ran.stderr.trim().rsplit_once(": cp-exec ").unwrap_or_else(|| panic!("{ran:?}"));
                    if line.starts_with("allow ") {
                        let allow: Vec<&str> = line.split(' ').collect();
                        let token = type_words(&[&allow[..], &["--dry-run"]].concat()).data()["confirm_token"].clone();
                        let done = type_words(&[&allow[..], &["--confirm", token.as_str().unwrap()]].concat()).data();
                        assert_eq!(done["changed"], true, "{who:?} {name} {door}: {line}");
                    } else {
                        words = line.split(' ').map(str::to_owned).collect();
                    }
                }
            }
        }
    }
}

#[test]
fn allow_needs_policy_and_project() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let ran = exec.command(&["allow", "program", "seq", "--dry-run"]).current_dir("/").run();
    assert_eq!(ran.status, 4, "{ran:?}");
    std::fs::remove_file(exec.home.join("config/policy.toml")).unwrap();
    assert_eq!(exec.ask(&["allow", "program", "seq", "--dry-run"]).1, 3);
}

#[test]
fn allow_never_grants_what_escalates_is_hidden_or_guarded() {
    let exec = Exec::with_policy(Who::Me, &format!("{POLICY}[paths]\nforbidden = [\"**/secret\"]\n"));
    for name in [".git/config", ".env", "secret", ".claude/settings.json", "plain"] {
        exec.write(name, "");
    }
    let home = exec.home.display().to_string();
    let keys = format!("{home}/keys");
    exec.home.directory("keys");
    let never: [(&str, &[&str]); 5] = [
        ("program", &["sudo", "su", "mount", "shred", "cp-exec", "chroot", "insmod"]),
        ("read", &["/", "~", "/etc/shadow", "/proc", ".env", "secret", &home, &keys]),
        (
            "write",
            &["/", "~", "/usr/local/bin", "/etc", "/tmp", ".git/config", ".claude/settings.json", "secret", &keys],
        ),
        ("env", &["LD_PRELOAD", "PATH", "GIT_SSH_COMMAND", "BASH_ENV", "PYTHONPATH"]),
        ("network", &["https://a.test/x", "*", "localhost", "::1"]),
    ];
    for (kind, values) in never {
        for value in values {
            for more in [&[][..], &["--everywhere"]] {
                let (answer, status) = exec.ask(&[&["allow", kind, value, "--dry-run"], more].concat());
                assert!([2, 4].contains(&status) && answer["ok"] == false, "{kind} {value}: {status} {answer}");
            }
        }
    }
    for (kind, value) in [("program", "seq"), ("env", "MINE"), ("network", "a.test")] {
        assert_eq!(exec.ask(&["allow", kind, value, "--dry-run"]).1, 0, "the control: {kind} {value}");
    }
    let outside = exec.root.write("data/plain", "");
    for kind in ["read", "write"] {
        assert_eq!(exec.ask(&["allow", kind, outside.to_str().unwrap(), "--dry-run"]).1, 0, "the control: {kind}");
    }
    assert!(!exec.home.read("config/policy.toml").contains("project"), "a dry run changes nothing");
}

/// At a terminal each refused name and program is a question, once; without one, in JSON and for the others it is none.
#[test]
fn refused_name_and_program_are_asked_about_at_terminal() {
    let policy = POLICY.replace("\"sh\",", "\"sh\", \"getent\",");
    let line = "seq 1; seq 2; shred f; getent hosts a.example; getent hosts a.example; true";
    let words = ["-c", line];
    for (answers, kept) in
        [(["y\r", "n\r"], ["a.example", ""]), (["n\r", "always\r"], ["", "seq"]), (["\r", "\r"], ["", ""])]
    {
        let exec = Exec::with_policy(Who::Me, &policy);
        let mut terminal = exec.command(&words).terminal(200);
        for (what, answer) in ["network a.example", "program seq"].into_iter().zip(answers) {
            terminal.wait_for(&format!("allow {what} for this project? [y/N"));
            terminal.send(answer);
        }
        terminal.end();
        let (text, shown) = (exec.home.read("config/policy.toml"), terminal.text());
        assert_eq!(shown.matches("[y/N").count(), 2, "{shown}");
        for (value, kept) in ["a.example", "seq"].into_iter().zip(kept) {
            assert_eq!(text.contains(&format!("\"{value}\"")), !kept.is_empty(), "{text}");
        }
        assert_eq!(shown.contains("run it again"), kept.concat() != "", "{shown}");
        assert_eq!(exec.entries("policy.allow").len(), usize::from(kept.concat() != ""));
        let elsewhere = exec.command(&["-c", "seq 1"]).current_dir(exec.root.directory("other")).run();
        assert_eq!(elsewhere.status == 0, answers[1] == "always\r", "{elsewhere:?}");
    }
    // A command that is refused as a whole, and then runs.
    let exec = Exec::with_policy(Who::Me, &policy);
    let mut terminal = exec.command(&["--", "seq", "7", "7"]).terminal(200);
    terminal.wait_for("allow program seq for this project? [y/N");
    terminal.send("y\r");
    terminal.end();
    assert_eq!(exec.command(&["--format", "raw", "--", "seq", "7", "7"]).run().success().stdout, "7\n");
    // The controls: no question.
    let exec = Exec::with_policy(Who::Me, &policy);
    for words in [&["--json", "-c", line][..], &["--", "shred", "f"], &["agent", "--", "sh", "-c", line]] {
        let mut terminal = exec.command(words).terminal(200);
        terminal.end();
        assert!(!terminal.text().contains("[y/N"), "{words:?}: {}", terminal.text());
    }
    let ran = exec.command(&words).run();
    assert!(!format!("{ran:?}").contains("[y/N"), "{ran:?}");
    assert_eq!(exec.home.read("config/policy.toml"), policy);
}

//! Plans: command lines of several commands, decided about as a whole, run part by part, and on the record.

use std::fs;

use cp_testkit::Signal;
use serde_json::{Value, json};

use crate::exec::{Exec, Who, alive, everyone};

/// A policy with its rules on.
const POLICY: &str = r#"
[exec]
allowed_commands = ["sh", "true", "false", "sleep", "echo", "cat", "head", "sort", "grep", "ls", "mkdir", "touch", "printf",
    "wc", "cp", "rm", "ln", "test", "pwd"]
restricted_commands = ["chmod"]
argument_rules = "default"
[paths]
write = ["."]
pristine = ["lib"]
forbidden = ["**/secret*"]
"#;

/// The same, with `sh` let run anything.
fn loose() -> String {
    POLICY.replace("argument_rules = \"default\"", "argument_rules = \"off\"")
}

/// What a line did, or why it did not run.
#[track_caller]
fn line(exec: &Exec, line: &str) -> Value {
    let (answer, _) = exec.ask(&["-c", line]);
    if answer["ok"] == true { answer["data"].clone() } else { answer["error"]["details"].clone() }
}

fn not_run(result: &Value) -> Vec<Value> {
    result["parts"].as_array().unwrap().iter().map(|part| part["not_run"].clone()).collect()
}

#[test]
fn the_everyday_lines_run_and_each_part_is_on_the_record() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.write("src/a.py", "b TODO\nnothing\na TODO\n");
        exec.write("src/a.txt", "TODO\n");
        let result = line(&exec, r#"cd src && grep -rn "TODO" --include="*.py" . | sort | head -5 2>/dev/null"#);
        assert_eq!(result["stdout"], "./a.py:1:b TODO\n./a.py:3:a TODO\n", "{result}");
        assert_eq!(result["parts"].as_array().unwrap().len(), 3);
        let parts = exec.entries("exec.part");
        let words: Vec<&Value> = parts.iter().map(|part| &part["data"]["argv"][0]).collect();
        assert_eq!(words, ["grep", "sort", "head"]);
        let (intent, ended) = (&exec.entries("exec.intent")[0], &exec.entries("exec.result")[0]);
        assert!(
            parts
                .iter()
                .all(|part| part["data"]["intent"] == intent["seq"] && part["seq"].as_u64() < ended["seq"].as_u64())
        );
        assert_eq!(ended["data"]["intent"], intent["seq"]);
        line(&exec, "cat > notes.txt <<'EOF'\nhello $x\nEOF");
        assert_eq!(fs::read_to_string(exec.work.join("notes.txt")).unwrap(), "hello $x\n");
        line(&exec, "mkdir -p a/b && cd a/b && touch c");
        assert!(exec.work.join("a/b/c").exists());
    }
}

#[test]
fn nothing_starts_if_any_part_is_refused_and_the_refusal_names_it() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    for (refused, rule) in [
        ("chmod 777 x", "restricted"),
        ("dd if=x", "not_allowed"),
        ("sh other.sh", "interpreter.script"),
        ("LD_PRELOAD=x ls", "env_never"),
        ("echo x > /etc/x", "paths.read"),
        ("cat < .env", "secret"),
        ("cd /root && ls", "cwd"),
        ("echo x > /dev/tcp/a/1", "redirection"),
    ] {
        let (answer, status) = exec.ask(&["-c", &format!("touch ran; echo a | cat; {refused}")]);
        let details = &answer["error"]["details"];
        assert_eq!((status, details["rule"].as_str()), (4, Some(rule)), "{refused}: {answer}");
        assert_eq!(details["part"], 3, "{answer}");
        assert!(details["plan"].as_str().unwrap().starts_with("touch ran; echo a | cat; "), "{answer}");
        assert!(!exec.work.join("ran").exists(), "{refused}");
    }
    assert!(exec.entries("exec.intent").is_empty() && exec.entries("exec.refused").len() == 8);
    // The control.
    assert_eq!(line(&exec, "touch ran; echo a | cat; ls")["return_code"], 0);
    assert!(exec.work.join("ran").exists());
    let (answer, _) = exec.ask(&["check", "-c", "ls *.md; rm -rf ~/x"]);
    assert_eq!((&answer["data"]["decision"], &answer["data"]["part"]), (&json!("ask"), &json!(1)), "{answer}");
    assert_eq!(answer["data"]["argv"][0], "rm");
}

#[test]
fn files_of_redirections_are_held_to_the_rules_about_files() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &loose());
        let outside = exec.root.join("outside");
        fs::write(&outside, "kept").unwrap();
        exec.write("lib/kept", "kept");
        exec.write("secret.key", "s3cret");
        exec.write(".env", "s3cret");
        std::os::unix::fs::symlink(&outside, exec.work.join("link")).unwrap();
        exec.own_all();
        let told = outside.display();
        for refused in [
            "echo x > lib/kept",
            "echo x >> lib/new",
            "echo x > secret.new",
            "cat < secret.key",
            "cat < .env",
            "echo x > link",
            "echo x > .git/hooks/pre-commit",
            &format!("echo x >> {told}"),
            &format!("cat < {told}"),
            // The link is not there when the plan is decided about.
            &format!("ln -s {told} late; echo x >> late"),
            "ln -s secret.key later; cat < later",
        ] {
            let (answer, status) = exec.ask(&["-c", refused]);
            assert_eq!(status, 4, "{who:?} {refused}: {answer}");
            assert!(!answer.to_string().contains("s3cret"), "{refused}: {answer}");
        }
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
        assert_eq!(fs::read_to_string(exec.work.join("lib/kept")).unwrap(), "kept");
        // The controls.
        assert_eq!(line(&exec, "echo x > new; cat < new; echo y >> new; cat new")["stdout"], "x\nx\ny\n");
        assert_eq!(line(&exec, "cat < nothing || echo $?; cat < lib/kept")["stdout"], "1\nkept");
        // A descriptor is that of the file itself.
        let result = line(&exec, "cat new >> new");
        assert_eq!(
            (&result["return_code"], fs::read(exec.work.join("new")).unwrap().len()),
            (&json!(1), 4),
            "{result}"
        );
    }
}

#[test]
fn what_is_there_is_written_over_only_with_a_yes_to_the_whole_plan() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let file = exec.write("f", "held\n");
    exec.write("empty", "");
    let text = "echo new > f; rm empty; echo late > late";
    let (answer, status) = exec.ask(&["-c", text]);
    assert_eq!((status, &answer["error"]["details"]["rule"]), (5, &json!("overwrite")), "{answer}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "held\n");
    let token = exec.ask(&["--dry-run", "-c", text]).0["data"]["confirm_token"].as_str().unwrap().to_owned();
    assert_ne!(exec.ask(&["--confirm", &token, "-c", &text.replace("late", "later")]).1, 0, "it is for this plan only");
    let token = exec.ask(&["--dry-run", "-c", text]).0["data"]["confirm_token"].as_str().unwrap().to_owned();
    assert_eq!(exec.ask(&["--confirm", &token, "-c", text]).1, 0);
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), exec.work.join("empty").exists()), ("new\n", false));
    assert_ne!(exec.ask(&["--confirm", &token, "-c", text]).1, 0, "it is spent");
    // What is empty, new or made by the plan itself needs none.
    exec.write("empty", "");
    let result = line(&exec, "echo 1 > empty; echo 1 > made; echo 2 > made; cat empty made");
    assert_eq!(result["stdout"], "1\n2\n", "{result}");
}

#[test]
fn a_pattern_is_expanded_when_its_part_starts_and_never_shows_what_is_hidden() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    for name in ["a.txt", "secret.txt", ".env", "x.o"] {
        exec.write(name, "");
    }
    assert_eq!(line(&exec, "echo *.txt .e*; echo /root/.ss*")["stdout"], "a.txt .e*\n/root/.ss*\n");
    assert_eq!(line(&exec, "touch b.txt; echo *.txt")["stdout"], "a.txt b.txt\n");
    let (expanded, parts) = (exec.entries("exec.expanded"), exec.entries("exec.part"));
    assert_eq!(expanded.len(), 1, "{expanded:?}");
    assert_eq!(expanded[0]["data"]["argv"], json!(["echo", "a.txt", "b.txt"]));
    let last = parts.last().unwrap();
    assert!(
        last["data"]["command_hash"] == expanded[0]["data"]["command_hash"]
            && expanded[0]["seq"].as_u64() < last["seq"].as_u64()
    );
    // A yes is for the words that were shown.
    let confirmed = |text: &str| {
        let token = exec.ask(&["--dry-run", "-c", text]).0["data"]["confirm_token"].as_str().unwrap().to_owned();
        exec.ask(&["--confirm", &token, "-c", text]).0
    };
    let answer = confirmed("touch y.o; rm *.o; echo after");
    assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
    assert_eq!(not_run(&answer["error"]["details"]), [Value::Null, json!("refused"), json!("ended")]);
    assert!(exec.work.join("x.o").exists() && exec.work.join("y.o").exists());
    // The control.
    let answer = confirmed("rm *.o; echo after");
    assert_eq!(answer["data"]["stdout"], "after\n", "{answer}");
    assert!(!exec.work.join("x.o").exists() && !exec.work.join("y.o").exists());
}

#[test]
fn statuses_are_those_of_a_shell() {
    let exec = Exec::with_policy(Who::Me, &loose());
    for (text, stdout, status) in [
        ("false || echo $?; true && echo $?", "1\n0\n", 0),
        ("false; true; false", "", 1),
        ("sh -c 'exit 3' | cat; echo $?", "0\n", 0),
        ("cat nothing | sh -c 'exit 4'; echo $?", "4\n", 0),
        ("sh -c 'kill -9 $$'; echo $?", "137\n", 0),
        ("! true; echo $?; ! false && echo $?", "1\n0\n", 0),
        ("(cd lib; false) || pwd | wc -l; cd nowhere; echo $?", "1\n1\n", 0),
        ("cd nowhere && echo no; test -e x", "", 1),
        ("sh -c 'echo 1; echo 2 >&2; echo 3' 2>&1 | cat", "1\n2\n3\n", 0),
        ("sh -c 'echo 1; echo 2 >&2' 2>&1 >/dev/null", "2\n", 0),
        ("echo no >&2; echo yes > /dev/stdout", "yes\n", 0),
        ("cat; cat <<< 'word'; exit 7; echo no", "word\n", 7),
    ] {
        let result = line(&exec, text);
        assert_eq!((&result["stdout"], &result["return_code"]), (&json!(stdout), &json!(status)), "{text}: {result}");
    }
    let result = line(&exec, "sh -c 'exit 3' | cat; true");
    assert_eq!((&result["pipefail"], &result["parts"][0]["return_code"]), (&json!(3), &json!(3)), "{result}");
    assert_eq!(exec.command(&["--format", "raw", "-c", "sh -c 'echo a; exit 7' | cat; exit 9"]).run().status, 9);
    let raw = exec.command(&["--format", "raw", "-c", "echo a; echo b >&2; cat <<< c | cat"]).run();
    assert_eq!((raw.stdout.as_str(), raw.stderr.as_str(), raw.status), ("a\nc\n", "b\n", 0));
}

#[test]
fn one_deadline_is_for_all_of_it_and_leaves_nothing() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &loose());
        let word = format!("71{}", std::process::id());
        let text = format!("echo a; sleep {word} | sleep {word}; touch late");
        let (answer, status) = exec.ask(&["--timeout", "1", "-c", &text]);
        let details = &answer["error"]["details"];
        assert_eq!((status, &details["stdout"]), (8, &json!("a\n")), "{answer}");
        assert_eq!(not_run(details), [Value::Null, Value::Null, Value::Null, json!("timed_out")]);
        assert!(!alive(&format!("sleep\0{word}")) && !exec.work.join("late").exists());
        let ended = exec.entries("exec.result");
        assert_eq!(ended[0]["data"]["ended"], "timed_out");
        // Each alone would have had time enough.
        assert_eq!(exec.ask(&["--timeout", "1", "-c", "sleep 0.7; sleep 0.7; touch late"]).1, 8);
        assert!(!exec.work.join("late").exists());
    }
    let flood = loose().replace("[exec]", "[exec]\noutput_limit = 100000");
    let exec = Exec::with_policy(Who::Me, &flood);
    let result = line(&exec, "head -c 60000 /dev/zero; head -c 60000 /dev/zero; touch late");
    assert_eq!(not_run(&result)[2], "output_limit", "{}", result["parts"]);
    assert!(!exec.work.join("late").exists());
}

#[test]
fn a_plan_that_was_killed_leaves_its_intent_and_what_had_run() {
    let exec = Exec::with_policy(Who::Me, &loose());
    let started = exec.work.join("started");
    let running = exec.command(&["-c", "echo a; touch started; sleep 30; touch late"]).start();
    cp_testkit::until("the second part", || started.exists() && exec.entries("exec.part").len() == 2);
    running.signal(Signal::KILL);
    running.wait();
    assert_eq!((exec.entries("exec.intent").len(), exec.entries("exec.result").len()), (1, 0));
    assert_eq!(exec.entries("exec.part").len(), 2);
    assert!(!exec.work.join("late").exists());
}

#[test]
fn a_person_approves_a_plan_as_a_whole_and_once() {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    let exec =
        Exec::with_policy(Who::Me, &format!("{}{rule}", POLICY.replace("[exec]", "[exec]\nconfirm = \"owner\"")));
    let text = "echo one; touch between; echo two";
    let (asks, status) = exec.ask(&["-c", text]);
    assert_eq!(status, 9, "{asks}");
    let shown = &asks["error"]["details"]["approval"]["shown"];
    assert_eq!((&shown["line"], shown["parts"].as_array().unwrap().len()), (&json!(text), 2), "{shown}");
    let mut terminal = exec.command(&["approve", asks["error"]["details"]["id"].as_str().unwrap()]).terminal(80);
    terminal.wait_for("Allow it? y = yes, n = no: ");
    terminal.send("y\r");
    terminal.end();
    assert!(terminal.text().contains("echo one") && terminal.text().contains("echo two"), "{}", terminal.text());
    assert!(!exec.work.join("between").exists());
    assert_eq!(line(&exec, text)["stdout"], "one\ntwo\n");
    assert_eq!(exec.ask(&["-c", text]).1, 9, "it was for once");
    assert!(exec.entries("exec.intent")[0]["data"]["confirmed"].is_string());
    // A pipeline of a request too.
    let pipeline = r#"{"tool":"shell","arguments":{"pipeline":[["echo","a"],["cat"]]}}"#;
    assert_eq!(exec.answers(&[], pipeline).0[0]["error"]["code"], "E_HUMAN_REQUIRED");
}

#[test]
fn requests_may_be_plans_and_several_run_at_once() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let shell = |arguments: Value| json!({"tool": "shell", "arguments": arguments}).to_string();
    let steps = json!([
        {"join": "start", "pipeline": [{"argv": ["cat"]}, {"argv": ["sort"], "redirects": [{"fd": 1, "op": "write", "path": "out"}]}]},
        {"join": "and", "pipeline": [{"argv": ["cat", "out"], "env": {"TZ": "UTC"}}]},
    ]);
    let mut requests: Vec<String> =
        (0..6).map(|at| shell(json!({"command": format!("echo {at} | cat; echo {at}")}))).collect();
    requests.push(shell(json!({"plan": steps, "stdin": "b\na\n"})));
    requests.push(shell(json!({"plan": [{"join": "and", "pipeline": [{"argv": ["true"]}]}]})));
    requests.push(shell(json!({"plan": [{"join": "start", "pipeline": [{"argv": ["cat"], "redirects": [{"fd": 7, "op": "read", "path": "a"}]}]}]})));
    let (answers, _) = exec.answers(&["--jobs", "4"], &requests.join("\n"));
    for at in 0..6 {
        assert_eq!(answers[at]["data"]["stdout"], format!("{at}\n{at}\n"), "{answers:?}");
    }
    assert_eq!(answers[6]["data"]["stdout"], "a\nb\n", "{}", answers[6]);
    assert!(answers[7..9].iter().all(|answer| answer["error"]["code"] == "E_VALIDATION"), "{answers:?}");
    let kept = exec
        .entries("exec.intent")
        .into_iter()
        .find(|entry| entry["data"]["plan"][1]["pipeline"][0]["env"].is_object());
    assert_eq!(kept.unwrap()["data"]["plan"][1]["pipeline"][0]["env"], json!({"TZ": "…"}));
}

#[test]
fn a_tool_serves_one_command_with_a_file_and_nothing_else() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    exec.write("a", "text\n");
    for text in ["cat a", "ls .", "head -1 *"] {
        assert_eq!(line(&exec, text)["rule"], "intent", "{text}");
    }
    for text in ["cat a | grep text", "ls", "pwd && ls", "cat < a", "cat a 2>&1"] {
        assert_eq!(line(&exec, text)["return_code"], 0, "{text}");
    }
}

#[test]
fn a_policy_can_have_strings_of_one_command_only() {
    let exec = Exec::with_policy(Who::Me, &POLICY.replace("[exec]", "[exec]\nstrings = \"single\""));
    for text in ["echo a; echo b", "echo a | cat", "echo a > b"] {
        assert_eq!(line(&exec, text)["rule"], "shell_operator", "{text}");
    }
    assert_eq!(line(&exec, "echo *")["stdout"], "*\n");
}

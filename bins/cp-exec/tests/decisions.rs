//! The corpus: command lines with what is decided about them, and by which rule.

use cp_testkit::counterpart;
use serde_json::json;

use crate::exec::{Exec, POLICY, Who, rows};

/// Allows much, so that what is refused is refused by a rule and not by absence.
const GENEROUS: &str = include_str!("data/policies/generous.toml");

/// `decision TAB rule TAB command line`; `*` as the rule stands for any.
const CORPUS: &str = include_str!("data/corpus.tsv");

#[test]
fn decision_corpus_has_expected_verdicts() {
    let exec = Exec::with_policy(Who::Me, GENEROUS);
    exec.write("scripts/build.py", "");
    exec.write("scripts/build.sh", "");
    exec.write("other.py", "");
    let has_program = |[_, _, line]: &[&str; 3]| {
        let program = line.split(' ').next().filter(|program| ["less", "npx", "vim"].contains(program));
        program.is_none_or(|program| counterpart(program).is_some())
    };
    let lines: Vec<_> = rows(CORPUS).filter(has_program).collect();
    let request = |[_, _, line]: &[&str; 3]| {
        let text = line.replace("\\n", "\n").replace("\\r", "\r");
        json!({"tool": "shell", "operation": "execute_command", "arguments": {"command": text}}).to_string()
    };
    let (answers, _) = exec.answers(&["check"], &lines.iter().map(request).collect::<Vec<_>>().join("\n"));
    let mut wrong = Vec::new();
    for ([decision, rule, line], answer) in lines.iter().zip(&answers) {
        let (found, by) = (&answer["data"]["decision"], &answer["data"]["rule"]);
        if found != decision || (*rule != "*" && by != rule) {
            wrong.push(format!("{line}\n    is {found} by {by}: {}", answer["data"]["reason"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines.len() >= 150 && answers.len() >= lines.len(), "{} of {}", answers.len(), lines.len());
}

#[test]
fn decision_contains_no_secret_of_the_command() {
    let exec = Exec::with_policy(Who::Me, GENEROUS);
    let header = format!("Authorization: Bearer sk-proj-{}", "Lm5x".repeat(12));
    for program in ["echo", "nosuch", "git"] {
        let words = [program, "-H", &header, "https://x.example"];
        let line = format!("{program} -H '{header}'");
        for arguments in [
            [&["check", "--"], &words[..]].concat(),
            [&["--dry-run", "--"], &words[..]].concat(),
            vec!["check", "-c", &line],
            vec!["--dry-run", "-c", &line],
        ] {
            let answer = exec.ask(&arguments).0.to_string();
            assert!(!answer.contains("Lm5x") && answer.contains(program), "{arguments:?}: {answer}");
            let mentions = !answer.contains("\"argv\"") || answer.contains("[REDACTED");
            assert!(mentions, "{arguments:?}: {answer}");
        }
    }
}

#[test]
fn rm_refusal_names_tool_call_and_git_rm() {
    let exec = Exec::with_policy(Who::Me, &POLICY.replace("\"shred\"", "\"rm\""));
    let (refused, _) = exec.ask(&["--", "rm", "a"]);
    assert_eq!(refused["error"]["details"]["rule"], "restricted", "{refused}");
    assert_eq!(refused["error"]["details"]["use"], "filesystem.remove_file", "{refused}");
    assert!(refused["error"]["details"]["hint"].as_str().unwrap().contains("git rm"), "{refused}");
}

#[test]
fn script_is_resolved_in_requested_directory() {
    let exec = Exec::with_policy(Who::Me, GENEROUS);
    exec.write("scripts/build.py", "");
    exec.write("evil/scripts/build.py", "");
    let ask = |cwd: &str, script: &str| {
        exec.ask(&["check", "--cwd", cwd, "--", "python3", script]).0["data"]["decision"].clone()
    };
    assert_eq!(ask(".", "scripts/build.py"), "allow");
    assert_eq!(ask("scripts", "build.py"), "allow");
    assert_eq!(ask("evil", "scripts/build.py"), "deny");
    assert_eq!(ask("evil", "../scripts/build.py"), "allow");
}

#[test]
fn refusal_names_owner_and_setting() {
    let exec = Exec::with_policy(Who::Me, GENEROUS);
    let bare = Exec::with_policy(Who::Me, "[tools]\nallow = []\n");
    exec.write("other.py", "");
    bare.executable("tools/adder", "#!/bin/sh\n");
    let tools = bare.work.join("tools").display().to_string();
    let call = |exec: &Exec, arguments: &[&str], request: &str| exec.answers(arguments, request).0[0].clone();
    let answers = [
        exec.ask(&["--", "nonesuch"]).0,
        exec.ask(&["--", "python3", "other.py"]).0,
        exec.ask(&["--env", "MINE=1", "--", "git", "status"]).0,
        call(&bare, &["--tools", &tools], r#"{"tool":"adder","operation":"call","arguments":{}}"#),
        call(&exec, &[], r#"{"tool":"filesystem","operation":"read_file","arguments":{"path":"/etc/passwd"}}"#),
        call(&exec, &[], r#"{"tool":"filesystem","operation":"write_file","arguments":{"path":"/x","content":""}}"#),
    ];
    for answer in answers {
        let details = &answer["error"]["details"];
        let hint = details["hint"].as_str().unwrap_or_else(|| panic!("no hint: {answer}"));
        match details["allow"].as_str() {
            Some(line) => assert!(line.starts_with("cp-exec allow ") && hint.contains(line), "{answer}"),
            None => assert!(hint.contains("only the owner of the policy"), "{answer}"),
        }
        assert!(!hint.contains("policy init") && !hint.contains("add it"), "{answer}");
    }
    let details = exec.ask(&["--", "nonesuch"]).0["error"]["details"].clone();
    assert_eq!(details["allow"], "cp-exec allow program nonesuch", "{details}");
}

#[test]
fn refusal_without_policy_hints_at_policy_init() {
    let none = Exec::without_policy();
    let read = r#"{"tool":"filesystem","operation":"read_file","arguments":{"path":"/etc/passwd"}}"#;
    let mut answers = vec![none.answers(&[], read).0[0].clone()];
    for words in [&["ls"][..], &["ls", "x"], &["cat", "x"], &["git", "status"], &["no-such-program"]] {
        answers.push(none.ask(&[&["--"], words].concat()).0);
        answers.push(none.ask(&["-c", &words.join(" ")]).0);
    }
    for answer in answers {
        let hint = answer["error"]["details"]["hint"].as_str().unwrap_or_else(|| panic!("no hint: {answer}"));
        assert!(hint.starts_with("`cp-exec policy init`"), "{answer}");
    }
    // The control: the hint helps.
    assert_eq!(none.ask(&["policy", "init"]).1, 0);
    assert_eq!(none.ask(&["--", "ls"]).1, 0);
}

#[test]
fn command_of_a_server_is_judged_only_by_rules_about_privileges() {
    let exec = Exec::with_policy(Who::Me, &POLICY.replace("allowed_commands = [", "allowed_commands = [\"su\", "));
    exec.write("server.sh", "git tag -d t; git reset -q --hard; echo served\n");
    let begun = "git init -q && git -c user.name=a -c user.email=a@x commit -q --allow-empty -m a && git tag t";
    exec.program("sh").args(["-c", begun]).run().success();
    for (options, status) in [(&[][..], 4), (&["--lasting"], 0)] {
        let (answer, found) = exec.ask(&[options, &["--", "sh", "server.sh"]].concat());
        assert_eq!(found, status, "{options:?}: {answer}");
        let (answer, _) = exec.ask(&[options, &["--", "su"]].concat());
        assert_eq!(answer["error"]["details"]["rule"], "privilege", "{options:?}: {answer}");
    }
}

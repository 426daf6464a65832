//! `policy init`: what it writes once, what `--for` adds to a policy that is there, and what a hostile project cannot
//! make it write.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::exec::{Exec, Who};

/// A place with a starter policy.
fn begun() -> Exec {
    let exec = Exec::without_policy();
    assert_eq!(exec.ask(&["policy", "init"]).0["data"]["changed"], true);
    exec
}

fn policy_of(exec: &Exec) -> String {
    exec.home.read("config/policy.toml")
}

#[test]
fn policy_init_never_overwrites_policy() {
    let exec = begun();
    assert_eq!(exec.ask(&["policy", "init"]).1, 6);
    let policy = exec.ask(&["policy", "show"]).0["data"]["policy"].clone();
    let text = exec.command(&["policy", "show", "--format", "text"]).run().stdout;
    let other = Exec::new(Who::Me);
    other.home.write("config/policy.toml", &text);
    assert_eq!(other.ask(&["policy", "show"]).0["data"]["policy"], policy, "{text}");
    assert_eq!(exec.entries("policy.init").len(), 1);
    std::fs::set_permissions(exec.home.join("config/policy.toml"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let (answer, status) = exec.ask(&["--", "true"]);
    assert_eq!((status, answer["error"]["code"].as_str()), (4, Some("E_CONFIG")), "{answer}");
}

#[test]
fn starter_policy_asks_before_removing_and_not_before_overwriting() {
    let exec = begun();
    exec.write("a", "a");
    exec.write("b", "b");
    assert_eq!(exec.ask(&["--", "rm", "b"]).1, 5);
    let (answer, status) = exec.ask(&["--", "cp", "a", "b"]);
    assert_eq!(status, 0, "{answer}");
    exec.confirmed(&["undo", "last"]);
    assert_eq!(std::fs::read_to_string(exec.work.join("b")).unwrap(), "b");
}

#[test]
fn starter_policy_redirects_requests_to_tool_calls_and_runs_typed_commands() {
    let exec = begun();
    exec.write("a", "one\n");
    for (words, said) in [(&["ls", "a"][..], "a\n"), (&["cat", "a"], "one\n")] {
        let (answer, status) = exec.ask(&[&["--"], words].concat());
        assert_eq!((status, answer["data"]["stdout"].as_str()), (0, Some(said)), "{answer}");
        let request =
            json!({"tool": "shell", "operation": "execute_command", "arguments": {"command": words.join(" ")}})
                .to_string();
        let (answers, _) = exec.answers(&[], &request);
        assert_eq!(answers[0]["error"]["details"]["rule"], "intent", "{answers:?}");
        let (answers, _) = exec.answers(&["--origin", "person"], &request);
        assert_eq!(answers[0]["data"]["stdout"], said, "{answers:?}");
    }
    for words in ["ls", "ls -la", "uname -a", "whoami", "cat a b"] {
        let ask = |tool: &str| {
            let request =
                json!({"tool": tool, "operation": "execute_command", "arguments": {"command": words}}).to_string();
            exec.answers(&[], &request).0.remove(0)
        };
        let (whole, line) = (ask("shell"), ask("bash"));
        assert_eq!(whole["error"]["details"]["rule"], "intent", "{words}, with operands or without: {whole}");
        assert!(line["data"]["argv"].is_array() || line["error"]["details"]["argv"].is_array(), "{line}");
    }
    assert_eq!(exec.ask(&["--", "find", "a", "-delete"]).1, 5, "it is asked about");
}

#[test]
fn starter_policy_allows_all_unrestricted_programs() {
    let exec = begun();
    let policy = policy_of(&exec);
    assert!(policy.contains("allowed_commands = [\"*\"]\n"), "{policy}");
    assert!(policy.lines().all(|line| line.len() <= 160), "{policy}");
    exec.write("a", "one\n");
    assert!(exec.ask(&["--", "ls"]).0["data"]["stdout"].as_str().unwrap().starts_with("a\n"));
    for words in
        [&["sort", "a"][..], &["chmod", "+x", "a"], &["mktemp"], &["ps"], &["timeout", "5", "true"], &["sh", "a"]]
    {
        if std::path::Path::new("/usr/bin").join(words[0]).exists() {
            let rule = exec.ask(&[&["check", "--"], words].concat()).0["data"]["rule"].clone();
            assert!(rule != "not_allowed" && rule != "restricted", "{words:?}: {rule}");
        }
    }
    for name in ["sudo", "mount", "umount"] {
        assert_eq!(exec.ask(&["--", name]).1, 4, "{name}");
    }
    assert_eq!(exec.ask(&["--", "no-such-program"]).0["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn policy_init_adds_missing_values_to_project_after_confirmation() {
    cp_testkit::needs!("python3");
    let exec = Exec::with_policy(Who::Me, "# mine\n[exec]\nallowed_commands = [\"true\"] # one\npin = {}\n");
    exec.work.directory(".git");
    exec.write("main.py", "");
    let asked = ["policy", "init", "--for", "."];
    let shown = exec.ask(&[&asked[..], &["--dry-run"]].concat()).0["data"].clone();
    let change = &shown["preview"]["changes"][0];
    let added = change["after"]["difference"].as_str().unwrap();
    assert!(added.contains(&format!("+[project.\"{}\"]\n", exec.work.display())), "{shown}");
    assert!(added.contains("\n+execute = [\".\"]\n") && !added.contains("\n-"), "{shown}");
    assert_eq!((&change["action"], &change["resource"]), (&json!("edit"), &json!("file")), "{shown}");
    assert_eq!(exec.confirmed(&asked)["difference"], added);
    let after = policy_of(&exec);
    assert!(["# mine\n", "[\"true\"] # one\n"].iter().all(|kept| after.contains(kept)), "{after}");
    let policy = exec.ask(&["policy", "show"]).0["data"]["policy"].clone();
    let own = policy["project"][exec.work.to_str().unwrap()]["allowed_commands"].as_array().unwrap();
    assert!(["git", "python3"].iter().all(|name| own.contains(&json!(name))), "{policy}");
    assert!(!["*", "ls", "cargo"].iter().any(|name| own.contains(&json!(name))), "{policy}");
    assert_eq!(policy["exec"]["allowed_commands"], json!(["true"]), "the others are as before");
    let (again, status) = exec.ask(&asked);
    assert_eq!((status, &again["data"]["changed"]), (0, &json!(false)), "nothing is missing any more: {again}");
    assert_eq!(policy_of(&exec), after);
}

#[test]
fn policy_init_copies_no_project_text() {
    cp_testkit::needs!("npm");
    cp_testkit::needs!("python3");
    let evil = "x\"]\n[exec]\nallowed_commands = [\"evil\"] #";
    let exec = begun();
    let below = exec.work.join(evil);
    std::fs::create_dir(&below).unwrap();
    for name in ["package.json", "justfile", "a\"] evil.py", "evil\nrm.js"] {
        std::fs::write(below.join(name), format!("{{\"scripts\": {{\"{}\": \"x\"}}}}", evil.escape_debug())).unwrap();
    }
    let added = exec.confirmed(&["policy", "init", "--for", below.to_str().unwrap()]);
    assert_eq!(added["notes"][0], "python (*.py)", "{added}");
    assert!(!added["notes"].to_string().contains("evil"), "{added}");
    // The directory of the project is the name of its table.
    let (_, values) = added["difference"].as_str().unwrap().split_once("+[project.").unwrap();
    assert!(!values.split_once('\n').unwrap().1.contains("evil"), "{added}");
    let mut policy = exec.ask(&["policy", "show"]).0["data"]["policy"].clone();
    let tables = policy.as_object_mut().unwrap().remove("project").unwrap();
    assert_eq!(tables.as_object().unwrap().keys().collect::<Vec<_>>(), [&below.display().to_string()]);
    assert!(!policy.to_string().contains("evil"), "{policy}");
}

/// The answer of `--for` about Python in a project with this environment.
fn environment(make: impl Fn(&Path)) -> Value {
    let exec = begun();
    exec.write("main.py", "");
    exec.write(".venv/pyvenv.cfg", "home = /etc\n");
    exec.work.directory(".venv/bin");
    make(&exec.work);
    let mut data = exec.confirmed(&["policy", "init", "--for", "."]);
    let difference = data["difference"].as_str().unwrap();
    data["adds"] = difference.lines().filter(|line| line.starts_with('+')).collect::<String>().into();
    data
}

#[test]
fn virtual_environment_requires_known_interpreter() {
    let python = |work: &Path| symlink("/usr/bin/python3", work.join(".venv/bin/python3")).unwrap();
    cp_testkit::needs!("python3");
    let sound = environment(|work| {
        python(work);
        std::fs::write(work.join(".venv/bin/pytest"), "#!/x\n").unwrap();
    });
    assert!(!sound["notes"].to_string().contains("missing"), "the control: {sound}");
    assert!(!sound["adds"].to_string().contains(".venv"), "its programs run by their paths: {sound}");
    assert!(!sound["adds"].to_string().contains("/etc"), "its own description is not trusted: {sound}");

    for target in ["/bin/sh", "/etc/passwd", "../../python3", "../../main.py"] {
        let hostile = environment(|work| {
            std::fs::write(work.join("python3"), "#!/bin/sh\n").unwrap();
            symlink(target, work.join(".venv/bin/python3")).unwrap();
        });
        assert!(hostile["notes"][1].as_str().unwrap().contains(".venv"), "{target}: {hostile}");
        assert!(!hostile["adds"].to_string().contains(".venv"), "{target}: {hostile}");
    }
    let outside = environment(|work| {
        python(work);
        std::fs::rename(work.join(".venv"), work.join("../outside")).unwrap();
        symlink("../outside", work.join(".venv")).unwrap();
    });
    assert!(["outside", ".venv"].iter().all(|name| !outside["adds"].to_string().contains(name)), "{outside}");
}

#[test]
fn virtual_environment_in_directory_of_any_name_is_used() {
    cp_testkit::needs!("python3");
    let plain = |c: &char| c.is_ascii_alphanumeric() || "./".contains(*c);
    let printable: String = (' '..='~').filter(|c| *c != '/').collect();
    // The last name has them all.
    let special =
        printable.chars().filter(|c| !plain(c)).enumerate().filter(|(at, _)| cp_testkit::is_sampled(*at, 0, 3));
    let mut names: Vec<String> = special.map(|(_, c)| format!("a{c}b")).collect();
    names.extend(["-x", "~", "**", "<session_id>", "a\nb", "\t", "\u{7f}", "é", "日本", &printable].map(str::to_owned));
    let exec = Exec::without_policy();
    for name in names {
        let project = exec.work.at(&name);
        project.write("main.py", "import sys; print(sys.prefix)\n");
        project.write(".venv/pyvenv.cfg", "home = /usr/bin\n");
        symlink("/usr/bin/python3", project.directory(".venv/bin").join("python3")).unwrap();
        let asked = |arguments: &[&str]| exec.command(arguments).current_dir(&project).run();
        let begun = asked(&["policy", "init", "--for", "."]).success().data();
        assert!(!begun["notes"].to_string().contains("missing"), "{name:?}: {begun}");
        let prefix = asked(&["--", ".venv/bin/python3", "main.py"]).success().data()["stdout"].clone();
        assert_eq!(prefix, format!("{}\n", project.join(".venv").display()), "{name:?}");
        std::fs::remove_file(exec.home.join("config/policy.toml")).unwrap();
    }
}

#[test]
fn policy_init_ignores_links() {
    let exec = Exec::without_policy();
    exec.root.write("outside/Cargo.toml", "");
    for name in ["Cargo.toml", "go.mod"] {
        symlink("../outside/Cargo.toml", exec.work.join(name)).unwrap();
    }
    exec.write("Makefile", "");
    let found = exec.ask(&["policy", "init", "--for", "."]).0["data"]["notes"].clone();
    assert_eq!(found, json!(["make (Makefile)"]));
}

#[test]
fn policy_init_refuses_home_or_root_as_project() {
    let exec = Exec::without_policy();
    let home = format!("{}/.", exec.home.display());
    for directory in ["/", "/..", &home, exec.root.to_str().unwrap()] {
        let (answer, status) = exec.ask(&["policy", "init", "--for", directory]);
        assert_eq!((status, &answer["error"]["details"]["rule"]), (4, &json!("base")), "{directory}: {answer}");
    }
    assert_eq!(exec.ask(&["policy", "init", "--for", "nowhere"]).1, 3);
    assert_eq!(exec.ask(&["policy", "init", "--for", "."]).1, 0, "the control");
}

//! Rules about repositories are about the owner's, and not about those that a run makes.

use crate::exec::{Exec, everyone, rows};

const POLICY: &str = include_str!("data/policies/own-repositories.toml");

const MAKE: &str =
    "git init -q DIR && git -C DIR -c user.name=a -c user.email=b commit -q --allow-empty -m x && git -C DIR branch y";

/// Commands that rules about repositories are about. Each runs in a directory and may be repeated.
const COMMANDS: [&str; 8] = [
    "git branch -D y",
    "git checkout -q -B y",
    "git stash clear",
    "git update-ref -d refs/heads/y",
    "git reset -q --hard",
    "git clean -fdq",
    "rm -f .git/index",
    "rm -rf .git",
];

#[test]
fn rules_about_repositories_hold_for_those_of_the_owner() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.outside(&format!("cd {} && {}", exec.work.display(), MAKE.replace("DIR", "."))).run().success();
        for command in who.turns(COMMANDS) {
            for (through, form) in [("line", "COMMAND"), ("program", "perl -e 'exit(system(shift) >> 8)' \"COMMAND\"")]
            {
                for (place, is_own) in [("made", true), ("$TMPDIR/made", true), (".", false)] {
                    let make = if is_own { MAKE.replace("DIR", place) } else { "true".to_owned() };
                    let script = format!("rm -rf target; {make}; cd {place} && {}", form.replace("COMMAND", command));
                    let (answer, status) = exec.ask(&["-c", &script]);
                    let is_child_rule =
                        !(through == "program" && ["reset", "clean"].iter().any(|it| command.contains(it)));
                    let context = format!("{who:?} {through} {place} {command}: {answer}");
                    if is_own {
                        assert_eq!(status, 0, "{context}");
                    } else if is_child_rule {
                        assert_eq!(answer["error"]["code"], "E_HUMAN_REQUIRED", "{context}");
                    }
                    exec.outside(&format!("rm -rf {}/made", exec.work.display())).run();
                }
            }
        }
    }
}

#[test]
fn removal_of_a_directory_with_a_repository_is_about_its_history() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let make = |place: &str| MAKE.replace("DIR", place);
        exec.outside(&format!("cd {} && {} && mkdir plain", exec.work.display(), make("nested"))).run().success();
        for (line, code) in [
            ("rm -rf nested".to_owned(), "E_HUMAN_REQUIRED"),
            ("cd plain && rm -r ../nested/".to_owned(), "E_HUMAN_REQUIRED"),
            ("rm -rf plain".to_owned(), ""),
            (format!("{} && rm -rf made", make("made")), ""),
        ] {
            let (answer, _) = exec.ask(&["-c", &line]);
            assert_eq!(answer["error"]["code"].as_str().unwrap_or_default(), code, "{who:?} {line}: {answer}");
        }
    }
}

/// Ways to make a repository `old` in a run.
const WAYS: [&str; 4] = [
    "git init -q old",
    "git clone -q . old",
    "mkdir -p old/.git/objects old/.git/refs/heads && echo 'ref: refs/heads/main' >old/.git/HEAD && \
     printf '[core]\\n\\trepositoryformatversion = 0\\n' >old/.git/config",
    "git init -q --bare old",
];

/// What the owner does between the runs, outside, and whether the repository is a run's own afterwards.
const BETWEEN: &str = include_str!("data/git/between-runs.tsv");

#[test]
fn repository_of_an_earlier_run_is_of_runs_until_its_owner_changes_it() {
    const COMMIT: &str = "cd old && T=$(git hash-object -wt tree /dev/null) && git update-ref refs/heads/y \
                          $(git -c user.name=a -c user.email=b commit-tree -m x $T)";
    for who in everyone() {
        let most = |way: &str| if way == WAYS[0] { 7 } else { 2 };
        let cases = WAYS.into_iter().flat_map(|way| rows(BETWEEN).take(most(way)).map(move |row| (way, row)));
        for (way, [between, is_own]) in who.turns(cases) {
            let is_own = is_own == "true";
            let exec = Exec::with_policy(who, POLICY);
            let outside = |script: &str| {
                let identity = "export GIT_AUTHOR_NAME=o GIT_AUTHOR_EMAIL=o GIT_COMMITTER_NAME=o GIT_COMMITTER_EMAIL=o";
                exec.outside(&format!("cd {} && {identity} && {script}", exec.work.display())).run()
            };
            outside(&MAKE.replace("DIR", ".")).success();
            let (answer, status) = exec.ask(&["-c", &format!("{way} && {COMMIT}")]);
            let made = answer["data"]["enforcement"]["repositories_made"].as_array().map(Vec::len);
            assert_eq!((status, made), (0, Some(1)), "{who:?} {way}: {answer}");
            // A second run works in it.
            let (answer, status) = exec.ask(&[
                "-c",
                "cd old && git branch -D y && { git stash clear || [ -f HEAD ]; } && git config user.name x",
            ]);
            assert_eq!(status, 0, "{who:?} {way}: {answer}");
            assert_eq!(answer["data"]["enforcement"]["repositories_made"], serde_json::json!([]), "{answer}");
            outside(between).success();
            let context = format!("{who:?} {way}; {between}");
            let (answer, status) = exec.ask(&["-c", "cd old && git update-ref -d refs/heads/y"]);
            assert_eq!(status == 0, is_own, "{context}: {answer}");
            assert_eq!(answer["error"]["code"] == "E_HUMAN_REQUIRED", !is_own, "{context}: {answer}");
            let (answer, status) = exec.ask(&["-c", "rm -rf old && git init -q old"]);
            assert_eq!(status == 0, is_own, "{context}: {answer}");
            // The control: the repository of the owner beside it.
            let (answer, _) = exec.ask(&["-c", "git branch -D y"]);
            assert_eq!(answer["error"]["code"], "E_HUMAN_REQUIRED", "{context}: {answer}");
        }
    }
}

/// What becomes of a line: with a name in `network`, and without.
const PUSHES: &str = include_str!("data/git/pushes.tsv");

#[test]
fn push_asks_where_it_reaches_others_or_overwrites_history_of_the_owner() {
    for (who, network) in everyone().into_iter().flat_map(|who| ["\"example.com\"", ""].map(|network| (who, network))) {
        let exec = Exec::with_policy(who, &POLICY.replace("[paths]", &format!("network = [{network}]\n[paths]")));
        let owner = "git init -q --bare other.git; git remote add origin https://example.com/x; git remote add other ./other.git";
        exec.outside(&format!("cd {} && {} && {owner}", exec.work.display(), MAKE.replace("DIR", "."))).run().success();
        let make = MAKE.replace("DIR", "$TMPDIR/a");
        let make = format!(
            "{make} && mkdir made && git init -q --bare $TMPDIR/b && git init -q --bare made/b && \
             git clone -q $TMPDIR/a $TMPDIR/x && {} && git clone -q made/o made/x",
            MAKE.replace("DIR", "made/o")
        );
        for [push, with_name, without] in who.turns(rows(PUSHES)) {
            let (answer, status) = exec.ask(&["-c", &format!("{make} && {push}")]);
            let asked = answer["error"]["code"] == "E_HUMAN_REQUIRED";
            let found = if asked { "asked" } else { ["done", "failed"][usize::from(status != 0)] };
            let expected = if network.is_empty() { without } else { with_name };
            assert_eq!(found, expected, "{who:?} [{network}] {push}: {answer}");
            exec.outside(&format!("cd {} && rm -rf made && git worktree prune", exec.work.display())).run().success();
        }
    }
}

//! Rules about repositories are about the owner's, and not about those that a run makes.

use crate::exec::{Exec, everyone};

const POLICY: &str = r#"
[exec]
allowed_commands = ["sh", "git", "rm", "perl", "mkdir", "env", "true"]
intent = "off"
[paths]
read = ["."]
write = ["."]
"#;

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
        for command in COMMANDS {
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
fn push_asks_unless_the_run_made_the_remote() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let owner = "git init -q --bare other.git; git remote add origin https://example.com/x; git remote add other ./other.git";
        exec.outside(&format!("cd {} && {} && {owner}", exec.work.display(), MAKE.replace("DIR", "."))).run().success();
        let make = MAKE.replace("DIR", "$TMPDIR/a");
        for (push, is_own) in [
            ("cd $TMPDIR/a && git push -q $TMPDIR/b HEAD:z", true),
            ("cd $TMPDIR/a && git push -q -f ../b HEAD:z", true),
            ("git push $TMPDIR/b HEAD:z", false),
            ("git push", false),
            ("git push origin HEAD", false),
            ("git push other HEAD", false),
            ("git push ./other.git HEAD", false),
            ("cd $TMPDIR/a && git push https://example.com/x HEAD", false),
            ("cd $TMPDIR/a && git push x:y HEAD", false),
            ("cd $TMPDIR/a && git push $OLDPWD/other.git HEAD", false),
            ("cd $TMPDIR/a && GIT_DIR=$OLDPWD/.git git push $TMPDIR/b HEAD", false),
        ] {
            let (answer, status) = exec.ask(&["-c", &format!("{make} && git init -q --bare $TMPDIR/b && {push}")]);
            let asked = answer["error"]["code"] == "E_HUMAN_REQUIRED";
            assert_eq!((status == 0, asked), (is_own, !is_own), "{who:?} {push}: {answer}");
        }
    }
}

//! A machine without the programs of `tests/programs.tsv`: no test fails there, and each that needs one says so.

use std::time::Duration;

use cp_testkit::{Outcome, Place, repository, required};

/// Hides the programs from the command that follows, in a mount namespace of its own.
const HIDE: &str = r#"
grep -v '^#' "$0/tests/programs.tsv" | cut -f 1 | while read -r program; do
    IFS=:
    for directory in /usr/local/bin:/usr/bin:/bin:$PATH; do
        [ ! -f "$directory/$program" ] || mount --bind /dev/null "$directory/$program" || exit
    done
done
cd "$0/tests" && exec "$@"
"#;

/// Tests that take some ten seconds together. All others take several minutes.
const SAMPLE: [&str; 3] = ["completions::", "cp_ask::proposals::", "toolloop::"];

/// Runs a command in which tests run.
fn without_programs(command: &[&str]) -> Outcome {
    let (place, repository) = (Place::new(), repository());
    let words = ["-m", "sh", "-c", HIDE, repository.to_str().unwrap()];
    let command = place.program("unshare").args(words).args(command).limit(Duration::from_mins(20));
    // Cargo finds its home and its settings by the variables of whoever runs this.
    let command =
        std::env::vars_os().fold(command, |command, (name, value)| command.env(name.to_str().unwrap(), value));
    command.env("CP_COUNTERPARTS_DIR", "/nowhere").without_env("CI").without_env("CP_COUNTERPARTS").run()
}

#[test]
fn no_test_fails_without_programs_that_it_can_name() {
    if !required("the rights of root", rustix::process::geteuid().is_root()) {
        return;
    }
    let test = std::env::current_exe().unwrap();
    let is_long = cp_testkit::is_long();
    let own: [&[&str]; 2] =
        [&[test.to_str().unwrap(), "--show-output", "--skip", "programs::"], if is_long { &[] } else { &SAMPLE }];
    let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
    // With the features of scripts/test, which has built it.
    let other = [&cargo, "test", "--workspace", "--test", "cp-log", "page::", "--", "--show-output"];
    for command in [&own.concat()[..], &other] {
        let ran = without_programs(command);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(ran.stdout.contains("\nnot run: needs "), "{ran:?}");
    }
}

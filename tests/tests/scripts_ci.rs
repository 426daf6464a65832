//! The files by which GitHub and pre-commit find `scripts/ci`, whose own tests are `tests/transcripts/ci.txt`.

use cp_testkit::{Outcome, Place, repository};

/// Runs a script in which `CI` is the directory of the scripts.
fn git(place: &Place, script: &str) -> Outcome {
    place.shell("sh", script).env("CI", repository().join("scripts/ci")).run()
}

#[test]
fn a_release_is_installed_where_its_hash_is_the_one_that_was_named() {
    cp_testkit::needs!("curl");
    let place = Place::new();
    place.work.executable("cp-tools-1/bin/cp-log", "#!/bin/sh\necho installed\n");
    let install = |hash: &str| {
        git(
            &place,
            &format!(
                "tar -czf a.tar.gz cp-tools-1; PATH=/usr/local/bin:/usr/bin:/bin RUNNER_TEMP=$PWD/t GITHUB_PATH=$PWD/path $CI/install file://$PWD/a.tar.gz {hash} && $(cat path)/cp-log"
            ),
        )
    };
    place.work.directory("t");
    let wrong = install(&"0".repeat(64));
    assert!(wrong.status != 0 && !place.work.join("path").exists(), "{}", wrong.stdout);
    let right = install("$(sha256sum a.tar.gz | cut -c1-64)");
    assert_eq!((right.status, right.stdout.as_str()), (0, "installed\n"), "{}", right.stderr);
    assert_eq!(install("").status, 4);
    assert_eq!(git(&place, "$CI/install").status, 0, "the programs are there");
}

#[test]
fn the_steps_of_the_action_run_and_the_hook_is_there() {
    let place = Place::new();
    place.work.write("findings", r#"{"content":"{\"items\":[{\"file\":\"new\",\"line\":1,\"problem\":\"bad\"}]}"}"#);
    git(
        &place,
        "git init -q -b main . && git config user.name me && git config user.email me@localhost
        git commit -q --allow-empty -m first && git checkout -qb change && echo port=80 > new && git add new && git commit -qm new",
    );
    let action = std::fs::read_to_string(repository().join("action.yml")).unwrap();
    let steps = action.lines().filter_map(|line| line.trim().strip_prefix("run: '")?.strip_suffix('\''));
    let statuses: Vec<i32> = steps
        .map(|step| {
            let step = place.shell("sh", step).env("GITHUB_ACTION_PATH", repository()).env("BASE", "main");
            let step = step.env("ARCHIVE", "").env("SHA256", "").env("MODEL", "any").env("TOKENS", "100000");
            step.env("CP_BACKEND", "stub").env("CP_STUB_SCRIPT", "findings").run().status
        })
        .collect();
    assert_eq!(statuses, [0, 0, 1]);
    let hooks = std::fs::read_to_string(repository().join(".pre-commit-hooks.yaml")).unwrap();
    let entry = hooks.lines().find_map(|line| line.trim().strip_prefix("entry: ")).unwrap();
    assert_eq!(git(&place, &format!("{}", repository().join(entry).display())).status, 0);
}

//! `scripts/ci`, and the files by which GitHub and pre-commit find them.

use cp_testkit::{Outcome, Place, repository};

const SECRET: &str = "password=hunter2hunter\n";

/// A repository with one commit, and the hook.
fn repository_with_hook() -> Place {
    let place = Place::new();
    place.work.write(".gitattributes", "*.crypt filter=plain\n");
    let made = git(
        &place,
        "git init -q -b main . && git config user.name me && git config user.email me@localhost
        git config filter.plain.smudge 'echo password=hunter2hunter #' && git config filter.plain.clean 'echo sealed #'
        git add . && git commit -qm first && ln -s \"$CI/scan\" .git/hooks/pre-commit",
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
    place
}

/// Runs a script in which `CI` is the directory of the scripts.
fn git(place: &Place, script: &str) -> Outcome {
    place.shell("sh", script).env("CI", repository().join("scripts/ci")).run()
}

#[test]
fn a_commit_is_refused_for_what_is_staged_and_for_nothing_else() {
    let place = repository_with_hook();
    // The working tree has a secret, what is staged has none; what a filter takes out is not committed.
    let clean = git(
        &place,
        "echo port=80 > 'a b' && git add . && echo password=hunter2hunter >> 'a b' && echo x > s.crypt && git add s.crypt && git commit -qm clean",
    );
    assert_eq!(clean.status, 0, "{}{}", clean.stdout, clean.stderr);
    assert_eq!(git(&place, "git rm -q s.crypt && git commit -qm gone").status, 0);

    let name = "two\nlines: 50%, yes";
    place.work.write(name, format!("port=80\n{SECRET}"));
    place.work.write("0:a b", SECRET);
    let refused = git(&place, "git add . && rm 0* two* && git checkout -q -- 'a b' && git commit -qm secret");
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    let said = refused.stdout + &refused.stderr;
    for place in ["0:a b:1:10: assignment", "a b:2:10: assignment", "two?lines: 50%, yes:2:10: assignment"] {
        assert!(said.contains(place), "{place}: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    assert_eq!(git(&place, "git log --oneline | wc -l").stdout, "3\n");

    let annotated = git(&place, "GITHUB_ACTIONS=true $CI/scan");
    let expected = "::error file=two%0Alines%3A 50%25%2C yes,line=2,col=10::secret: assignment\n";
    assert!(annotated.status == 1 && annotated.stdout.ends_with(expected), "{}", annotated.stdout);
}

#[test]
fn what_is_not_scanned_is_refused() {
    let place = repository_with_hook();
    let staged = "echo port=80 > a && git add a && ";
    let without = git(&place, &format!("{staged} PATH=/usr/local/bin:/usr/bin:/bin $CI/scan"));
    assert_eq!(without.status, 127, "{}", without.stderr);
    place.root.executable("bin/cp-log", "#!/bin/sh\nexit 3\n");
    let failing = git(&place, &format!("{staged} PATH=../bin:$PATH $CI/scan"));
    assert_eq!((failing.status, failing.stdout.as_str()), (1, "a:0:0: cannot be scanned\n"), "{}", failing.stderr);
    assert_eq!(git(&place, "$CI/scan nowhere").status, 128);
    assert_eq!(git(&place, "$CI/scan").status, 0);
}

#[test]
fn a_branch_is_compared_with_what_it_left() {
    let place = repository_with_hook();
    place.work.write("old", SECRET);
    let script = "git add . && git commit -qnm old && git checkout -qb change && echo port=80 > new && git add . && git commit -qm new && $CI/scan main";
    let clean = git(&place, script);
    assert_eq!(clean.status, 0, "{}{}", clean.stdout, clean.stderr);
    let moved =
        "git checkout -q main && git rm -q old && git commit -qnm gone && git checkout -q change && $CI/scan main";
    assert_eq!(git(&place, moved).status, 0, "what only main changed is not looked at");
    place.work.write("new", SECRET);
    let found = git(&place, "git commit -qnam secret && rm new && $CI/scan main");
    assert_eq!((found.status, found.stdout.as_str()), (1, "new:1:10: assignment\n"), "{}", found.stderr);
}

#[test]
fn a_review_fails_for_findings_and_for_a_model_that_does_not_answer() {
    let place = repository_with_hook();
    place.work.write(
        "findings",
        r#"{"content":"{\"items\":[{\"file\":\"a,b\",\"line\":1,\"problem\":\"bad\\n::set-env name=X::100%\"}]}"}"#,
    );
    place.work.write("none", r#"{"content":"{\"items\":[]}"}"#);
    place.work.write("down", r#"{"error":{"code":"E_AUTH","message":"no key"}}"#);
    place.work.write("cut", r#"{"content":"{\"items\":[]}","stop_reason":"max_tokens"}"#);
    place.work.write("new", SECRET);
    let review = |model: &str, before: &str| {
        git(&place, &format!("{before} $CI/review main --backend stub --stub-script {model} --budget-tokens 100000"))
    };
    git(&place, "git checkout -qb change");
    assert_eq!(review("findings", "").status, 0, "nothing was changed, nobody is asked");
    git(&place, "git add new && git commit -qnm new");

    let found = review("findings", "");
    assert_eq!((found.status, found.stdout.as_str()), (1, "a,b:1: bad?::set-env name=X::100%\n"), "{}", found.stderr);
    let annotated = review("findings", "GITHUB_ACTIONS=true");
    assert_eq!(annotated.stdout, "::error file=a%2Cb,line=1::bad%0A::set-env name=X::100%25\n");
    assert_eq!((review("none", "").status, review("none", "").stdout.as_str()), (0, ""));
    assert_eq!((review("down", "").status, review("cut", "").status), (4, 2));
    let sent = git(&place, "$CI/review main --backend stub --stub-script none --record tape && cat tape").stdout;
    assert!(sent.contains("REDACTED") && !sent.contains("hunter2"), "{sent}");
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
    let place = repository_with_hook();
    place.work.write("findings", r#"{"content":"{\"items\":[{\"file\":\"new\",\"line\":1,\"problem\":\"bad\"}]}"}"#);
    git(&place, "git checkout -qb change && echo port=80 > new && git add new && git commit -qnm new");
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

#[test]
fn replay_fails_at_the_first_difference_of_a_prompt() {
    let place = Place::new();
    let prompt = "#!/bin/sh\nexec cp-compose -s \"$(cat system.md)\" -- 'What time is it?'\n";
    place.work.executable("runs/time.prompt", prompt);
    place.work.write("system.md", "Be brief.\nBe exact.\n");
    let replay = |more: &str| git(&place, &format!("CP_BACKEND=stub $CI/replay {more} runs"));
    assert_eq!(replay("--record").status, 0);
    // Another home, as in CI, and no backend.
    assert_eq!(git(&place, "CP_HOME=$PWD/elsewhere $CI/replay runs").status, 0);
    place.work.write("system.md", "Be brief.\nBe kind.\n");
    let changed = replay("");
    let expected = "runs/time.prompt: /system: line 2: recorded \"Be exact.\", now \"Be kind.\"\n";
    assert_eq!((changed.status, changed.stdout.as_str()), (1, expected), "{}", changed.stderr);
    place.work.write("system.md", "Be brief.\nBe exact.\n");
    // The tools are part of the request.
    place.work.write("runs/time.options", "--allow\nsystem\n");
    let fewer = replay("");
    assert!(fewer.status == 1 && fewer.stdout.contains("/tools/bash"), "{}{}", fewer.stdout, fewer.stderr);
    place.work.write("runs/time.options", "");
    assert_eq!(replay("").status, 0);
    let recording = place.work.read("runs/time.jsonl").replace("stub response", "another response");
    place.work.write("runs/time.jsonl", recording);
    let modified = replay("");
    assert!(modified.status == 1 && modified.stdout.contains("E_INTEGRITY"), "{}{}", modified.stdout, modified.stderr);
}

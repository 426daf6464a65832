//! What a newcomer meets: help that shows the whole program, and no word in it that one cannot type.

use cp_testkit::{PROGRAMS, Place};
use cp_tests::{check_contract, verbs_of};

/// The lines of a page below a heading, up to the next empty one.
fn below<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    page.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.is_empty()).collect()
}

#[test]
fn help_of_every_verb_has_its_usage_and_options_and_lists_every_verb() {
    for program in PROGRAMS {
        let place = Place::new();
        let help = |words: &str| place.sh(&format!("{words} --help")).success().stdout;
        let page = help(program);
        let shared = below(&page, "Options of every program:");
        assert!(shared.iter().filter(|line| line.contains("--")).count() >= 11, "{program}: {page}");
        for verb in verbs_of(program) {
            let is_listed = page
                .lines()
                .any(|line| line.strip_prefix("  ").is_some_and(|line| line.split("  ").next() == Some(verb.path())));
            assert!(is_listed || verb.path().is_empty(), "{verb:?} is not in\n{page}");
            let words = verb.words();
            let page = help(&words);
            assert!(page.lines().any(|line| line.starts_with(&format!("Usage: {words} [OPTIONS]"))), "{words}: {page}");
            assert!(page.contains("\nExamples:\n  "), "{words}");
            for line in [page.lines().next(), page.lines().last()].into_iter().flatten() {
                assert!(line.len() <= 80, "{words}: {line}");
            }
            let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("  ")).collect();
            let shown: Vec<&str> = shown.iter().flat_map(|line| line.split([' ', ',', '<', '>', '[', ']'])).collect();
            let missing: Vec<&str> = verb.names("name").filter(|name| !shown.contains(name)).collect();
            assert!(missing.is_empty(), "{words}: {missing:?} is not in\n{page}");
        }
    }
}

#[test]
fn a_word_that_is_no_verb_is_a_text() {
    let place = Place::new();
    let two = place.sh("cp-llm --backend stub send hello");
    check_contract(&two);
    assert!(two.closing()["error"]["message"].as_str().unwrap().contains("two texts"), "{}", two.stdout);
    let one = place.sh("cp-llm --backend stub send");
    assert_eq!(one.closing()["data"]["input"][0]["content"], "send");
}

#[test]
fn the_customary_words_for_help_and_version_are_not_sent_anywhere() {
    for program in PROGRAMS {
        let place = Place::new();
        let page = place.sh(&format!("{program} --help")).stdout;
        assert_eq!(place.sh(&format!("{program} help")).success().stdout, page);
        assert_eq!(
            place.sh(&format!("{program} help doctor")).stdout,
            place.sh(&format!("{program} doctor --help")).stdout
        );
        assert_eq!(
            place.sh(&format!("{program} version")).success().stdout,
            place.sh(&format!("{program} --version")).stdout
        );
        let update = place.sh(&format!("{program} update"));
        check_contract(&update);
        // cp-shell updates them all, but no build that nobody installed.
        let code = if program == "cp-shell" { "E_CONFIG" } else { "E_USAGE" };
        assert_eq!(update.closing()["error"]["code"], code, "{program}");
    }
    let sent = Place::new().sh("cp-llm --backend stub -- help");
    assert_eq!(sent.closing()["data"]["input"][0]["content"], "help", "after the dashes it is data");
}

#[test]
fn nothing_to_do_at_a_terminal_is_help_and_elsewhere_an_error_that_names_the_verbs() {
    for program in PROGRAMS.into_iter().filter(|program| *program != "cp-shell") {
        let mut terminal = Place::new().program(program).terminal(120);
        terminal.wait_for("Usage: ");
        assert_eq!(terminal.end(), Some(2), "{program}");
        assert!(!terminal.text().contains("\"ok\""), "{program}: {}", terminal.text());
    }
    for line in ["cp-log", "cp-session", "cp-exec policy"] {
        let ran = Place::new().sh(&format!("{line} </dev/null"));
        check_contract(&ran);
        let error = &ran.closing()["error"];
        assert_eq!(error["code"], "E_USAGE", "{line}");
        assert!(error["details"]["verbs"].as_array().is_some_and(|verbs| verbs.len() >= 2), "{line}: {error}");
    }
}

#[test]
fn a_failure_at_a_terminal_is_said_once_in_words() {
    for program in PROGRAMS {
        let place = Place::new();
        let mut terminal = place.program(program).arg("--wrong").terminal(120);
        assert_eq!(terminal.end(), Some(2), "{program}");
        let text = terminal.text();
        assert!(text.starts_with("✗ unexpected argument '--wrong' found\n"), "{program}: {text}");
        assert!(!text.contains("\"ok\""), "{program}: {text}");
    }
    let shown = |line: &str| {
        let place = Place::new();
        let mut terminal = place.shell("sh", line).terminal(120);
        terminal.end();
        terminal.text()
    };
    // Of a verb, too.
    let failure = shown("cp-session show none");
    assert!(failure.starts_with("✗ no session `none`\n") && !failure.contains("\"ok\""), "{failure}");
    for line in ["cp-session show none --json", "cp-session show --wrong --json", "CP_FORMAT=json cp-log --wrong"] {
        assert!(shown(line).contains("{\"ok\":false"), "{line}: {}", shown(line));
    }
}

#[test]
fn every_program_writes_text_at_terminal() {
    for line in
        ["cp-shell init", "cp-shell config get tier", "cp-log doctor", "cp-session list", "cp-llm --backend stub hi"]
    {
        let shown = |line: &str| {
            let place = Place::new();
            let mut terminal = place.shell("sh", line).terminal(120);
            assert_eq!(terminal.end(), Some(0), "{line}: {}", terminal.text());
            terminal.text()
        };
        assert!(!shown(line).contains("\"ok\""), "{line}: {}", shown(line));
        let asked = shown(&format!("{line} --format json"));
        assert!(asked.starts_with("{\"ok\":true"), "{asked}");
        check_contract(&Place::new().sh(line));
    }
}

#[test]
fn options_after_first_operand_belong_to_command() {
    let place = Place::new();
    place.sh("cp-exec policy init").success();
    for line in ["cp-exec echo -n --help", "cp-exec --timeout 5s echo -n --help", "cp-exec -- echo -n --help"] {
        let ran = place.sh(line).success();
        assert_eq!(ran.closing()["data"]["stdout"], "--help", "{line}");
    }
    for line in ["head -n 1 --version", "cat --version", "sort --help"] {
        let ran = place.sh(&format!("cp-exec {line}")).success();
        let printed = ran.closing()["data"]["stdout"].as_str().unwrap().to_owned();
        assert!(!printed.is_empty() && !printed.starts_with("cp-exec"), "{line}: {printed}");
    }
    let hint = place.sh("cp-exec -c echo hi").closing()["error"]["details"]["hint"].clone();
    assert!(hint.as_str().unwrap().starts_with("quote a command line as one word"), "{hint}");
}

#[test]
fn misspelt_verb_is_not_sent_to_a_model() {
    let place = Place::new();
    for (program, word) in [("cp-llm", "modles"), ("cp-toolloop", "resum"), ("cp-compose", "dotcor")] {
        let ended = |words: &[&str]| {
            let mut terminal = place.program(program).args(words).env("CP_BACKEND", "stub").terminal(80);
            (terminal.end(), terminal.text())
        };
        let (status, text) = ended(&[word]);
        assert!(status == Some(2) && text.contains("is close to the verb"), "{program} {word}: {status:?} {text}");
        let (status, text) = ended(&[word, "X"]);
        assert!(status == Some(2) && text.contains("is close to the verb"), "{program} {word} X: {status:?} {text}");
        for words in [&["--", word][..], &["list the files"], &["listing"]] {
            let (status, text) = ended(words);
            assert_eq!(status, Some(0), "{program} {words:?}: {text}");
        }
        assert_eq!(place.sh(&format!("CP_BACKEND=stub {program} {word} </dev/null")).status, 2, "{program} {word}");
    }
}

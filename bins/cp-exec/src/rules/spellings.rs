//! Property tests: every spelling of an option leads to the same rule.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::arguments::Arguments;
use super::judge::{Places, of_data};

/// An option of a command, and the rule that applies because of it.
struct Meaning {
    command: &'static str,
    /// Letters without a value, which may precede the letter in a cluster.
    flags: &'static str,
    letter: &'static str,
    long: &'static str,
    /// The shortest abbreviation of the long option that the program accepts.
    least: &'static str,
    value: &'static str,
    operands: &'static str,
    rule: &'static str,
}

const fn meaning(
    (command, flags): (&'static str, &'static str),
    (letter, long, least, value): (&'static str, &'static str, &'static str, &'static str),
    operands: &'static str,
    rule: &'static str,
) -> Meaning {
    Meaning { command, flags, letter, long, least, value, operands, rule }
}

static MEANINGS: [Meaning; 14] = [
    meaning(("git push", "vq"), ("f", "force", "forc", ""), "origin main", "git.force_push"),
    meaning(("git push", "vq"), ("d", "delete", "de", ""), "origin main", "git.force_push"),
    meaning(("git push", "vq"), ("", "mirror", "mi", ""), "origin", "git.force_push"),
    meaning(("git branch", "vq"), ("D", "", "", ""), "x", "git.reference"),
    meaning(("git branch", "vq"), ("u", "set-upstream-to", "set-upstream-", "x"), "", "git.config"),
    meaning(("git tag", ""), ("d", "delete", "de", ""), "x", "git.reference"),
    meaning(("git checkout", "q"), ("f", "force", "fo", ""), "", "git.discard"),
    meaning(("git switch", "q"), ("", "discard-changes", "dis", ""), "main", "git.discard"),
    meaning(("git reset", "q"), ("", "hard", "har", ""), "HEAD", "git.discard"),
    meaning(("git rm", "rq"), ("f", "force", "f", ""), "a", "git.discard"),
    meaning(("git gc", "q"), ("", "prune", "pr", ""), "", "git.history"),
    meaning(("git -C sub config", "z"), ("", "unset", "unset", ""), "a.b", "git.config"),
    meaning(("npm install", ""), ("g", "global", "global", ""), "x", "npm.global"),
    meaning(("gh api", "i"), ("X", "method", "method", "DELETE"), "x", "github"),
];

/// Spells the option: by letter or name, complete or abbreviated, with the value attached or separate, alone or in a
/// cluster.
fn spell(meaning: &Meaning, way: u8, length: Index) -> Vec<String> {
    let Meaning { flags, letter, long, least, value, .. } = meaning;
    let name = &long[..least.len() + length.index(long.len() - least.len() + 1)];
    let flags = &flags[..length.index(flags.len() + 1)];
    let by_letter = !letter.is_empty() && (long.is_empty() || way % 4 < 2);
    match (by_letter, value.is_empty(), way % 2) {
        (true, true, _) => vec![format!("-{flags}{letter}")],
        (true, false, 0) => vec![format!("-{flags}{letter}"), (*value).to_owned()],
        (true, false, _) => vec![format!("-{flags}{letter}{value}")],
        (false, true, _) => vec![format!("--{name}")],
        (false, false, 0) => vec![format!("--{name}"), (*value).to_owned()],
        (false, false, _) => vec![format!("--{name}={value}")],
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_ascii_whitespace().map(str::to_owned)
}

/// The ids of the rules that apply to a command line.
fn rules(argv: &[String]) -> Vec<String> {
    let places = Places { cwd: Path::new("/project"), project: Path::new("/project"), home: "/home/me" };
    of_data(&Arguments::read(argv), &places, |_| true).map(|finding| finding.rule).collect()
}

/// Options of git that come before its command, each with and without an attached value.
const GLOBAL: &str = "-v | -h | -p | -P | -C D | -CD | -C -D | -c a.b=f | -c a.b | --attr-source x | --attr-source=x \
    | --bare | --config-env=a.b=E | --exec-path | --exec-path=D | --git-dir D | --git-dir=D \
    | --glob-pathspecs | --html-path | --icase-pathspecs | --literal-pathspecs | --namespace D \
    | --namespace=D | --no-advice | --no-lazy-fetch | --no-optional-locks | --no-pager \
    | --no-replace-objects | --paginate | --work-tree D | --work-tree=D";

#[test]
fn options_before_a_command_of_git_change_no_rule() {
    let examples = super::data::rules_of("git").flat_map(|rule| rule.examples.iter().chain(&rule.counterexamples));
    let mut matched = 0;
    for example in examples {
        let argv: Vec<String> = words(example).collect();
        let expected = rules(&argv);
        matched += usize::from(!expected.is_empty());
        for option in GLOBAL.split(" | ") {
            let argv: Vec<String> = ["git"]
                .into_iter()
                .chain(option.split(' '))
                .map(str::to_owned)
                .chain(argv[1..].iter().cloned())
                .collect();
            assert_eq!(rules(&argv), expected, "{argv:?}");
        }
    }
    // The control: among the commands are those of rules, and the same letters have their meaning after a command.
    assert!(matched > 60 && !rules(&["git", "branch", "-C", "x"].map(str::to_owned)).is_empty(), "{matched}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_spelling_of_an_option_matches_the_same_rule(
        at in 0..MEANINGS.len(), way: u8, length: Index, last: bool,
    ) {
        let meaning = &MEANINGS[at];
        let option = spell(meaning, way, length);
        let mut argv: Vec<String> = words(meaning.command).collect();
        // Options may follow operands.
        let at = argv.len();
        argv.extend(words(meaning.operands));
        let at = if last { argv.len() } else { at };
        argv.splice(at..at, option);
        prop_assert!(rules(&argv).iter().any(|rule| rule == meaning.rule), "{argv:?}");
        // The control: without the option the rule does not apply.
        let without: Vec<String> = words(meaning.command).chain(words(meaning.operands)).collect();
        prop_assert!(!rules(&without).iter().any(|rule| rule == meaning.rule), "{without:?}");
    }

    #[test]
    fn arguments_of_random_words_do_not_panic(
        first in select(&["git", "npm", "tar", "sed", "python3", "cargo", "busybox", "gh", "find", "x"][..]),
        rest in proptest::collection::vec("[-+=a-zA-Z0-9é]{0,6}", 0..6),
    ) {
        let argv: Vec<String> = std::iter::once(first.to_owned()).chain(rest).collect();
        rules(&argv);
        let arguments = Arguments::read(&argv);
        arguments.possible_paths().count();
        prop_assert!((arguments.options(false).len() + arguments.operands().len()) <= argv.iter().map(|word| word.len() + 1).sum::<usize>());
    }
}

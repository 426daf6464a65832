//! However an option is spelt, it is the same option to the rules.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::table::in_table;
use crate::arguments::{Arguments, Inner};

/// What comes first, flags that may stand in one cluster with the letter, the letter, the long name and its shortest beginning,
/// the value, what comes last, and the rule.
type Meaning =
    (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const MEANINGS: [Meaning; 17] = [
    ("sort", "ubn", "o", "output", "o", "x", "a", "sort.program"),
    ("sort", "un", "", "compress-program", "co", "x", "a", "sort.program"),
    ("split", "de", "", "filter", "f", "x", "a", "split.filter"),
    ("tar", "cvz", "I", "use-compress-program", "use-", "x", "-f a b", "tar.program"),
    ("tar", "xv", "", "to-command", "to-c", "x", "-f a b", "tar.program"),
    ("tar", "xv", "F", "info-script", "inf", "x", "-f a b", "tar.program"),
    ("install", "sv", "", "strip-program", "strip-p", "x", "a b", "install.program"),
    ("git push", "vq", "f", "force", "forc", "", "origin main", "git.force_push"),
    ("git push", "vq", "d", "delete", "de", "", "origin main", "git.force_push"),
    ("git push", "vq", "", "mirror", "mi", "", "origin", "git.force_push"),
    ("git branch", "vq", "d", "delete", "de", "", "x", "git.delete_branch"),
    ("git tag", "", "d", "delete", "de", "", "x", "git.delete_branch"),
    ("git checkout", "q", "f", "force", "fo", "", "", "git.discard"),
    ("git switch", "q", "", "discard-changes", "dis", "", "main", "git.discard"),
    ("git rebase", "qv", "x", "exec", "ex", "id", "main", "git.exec"),
    ("git rm", "rq", "f", "force", "f", "", "a", "git.discard"),
    ("mawk", "", "W", "exec", "ex", "x", "", "awk.options"),
];

/// Wrappers, with an option that takes a value, and what comes before the command.
const WRAPPERS: [(&str, &str, &str, &str, &str, &str); 15] = [
    ("env", "iv0", "u", "unset", "u", ""),
    ("nice", "", "n", "adjustment", "a", ""),
    ("timeout", "v", "k", "kill-after", "k", "5"),
    ("timeout", "v", "s", "signal", "s", "5"),
    ("stdbuf", "", "o", "output", "o", ""),
    ("stdbuf", "", "e", "error", "e", ""),
    ("xargs", "0rt", "n", "max-args", "max-a", ""),
    ("xargs", "0rt", "P", "max-procs", "max-p", ""),
    ("xargs", "0rt", "a", "arg-file", "a", ""),
    ("xargs", "0rt", "", "process-slot-var", "p", ""),
    ("flock", "sn", "w", "timeout", "t", "lock"),
    ("flock", "sn", "E", "conflict-exit-code", "con", "lock"),
    ("ionice", "t", "n", "classdata", "classd", ""),
    ("time", "apv", "o", "output", "o", ""),
    ("time", "apv", "f", "format", "f", ""),
];

/// An option in every way it can be written: by its letter or its name, in full or not, its value attached or not, in a cluster.
fn spelt(flags: &str, letter: &str, name: &str, least: &str, value: &str, way: u8, length: Index) -> Vec<String> {
    let name = &name[..least.len() + length.index(name.len() - least.len() + 1)];
    let flags = &flags[..length.index(flags.len() + 1)];
    match (way % 4, letter.is_empty(), value.is_empty()) {
        (0, false, true) => vec![format!("-{flags}{letter}")],
        (0, false, false) => vec![format!("-{flags}{letter}"), value.to_owned()],
        (1, false, _) => vec![format!("-{flags}{letter}{value}")],
        (_, _, true) => vec![format!("--{name}")],
        (2, _, _) => vec![format!("--{name}"), value.to_owned()],
        _ => vec![format!("--{name}={value}")],
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_ascii_whitespace().map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_spelling_of_an_option_is_decided_by_the_same_rule(
        meaning in select(&MEANINGS[..]), way: u8, length: Index, last: bool,
    ) {
        let (first, flags, letter, name, least, value, rest, rule) = meaning;
        let option = spelt(flags, letter, name, least, value, way, length);
        let mut argv: Vec<String> = words(first).collect();
        // Options may come behind operands.
        if last && !rest.is_empty() {
            argv.extend(words(rest));
            argv.extend(option);
        } else {
            argv.extend(option);
            argv.extend(words(rest));
        }
        let found = in_table(&Arguments::read(&argv)).rule;
        prop_assert_eq!(found, rule, "{:?}", argv);
    }

    #[test]
    fn every_spelling_of_a_wrappers_option_leaves_the_same_command(
        wrapper in select(&WRAPPERS[..]), way: u8, length: Index, ended: bool,
    ) {
        let (first, flags, letter, name, least, before) = wrapper;
        let mut argv = vec![first.to_owned()];
        argv.extend(spelt(flags, letter, name, least, "1", way, length));
        if ended {
            argv.push("--".to_owned());
        }
        argv.extend(words(before));
        argv.extend(words("touch -x --y z"));
        let arguments = Arguments::read(&argv);
        prop_assert_eq!(arguments.unknown(), None, "{:?}", argv);
        let inner = arguments.wrapper().map(|wrapper| wrapper.inner());
        prop_assert_eq!(inner, Some(Inner::Words(words("touch -x --y z").collect())), "{:?}", argv);
    }

    #[test]
    fn any_words_are_read_without_a_panic(
        first in select(&["env", "git", "npm", "tar", "sed", "python3", "xargs", "go", "cargo", "busybox", "x"][..]),
        rest in proptest::collection::vec("[-+=a-zA-Z0-9é]{0,6}", 0..6),
    ) {
        let argv: Vec<String> = std::iter::once(first.to_owned()).chain(rest).collect();
        let arguments = Arguments::read(&argv);
        in_table(&arguments);
        arguments.possible_paths().count();
        let words = arguments.items().len();
        prop_assert!(words <= argv.iter().map(|word| word.len() + 1).sum::<usize>());
        if let Some(wrapper) = arguments.wrapper() {
            wrapper.inner();
        }
    }
}

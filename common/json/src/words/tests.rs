use std::process::Command;

use proptest::prelude::*;

use super::*;

fn argv(text: &str) -> Vec<String> {
    split(text).unwrap().argv
}

/// The words that bash makes, without the expansions that are documented as literal here.
fn bash(text: &str) -> Option<Vec<String>> {
    let script = format!("set -f +B; printf '%s\\0' {text}");
    let output = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", &script])
        .env("HOME", "/the/home")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    if !output.status.success() || !output.stderr.is_empty() {
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.split_terminator('\0').map(str::to_owned).collect())
}

#[test]
fn quotes_and_backslashes_are_removed() {
    assert_eq!(
        argv(r#"git commit -m 'a b' "c \"d\" \$x \n" e\ f"#),
        ["git", "commit", "-m", "a b", r#"c "d" $x \n"#, "e f"]
    );
    assert_eq!(argv("a ''\t\"\""), ["a", "", ""]);
    assert_eq!(argv("a b\\\nc"), ["a", "bc"]);
    assert_eq!(argv("echo a#b it'\n's"), ["echo", "a#b", "it\ns"]);
}

#[test]
fn shell_syntax_is_refused_with_its_place() {
    for (text, expected) in [
        ("ls; rm x", SHELL_OPERATOR.at(2)),
        ("ls\nrm x", SHELL_OPERATOR.at(2)),
        ("echo `id`", COMMAND_SUBSTITUTION.at(5)),
        ("echo \"$(id)\"", COMMAND_SUBSTITUTION.at(6)),
        ("cat$IFS/etc", EXPANSION.at(3)),
        ("A=1 ls", ASSIGNMENT_PREFIX.at(0)),
        (" a[\"x\"]=1 ls", ASSIGNMENT_PREFIX.at(1)),
        ("A+=1 ls", ASSIGNMENT_PREFIX.at(0)),
        ("ls # x", COMMENT.at(3)),
        ("~/x", TILDE_COMMAND.at(0)),
        ("ls ~root", EXPANSION.at(3)),
        ("ls a=x:~/y", EXPANSION.at(7)),
        ("! ls", SHELL_KEYWORD.at(0)),
        ("time ls", SHELL_KEYWORD.at(0)),
        ("coproc ls", SHELL_KEYWORD.at(0)),
        ("%1 x", SHELL_KEYWORD.at(0)),
        ("'%1' x", SHELL_KEYWORD.at(0)),
        ("a[ b ]x", ASSIGNMENT_PREFIX.at(0)),
        ("echo 'x", UNTERMINATED_QUOTE.at(5)),
        ("echo \\", TRAILING_BACKSLASH.at(5)),
        ("echo 'a\0'", NUL_BYTE.at(7)),
        ("echo a\r", CONTROL_CHAR.at(6)),
        (" \t", EMPTY.at(0)),
    ] {
        assert_eq!(split(text), Err(expected), "{text}");
    }
}

#[test]
fn globs_and_braces_are_literal() {
    let words = split("ls *.rs {a,b} x!").unwrap();
    assert_eq!(words.argv, ["ls", "*.rs", "{a,b}", "x!"]);
}

#[test]
fn a_leading_tilde_is_the_home_given() {
    let words = split("ls ~ ~/a '~/b' c~ HEAD~1 a'~'").unwrap();
    assert_eq!(words.tildes, [1, 2]);
    assert_eq!(words.with_home("/h"), ["ls", "/h", "/h/a", "~/b", "c~", "HEAD~1", "a~"]);
}

/// Pieces that lie near the border between words and syntax.
fn pieces() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        " ", "\t", "'", "\"", "\\", "$", "`", ";", "&", "|", "<", ">", "(", ")", "\n", "\\\n", "#", "~", "~/", "=",
        ":", "+", "[", "]", "{", "}", "{a,b}", "*", "?", "!", "^", "%", "-", "--", "@", ",", ".", "/", "a", "b1", "_x",
        "A=", "a[1]=", "é", "日", "'x y'", "\"x y\"", "\\ ", "\\$", "\u{a0}", "\u{2028}", "time", "in",
    ]);
    prop::collection::vec(special, 0..9).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn accepted_words_are_those_of_bash(text in pieces()) {
        if let Ok(words) = split(&text) {
            prop_assert_eq!(Some(words.with_home("/the/home")), bash(&text), "{:?}", text);
        }
    }

    #[test]
    fn arguments_are_what_bash_builds(text in pieces()) {
        let text = format!("x {text}");
        if let Ok(words) = split(&text) {
            prop_assert_eq!(Some(words.with_home("/the/home")), bash(&text), "{:?}", text);
        }
    }

    #[test]
    fn words_never_panic_and_offsets_are_in_range(text in any::<String>()) {
        if let Err(refusal) = split(&text) {
            prop_assert!(text.is_char_boundary(refusal.offset));
        }
    }

    #[test]
    fn a_single_quoted_word_comes_back_unchanged(words in prop::collection::vec("[^\\x00-\\x1f\\x7f-\\u{9f}']*", 1..5)) {
        let text = words.iter().fold("x".to_owned(), |text, word| text + " '" + word + "'");
        prop_assert_eq!(&argv(&text)[1..], words);
    }
}

use std::process::Command;

use proptest::prelude::*;

use super::*;

fn argv(text: &str) -> Vec<String> {
    split(text).unwrap().argv
}

fn rule(text: &str) -> (Rule, usize) {
    let refusal = split(text).unwrap_err();
    (refusal.rule, refusal.offset)
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
    assert_eq!(rule("ls; rm x"), (Rule::ShellOperator, 2));
    assert_eq!(rule("ls\nrm x"), (Rule::ShellOperator, 2));
    assert_eq!(rule("echo `id`"), (Rule::CommandSubstitution, 5));
    assert_eq!(rule("echo \"$(id)\""), (Rule::CommandSubstitution, 6));
    assert_eq!(rule("cat$IFS/etc"), (Rule::Expansion, 3));
    assert_eq!(rule("A=1 ls"), (Rule::AssignmentPrefix, 0));
    assert_eq!(rule(" a[\"x\"]=1 ls"), (Rule::AssignmentPrefix, 1));
    assert_eq!(rule("A+=1 ls"), (Rule::AssignmentPrefix, 0));
    assert_eq!(rule("ls # x"), (Rule::Comment, 3));
    assert_eq!(rule("~/x"), (Rule::TildeCommand, 0));
    assert_eq!(rule("ls ~root"), (Rule::Expansion, 3));
    assert_eq!(rule("ls a=x:~/y"), (Rule::Expansion, 7));
    assert_eq!(rule("! ls"), (Rule::ShellKeyword, 0));
    assert_eq!(rule("time ls"), (Rule::ShellKeyword, 0));
    assert_eq!(rule("coproc ls"), (Rule::ShellKeyword, 0));
    assert_eq!(rule("%1 x"), (Rule::ShellKeyword, 0));
    assert_eq!(rule("'%1' x"), (Rule::ShellKeyword, 0));
    assert_eq!(rule("a[ b ]x"), (Rule::AssignmentPrefix, 0));
    assert_eq!(rule("echo 'x"), (Rule::UnterminatedQuote, 5));
    assert_eq!(rule("echo \\"), (Rule::TrailingBackslash, 5));
    assert_eq!(rule("echo 'a\0'"), (Rule::NulByte, 7));
    assert_eq!(rule("echo a\r"), (Rule::ControlChar, 6));
    assert_eq!(rule(" \t"), (Rule::Empty, 0));
}

#[test]
fn globs_and_braces_are_literal_and_reported() {
    let words = split("ls *.rs {a,b} x!").unwrap();
    assert_eq!(words.argv, ["ls", "*.rs", "{a,b}", "x!"]);
    assert_eq!(words.notices.len(), 2);
    assert!(words.notices[0].starts_with("no glob expansion"));
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

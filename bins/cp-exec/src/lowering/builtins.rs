//! Commands that bash carries out itself: which of them are steps, which have a program that does the same, and which are refused.

use super::refusal::Rule;
use super::steps::{Piece, Word};

/// What a command is.
pub(super) enum Meaning {
    Program(Vec<Word>),
    Cd(Word),
    Exit(Word),
    /// It does nothing, successfully.
    Nothing,
}

/// Why a command is not lowered: the rule, the reason, and what to write instead if the rule's own hint does not say it.
pub(super) type Objection = (Rule, String, Option<&'static str>);

/// Words that are syntax where a command should be.
pub(super) const KEYWORDS: [&str; 22] = [
    "!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until",
    "do", "done", "time", "function", "coproc", "in",
];

const PLAIN_VARIABLES: &str = "write NAME=value before the command that needs it";
const JOBS: &str = "leave it out: nothing runs in the background";
const LIMITS: &str = "leave it out: limits are set by policy";

/// What bash carries out itself and no step stands for, with what to write instead.
const REFUSED: [(&str, Option<&str>); 50] = [
    (".", Some("name the program by its path, such as .venv/bin/python")),
    ("source", Some("name the program by its path, such as .venv/bin/python")),
    ("eval", Some("write the command itself")),
    ("exec", Some("leave `exec` out")),
    ("builtin", Some("leave `builtin` out")),
    ("type", Some("write: which NAME")),
    ("export", Some(PLAIN_VARIABLES)),
    ("unset", Some("write: env -u NAME COMMAND")),
    ("declare", Some(PLAIN_VARIABLES)),
    ("typeset", Some(PLAIN_VARIABLES)),
    ("local", Some(PLAIN_VARIABLES)),
    ("readonly", Some(PLAIN_VARIABLES)),
    ("let", Some("write the number itself")),
    ("pushd", Some("write: ( cd DIR && … )")),
    ("popd", Some("write: ( cd DIR && … )")),
    ("dirs", None),
    ("set", Some("leave it out, and join the commands with &&")),
    ("shopt", None),
    ("read", Some("give the text to the program that needs it, with `<` or `|`")),
    ("mapfile", None),
    ("readarray", None),
    ("trap", None),
    ("return", Some("write: exit N")),
    ("break", None),
    ("continue", None),
    ("shift", None),
    ("getopts", None),
    ("caller", None),
    ("compgen", None),
    ("complete", None),
    ("compopt", None),
    ("bind", None),
    ("enable", None),
    ("hash", None),
    ("help", Some("write: COMMAND --help")),
    ("history", None),
    ("fc", None),
    ("logout", Some("write: exit")),
    ("suspend", Some(JOBS)),
    ("jobs", Some(JOBS)),
    ("fg", Some(JOBS)),
    ("bg", Some(JOBS)),
    ("wait", Some(JOBS)),
    ("disown", Some(JOBS)),
    ("times", None),
    ("ulimit", Some(LIMITS)),
    ("umask", Some(LIMITS)),
    ("alias", Some("write the command itself")),
    ("unalias", None),
    ("%", Some(JOBS)),
];

/// What bash would do with these words.
pub(super) fn meaning(mut argv: Vec<Word>) -> Result<Meaning, Objection> {
    let Some(name) = argv[0].text() else {
        return Err((Rule::Pattern, "the name of the command is not a plain one".to_owned(), None));
    };
    if name.is_empty() {
        return Err((Rule::Empty, "the name of the command is empty".to_owned(), None));
    }
    let name = if name.starts_with('%') { "%" } else { name };
    let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
    if let Some((_, hint)) = refused {
        return Err((Rule::Builtin, format!("`{name}` acts on a shell, and there is none"), *hint));
    }
    if KEYWORDS.contains(&name) {
        return Err((Rule::Compound, format!("`{name}` is syntax of a shell"), None));
    }
    let texts: Vec<Option<&str>> = argv[1..].iter().map(Word::text).collect();
    let differs =
        |how: &'static str| Err((Rule::Builtin, format!("`{name}` of a shell and its program differ here"), Some(how)));
    let asks_for_help = matches!(texts[..], [Some("--help" | "--version")]);
    match name {
        "cd" => return directory(argv),
        "exit" => return end(&argv),
        ":" => return Ok(Meaning::Nothing),
        "true" | "false" if asks_for_help => return differs("leave the option out"),
        "echo" if asks_for_help || !echoes_alike(&argv[1..]) => {
            return differs("write the text with printf '%s\\n', or with a here-document");
        }
        "printf" if !prints_alike(&texts) => return differs("write the text with a here-document"),
        "test" if !tests_alike(&texts) => return differs("write one comparison for each test, joined with && or ||"),
        "[" => match texts.split_last() {
            Some((Some("]"), inner)) if tests_alike(inner) => {}
            _ => return differs("write [ with one comparison and ], joined with && or ||"),
        },
        "kill" if !matches!(&texts[..], [rest @ .., Some(last)] if is_number(last) && rest.len() < 3) => {
            return differs("write: kill -SIGNAL NUMBER");
        }
        "pwd" => match texts[..] {
            // The program has the other default.
            [] => argv.push(Word::Text("-L".to_owned())),
            [Some("-L" | "-P")] => {}
            _ => return differs("write pwd alone"),
        },
        "command" => return found(&argv),
        _ => {}
    }
    Ok(Meaning::Program(argv))
}

fn directory(mut argv: Vec<Word>) -> Result<Meaning, Objection> {
    let objection = |reason: &str, hint| Err((Rule::Builtin, reason.to_owned(), Some(hint)));
    if argv.get(1).and_then(Word::text) == Some("--") {
        argv.remove(1);
    }
    let Some(to) = argv.pop().filter(|_| argv.len() == 1) else {
        return objection("`cd` has one directory", "write: cd DIR");
    };
    if to.has_pattern() {
        return objection("`cd` is understood without a pattern", "write the directory as it is called");
    }
    let text = to.with_status(0);
    if text.is_empty() || text.starts_with('-') {
        return objection("`cd` is understood with a directory", "write: cd DIR");
    }
    // Where the directory before `..` is missing, or is a link, a shell does something of its own.
    if text.split('/').skip_while(|part| matches!(*part, ".." | "." | "")).any(|part| part == "..") {
        return objection("`..` stands behind another directory", "write the directory without it");
    }
    Ok(Meaning::Cd(to))
}

fn end(argv: &[Word]) -> Result<Meaning, Objection> {
    match argv {
        [_] => Ok(Meaning::Exit(Word::Pieces(vec![Piece::Status]))),
        [_, status] if is_status(status) => Ok(Meaning::Exit(status.clone())),
        _ => Err((Rule::Builtin, "`exit` has a status from 0 to 255".to_owned(), Some("write: exit 1"))),
    }
}

/// Whether `exit` can have this status.
pub(super) fn is_status(word: &Word) -> bool {
    match word {
        Word::Text(text) => text.parse::<u8>().is_ok_and(|status| status.to_string() == *text),
        Word::Pieces(pieces) => *pieces == [Piece::Status],
    }
}

/// `command NAME …`, and `command -v NAME` for a program.
fn found(argv: &[Word]) -> Result<Meaning, Objection> {
    let known =
        |name: &Word| name.text().is_none_or(|name| is_builtin(name) || name.starts_with('-') || name.is_empty());
    match argv {
        [_, option, name] if option.text() == Some("-v") && !known(name) => {
            Ok(Meaning::Program(vec![Word::Text("which".to_owned()), name.clone()]))
        }
        [_, name, ..] if !known(name) => Ok(Meaning::Program(argv[1..].to_vec())),
        _ => Err((
            Rule::Builtin,
            "`command` is understood with the name of a program".to_owned(),
            Some("write: command -v NAME"),
        )),
    }
}

fn is_builtin(name: &str) -> bool {
    let own = ["cd", "exit", ":", "true", "false", "echo", "printf", "test", "[", "kill", "pwd", "command"];
    own.contains(&name) || KEYWORDS.contains(&name) || REFUSED.iter().any(|(refused, _)| *refused == name)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits == "0"
        || (!digits.starts_with('0')
            && (1..16).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Only escapes are read in two ways.
fn echoes_alike(words: &[Word]) -> bool {
    let is_option = |word: &&Word| {
        word.text().and_then(|text| text.strip_prefix('-')).is_some_and(|letters| {
            !letters.is_empty() && letters.bytes().all(|letter| matches!(letter, b'e' | b'E' | b'n'))
        })
    };
    let options = words.iter().take_while(is_option).count();
    if !words[..options].iter().any(|word| word.text().is_some_and(|text| text.contains('e'))) {
        return true;
    }
    words[options..].iter().all(|word| !word.has_pattern() && escapes(&word.with_status(0), "\\abcefnrtv"))
}

/// Whether every backslash stands before one of these, or before the numbers that both read.
fn escapes(text: &str, letters: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let Some(next) = rest[at + 1..].chars().next().filter(|next| letters.contains(*next)) else { return false };
        rest = &rest[at + 1 + next.len_utf8()..];
        if next == 'x' && !rest.starts_with(|c: char| c.is_ascii_hexdigit()) {
            return false;
        }
    }
    true
}

fn prints_alike(texts: &[Option<&str>]) -> bool {
    let texts = if texts.first() == Some(&Some("--")) { &texts[1..] } else { texts };
    let Some((Some(format), values)) = texts.split_first() else { return false };
    if format.starts_with('-') || !escapes(format, "\\abefnrtvx01234567\"") {
        return false;
    }
    let mut numeric = Vec::new();
    let mut rest = *format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        rest = rest.trim_start_matches(['-', '0', '+', ' ', '#']);
        rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        match rest.chars().next() {
            Some('s') => numeric.push(false),
            Some('d' | 'i' | 'u' | 'x' | 'X' | 'o') => numeric.push(true),
            _ => return false,
        }
        rest = &rest[1..];
    }
    let values = values.iter().enumerate();
    let mut numbers = values.filter(|(at, _)| !numeric.is_empty() && numeric[at % numeric.len()]);
    numbers.all(|(_, value)| value.is_some_and(is_number))
}

/// Tests whose words both read alike.
fn tests_alike(texts: &[Option<&str>]) -> bool {
    let unary = |word: &str| {
        word.strip_prefix('-').is_some_and(|letter| letter.len() == 1 && "bcdefgGhkLnNOprsStuwxz".contains(letter))
    };
    let binary = |word: &str| {
        matches!(word, "=" | "==" | "!=" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" | "-nt" | "-ot" | "-ef")
    };
    match *texts {
        [] | [Some(_)] => true,
        [Some("!"), ref rest @ ..] if rest.len() < 4 => !rest.is_empty() && tests_alike(rest),
        [Some(operator), Some(_)] => unary(operator),
        [Some(_), Some(operator), Some(_)] => binary(operator),
        _ => false,
    }
}

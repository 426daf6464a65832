//! Programs that take a secret at a fixed position without a name.

use std::ops::Range;

use crate::Secret;
use crate::words::line;
use crate::words::scan::is_token;
use crate::words::value::is_placeholder;

/// The position of a program's secret.
#[derive(Clone, Copy)]
enum Place {
    /// The word after this option.
    After(&'static str),
    /// The rest of a word with this prefix.
    In(&'static str),
    /// The text after the sign in the word after this option.
    Behind(&'static str, u8),
    /// The operand with this index, not counting options.
    Operand(usize),
    /// The operand with this index, if an option contains this letter.
    With(u8, usize),
    /// The text after the second `=` of a word with this prefix.
    Literal(&'static str),
    /// The text after the slash, up to `@` or the end: `name/password@place`.
    Slash,
    /// The operand after the share, which may be the first.
    Share,
    /// An operand of letters and digits.
    Token,
}

use Place::{After, Behind, In, Literal, Operand, Share, Slash, Token, With};

/// The beginning of a command, the words that follow the program, and the positions of its secrets.
struct Tool(&'static str, &'static [&'static str], &'static [Place]);

include!(concat!(env!("OUT_DIR"), "/tools.rs"));

/// Returns the secret of a program whose name begins here.
pub(crate) fn at(text: &[u8], start: usize, index: usize) -> Option<Secret> {
    let Tool(name, then, places) = &TOOLS[index];
    let before = start.checked_sub(1).map(|at| text[at]);
    // `/usr/bin/mysql`, but not `my-mysql`; the letter of an escape may precede.
    let begins = before.is_none_or(|byte| !is_token(byte)) || start > 1 && text[start - 2] == b'\\';
    let after = text.get(start + name.len()).copied();
    let ends = after.is_some_and(|byte| matches!(byte, b' ' | b'"' | b'\'' | b'\\' | b'.'));
    if !text[start..].starts_with(name.as_bytes()) || !begins || !ends || matches!(before, Some(b'.' | b'@')) {
        return None;
    }
    let words = line::words(text, whole(text, start));
    let mut words = &words[1.min(words.len())..];
    for word in *then {
        let (first, rest) = words.split_first()?;
        (&text[first.clone()] == word.as_bytes()).then_some(())?;
        words = rest;
    }
    let value =
        places.iter().find_map(|place| value(text, words, *place).filter(|value| is_value(&text[value.clone()])))?;
    Some(Secret { at: value, rule: "flag" })
}

/// Returns the beginning of the program's path, because a list contains the path in one string.
fn whole(text: &[u8], start: usize) -> usize {
    let path =
        text[..start].iter().rev().take(128).take_while(|byte| is_token(**byte) || matches!(byte, b'/' | b'.')).count();
    if path > 0 && text[start - 1] == b'/' { start - path } else { start }
}

fn is_value(value: &[u8]) -> bool {
    let file = value.first().is_some_and(|first| matches!(first, b'-' | b'/' | b'*' | b'(' | b'['));
    value.len() >= 3 && !file && !is_placeholder(value)
}

fn value(text: &[u8], words: &[Range<usize>], place: Place) -> Option<Range<usize>> {
    let word = |at: &Range<usize>| &text[at.clone()];
    let is_option = |at: &&Range<usize>| text[at.start] == b'-' && at.len() > 1;
    let next = |option: &str| {
        let at = words.iter().position(|at| word(at) == option.as_bytes())?;
        words.get(at + 1)
    };
    match place {
        After(option) => next(option).cloned(),
        In(start) => {
            let at = words.iter().find(|at| word(at).starts_with(start.as_bytes()) && at.len() > start.len())?;
            Some(at.start + start.len()..at.end)
        }
        Behind(option, sign) => {
            // `-u a:b`, `-ua:b`, `--user=a:b`
            let joined = |at: &&Range<usize>| word(at).starts_with(option.as_bytes()) && word(at).contains(&sign);
            let at = next(option).or_else(|| words.iter().find(joined))?;
            let colon = memchr::memchr(sign, word(at))?;
            // `-u 1000:1000`
            let numbers = word(at).iter().all(|byte| byte.is_ascii_digit() || *byte == sign);
            (!numbers).then_some(at.start + colon + 1..at.end)
        }
        Operand(number) => words.iter().filter(|at| !is_option(at) && !is_switch(word(at))).nth(number).cloned(),
        With(letter, number) => {
            let mut options = words.iter().filter(is_option);
            let set = options.any(|at| text[at.start + 1] != b'-' && word(at).contains(&letter));
            // `-C 10` is the cost.
            let is_cost = |at: usize| at > 0 && word(&words[at - 1]) == b"-C";
            let mut operands = words.iter().enumerate().filter(|(at, range)| !is_option(range) && !is_cost(*at));
            operands.nth(number).filter(|_| set).map(|(_, range)| range.clone())
        }
        Share => {
            let share = words.iter().position(|at| text[at.start] == b'\\')?;
            words[share + 1..].iter().find(|at| !is_option(at) && !is_switch(word(at))).cloned()
        }
        Token => {
            let drawn = |at: &&Range<usize>| {
                word(at).iter().any(u8::is_ascii_digit) && word(at).iter().all(|byte| is_token(*byte))
            };
            words.iter().filter(|at| at.len() >= 16 && !is_option(at)).find(drawn).cloned()
        }
        Literal(start) => {
            let at = words.iter().find(|at| word(at).starts_with(start.as_bytes()))?;
            let from = at.start + start.len();
            let sign = from + memchr::memchr(b'=', &text[from..at.end])? + 1;
            let quote = usize::from(matches!(text.get(sign), Some(b'\'')));
            Some(sign + quote..at.end)
        }
        Slash => {
            let at = words.iter().find(|at| !is_option(at) && word(at).contains(&b'/'))?;
            let slash = memchr::memchr(b'/', word(at))?;
            let end = memchr::memchr(b'@', &word(at)[slash..]).map_or(at.end, |end| at.start + slash + end);
            (slash > 0).then_some(at.start + slash + 1..end)
        }
    }
}

/// `/user:name`, `/add`, `X:`.
fn is_switch(word: &[u8]) -> bool {
    word.starts_with(b"/")
}

/// Returns the value in `echo value | sudo -S`, `sudo -S <<< value`, `printf value | cryptsetup …`. `start` is the
/// offset of `sudo` or `cryptsetup`.
pub(crate) fn piped_secret(text: &[u8], start: usize) -> Option<Secret> {
    let rest = text.get(start..)?;
    if rest.starts_with(b"sudo ") {
        let is_short = |word: &[u8]| word.starts_with(b"-") && !word.starts_with(b"--");
        let reads = |word: &[u8]| word == b"--stdin" || is_short(word) && word.contains(&b'S');
        line::words(text, start).into_iter().take(8).find(|at| reads(&text[at.clone()]))?;
    }
    let fed = [&b"sudo "[..], b"cryptsetup ", b"su -c", b"gpg --passphrase-fd", b"smbpasswd -s"];
    fed.iter().find(|fed| rest.starts_with(fed))?;
    let line = crate::words::scan::line_before(text, start);
    let offset = start - line.len();
    let said = [&b"echo "[..], b"printf "]
        .into_iter()
        .filter_map(|said| Some(memchr::memmem::rfind(line, said)? + said.len()))
        .max();
    let piped = line.trim_ascii_end().ends_with(b"|");
    if let Some(said) = said.filter(|_| piped) {
        let words = line::words(text, offset + said);
        let word = words.into_iter().find(|word| text[word.start] != b'-' && !text[word.clone()].starts_with(b"%"))?;
        let trimmed = text[word.clone()].strip_suffix(b"\\\\n").map_or(word.end, |value| word.start + value.len());
        let word = word.start..trimmed;
        return is_value(&text[word.clone()]).then_some(Secret { at: word, rule: "flag" });
    }
    let near = &rest[..rest.len().min(200)];
    let line = &near[..memchr::memmem::find(near, b"\\n").unwrap_or(near.len())];
    let at = start + memchr::memmem::find(line, b"<<<")? + 3;
    let word = line::words(text, at + crate::words::scan::blanks(text, at)).into_iter().next()?;
    is_value(&text[word.clone()]).then_some(Secret { at: word, rule: "flag" })
}

//! Secrets on command lines, and in configuration files that separate a setting's name and value by a blank.

use std::ops::Range;

use crate::Secret;
use crate::shapes::header::is_name_and_password;
use crate::words::name::{Kind, Name};
use crate::words::random::is_random;
use crate::words::scan::{Quote, blanks, is_line_start, joint, line_before, run, white, word_before};
use crate::words::value::{is_bare_secret, is_placeholder, is_quoted_secret};
use crate::words::{extent, tables};

/// Returns the operand after a name: `--password value`, `setx NAME value`, `login ada password value`, `requirepass
/// value`.
pub(crate) fn operand(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let flag = is_flag(text, name.at.start);
    if flag && let Some(value) = next_element(text, name) {
        return Some(value);
    }
    let gap = joint(text, name.at.end, b"`^");
    if gap == 0 || !(flag || takes_operand(text, name)) {
        return None;
    }
    let mut at = name.at.end + gap;
    if text[name.at.clone()].ends_with(b"auth-pass") {
        // The name of the server precedes it.
        at += run(text, at, |byte| byte > b' ' && byte != b'"' && byte != b'\\');
        at += blanks(text, at);
    }
    if Quote::at(text, at).is_some() {
        return in_quotes(text, at, name);
    }
    let value = extent::bare(text, at, true, name.kind);
    let secret = &text[value.clone()];
    let is_operand = !secret.first().is_none_or(|first| matches!(first, b'-' | b'|' | b'=' | b':' | b'+'));
    let fits = match name.kind {
        Kind::Password => is_password(secret),
        kind => is_bare_secret(secret, kind, None) && is_plain(secret),
    };
    (is_operand && fits).then_some(value)
}

/// Returns the password after the short option of a client: `mysql -pVALUE`, `sshpass -p VALUE`.
pub(crate) fn short(text: &[u8], before: usize) -> Option<Secret> {
    let name = Name { at: before + 1..before + 3, kind: Kind::Password };
    let command = line_before(text, before).rsplit(|byte| b";&|".contains(byte)).next()?;
    let mut words = command.rsplit(|byte| b" '\"\\/`(,[".contains(byte)).filter(|word| !word.is_empty());
    // The options of the command that `sshpass` runs follow.
    let is_sshpass = words.clone().next() == Some(b"sshpass");
    let is_client = |word: &[u8]| tables::PASSWORD_CLIENTS.iter().any(|client| client.as_bytes() == word);
    if !matches!(text[before..], [b' ' | b'\'' | b'"', b'-', b'p', ..]) || !is_sshpass && !words.any(is_client) {
        return None;
    }
    let value = if is_sshpass { operand(text, &name) } else { None };
    let value = value.or_else(|| extent::quoted(text, name.at.end));
    let at = value.unwrap_or_else(|| extent::bare(text, name.at.end, text[before] == b' ', name.kind));
    let secret = &text[at.clone()];
    // A container of this name may publish a port: `-p3306:3306`.
    let is_port = secret.contains(&b':') && !secret.iter().any(u8::is_ascii_alphabetic);
    (is_password(secret) && !is_port).then_some(Secret { at, rule: "flag" })
}

/// True if the word after an option is a password.
fn is_password(secret: &[u8]) -> bool {
    secret.len() >= 3 && !is_connective(secret) && !is_placeholder(secret) && is_plain(secret)
}

/// True if the operand is a value, and not a piece of code or of a synopsis.
fn is_plain(secret: &[u8]) -> bool {
    !secret.iter().any(|byte| matches!(byte, b'(' | b'[' | b'<' | b'{' | b'|')) || is_random(secret)
}

/// True if a name is a long option: one or two dashes at the beginning of a word.
fn is_flag(text: &[u8], start: usize) -> bool {
    let before = start.checked_sub(1).map(|before| text[before]);
    text[start] == b'-'
        && (is_line_start(text, start) || matches!(before, Some(b' ' | b'\'' | b'"' | b'`' | b'[' | b'(')))
}

/// Returns the next element of a list: `"--password", "value"`.
fn next_element(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let mut at = name.at.end + Quote::at(text, name.at.end)?.length();
    (text.get(at) == Some(&b',')).then_some(())?;
    at += 1 + white(text, at + 1);
    let value = in_quotes(text, at, name)?;
    // In an object the next string is the name of a member.
    let after = value.end + Quote::at(text, at).map_or(0, Quote::length);
    (text[value.start] != b'-' && text.get(after) != Some(&b':')).then_some(value)
}

/// True if the value of this name follows after a blank: after a command that sets variables, and in the files of some
/// programs.
fn takes_operand(text: &[u8], name: &Name) -> bool {
    let word = &text[name.at.clone()];
    let is_own = tables::OPERAND_NAMES.iter().any(|own| word.eq_ignore_ascii_case(own.as_bytes()));
    let is_set = tables::SETTERS.iter().any(|setter| word_before(text, name.at.start) == setter.as_bytes());
    // `login ada password value`: the word before the user's name decides, even if it is on the previous line.
    let near = &text[name.at.start.saturating_sub(128)..name.at.start];
    let pieces = near.rsplit(|byte| matches!(byte, b' ' | b'"' | b'\\'));
    let said = pieces.filter(|piece| !matches!(*piece, b"" | b"n")).nth(1);
    let is_told = said.is_some_and(|said| tables::ACCOUNT_WORDS.iter().any(|told| said.ends_with(told.as_bytes())));
    is_own || is_set || name.kind == Kind::Password && word != b"pass" && is_told
}

/// True for words that follow the name of an option in prose.
fn is_connective(word: &[u8]) -> bool {
    let word = word.strip_suffix(b",").or(word.strip_suffix(b".")).unwrap_or(word);
    tables::OPTION_PROSE.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns the value in `echo value | docker login --password-stdin` and `echo name:value | chpasswd`.
pub(crate) fn piped(text: &[u8], inside: usize) -> Option<Range<usize>> {
    let rest = text.get(inside..)?;
    if !rest.starts_with(b"password-stdin") && !rest.starts_with(b"passwd") {
        return None;
    }
    let line = line_before(text, inside);
    let offset = inside - line.len();
    let echo = memchr::memmem::rfind(line, b"echo ")? + 5;
    let pipe = echo + memchr::memchr(b'|', &line[echo..])?;
    let at = offset + echo + run(line, echo, |byte| byte == b' ');
    let mut value = extent::word(text, at)?;
    if rest.starts_with(b"passwd") {
        let changes = line[pipe..].ends_with(b"ch") || text[inside..].starts_with(b"passwd --stdin");
        value.start += memchr::memchr(b':', &text[value.clone()]).map_or(0, |colon| colon + 1);
        changes.then_some(())?;
    }
    let secret = &text[value.clone()];
    (value.end <= offset + pipe && secret.len() >= 3 && !is_placeholder(secret)).then_some(value)
}

/// Returns the value in quotes that begins here, if it is the announced secret. If the name is a JSON string, so is the
/// value; a value within a string ends with the string.
pub(crate) fn in_quotes(text: &[u8], at: usize, name: &Name) -> Option<Range<usize>> {
    let kind = name.kind;
    let quote = Quote::at(text, at)?;
    if !Quote::are_of_one_level(Quote::at(text, name.at.end), Some(quote)) {
        return None;
    }
    let value = extent::quoted(text, at)?;
    let secret = &text[value.clone()];
    (is_quoted_secret(secret, kind) || kind == Kind::Basic && is_name_and_password(secret)).then_some(value)
}

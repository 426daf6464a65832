//! Distinguishes secrets from text that stands for one: a variable, a mark, a piece of code, a sentence.

use crate::words::name::{Kind, is_the_word, kind_of};
use crate::words::random::{is_random, is_random_key, kinds};
use crate::words::tables;

/// True if a value stands for a secret instead of being one.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    let Some(first) = text.chars().next() else { return true };
    let inner = value.strip_suffix(b";").unwrap_or(value);
    let number = value.starts_with(b"0x") && value.len() <= 8;
    number
        || tables::PLACEHOLDERS.iter().any(|word| inner.eq_ignore_ascii_case(word.as_bytes()))
        || text.chars().all(|c| c == first)
        || value.iter().all(|byte| matches!(byte, b'*' | b'.' | b'x' | b'X' | b'-' | b'_' | b'#' | b':'))
        || is_reference(value)
        || is_the_word(value)
        || is_instruction(value)
}

/// True if this refers to a value elsewhere: `$NAME`, `${…}`, `{{…}}`, `<…>`, `%NAME%`, `[…]`, `@name`, `!Ref`, `#{…}`.
fn is_reference(value: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    let is_word = |name: &[u8]| !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-: |/'()[]{}$,?!#\\\"".contains(byte) || *byte >= 128;
    let is_phrase = |phrase: &[u8]| phrase.iter().all(is_part);
    match value {
        [b'{' | b'['] => true,
        _ if tables::REFERENCE_STARTS.iter().any(|start| value.starts_with(start.as_bytes())) => true,
        [b'{', b'{' | b'%', ..] => value.ends_with(b"}") && is_phrase(value) || value.len() < 4,
        [b'{', inner @ .., b'}'] | [b'[', inner @ .., b']'] | [b'(', inner @ .., b')'] => is_phrase(inner),
        [b'$', name @ ..] => {
            let positional = name.len() == 1;
            is_name(name) && !name.contains(&b'.') && (positional || !name[0].is_ascii_digit())
        }
        [b'%', name @ .., b'%'] | [b'_', b'_', name @ .., b'_', b'_'] => is_name(name),
        [b'@' | b':' | b'!' | b'*', name @ ..] => is_word(name),
        _ => false,
    }
}

/// True if this is a placeholder that requests a value: `YOUR_API_KEY`, `insert-token-here`.
fn is_instruction(value: &[u8]) -> bool {
    if value.len() > 48 || value.iter().any(u8::is_ascii_digit) {
        return false;
    }
    let small = value.to_ascii_lowercase();
    tables::INSTRUCTION_WORDS.iter().any(|word| memchr::memmem::find(&small, word.as_bytes()).is_some())
}

/// True if the value is a path to a file.
fn is_path(value: &[u8]) -> bool {
    let rooted = tables::PATH_STARTS.iter().any(|start| value.starts_with(start.as_bytes()));
    let named = tables::FILE_ENDINGS.iter().any(|end| value.ends_with(end.as_bytes()));
    let last = value.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let ending = last.rsplit(|byte| *byte == b'.').next().filter(|ending| ending.len() < last.len());
    let file = value.contains(&b'/')
        && ending.is_some_and(|ending| (1..=4).contains(&ending.len()) && ending.iter().all(u8::is_ascii_lowercase));
    (rooted || named || file) && !is_random(value)
}

/// True if a value without quotes is a piece of code: a call, an index, a member, a type.
pub(crate) fn is_code(value: &[u8], next: Option<u8>) -> bool {
    let has_sign = [&b"::"[..], b"->"].iter().any(|sign| memchr::memmem::find(value, sign).is_some());
    if matches!(value[0], b'&' | b'(' | b'[') || value.starts_with(b"__") || has_sign {
        return true;
    }
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | b'?' | b'!');
    let path = value.iter().take_while(|byte| name(byte)).count();
    if !value[0].is_ascii_alphabetic() && value[0] != b'_' || path == 0 {
        return false;
    }
    match value.get(path).copied().or(if path == value.len() { next } else { None }) {
        // `get_password(`, `ENV[`, `Option<`: a password rarely has a bracket there.
        Some(b'(' | b'[' | b'<') => true,
        _ => path == value.len() && (is_member(value) || is_variable(value)),
    }
}

/// True if this is the name of a variable that holds a secret.
fn is_variable(value: &[u8]) -> bool {
    let humps = value.windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    is_wordy(value) && (humps || value.contains(&b'_')) && kind_of(value).is_some()
}

/// True if this is `a.b` as in code: names joined by dots, without numbers.
fn is_member(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b'.');
    let Some(root) = parts.next() else { return false };
    let more = parts.clone().count() > 0 && parts.all(|part| !part.is_empty());
    let known = tables::MEMBER_ROOTS.iter().any(|known| root == known.as_bytes());
    let secret = value.rsplit(|byte| *byte == b'.').next().and_then(kind_of).is_some();
    more && (known || secret || !value.iter().any(u8::is_ascii_digit))
}

/// True if this is a sentence or a label, not a passphrase.
pub(crate) fn is_prose(value: &[u8]) -> bool {
    if !value.contains(&b' ') {
        return false;
    }
    let small = value.to_ascii_lowercase();
    let sentence = value[0].is_ascii_uppercase() && matches!(value[value.len() - 1], b'.' | b'?' | b'!' | b':');
    sentence || tables::PROSE_WORDS.iter().any(|word| memchr::memmem::find(&small, word.as_bytes()).is_some())
}

/// True if this consists of letters only, like words.
pub(crate) fn is_wordy(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_' | b'.' | b'\'') || *byte >= 128)
}

/// True if a quoted value of a name of this kind is the secret.
pub(crate) fn is_quoted_secret(value: &[u8], kind: Kind) -> bool {
    // Text that begins or ends with a blank is between two strings.
    let between = matches!(value, [b' ' | b',' | b';' | b')', ..] | [.., b' ']);
    if is_placeholder(value) || is_prose(value) || between {
        return false;
    }
    match kind {
        Kind::Password => value.len() >= 4 && !is_path(value),
        Kind::Secret if is_wordy(value) => value.len() >= 8 && !value.iter().any(|byte| b"-_.".contains(byte)),
        Kind::Secret => value.len() >= 6 && !is_path(value) && (!value.contains(&b' ') || has_digit(value)),
        Kind::Token => is_token(value),
        Kind::Pair => is_pair(value),
        Kind::Basic | Kind::OwnKey | Kind::Key => is_key(value, kind),
    }
}

/// True if an unquoted value of a name of this kind is the secret; `next` is the byte after it.
pub(crate) fn is_bare_secret(value: &[u8], kind: Kind, next: Option<u8>) -> bool {
    if value.is_empty() || is_placeholder(value) || is_code(value, next) || is_path(value) {
        return false;
    }
    let plain = value.iter().all(|byte| crate::words::scan::is_base64(*byte) || b".:%~|@$#*!".contains(byte));
    let is_type = value.iter().any(u8::is_ascii_uppercase) && matches!(next, Some(b',' | b';')) && !is_random(value);
    match kind {
        Kind::Password => value.len() >= 4,
        Kind::Secret => value.len() >= 8 && has_digit(value) && !is_type || plain && is_random(value),
        Kind::Token => plain && !is_type && is_token(value),
        Kind::Pair => is_pair(value),
        Kind::Basic | Kind::OwnKey | Kind::Key => is_key(value, kind),
    }
}

/// True if this is long and varied enough for a token; words and numbers are not.
fn is_token(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let numeric = value.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b':' | b'%'));
    let is_varied = digits > 0 && !(numeric && value.len() < 20) || is_random(value);
    value.len() >= 8 && !value.contains(&b' ') && !is_path(value) && is_varied
}

fn has_digit(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_digit)
}

/// True for a random key; after the name of its service also for 32 or more letters and digits of one case.
fn is_key(value: &[u8], kind: Kind) -> bool {
    let kinds = kinds(value);
    let is_long = kinds.length >= 32 && kinds.length == value.len() && kinds.capital != kinds.small && kinds.digit;
    let is_base64 = value.iter().all(|byte| crate::words::scan::is_base64(*byte));
    is_base64 && (is_random_key(value) || kind == Kind::OwnKey && is_long)
}

/// True for a name and its password, or a key alone, but not for a user and a group, an address or a time.
fn is_pair(value: &[u8]) -> bool {
    let (name, password) = value.split_at(memchr::memchr(b':', value).unwrap_or(value.len()));
    let password = password.strip_prefix(b":").unwrap_or_default();
    let is_number = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let is_free = !is_number(name) && !is_number(password) && !is_wordy(password) && name != password;
    password.is_empty() || is_free && (!password.contains(&b'/') || password[0] != b'/' && is_random(password))
}

/// True if a value without quotes or a sign before it can only be the secret.
pub(crate) fn is_drawn(value: &[u8], kind: Kind) -> bool {
    let is_mixed = has_digit(value) && value.iter().any(u8::is_ascii_alphabetic);
    let is_long = match kind {
        Kind::Password => value.len() >= 5,
        Kind::Secret => value.len() >= 12 || value.len() >= 8 && is_random(value),
        _ => value.len() >= 8 && is_random(value),
    };
    is_mixed && is_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_recognized() {
        for value in [
            "$PASSWORD",
            "${DB_PASSWORD}",
            "$(cat /run/x)",
            "<your-password>",
            "{{ vault_password }}",
            "********",
            "xxxx",
            "%PASS%",
            "%s",
            "@password",
            "YOUR_API_KEY",
            "[REDACTED:jwt]",
            "#{password}",
            "password",
            "__TOKEN__",
            "{token}",
            "!Ref",
            "…",
        ] {
            assert!(is_placeholder(value.as_bytes()), "{value}");
        }
        for value in
            ["hunter2", "{{h}o)p${e]nob(ody[finds>-_$#thisone}}", "$uperS3cret!", "p@ss:word1", "correct horse"]
        {
            assert!(!is_placeholder(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn code_is_recognized() {
        for value in
            ["get_password(", "os.environ[", "req.body.password", "self.password2", "Option<", "&str", "std::env"]
        {
            assert!(is_code(value.as_bytes(), None), "{value}");
        }
        for value in ["hunter2", "tr0ub4dor.3", "a(b"] {
            assert_eq!(is_code(value.as_bytes(), None), value == "a(b", "{value}");
        }
        assert!(is_code(b"getpass", Some(b'(')));
    }

    #[test]
    fn sentences_are_prose() {
        for value in ["Enter your password", "Must be at least 8 characters", "Wrong user or password."] {
            assert!(is_prose(value.as_bytes()), "{value}");
        }
        assert!(!is_prose(b"correct horse battery staple"));
    }
}

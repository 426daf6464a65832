//! The kind of secret that a name announces.

use crate::words::tables;
use std::ops::Range;

use crate::words::scan::{word_around, word_before};

/// The kind of secret that a name announces, the most explicit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Kind {
    /// A password, which may be any text.
    Password,
    /// A secret, which is not a word.
    Secret,
    /// A token or an API key, which is long and random.
    Token,
    /// `auth`: name and password in base64.
    Basic,
    /// `--user`: name and password, divided by a colon.
    Pair,
    /// The key of a service: `ACME_KEY`.
    OwnKey,
    /// A key of any sort: an API key, a table key or a door key.
    Key,
}

/// A name in a text.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// Its range.
    pub(crate) at: Range<usize>,
    /// The kind of secret that it announces.
    pub(crate) kind: Kind,
}

/// Words for a password in which other words end too: `DB_PASS` and `dbPass` match, `bypass` does not.
const PASSWORD_WORDS: [&str; 4] = ["pass", "pwd", "psk", "pw"];

/// A name in lower-case letters and digits, without a trailing number.
fn plain(name: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = name.iter().filter(|byte| byte.is_ascii_alphanumeric()).copied().collect();
    plain.make_ascii_lowercase();
    let digits = plain.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    plain.truncate(plain.len() - digits);
    plain
}

/// Returns the kind of secret that a name announces; `None` for an ordinary name.
pub(crate) fn kind_of(name: &[u8]) -> Option<Kind> {
    kind(&plain(name), name)
}

/// Returns the kind of a name, whose plain text may begin with the word before it.
fn kind(plain: &[u8], name: &[u8]) -> Option<Kind> {
    let ends = |words: &[&str]| words.iter().any(|word| plain.ends_with(word.as_bytes()));
    if ends(tables::NAMES_WITHOUT_SECRET) {
        None
    } else if tables::PAIR_OPTIONS.iter().any(|option| name == option.as_bytes()) {
        Some(Kind::Pair)
    } else if ends(tables::PASSWORD_NAMES) || ends_in_word(name, &PASSWORD_WORDS) {
        Some(Kind::Password)
    } else if ends(tables::SECRET_NAMES) {
        Some(Kind::Secret)
    } else if ends(tables::TOKEN_NAMES) {
        Some(Kind::Token)
    } else if ends_in_word(name, &["auth"]) {
        Some(Kind::Basic)
    } else {
        let is_open = tables::PUBLIC_KEY_PREFIXES.iter().any(|word| plain.starts_with(word.as_bytes()));
        let key = ends_in_word(name, &["key"]).then(|| name.iter().rposition(|byte| matches!(byte, b'k' | b'K')))??;
        let owner = name[..key].strip_suffix(b"_").or(name[..key].strip_suffix(b"-")).unwrap_or(&name[..key]);
        let is_owned = !owner.is_empty() && !ends_in_word(owner, tables::LOOKUP_WORDS);
        (!is_open).then_some(if is_owned { Kind::OwnKey } else { Kind::Key })
    }
}

/// True if a name ends in one of these as a separate word: after `_`, `-`, or at a capital letter.
fn ends_in_word(name: &[u8], words: &[&str]) -> bool {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let name = &name[..name.len() - digits];
    words.iter().any(|word| {
        let Some(before) = name.len().checked_sub(word.len()) else { return false };
        let (head, tail) = name.split_at(before);
        let whole = head.last().is_none_or(|last| !last.is_ascii_alphanumeric());
        let hump = tail[0].is_ascii_uppercase() && head.last().is_some_and(u8::is_ascii_lowercase);
        tail.eq_ignore_ascii_case(word.as_bytes()) && (whole || hump || is_account(head))
    })
}

/// True if this is a typical prefix of `pass` without a separator.
fn is_account(head: &[u8]) -> bool {
    let head = head.to_ascii_lowercase();
    tables::ACCOUNTS.iter().any(|account| head.ends_with(account.as_bytes()))
}

/// True if a value is only the word for a secret: a label, or the name of a variable.
pub(crate) fn is_the_word(value: &[u8]) -> bool {
    if value.len() > 96 {
        return false;
    }
    let text = &plain(value)[..];
    let rest = |head: &&str| text.strip_prefix(head.as_bytes()).filter(|rest| !rest.is_empty());
    let text = ["my", "your", "the", "new", "old", "user", "db"].iter().find_map(rest).unwrap_or(text);
    tables::WORDS_FOR_SECRETS.iter().any(|word| text == word.as_bytes())
}

impl Name {
    /// Returns the name around an offset, if it announces a secret. `API key` is one name of two words.
    pub(crate) fn around(text: &[u8], inside: usize) -> Option<Self> {
        let at = word_around(text, inside)?;
        let word = &text[at.clone()];
        let before = if word.eq_ignore_ascii_case(b"key") { word_before(text, at.start) } else { b"" };
        let kind = kind(&plain(&[before, word].concat()), word)?;
        Some(Self { at, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_classifies_names() {
        for (name, expected) in [
            ("DB_PASSWORD", Some(Kind::Password)),
            ("password2", Some(Kind::Password)),
            ("dbPass", Some(Kind::Password)),
            ("SMTP_PASS", Some(Kind::Password)),
            ("bypass", None),
            ("password_file", None),
            ("client-secret", Some(Kind::Secret)),
            ("master_key", Some(Kind::Secret)),
            ("accessToken", Some(Kind::Token)),
            ("X-Api-Key", Some(Kind::Token)),
            ("next_page_token", None),
            ("max_tokens", None),
            ("_auth", Some(Kind::Basic)),
            ("cache_key", None),
            ("some_key", Some(Kind::OwnKey)),
            ("key", Some(Kind::Key)),
            ("buildCacheKey", Some(Kind::Key)),
            ("X-Acme-Key", Some(Kind::OwnKey)),
            ("--user", Some(Kind::Pair)),
            ("keyboard", None),
            ("author", None),
        ] {
            assert_eq!(kind_of(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn key_is_qualified_by_preceding_word() {
        let kind = |text: &str, at| Name::around(text.as_bytes(), at).map(|name| name.kind);
        assert_eq!(kind("the API key: x", 8), Some(Kind::Token));
        assert_eq!(kind("Secret access key: x", 14), Some(Kind::Token));
        assert_eq!(kind("the public key: x", 11), None);
    }
}

//! Patterns for one word: `*` matches any run of bytes, `?` matches one byte, and a backslash quotes the next
//! character.

/// True if a word has an unquoted `*` or `?`.
pub fn is_pattern(word: &str) -> bool {
    word.replace("\\\\", "").replace("\\*", "").replace("\\?", "").contains(['*', '?'])
}

/// The literal word of a pattern without wildcards.
pub fn unescaped(word: &str) -> String {
    let (mut plain, mut characters) = (String::new(), word.chars());
    while let Some(c) = characters.next() {
        plain.push(if c == '\\' { characters.next().unwrap_or(c) } else { c });
    }
    plain
}

/// True if a name matches a pattern. Backtracks to the last `*` only, so the time is at most the product of both
/// lengths.
pub fn name_matches(pattern: &str, name: impl AsRef<[u8]>) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_ref());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let width = match pattern[p..] {
            [b'*', ..] => {
                star = Some((p, n));
                p += 1;
                continue;
            }
            [b'\\', c, ..] => (c == name[n]).then_some(2),
            [c, ..] => (c == b'?' || c == name[n]).then_some(1),
            [] => None,
        };
        match (width, star) {
            (Some(width), _) => {
                p += width;
                n += 1;
            }
            (None, Some((at, from))) => {
                star = Some((at, from + 1));
                p = at + 1;
                n = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::{is_pattern, name_matches, unescaped};

    #[test]
    fn many_stars_match_quickly() {
        assert!(!name_matches(&"*a".repeat(40), "a".repeat(39)));
        assert!(name_matches("a*b?d*", "aXXbcd"));
    }

    #[test]
    fn backslash_quotes_next_character() {
        for (pattern, literal) in [("a\\*b", "a*b"), ("\\?", "?"), ("\\\\", "\\"), ("a\\", "a\\")] {
            assert!(!is_pattern(pattern) && name_matches(pattern, literal), "{pattern}");
            assert_eq!(unescaped(pattern), literal);
        }
        assert!(!name_matches("a\\*b", "aXb") && !name_matches("\\?", "x"));
        assert!(is_pattern("\\\\*") && name_matches("*\\*c", "ab*c") && !name_matches("*\\*c", "abXc"));
    }
}

//! Patterns for one word: `*` is any run of bytes, `?` one.

/// Whether a name matches a pattern. It goes back to the last `*` only, so time grows with the lengths and not beyond.
pub(crate) fn name_matches(pattern: &str, name: impl AsRef<[u8]>) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_ref());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                n = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::name_matches;

    #[test]
    fn many_stars_take_no_time() {
        assert!(!name_matches(&"*a".repeat(40), "a".repeat(39)));
        assert!(name_matches("a*b?d*", "aXXbcd"));
    }
}

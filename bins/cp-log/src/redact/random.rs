//! Whether a text was drawn rather than written.

/// Shorter texts tell nothing.
const SHORTEST: usize = 16;

/// Whether the text looks drawn: its letters vary, and their kinds change more often than in words and names.
pub(super) fn is_random(text: &[u8]) -> bool {
    let kinds = kinds(text);
    let often = if kinds.digit {
        kinds.changes * 100 >= text.len() * 18
    } else {
        // Without digits fewer changes are left to count, so it takes more text.
        text.len() >= 24 && kinds.changes * 100 >= text.len() * 15
    };
    text.len() >= SHORTEST && often && entropy(text) >= 3.0
}

/// Whether the text looks like a key: drawn, of small and capital letters and digits.
pub(super) fn is_random_key(text: &[u8]) -> bool {
    let kinds = kinds(text);
    let varied = kinds.capital && kinds.small && kinds.digit;
    text.len() >= 20 && varied && kinds.changes * 100 >= text.len() * 18 && entropy(text) >= 3.5
}

/// Whether it is a number in hexadecimal, with or without dashes: a hash, a UUID.
pub(super) fn is_hexadecimal(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

/// What kinds of characters there are, and how often the kind changes from one to the next.
#[derive(Default)]
struct Kinds {
    capital: bool,
    small: bool,
    digit: bool,
    /// From one kind to another, but not from a capital to a small letter.
    changes: usize,
}

fn kinds(text: &[u8]) -> Kinds {
    let mut kinds = Kinds::default();
    let mut before = 0;
    for byte in text.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        let kind = match byte {
            b'A'..=b'Z' => 1,
            b'a'..=b'z' => 2,
            _ => 3,
        };
        kinds.capital |= kind == 1;
        kinds.small |= kind == 2;
        kinds.digit |= kind == 3;
        // A capital before small letters begins a word.
        kinds.changes += usize::from(before != 0 && kind != before && (before, kind) != (1, 2));
        before = kind;
    }
    kinds
}

/// Shannon's measure, in bits a byte.
fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        counts[usize::from(*byte)] += 1;
    }
    let all = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    let shares = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / all);
    shares.map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_and_names_are_not() {
        for text in ["k3J9xQ2mZ8vB4nR7tY1w", "9f86d081884c7d659a2feaa0c55ad015", "Zk9xPq3LmN7vRt2YwB5cDf8H"] {
            assert!(is_random(text.as_bytes()), "{text}");
        }
        for text in [
            "getAuthenticationTokenFromRequest",
            "SslExpandWriteKeyFn",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "src/main/java/App2.java",
        ] {
            assert!(!is_random(text.as_bytes()), "{text}");
        }
        assert!(is_random_key(b"k3J9xQ2mZ8vB4nR7tY1w"));
        assert!(!is_random_key(b"9f86d081884c7d659a2feaa0c55ad015"));
        assert!(!is_random_key(b"UserAccountController2Test"));
    }
}

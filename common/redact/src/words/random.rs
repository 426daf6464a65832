//! Whether a text was drawn rather than written.

/// Shorter texts prove nothing.
const SHORTEST: usize = 16;

/// Whether the text looks drawn: its letters vary, and their kinds change more often than in words and names.
pub(crate) fn is_random(text: &[u8]) -> bool {
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
pub(crate) fn is_random_key(text: &[u8]) -> bool {
    let kinds = kinds(text);
    let varied = kinds.capital && kinds.small && kinds.digit;
    text.len() >= 20 && varied && kinds.changes * 100 >= text.len() * 18 && entropy(text) >= 3.5
}

/// Whether it is a number in hexadecimal, with or without dashes: a hash, a UUID.
pub(crate) fn is_hexadecimal(text: &[u8]) -> bool {
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
    let all = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let known = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) * binary_logarithm(*count));
    if all == 0 { 0.0 } else { binary_logarithm(all) - known.sum::<f64>() / f64::from(all) }
}

/// The logarithm of a number above 0, to some millionths: the one of the standard library would load the system's library of
/// mathematics into every program.
fn binary_logarithm(number: u32) -> f64 {
    let whole = number.ilog2();
    let mut rest = f64::from(number) / f64::from(1_u32 << whole);
    let (mut sum, mut bit) = (f64::from(whole), 0.5);
    for _ in 0..20 {
        rest *= rest;
        if rest >= 2.0 {
            rest /= 2.0;
            sum += bit;
        }
        bit /= 2.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_the_one_of_the_standard_library() {
        for number in (1..2000).chain([1 << 20, u32::MAX]) {
            assert!((binary_logarithm(number) - f64::from(number).log2()).abs() < 1e-5, "{number}");
        }
    }

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

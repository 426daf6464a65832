//! Distinguishes random text from written text.

/// Minimum length; shorter texts are inconclusive.
const SHORTEST: usize = 16;

/// True if the text is probably random: its letters vary, and character classes alternate more often than in words and
/// names.
pub(crate) fn is_random(text: &[u8]) -> bool {
    let kinds = kinds(text);
    let often = if kinds.digit {
        kinds.changes * 100 >= text.len() * 18
    } else {
        // Without digits there are fewer alternations, so more text is required.
        text.len() >= 24 && kinds.changes * 100 >= text.len() * 15
    };
    text.len() >= SHORTEST && often && entropy(text) >= 3.0
}

/// True if the text resembles a key: random, with upper-case and lower-case letters and digits.
pub(crate) fn is_random_key(text: &[u8]) -> bool {
    let kinds = kinds(text);
    let varied = kinds.capital && kinds.small && kinds.digit;
    text.len() >= 20 && varied && kinds.changes * 100 >= text.len() * 18 && entropy(text) >= 3.5
}

/// True if this is hexadecimal, with or without dashes, such as a hash or a UUID.
pub(crate) fn is_hexadecimal(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

/// The character classes in a text, and how often they alternate; signs are skipped.
#[derive(Default)]
pub(crate) struct Kinds {
    pub(crate) capital: bool,
    pub(crate) small: bool,
    pub(crate) digit: bool,
    /// Number of letters and digits.
    pub(crate) length: usize,
    /// Number of changes of the class, except from upper case to lower case.
    pub(crate) changes: usize,
}

pub(crate) fn kinds(text: &[u8]) -> Kinds {
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
        kinds.length += 1;
        // An upper-case letter before lower-case letters begins a word.
        kinds.changes += usize::from(before != 0 && kind != before && (before, kind) != (1, 2));
        before = kind;
    }
    kinds
}

/// Returns the Shannon entropy in bits per byte.
fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        counts[usize::from(*byte)] += 1;
    }
    let all = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let known = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) * binary_logarithm(*count));
    if all == 0 { 0.0 } else { binary_logarithm(all) - known.sum::<f64>() / f64::from(all) }
}

/// Returns the binary logarithm of a positive number, at most 0.09 too small. The standard library's function would load
/// the system's math library into every program.
fn binary_logarithm(number: u32) -> f64 {
    let whole = number.ilog2();
    f64::from(whole) + f64::from(number) / f64::from(1_u32 << whole) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_logarithm_matches_standard_library() {
        for number in (1..2000).chain([1 << 20, u32::MAX]) {
            assert!((0.0..0.09).contains(&(f64::from(number).log2() - binary_logarithm(number))), "{number}");
        }
    }

    #[test]
    fn is_random_accepts_keys_and_rejects_names() {
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

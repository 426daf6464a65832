//! How strings are spelled: the runs that stand as they are, and the one escape of every other character.

/// Appends `text` to `out` as a JSON string in normal form, quotes included.
pub fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, stop) = rest.split_at(plain_run(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = stop.split_first() else { break };
        escaped(*byte, out);
        rest = after;
    }
    out.push(b'"');
}

/// The text of the JSON string whose quoted spelling is `quoted`; `None` if `quoted` is not a JSON string.
pub fn unquote(quoted: &[u8]) -> Option<String> {
    serde_json::from_slice(quoted).ok()
}

/// How many bytes from the start need no escape in a string.
#[inline]
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    // Eight bytes at once and by hand, because most strings are short, and a call of a library costs more than they do.
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let stops = stops_in(u64::from_le_bytes(*word));
        if stops != 0 {
            return at * 8 + stops.trailing_zeros() as usize / 8;
        }
    }
    let stop = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    words.len() * 8 + stop.unwrap_or(rest.len())
}

/// Marks the bytes of a word that end a run, by their highest bit; the lowest mark is exact.
#[inline]
fn stops_in(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let (quote, backslash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
    (below(quote, 1) | below(backslash, 1) | below(word, 0x20)) & (ONES * 0x80)
}

/// Letters of escapes, and the bytes that they stand for. A slash needs none.
const ESCAPES: [(u8, u8); 8] = [
    (b'n', b'\n'),
    (b'"', b'"'),
    (b'\\', b'\\'),
    (b't', b'\t'),
    (b'r', b'\r'),
    (b'b', 0x08),
    (b'f', 0x0c),
    (b'/', b'/'),
];

/// The byte that the letter of an escape stands for.
pub(crate) fn plain(letter: u8) -> Option<u8> {
    ESCAPES.iter().find(|(known, _)| *known == letter).map(|(_, plain)| *plain)
}

/// Appends the escape of a byte.
pub(crate) fn escaped(byte: u8, out: &mut Vec<u8>) {
    match ESCAPES.iter().find(|(_, plain)| *plain == byte) {
        Some((letter, _)) => out.extend_from_slice(&[b'\\', *letter]),
        None => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
    }
}

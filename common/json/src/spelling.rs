//! How strings are spelled: the runs that stand as they are, and the one escape of every other character.

/// Appends `text` to `out` as a JSON string in normal form, quotes included.
pub fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let run = plain_run(&bytes[at..]);
        out.extend_from_slice(&bytes[at..at + run]);
        at += run;
        match bytes.get(at) {
            Some(&byte) => escaped(byte, out),
            None => break,
        }
        at += 1;
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
    // Most strings are short, and a call with its own start-up would cost more than they do.
    let mut at = 0;
    for word in bytes.chunks_exact(8).take(4) {
        let stops = stops_in(word);
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.len() - at >= 32 {
        // In pieces, because a text of many lines without a quote would be searched completely for each line.
        let piece = &bytes[at..bytes.len().min(at + PIECE)];
        let length = memchr::memchr2(b'"', b'\\', piece).unwrap_or(piece.len());
        let stop = first_control(&piece[..length]).unwrap_or(length);
        at += stop;
        if stop < piece.len() {
            return at;
        }
    }
    at + bytes[at..].iter().position(|&byte| is_stop(byte)).unwrap_or(bytes.len() - at)
}

/// How much is searched for a quote at once.
const PIECE: usize = 1 << 10;

/// A word of ones, and a word of highest bits: arithmetic on eight bytes at once.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

#[inline]
fn is_stop(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Marks the bytes of a word that end a run, by their highest bit; the lowest mark is exact.
#[inline]
fn stops_in(word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(word);
    let word = u64::from_le_bytes(bytes);
    let zero_in = |x: u64| x.wrapping_sub(ONES) & !x & HIGH;
    let quote = zero_in(word ^ (ONES * 0x22));
    let backslash = zero_in(word ^ (ONES * 0x5c));
    quote | backslash | controls_in(word)
}

/// Marks the bytes of a word that are below 0x20, by their highest bit; the lowest mark is exact.
#[inline]
fn controls_in(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGH
}

fn first_control(run: &[u8]) -> Option<usize> {
    // By words and by hand: what a compiler makes vector code of depends on how the whole program is built.
    let (words, rest) = run.as_chunks::<8>();
    let any = words.iter().fold(0, |any, word| any | controls_in(u64::from_le_bytes(*word)));
    if any == 0 && rest.iter().all(|&byte| byte >= 0x20) {
        return None;
    }
    run.iter().position(|&byte| byte < 0x20)
}

pub(crate) fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
}

pub(crate) fn short_escape(byte: u8) -> Option<char> {
    Some(match byte {
        b'"' | b'\\' | b'/' => char::from(byte),
        b'b' => '\x08',
        b'f' => '\x0c',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        _ => return None,
    })
}

pub(crate) fn escaped(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

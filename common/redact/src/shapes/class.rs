/// True if a byte belongs to a class of the table of keys.
pub(crate) const fn is_in(class: u8, byte: u8) -> bool {
    let alphanumeric = byte.is_ascii_alphanumeric();
    match class {
        // Letters and digits.
        b'A' => alphanumeric,
        // Letters and digits, `-` and `_`.
        b'T' => alphanumeric || matches!(byte, b'-' | b'_'),
        // The same with full stops.
        b'K' => alphanumeric || matches!(byte, b'-' | b'_' | b'.'),
        // The same with tildes.
        b'G' => alphanumeric || matches!(byte, b'-' | b'_' | b'.' | b'~'),
        // Capital letters and digits.
        b'U' => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        // Digits.
        b'D' => byte.is_ascii_digit(),
        // Hexadecimal digits; small ones; small ones and dashes.
        b'X' => byte.is_ascii_hexdigit(),
        b'H' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        b'h' => matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'),
        // Base64, in both alphabets.
        b'B' => alphanumeric || matches!(byte, b'-' | b'_' | b'+' | b'/' | b'='),
        // Base58.
        b'W' => alphanumeric && !matches!(byte, b'0' | b'O' | b'I' | b'l'),
        // The third letter of a number in base64.
        b'V' => matches!(byte, b'A' | b'E' | b'I' | b'M' | b'Q' | b'U' | b'Y' | b'c' | b'g' | b'k'),
        // The alphabets of password hashes: of the hash, of a list of parameters.
        b'C' => alphanumeric || matches!(byte, b'.' | b'/'),
        b'Q' => alphanumeric || matches!(byte, b'.' | b'/' | b'+' | b'=' | b'-' | b'_'),
        b'R' => alphanumeric || matches!(byte, b'.' | b'=' | b',' | b'-'),
        // The path of a URL; parts with dollar signs; with URL escapes; a signature in a URL.
        b'P' => alphanumeric || matches!(byte, b'-' | b'_' | b'/' | b'@'),
        b'S' => alphanumeric || byte == b'$',
        b'E' => alphanumeric || byte == b'%',
        b'F' => alphanumeric || matches!(byte, b'-' | b'_' | b'%' | b'+' | b'/' | b'~' | b'=' | b'.'),
        // A password in a line of connection parameters.
        b'O' => byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'@' | b':' | b'$' | b'<' | b'>' | b'{' | b'\''),
        _ => false,
    }
}

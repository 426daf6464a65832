//! Text in markup: escapes for the places of a page, and the text of a fragment as a browser has it.

/// Writes a text for any place of a template, attributes included. Controls and characters that cannot be seen become visible.
pub(super) fn escape(text: &str, out: &mut impl std::fmt::Write) -> std::fmt::Result {
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if at < from || !IS_SPECIAL[usize::from(byte)] {
            continue;
        }
        let Some(c) = text[at..].chars().next() else { break };
        let entity = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            '\'' => "&#39;",
            _ => "",
        };
        let is_hidden = matches!(c, '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
        let is_control = c.is_ascii_control();
        if entity.is_empty() && !is_hidden && !is_control {
            continue;
        }
        out.write_str(&text[from..at])?;
        from = at + c.len_utf8();
        match c {
            '\u{7f}' => out.write_char('\u{2421}')?,
            _ if is_control => out.write_char(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'))?,
            _ if is_hidden => write!(out, "[U+{:04X}]", u32::from(c))?,
            _ => out.write_str(entity)?,
        }
    }
    out.write_str(&text[from..])
}

/// True if a character that begins with this byte may need an escape. A table, because every byte is looked up.
static IS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = byte != b'\n' as usize && byte != b'\t' as usize;
        byte += 1;
    }
    let (others, mut at) = (b"&<>\"'\x7f\xc2\xd8\xe1\xe2\xef\xf3", 0);
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Adds bytes as the text of a data block, from which the script has them back exactly: nothing in it ends the block or is changed
/// when the page is read.
pub(super) fn data(bytes: &[u8], out: &mut Vec<u8>) {
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'&' && *byte != b'<' || *byte == b'\n' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            _ => out.extend_from_slice(format!("&#{byte};").as_bytes()),
        }
    }
    out.extend_from_slice(&bytes[from..]);
}

/// The text of markup that this program has written, as a browser has it.
pub(super) fn content(markup: &str) -> String {
    let mut text = String::with_capacity(markup.len());
    for piece in markup.split('<').enumerate() {
        text.push_str(match piece {
            (0, piece) => piece,
            (_, piece) => piece.split_once('>').map_or("", |(_, after)| after),
        });
    }
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text, |text, (entity, character)| text.replace(entity, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        escape(text, &mut out).unwrap();
        out
    }

    #[test]
    fn markup_controls_and_directions_become_visible_text() {
        assert_eq!(escaped("<b a='\"'>&amp;"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;amp;");
        assert_eq!(escaped("a\0\u{1b}\r\n\t\u{7f}"), "a\u{2400}\u{241b}\u{240d}\n\t\u{2421}");
        assert_eq!(
            escaped("\u{202e}x\u{2066}\u{200f}\u{feff}\u{85}\u{e0041}"),
            "[U+202E]x[U+2066][U+200F][U+FEFF][U+0085][U+E0041]"
        );
        assert_eq!(escaped("Grüße, 日本, \u{1f469}\u{200d}\u{1f680} …"), "Grüße, 日本, \u{1f469}\u{200d}\u{1f680} …");
    }

    #[test]
    fn data_ends_no_block_and_loses_no_byte() {
        let mut out = Vec::new();
        data(b"</script><!--&lt;\0\r\n\xc3\xa9", &mut out);
        assert_eq!(out, b"&lt;/script>&lt;!--&amp;lt;&#0;&#13;\n\xc3\xa9");
    }

    #[test]
    fn content_of_markup_is_the_text_that_a_browser_has() {
        let text = "<b a='\"'>&amp; \u{0}";
        let markup = format!("<p class=\"x\" title=\"a &gt; b\">{}</p>\n<br>.", escaped(text));
        assert_eq!(content(&markup), "<b a='\"'>&amp; \u{2400}\n.");
    }
}

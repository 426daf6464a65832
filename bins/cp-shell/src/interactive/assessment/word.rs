//! A word of a text: without accents and case, where it stands, and what ends after it.

/// What ends after a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Word,
    Clause,
    Sentence,
    Question,
}

#[derive(Debug)]
pub(crate) struct Token<'a> {
    /// Without accents, in lower case.
    pub(crate) text: String,
    /// As it was written.
    pub(crate) written: &'a str,
    /// Where it begins.
    pub(crate) at: usize,
    /// Whether it stands in quotes or backticks.
    pub(crate) quoted: bool,
    pub(crate) end: End,
}

/// The text with each voiced kana as one letter, as some systems do not write it.
pub(crate) fn composed(text: &str) -> String {
    let mut composed = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{3099}' | '\u{309a}' => {
                let voiced =
                    composed.pop().and_then(|kana| char::from_u32(u32::from(kana) + u32::from(letter) - 0x3098));
                composed.extend(voiced);
            }
            _ => composed.push(letter),
        }
    }
    composed
}

/// Without accents, umlauts and case; letters of full width are plain ones.
pub(crate) fn folded(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for letter in text.chars().flat_map(char::to_lowercase) {
        match letter {
            'à'..='å' => folded.push('a'),
            'ç' => folded.push('c'),
            'è'..='ë' => folded.push('e'),
            'ì'..='ï' => folded.push('i'),
            'ñ' => folded.push('n'),
            'ò'..='ö' => folded.push('o'),
            'ù'..='ü' => folded.push('u'),
            'ß' => folded.push_str("ss"),
            'œ' => folded.push_str("oe"),
            'æ' => folded.push_str("ae"),
            '’' => folded.push('\''),
            '\u{300}'..='\u{36f}' => {}
            '\u{ff01}'..='\u{ff5e}' => {
                folded.extend(char::from_u32(u32::from(letter) - 0xfee0).map(|it| it.to_ascii_lowercase()));
            }
            _ => folded.push(letter),
        }
    }
    folded
}

/// Whether a letter belongs to a script that is written without blanks: kana, kanji.
pub(crate) const fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

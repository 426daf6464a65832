//! A person's words in pieces: sentences, their clauses, and words without accents and case, with the places where they stand.

use crate::interactive::assessment::lexicon::{Table, is_unspaced};

#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    /// Without accents, in lower case.
    pub(crate) text: String,
    /// As it was written.
    pub(crate) written: &'a str,
    /// Where it begins.
    pub(crate) at: usize,
    /// Whether it stands in quotes or backticks.
    pub(crate) quoted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Sentence<'a> {
    pub(crate) clauses: Vec<Vec<Token<'a>>>,
    /// Whether it ends with a question mark.
    pub(crate) asked: bool,
}

/// The sentences of a text that are not empty.
pub(crate) fn sentences<'a>(text: &'a str, table: &Table) -> Vec<Sentence<'a>> {
    let mut reader = Reader { text, table, sentences: vec![Sentence::default()], start: 0, closing: None };
    reader.clause();
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        at += reader.letter(letter, at).max(letter.len_utf8());
    }
    reader.word(text.len());
    for sentence in &mut reader.sentences {
        sentence.clauses.retain(|clause| !clause.is_empty());
    }
    reader.sentences.retain(|sentence| !sentence.clauses.is_empty());
    reader.sentences
}

struct Reader<'a, 'b> {
    text: &'a str,
    table: &'b Table,
    sentences: Vec<Sentence<'a>>,
    /// Where the word began that is being read.
    start: usize,
    /// What ends the quotation.
    closing: Option<&'a str>,
}

impl<'a> Reader<'a, '_> {
    /// Takes a letter; the number of bytes that were taken with it.
    fn letter(&mut self, letter: char, at: usize) -> usize {
        let after = &self.text[at + letter.len_utf8()..];
        let is_last = after.chars().next().is_none_or(|next| next.is_whitespace() || is_unspaced(next));
        let (taken, closing) = self.quotation(letter, at);
        let is_mark = match letter {
            _ if taken > 0 => true,
            '.' | '!' | '?' | ':' => is_last,
            '。' | '！' | '？' | '、' | '，' | '；' | '：' | ',' | ';' | '…' | '(' | ')' | '[' | ']' | '{' | '}'
            | '¿' | '¡' | '|' | '&' => true,
            _ => letter.is_whitespace(),
        };
        let within = &self.text[self.start..at];
        let is_unlike = within.chars().next().is_some_and(|first| is_unspaced(first) != is_unspaced(letter));
        if !is_mark {
            if is_unlike {
                self.word(at);
                self.start = at;
            }
            return 0;
        }
        self.word(at);
        self.closing = closing;
        let taken = taken.max(letter.len_utf8());
        self.start = at + taken;
        if self.closing.is_some() {
            return taken;
        }
        match letter {
            '?' | '？' => {
                if let Some(sentence) = self.sentences.last_mut() {
                    sentence.asked = true;
                }
                self.sentence();
            }
            '.' | '!' | '。' | '！' | '\n' => self.sentence(),
            ',' | ';' | ':' | '、' | '，' | '；' | '：' | '…' | '(' | ')' | '|' | '&' => self.clause(),
            _ => {}
        }
        taken
    }

    /// The length of what opens or closes a quotation here, and what closes it after that. What is never closed opens none.
    fn quotation(&self, letter: char, at: usize) -> (usize, Option<&'a str>) {
        let rest = &self.text[at..];
        if let Some(closing) = self.closing {
            return if rest.starts_with(closing) { (closing.len(), None) } else { (0, self.closing) };
        }
        let (opening, closing) = match letter {
            '`' => (rest.len() - rest.trim_start_matches('`').len(), None),
            '"' => (1, Some("\"")),
            '“' => (letter.len_utf8(), Some("”")),
            '„' => (letter.len_utf8(), Some("“")),
            '«' => (letter.len_utf8(), Some("»")),
            '「' => (letter.len_utf8(), Some("」")),
            _ => return (0, None),
        };
        let closing = closing.unwrap_or(&rest[..opening]);
        if rest[opening..].contains(closing) { (opening, Some(closing)) } else { (0, None) }
    }

    fn sentence(&mut self) {
        self.sentences.push(Sentence::default());
        self.clause();
    }

    fn clause(&mut self) {
        if let Some(sentence) = self.sentences.last_mut() {
            sentence.clauses.push(Vec::new());
        }
    }

    /// Ends a word; what is one only in writing is cut: "l'envoi", "peux-tu", and all text without blanks.
    fn word(&mut self, end: usize) {
        let (mut start, word) = (self.start, &self.text[self.start..end]);
        self.start = end;
        if word.starts_with(is_unspaced) {
            return self.unspaced(start, word);
        }
        let quoted = self.closing.is_some();
        let is_plain =
            !word.starts_with('-') && word.chars().all(|letter| letter.is_alphabetic() || "-'’".contains(letter));
        let elided =
            |part: &str| matches!(folded(part).as_str(), "l'" | "d'" | "n'" | "m'" | "s'" | "j'" | "t'" | "c'" | "qu'");
        for part in word.split_inclusive(|letter| is_plain && letter == '-') {
            let mut from = 0;
            if let Some((index, mark)) = part.char_indices().find(|(_, letter)| matches!(letter, '\'' | '’'))
                && elided(&part[..index + mark.len_utf8()])
            {
                from = index + mark.len_utf8();
                self.push(start, &part[..from], quoted);
            }
            let bare = if is_plain { part[from..].trim_end_matches('-') } else { &part[from..] };
            self.push(start + from, bare.trim_matches(['\'', '"']), quoted);
            start += part.len();
        }
    }

    fn unspaced(&mut self, start: usize, word: &'a str) {
        let quoted = self.closing.is_some();
        let (mut known, mut at) = (0, 0);
        while let Some(letter) = word[at..].chars().next() {
            let Some(length) = self.table.cut(&word[at..]) else {
                at += letter.len_utf8();
                continue;
            };
            self.push(start + known, &word[known..at], quoted);
            self.push(start + at, &word[at..at + length], quoted);
            at += length;
            known = at;
        }
        self.push(start + known, &word[known..], quoted);
    }

    fn push(&mut self, at: usize, written: &'a str, quoted: bool) {
        let Some(clause) = self.sentences.last_mut().and_then(|sentence| sentence.clauses.last_mut()) else { return };
        if !written.is_empty() {
            clause.push(Token { text: folded(written), written, at, quoted });
        }
    }
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
                folded.extend(char::from_u32(u32::from(letter) - 0xfee0).map(|it| it.to_ascii_lowercase()))
            }
            _ => folded.push(letter),
        }
    }
    folded
}

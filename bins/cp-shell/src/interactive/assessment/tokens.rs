//! A text in words: what stands between blanks, and what is one word only in writing; quotations are marked.

use crate::interactive::assessment::lexicon::Table;
use crate::interactive::assessment::word::{End, Token, folded, is_unspaced};

/// The words of a text.
pub(crate) fn tokens<'a>(text: &'a str, table: &Table) -> Vec<Token<'a>> {
    let mut tokens: Vec<Token<'a>> = Vec::new();
    let (mut start, mut at, mut closing) = (0, 0, None);
    while let Some(letter) = text[at..].chars().next() {
        let (rest, next) = (&text[at..], at + letter.len_utf8());
        let (taken, closes) = quotation(rest, letter, closing);
        let end = if taken > 0 { Some(End::Word) } else { end(letter, &text[next..]) };
        let script = text[start..at].chars().next().map(is_unspaced);
        if end.is_some() || script.is_some_and(|script| script != is_unspaced(letter)) {
            word(start, &text[start..at], closing.is_some(), table, &mut tokens);
            start = at;
        }
        if let Some(end) = end {
            start = next.max(at + taken);
            // What is quoted has no sentences of its own.
            if let (None, None, Some(last)) = (closing, closes, tokens.last_mut()) {
                last.end = last.end.max(end);
            }
        }
        (at, closing) = (start.max(next), closes);
    }
    word(start, &text[start..], false, table, &mut tokens);
    tokens
}

/// What a letter ends, if it is no part of a word.
fn end(letter: char, after: &str) -> Option<End> {
    let is_last = after.chars().next().is_none_or(|next| next.is_whitespace() || is_unspaced(next));
    match letter {
        '.' | '!' if is_last => Some(End::Sentence),
        '?' if is_last => Some(End::Question),
        ':' if is_last => Some(End::Clause),
        '？' => Some(End::Question),
        '。' | '！' | '\n' => Some(End::Sentence),
        ',' | ';' | '、' | '，' | '；' | '：' | '…' | '(' | ')' | '|' | '&' => Some(End::Clause),
        '[' | ']' | '{' | '}' | '¿' | '¡' => Some(End::Word),
        _ => letter.is_whitespace().then_some(End::Word),
    }
}

/// The length of what opens or closes a quotation here, and what closes it after that. What is never closed opens none.
fn quotation<'a>(rest: &'a str, letter: char, closing: Option<&'a str>) -> (usize, Option<&'a str>) {
    if let Some(closing) = closing {
        return if rest.starts_with(closing) { (closing.len(), None) } else { (0, Some(closing)) };
    }
    let (opening, closing) = match letter {
        '`' => rest.split_at(rest.len() - rest.trim_start_matches('`').len()),
        '"' => ("\"", "\""),
        '“' => ("“", "”"),
        '„' => ("„", "“"),
        '«' => ("«", "»"),
        '「' => ("「", "」"),
        _ => return (0, None),
    };
    let closing = if letter == '`' { opening } else { closing };
    if rest[opening.len()..].contains(closing) { (opening.len(), Some(closing)) } else { (0, None) }
}

/// Takes a word; what is one only in writing is cut: "l'envoi", "peux-tu", and all text without blanks.
fn word<'a>(start: usize, word: &'a str, quoted: bool, table: &Table, tokens: &mut Vec<Token<'a>>) {
    let mut push = |at: usize, written: &'a str| {
        if !written.is_empty() {
            tokens.push(Token { text: folded(written), written, at: start + at, quoted, end: End::Word });
        }
    };
    let (mut known, mut at) = (0, 0);
    if word.starts_with(is_unspaced) {
        while let Some(letter) = word[at..].chars().next() {
            let Some(length) = table.cut(&word[at..]) else {
                at += letter.len_utf8();
                continue;
            };
            push(known, &word[known..at]);
            push(at, &word[at..at + length]);
            at += length;
            known = at;
        }
        return push(known, &word[known..]);
    }
    let is_plain = |letter: char| letter.is_alphabetic() || matches!(letter, '-' | '\'' | '’');
    if word.starts_with('-') || !word.chars().all(is_plain) {
        return push(0, word.trim_matches('\''));
    }
    for part in word.split('-') {
        let elided = part
            .find(['\'', '’'])
            .map(|index| part.split_at(index + part[index..].chars().next().map_or(0, char::len_utf8)));
        let is_elided =
            |word: &str| matches!(folded(word).as_str(), "l'" | "d'" | "n'" | "m'" | "s'" | "j'" | "t'" | "c'" | "qu'");
        let (before, rest) = elided.filter(|(before, _)| is_elided(before)).unwrap_or(("", part));
        push(at, before);
        push(at + before.len(), rest.trim_matches('\''));
        at += part.len() + 1;
    }
}

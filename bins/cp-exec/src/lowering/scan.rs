//! The characters of a word, quotes removed, each with whether it was quoted.

use super::known::{Found, Variables};
use super::refusal::{Refusal, Rule};

/// One character of a word, or what stands for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Plain(char),
    Quoted(char),
    /// Quotes were opened here: the word is there even if they hold nothing.
    Quote,
    /// `$?`.
    Status,
}

/// A word as it was read.
pub(super) enum Token<'t> {
    /// Nothing in it means anything but itself.
    Bare(&'t str),
    Units(Vec<Unit>),
}

/// A line, and how far it has been read.
pub(super) struct Scanner<'t> {
    pub text: &'t str,
    pub at: usize,
    /// Whether a text was printed in this command, which a shell takes for what `$?` is about.
    pub printed: bool,
}

/// Refuses characters that no line should hold.
pub(super) fn check(text: &str) -> Result<(), Refusal> {
    let is_odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n');
    match text.char_indices().find(|(_, c)| is_odd(*c)) {
        None => Ok(()),
        Some((at, '\0')) => Err(Refusal::new(Rule::NulByte, at, "a NUL byte ends an argument")),
        Some((at, c)) => Err(Refusal::new(Rule::ControlChar, at, format!("control character U+{:04X}", u32::from(c)))),
    }
}

/// Bytes that stand for themselves wherever they stand in a word.
const fn is_ordinary(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b',' | b':' | b'+' | b'@' | b'%' | b'^')
}

/// Whether a character ends a word.
pub(super) const fn ends_word(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

impl<'t> Scanner<'t> {
    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn takes(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Goes over blanks, lines that are continued, and a comment.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
            if self.rest().starts_with('#') {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            }
            if !self.takes("\\\n") {
                return;
            }
        }
    }

    /// The word that begins here.
    pub(super) fn word(&mut self, variables: Variables) -> Result<Token<'t>, Refusal> {
        let start = self.at;
        let length = self.rest().bytes().take_while(|byte| is_ordinary(*byte)).count();
        self.at += length;
        if self.peek().is_none_or(ends_word) {
            return Ok(Token::Bare(&self.text[start..self.at]));
        }
        let mut units: Vec<Unit> = self.text[start..self.at].chars().map(Unit::Plain).collect();
        while let Some(c) = self.peek() {
            if ends_word(c) {
                break;
            }
            let at = self.at;
            match self.next().unwrap_or(c) {
                '\'' => {
                    units.push(Unit::Quote);
                    self.until('\'', at, &mut units)?;
                }
                '"' => {
                    units.push(Unit::Quote);
                    self.double_quoted(at, &mut units, variables)?;
                }
                '\\' => match self.next() {
                    None => {
                        return Err(Refusal::new(Rule::TrailingBackslash, at, "the backslash has nothing after it"));
                    }
                    Some('\n') => {}
                    Some(c) => units.push(Unit::Quoted(c)),
                },
                '$' if self.takes("'") => {
                    units.push(Unit::Quote);
                    self.escaped(at, &mut units)?;
                }
                '$' => self.dollar(at, true, &mut units, variables)?,
                '`' => return Err(substitution(at)),
                c => units.push(Unit::Plain(c)),
            }
        }
        Ok(Token::Units(units))
    }

    /// Takes what stands before a quote that closes, literally.
    fn until(&mut self, quote: char, start: usize, units: &mut Vec<Unit>) -> Result<(), Refusal> {
        loop {
            match self.next() {
                None => return Err(unterminated(quote, start)),
                Some(c) if c == quote => return Ok(()),
                Some(c) => units.push(Unit::Quoted(c)),
            }
        }
    }

    fn double_quoted(&mut self, start: usize, units: &mut Vec<Unit>, variables: Variables) -> Result<(), Refusal> {
        loop {
            let at = self.at;
            match self.next() {
                None => return Err(unterminated('"', start)),
                Some('"') => return Ok(()),
                Some(c) => self.quoted(c, at, "$`\"\\", units, variables)?,
            }
        }
    }

    /// The text of a here-document.
    pub(super) fn document(&mut self, variables: Variables, literal: bool) -> Result<Vec<Unit>, Refusal> {
        let mut units = Vec::new();
        loop {
            let at = self.at;
            match self.next() {
                None => return Ok(units),
                Some(c) if literal => units.push(Unit::Quoted(c)),
                Some(c) => self.quoted(c, at, "$`\\", &mut units, variables)?,
            }
        }
    }

    /// Takes one character between double quotes, or in a text that is read like that.
    fn quoted(
        &mut self,
        c: char,
        at: usize,
        escapes: &str,
        units: &mut Vec<Unit>,
        variables: Variables,
    ) -> Result<(), Refusal> {
        match c {
            '$' => return self.dollar(at, false, units, variables),
            '`' => return Err(substitution(at)),
            '\\' if self.takes("\n") => {}
            '\\' => match self.peek().filter(|next| escapes.contains(*next)) {
                Some(next) => {
                    self.at += 1;
                    units.push(Unit::Quoted(next));
                }
                None => units.push(Unit::Quoted('\\')),
            },
            c => units.push(Unit::Quoted(c)),
        }
        Ok(())
    }

    /// What `$` stands for; `unquoted` if the value would be split and matched with names.
    fn dollar(
        &mut self,
        at: usize,
        unquoted: bool,
        units: &mut Vec<Unit>,
        variables: Variables,
    ) -> Result<(), Refusal> {
        let refused = |rule, reason: &str| Err(Refusal::new(rule, at, reason));
        if self.rest().starts_with("((") || self.rest().starts_with('[') {
            return refused(Rule::Arithmetic, "a shell would calculate here");
        }
        if self.rest().starts_with('(') {
            let text = self.printed().filter(|_| !unquoted).ok_or_else(|| substitution(at))?;
            units.extend(text.chars().map(Unit::Quoted));
            self.printed = true;
            return Ok(());
        }
        if self.printed && (self.rest().starts_with('?') || self.rest().starts_with("{?")) {
            return refused(Rule::Variable, "`$?` is about the text before it here");
        }
        if self.takes("?") || self.takes("{?}") {
            units.push(Unit::Status);
            return Ok(());
        }
        let braced = self.takes("{");
        let length = self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let name = &self.rest()[..length];
        self.at += length;
        let continued = self.rest().starts_with("\\\n");
        if braced && !self.takes("}") {
            return refused(Rule::Variable, "of `${…}` only a plain name is understood");
        }
        if name.is_empty() && !braced {
            return match self.peek() {
                Some('@' | '*' | '#' | '-' | '$' | '!') => {
                    refused(Rule::Variable, "a shell puts something of its own here")
                }
                Some('\\') if continued => refused(Rule::Variable, "the name of a variable is broken over two lines"),
                Some('"') if unquoted => refused(Rule::Variable, "`$\"…\"` is a text that a shell translates"),
                _ => {
                    units.push(if unquoted { Unit::Plain('$') } else { Unit::Quoted('$') });
                    Ok(())
                }
            };
        }
        if continued && !braced {
            return refused(Rule::Variable, "the name of a variable is broken over two lines");
        }
        if unquoted && !braced && self.rest().starts_with(['{', '}', ',']) {
            return Err(Refusal::new(Rule::Brace, at, "a shell may read on behind this name").hint("write ${NAME}"));
        }
        let value = match variables.value(name) {
            Found::Unknown => return refused(Rule::Variable, &format!("the value of `${name}` is not known")),
            Found::Uncertain => {
                return refused(Rule::Uncertain, &format!("the value of `${name}` depends on what ran before"));
            }
            Found::Certain(value) => value,
        };
        if unquoted && (value.is_empty() || value.contains([' ', '\t', '\n', '*', '?', '[', ']', '\\'])) {
            return Err(Refusal::new(Rule::Variable, at, format!("a shell would take the value of `${name}` apart"))
                .hint("put it into double quotes"));
        }
        units.extend(value.chars().map(Unit::Quoted));
        Ok(())
    }

    /// The text of `(cat <<'END'`, its lines, `END` and `)`: the way in which agents write a message of many lines.
    fn printed(&mut self) -> Option<&'t str> {
        let rest = self.rest().strip_prefix("(cat <<'")?;
        let (end, rest) = rest.split_once("'\n")?;
        if end.is_empty() || !end.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let mut length = 0;
        for line in rest.split_inclusive('\n') {
            if line.strip_suffix('\n') == Some(end) {
                let after = rest[length + line.len()..].trim_start_matches([' ', '\t', '\n']).strip_prefix(')')?;
                self.at = self.text.len() - after.len();
                return Some(rest[..length].trim_end_matches('\n'));
            }
            length += line.len();
        }
        None
    }

    /// The rest of `$'…'`.
    fn escaped(&mut self, start: usize, units: &mut Vec<Unit>) -> Result<(), Refusal> {
        loop {
            let at = self.at;
            let c = match self.next() {
                None => return Err(unterminated('\'', start)),
                Some('\'') => return Ok(()),
                Some('\\') => {
                    let Some(c) = self.next() else { return Err(unterminated('\'', start)) };
                    let value = match c {
                        'n' => Some('\n'),
                        't' => Some('\t'),
                        'r' => Some('\r'),
                        'a' => Some('\x07'),
                        'b' => Some('\x08'),
                        'e' | 'E' => Some('\x1b'),
                        'f' => Some('\x0c'),
                        'v' => Some('\x0b'),
                        '\\' | '\'' | '"' | '?' => Some(c),
                        '0'..='7' => self.number(8, 3, c.to_digit(8)),
                        'x' => self.number(16, 2, None),
                        'u' => self.number(16, 4, None),
                        'U' => self.number(16, 8, None),
                        _ => None,
                    };
                    let wide = matches!(c, 'u' | 'U');
                    match value.filter(|value| *value != '\0' && (wide || value.is_ascii())) {
                        Some(value) => value,
                        None => {
                            return Err(Refusal::new(
                                Rule::Escape,
                                at,
                                format!("the escape `\\{c}` is not understood here"),
                            ));
                        }
                    }
                }
                Some(c) => c,
            };
            units.push(Unit::Quoted(c));
        }
    }

    /// The character whose number stands here in up to so many digits, the first of which may be taken already.
    fn number(&mut self, radix: u32, most: usize, first: Option<u32>) -> Option<char> {
        let most = most - usize::from(first.is_some());
        let digits = self.rest().chars().take(most).take_while(|c| c.is_digit(radix)).count();
        let value = u32::from_str_radix(&self.rest()[..digits], radix).ok();
        self.at += digits;
        let first = first.map(|first| first * radix.pow(u32::try_from(digits).unwrap_or(0)));
        char::from_u32(match (first, value) {
            (None, None) => return None,
            (first, value) => first.unwrap_or(0) + value.unwrap_or(0),
        })
    }
}

fn unterminated(quote: char, at: usize) -> Refusal {
    Refusal::new(Rule::UnterminatedQuote, at, format!("the {quote} opened here is never closed"))
}

fn substitution(at: usize) -> Refusal {
    Refusal::new(Rule::CommandSubstitution, at, "a shell would run a command here")
}

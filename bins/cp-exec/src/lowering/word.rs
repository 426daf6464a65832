//! Units of a word, expanded: braces, then the tilde, then patterns, in bash's order.

use super::refusal::Rule;
use super::scan::Unit;
use super::steps::{Piece, Word};

/// The rule that a word broke, and how.
pub(super) type Broken = (Rule, &'static str);

/// As many words as one may become.
const MOST: usize = 1024;

/// The words that one word of a command becomes.
pub(super) fn words(units: Vec<Unit>, home: Option<&str>) -> Result<Vec<Word>, Broken> {
    let units = if units.contains(&Unit::Plain('{')) { braces(&units)? } else { vec![units] };
    units.into_iter().filter(|units| !units.is_empty()).map(|units| word(units, home, true)).collect()
}

/// A word that stays one. Patterns in it are text where no names are looked for.
pub(super) fn word(mut units: Vec<Unit>, home: Option<&str>, patterns: bool) -> Result<Word, Broken> {
    if let Some(equals) = assignment(&units)
        && units[equals..].windows(2).any(|pair| matches!(pair, [Unit::Plain('=' | ':'), Unit::Plain('~')]))
    {
        return Err((Rule::Tilde, "a shell would put a home directory here"));
    }
    tilde(&mut units, 0, &['/'], home)?;
    pieces(&units, patterns)
}

/// The value of an assignment: there is a tilde after each colon too.
pub(super) fn value(mut units: Vec<Unit>, home: Option<&str>) -> Result<Word, Broken> {
    for at in (0..units.len()).rev() {
        if at == 0 || units[at - 1] == Unit::Plain(':') {
            tilde(&mut units, at, &['/', ':'], home)?;
        }
    }
    pieces(&units, false)
}

/// Where the sign of `NAME=` stands in a word that begins with it.
pub(super) fn assignment(units: &[Unit]) -> Option<usize> {
    let equals = units.iter().position(|unit| *unit == Unit::Plain('='))?;
    is_name(units[..equals].iter().copied().map(plain)).then_some(equals)
}

/// The character, if it was not quoted.
pub(super) fn plain(unit: Unit) -> Option<char> {
    match unit {
        Unit::Plain(c) => Some(c),
        Unit::Quoted(_) | Unit::Quote | Unit::Status => None,
    }
}

/// Whether a variable can have this name.
pub(super) fn is_name(letters: impl Iterator<Item = Option<char>>) -> bool {
    let mut count = 0;
    for letter in letters {
        match letter {
            Some('A'..='Z' | 'a'..='z' | '_') => {}
            Some('0'..='9') if count > 0 => {}
            _ => return false,
        }
        count += 1;
    }
    count > 0
}

/// Puts the home directory in the place of a `~` that is a word's, or a path's, first part.
fn tilde(units: &mut Vec<Unit>, at: usize, ends: &[char], home: Option<&str>) -> Result<(), Broken> {
    if units.get(at) != Some(&Unit::Plain('~')) {
        return Ok(());
    }
    let ends = |unit: &Unit| plain(*unit).is_some_and(|c| ends.contains(&c));
    let end = units[at..].iter().position(ends).map_or(units.len(), |n| at + n);
    if units[at..end].iter().any(|unit| matches!(unit, Unit::Quoted(_) | Unit::Quote)) {
        return Ok(());
    }
    let other = (Rule::Tilde, "a shell would look up another directory for this `~`");
    if end != at + 1 {
        return Err(other);
    }
    let home = home.ok_or((Rule::Uncertain, "the home directory depends on what ran before"))?;
    let home = if units.get(end) == Some(&Unit::Plain('/')) { home.trim_end_matches('/') } else { home };
    units.splice(at..end, home.chars().map(Unit::Quoted));
    Ok(())
}

/// What alternatives in braces make of a word.
fn braces(units: &[Unit]) -> Result<Vec<Vec<Unit>>, Broken> {
    // A shell takes the braces apart before it looks for names behind `$`, and pairs quoted braces with others.
    let odd = |unit: &Unit| matches!(unit, Unit::Plain('$') | Unit::Quoted('{' | '}'));
    if has_braces(units) && units.iter().any(odd) {
        return Err((Rule::Brace, "what these braces become is not certain"));
    }
    let mut from = 0;
    while let Some(open) = units[from..].iter().position(|unit| *unit == Unit::Plain('{')).map(|at| from + at) {
        let (mut depth, mut commas, mut close) = (0, vec![open], None);
        for (at, unit) in units.iter().enumerate().skip(open) {
            match unit {
                Unit::Plain('{') => depth += 1,
                Unit::Plain('}') => depth -= 1,
                Unit::Plain(',') if depth == 1 => commas.push(at),
                _ => {}
            }
            if depth == 0 {
                close = Some(at);
                break;
            }
        }
        let Some(close) = close else {
            if has_braces(&units[open..]) {
                return Err((Rule::Brace, "the brace opened in this word is never closed"));
            }
            break;
        };
        let inside = &units[open + 1..close];
        let middles = if commas.len() > 1 {
            let mut middles = Vec::new();
            commas.push(close);
            for pair in commas.windows(2) {
                middles.extend(braces(&units[pair[0] + 1..pair[1]])?);
            }
            middles
        } else if dotted(inside) {
            sequence(inside).ok_or((Rule::Brace, "of sequences only {1..9} and {a..z} are understood"))?
        } else {
            if has_braces(&units[open..]) {
                return Err((Rule::Brace, "braces with and without a meaning stand in one word"));
            }
            from = open + 1;
            continue;
        };
        let ends = braces(&units[close + 1..])?;
        if middles.len().saturating_mul(ends.len()) > MOST {
            return Err((Rule::Brace, "the word becomes too many words"));
        }
        let begin = &units[..open];
        return Ok(middles
            .iter()
            .flat_map(|middle| ends.iter().map(move |end| [begin, middle, end].concat()))
            .collect());
    }
    Ok(vec![units.to_vec()])
}

/// Whether the braces of a word could mean more than themselves.
pub(super) fn has_braces(units: &[Unit]) -> bool {
    units.contains(&Unit::Plain('{')) && (units.contains(&Unit::Plain(',')) || dotted(units))
}

/// Whether two dots stand there that could make a sequence.
fn dotted(units: &[Unit]) -> bool {
    units.windows(2).any(|pair| pair == [Unit::Plain('.'); 2])
}

fn sequence(inside: &[Unit]) -> Option<Vec<Vec<Unit>>> {
    let text: String = inside.iter().copied().map(plain).collect::<Option<_>>()?;
    let (first, last) = text.split_once("..")?;
    let texts: Vec<String> = if let (Some(first), Some(last)) = (integer(first), integer(last)) {
        if first.abs_diff(last) as usize >= MOST {
            return None;
        }
        let all = first.min(last)..=first.max(last);
        if first <= last { all.map(|n| n.to_string()).collect() } else { all.rev().map(|n| n.to_string()).collect() }
    } else {
        let letter = |text: &str| text.chars().next().filter(|c| text.len() == 1 && c.is_ascii_alphabetic());
        let (first, last) = (letter(first)?, letter(last)?);
        if first.is_ascii_lowercase() != last.is_ascii_lowercase() {
            return None;
        }
        let all = first.min(last)..=first.max(last);
        if first <= last { all.map(String::from).collect() } else { all.rev().map(String::from).collect() }
    };
    Some(texts.iter().map(|text| text.chars().map(Unit::Plain).collect()).collect())
}

/// A number as bash writes it back: one with a leading zero has a width to keep.
fn integer(text: &str) -> Option<i32> {
    let number: i32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn pieces(units: &[Unit], patterns: bool) -> Result<Word, Broken> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let mut at = 0;
    while let Some(unit) = units.get(at) {
        let special = match unit {
            Unit::Plain(c @ ('*' | '?')) if patterns => Some(Piece::Glob(c.to_string())),
            Unit::Plain('[') if patterns => bracket(&units[at..])?.map(Piece::Glob),
            Unit::Status => Some(Piece::Status),
            Unit::Plain(_) | Unit::Quoted(_) | Unit::Quote => None,
        };
        at += match &special {
            Some(Piece::Glob(pattern)) => pattern.chars().count(),
            _ => 1,
        };
        match (special, unit) {
            (Some(piece), _) => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(piece);
            }
            (None, Unit::Plain(c) | Unit::Quoted(c)) => text.push(*c),
            (None, Unit::Quote | Unit::Status) => {}
        }
    }
    if pieces.is_empty() {
        return Ok(Word::Text(text));
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(Word::Pieces(pieces))
}

/// The bracket expression that begins here; none if the bracket is only a character.
fn bracket(units: &[Unit]) -> Result<Option<String>, Broken> {
    if !units.contains(&Unit::Plain(']')) {
        return Ok(None);
    }
    let broken = (Rule::Pattern, "this bracket is not a plain set of characters");
    let text: String = units.iter().copied().map_while(plain).take_while(|c| *c != '/').collect();
    let end = super::glob::bracket_length(&text).ok_or(broken)?;
    Ok(Some(text[..end].to_owned()))
}

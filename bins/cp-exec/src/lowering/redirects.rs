//! Redirections, and the texts of here-documents, which stand below the line that asks for them.

use super::known::{Environment, Known, Variables};
use super::refusal::{Refusal, Rule};
use super::scan::{Scanner, Token, Unit, ends_word};
use super::steps::{Redirect, Target, Word};
use super::word::{self, Broken};

/// The here-documents of a text, in their order.
#[derive(Default)]
pub(super) struct Documents {
    pending: Vec<Document>,
    pub bodies: Vec<Word>,
}

struct Document {
    at: usize,
    end: String,
    literal: bool,
    strips_tabs: bool,
    known: Known,
}

/// The place that the text of a here-document will take: no other word is empty like this.
pub(super) const AWAITED: Word = Word::Pieces(Vec::new());

/// Whether a redirection begins here.
pub(super) fn begins(rest: &str) -> bool {
    rest.starts_with(['<', '>']) || rest.starts_with("&>")
}

/// A token as units.
pub(super) fn units(token: Token) -> Vec<Unit> {
    match token {
        Token::Bare(text) => text.chars().map(Unit::Plain).collect(),
        Token::Units(units) => units,
    }
}

/// A refusal of a word that began at a place.
pub(super) fn broken(at: usize) -> impl FnOnce(Broken) -> Refusal {
    move |(rule, reason)| Refusal::new(rule, at, reason)
}

/// Reads one redirection, the number before which has been read.
pub(super) fn redirect(
    scanner: &mut Scanner,
    variables: Variables,
    start: usize,
    fd: Option<u8>,
    documents: &mut Documents,
) -> Result<Vec<Redirect>, Refusal> {
    let refused = |reason: &str| Refusal::new(Rule::Redirection, start, reason);
    let operators = ["<<<", "<<-", "<<", "<&", "<>", "<(", "<", ">(", ">>", ">|", ">&", ">", "&>>", "&>"];
    let operator = operators.into_iter().find(|operator| scanner.takes(operator)).unwrap_or_default();
    let written = operator.contains('>');
    match operator {
        "<(" | ">(" => {
            return Err(Refusal::new(Rule::ProcessSubstitution, start, "a shell would run a command beside this one"));
        }
        "<>" | "<&" => return Err(refused("of redirections that read, only `<`, `<<` and `<<<` are understood")),
        _ => {}
    }
    let fd = match (fd, written) {
        (None, _) => u8::from(written),
        (Some(fd @ (1 | 2)), true) => fd,
        (Some(0), false) => 0,
        _ => return Err(refused("this stream cannot be redirected like that")),
    };
    let both = operator.starts_with('&');
    scanner.skip_blanks();
    let at = scanner.at;
    if scanner.peek().is_none_or(ends_word) {
        return Err(Refusal::new(Rule::Syntax, at, "the redirection has no target"));
    }
    if matches!(operator, "<<" | "<<-") {
        let document = document(scanner, variables, operator == "<<-")?;
        documents.pending.push(document);
        return Ok(vec![Redirect { fd, target: Target::Text { text: AWAITED } }]);
    }
    let units = units(scanner.word(variables)?);
    let is_number = units.iter().all(|unit| word::plain(*unit).is_some_and(|c| c.is_ascii_digit()));
    if is_number && scanner.rest().starts_with(['<', '>']) {
        return Err(Refusal::new(Rule::Syntax, at, "the redirection has no target"));
    }
    if operator == "<<<" {
        let mut text = word::value(units, variables.home()).map_err(broken(at))?;
        add_newline(&mut text);
        return Ok(vec![Redirect { fd, target: Target::Text { text } }]);
    }
    if units.iter().any(|unit| matches!(unit, Unit::Plain('*' | '?' | '['))) {
        return Err(Refusal::new(Rule::Pattern, at, "the target of a redirection is a pattern"));
    }
    if word::has_braces(&units) {
        return Err(Refusal::new(Rule::Brace, at, "the target of a redirection has braces"));
    }
    let path = word::word(units, variables.home(), false).map_err(broken(at))?;
    if path.text() == Some("") {
        return Err(Refusal::new(Rule::Redirection, at, "the target of a redirection has no name"));
    }
    let is_dup = operator == ">&";
    let to = path.text().filter(|_| is_dup);
    match to {
        Some("1") => return Ok(vec![Redirect { fd, target: Target::Dup { to: 1 } }]),
        Some("2") => return Ok(vec![Redirect { fd, target: Target::Dup { to: 2 } }]),
        Some(text) if text.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(refused("a stream can become 1 or 2, and cannot be closed"));
        }
        _ => {}
    }
    if is_dup && (to.is_none() || scanner.text[start..].starts_with(|c: char| c.is_ascii_digit())) {
        return Err(refused("`>&` is understood with 1 or 2 behind it"));
    }
    let target = match operator {
        "<" => Target::Read { path },
        ">>" | "&>>" => Target::Append { path },
        _ => Target::Write { path },
    };
    let first = Redirect { fd, target };
    if both || is_dup {
        return Ok(vec![first, Redirect { fd: 2, target: Target::Dup { to: 1 } }]);
    }
    Ok(vec![first])
}

fn document(scanner: &mut Scanner, variables: Variables, strips_tabs: bool) -> Result<Document, Refusal> {
    let at = scanner.at;
    let units = units(scanner.word(variables)?);
    let end: String = units
        .iter()
        .filter_map(|unit| match unit {
            Unit::Plain(c) | Unit::Quoted(c) => Some(*c),
            Unit::Quote | Unit::Status => None,
        })
        .collect();
    if scanner.text[at..scanner.at].contains(['$', '\n']) || end.contains('\n') {
        return Err(Refusal::new(Rule::HereDocument, at, "the word that ends the text is not a plain one"));
    }
    let literal = units.iter().any(|unit| matches!(unit, Unit::Quoted(_) | Unit::Quote));
    Ok(Document { at, end, literal, strips_tabs, known: variables.known.clone() })
}

fn add_newline(text: &mut Word) {
    match text {
        Word::Text(text) => text.push('\n'),
        Word::Pieces(pieces) => pieces.push(super::steps::Piece::Text("\n".to_owned())),
    }
}

impl Documents {
    /// Reads the texts that were asked for in the line that has just ended.
    pub(super) fn read(&mut self, scanner: &mut Scanner, environment: &Environment) -> Result<(), Refusal> {
        for document in std::mem::take(&mut self.pending) {
            let start = scanner.at;
            let text = body(scanner, &document)?;
            let mut inner = Scanner { text: &text, at: 0, printed: scanner.text.contains("$(cat") };
            let variables = Variables { known: &document.known, environment };
            let units =
                inner.document(variables, document.literal).map_err(|refusal| Refusal { offset: start, ..refusal })?;
            self.bodies.push(word::word(units, None, false).map_err(broken(start))?);
        }
        Ok(())
    }

    /// Refuses a text that never came.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        self.pending.first().map_or(Ok(()), |document| Err(unended(document)))
    }
}

fn unended(document: &Document) -> Refusal {
    Refusal::new(Rule::HereDocument, document.at, format!("no line `{}` ends the here-document", document.end))
}

/// The lines up to the one that ends the document.
fn body(scanner: &mut Scanner, document: &Document) -> Result<String, Refusal> {
    let mut body = String::new();
    loop {
        let mut line = String::new();
        loop {
            let rest = scanner.rest();
            if rest.is_empty() && line.is_empty() {
                return Err(unended(document));
            }
            let length = rest.find('\n').unwrap_or(rest.len());
            let ended = length < rest.len();
            let physical = &rest[..length];
            scanner.at += length + usize::from(ended);
            let backslashes = physical.len() - physical.trim_end_matches('\\').len();
            if document.literal || !ended || backslashes.is_multiple_of(2) {
                line.push_str(physical);
                break;
            }
            line.push_str(&physical[..length - 1]);
        }
        let line = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
        if line == document.end {
            return Ok(body);
        }
        body.push_str(line);
        body.push('\n');
    }
}

//! Patterns in words, expanded to the names that are there, in bash's order. A pattern that no name fits stays as it was typed.

use super::steps::{Piece, Word};

/// The files that there are for whoever asks.
pub(crate) trait Tree {
    /// The names in a directory, but `.` and `..`; none if it cannot be read.
    fn names(&mut self, directory: &str) -> Vec<String>;
    /// Whether something has this path, be it a link that leads nowhere.
    fn exists(&mut self, path: &str) -> bool;
    /// Whether this path is, or leads to, a directory.
    fn is_directory(&mut self, path: &str) -> bool;
}

enum Atom {
    Char(char),
    Any,
    One,
    Set(Set),
}

struct Set {
    negated: bool,
    members: Vec<Member>,
}

enum Member {
    Range(char, char),
    Class(fn(char) -> bool),
}

/// The words that one word becomes. Relative paths are looked up as they stand.
pub(crate) fn expand(word: &Word, status: u8, tree: &mut dyn Tree) -> Vec<String> {
    let typed = word.with_status(status);
    let Word::Pieces(pieces) = word else { return vec![typed] };
    if !word.has_pattern() {
        return vec![typed];
    }
    let mut paths = vec![String::new()];
    let mut matched = false;
    for component in components(pieces, status) {
        let is_pattern = component.iter().any(|atom| !matches!(atom, Atom::Char(_)));
        let text: String = component.iter().filter_map(Atom::char).collect();
        let mut found = Vec::new();
        for path in paths {
            if is_pattern {
                let names = tree.names(if path.is_empty() { "." } else { &path });
                let fitting = names.iter().filter(|name| fits(&component, name));
                found.extend(fitting.map(|name| format!("{path}{name}")));
            } else {
                // After a pattern it is not certain that what is named literally is there.
                let next = format!("{path}{text}");
                let is_there = match text.trim_end_matches('/') {
                    "" => tree.is_directory(&next),
                    _ => tree.exists(next.trim_end_matches('/')),
                };
                if !matched || is_there {
                    found.push(next);
                }
            }
        }
        matched |= is_pattern;
        paths = found;
    }
    if paths.is_empty() {
        return vec![typed];
    }
    paths.sort_unstable();
    paths
}

/// The parts of a path: what is between slashes, and the slashes.
fn components(pieces: &[Piece], status: u8) -> Vec<Vec<Atom>> {
    let mut components: Vec<Vec<Atom>> = vec![Vec::new()];
    let mut add = |atom: Atom| {
        let slash = matches!(atom, Atom::Char('/'));
        let last = components.last().and_then(|component| component.last());
        if last.is_some_and(|last| matches!(last, Atom::Char('/')) != slash) {
            components.push(Vec::new());
        }
        if let Some(component) = components.last_mut() {
            component.push(atom);
        }
    };
    for piece in pieces {
        match piece {
            Piece::Text(text) => text.chars().map(Atom::Char).for_each(&mut add),
            Piece::Status => status.to_string().chars().map(Atom::Char).for_each(&mut add),
            Piece::Glob(pattern) => match pattern.as_str() {
                "*" => add(Atom::Any),
                "?" => add(Atom::One),
                pattern => match set(pattern) {
                    Some((set, _)) => add(Atom::Set(set)),
                    None => pattern.chars().map(Atom::Char).for_each(&mut add),
                },
            },
        }
    }
    components
}

impl Atom {
    const fn char(&self) -> Option<char> {
        match self {
            Self::Char(c) => Some(*c),
            Self::Any | Self::One | Self::Set(_) => None,
        }
    }

    fn takes(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::Any | Self::One => true,
            Self::Set(set) => set.negated != set.members.iter().any(|member| member.takes(c)),
        }
    }
}

impl Member {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Range(first, last) => (*first..=*last).contains(&c),
            Self::Class(has) => has(c),
        }
    }
}

/// Whether a name fits. It goes back to the last `*` only, so time grows with the lengths and not beyond.
fn fits(pattern: &[Atom], name: &str) -> bool {
    if name.starts_with('.') && !matches!(pattern.first(), Some(Atom::Char('.'))) {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(Atom::Any) => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(atom) if atom.takes(name[n]) => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|atom| matches!(atom, Atom::Any))
}

/// How many bytes the bracket expression takes with which a text begins; none if that is no plain one.
pub(super) fn bracket_length(text: &str) -> Option<usize> {
    set(text).map(|(_, length)| length)
}

/// Reads `[…]`, and says how long it is.
fn set(text: &str) -> Option<(Set, usize)> {
    let inner = text.strip_prefix('[')?;
    let negated = inner.starts_with(['!', '^']);
    let mut rest = if negated { &inner[1..] } else { inner };
    let mut members = Vec::new();
    loop {
        if rest.starts_with(']') && !members.is_empty() {
            return Some((Set { negated, members }, text.len() - rest.len() + 1));
        }
        if let Some(named) = rest.strip_prefix("[:") {
            let end = named.find(":]")?;
            members.push(Member::Class(class(&named[..end])?));
            rest = &named[end + 2..];
            continue;
        }
        if rest.starts_with("[.") || rest.starts_with("[=") {
            return None;
        }
        let mut letters = rest.chars();
        let first = letters.next()?;
        let after = letters.as_str();
        rest = match after.strip_prefix('-').and_then(|range| range.chars().next()) {
            Some(last) if last != ']' => {
                if last < first || last == '[' {
                    return None;
                }
                members.push(Member::Range(first, last));
                &after[1 + last.len_utf8()..]
            }
            _ => {
                members.push(Member::Range(first, first));
                after
            }
        };
    }
}

/// A class of characters by its name.
fn class(name: &str) -> Option<fn(char) -> bool> {
    Some(match name {
        "alpha" => char::is_alphabetic,
        "digit" => |c| c.is_ascii_digit(),
        "alnum" => |c| c.is_alphabetic() || c.is_ascii_digit(),
        "upper" => char::is_uppercase,
        "lower" => char::is_lowercase,
        "space" => char::is_whitespace,
        "blank" => |c| matches!(c, ' ' | '\t'),
        "punct" => |c| c.is_ascii_punctuation(),
        "xdigit" => |c| c.is_ascii_hexdigit(),
        _ => return None,
    })
}

//! A file or a text at a tolerance: without the differences that a match ignores.

use memchr::memmem;

/// The most occurrences that an answer lists.
pub(super) const PLACES: usize = 10;

/// The differences that a match ignores, each in addition to the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tolerance {
    Exact,
    LineEndings,
    Blanks,
}

impl Tolerance {
    pub(super) const ALL: [Self; 3] = [Self::Exact, Self::LineEndings, Self::Blanks];

    pub(super) fn note(self) -> Option<&'static str> {
        match self {
            Self::Exact => None,
            Self::LineEndings => Some("the line endings of the file differ from the request and were kept"),
            Self::Blanks => Some("blanks at line ends differ from the request and were ignored"),
        }
    }
}

/// A text at one tolerance.
pub(super) struct View {
    pub text: Vec<u8>,
    /// The original offset of each byte, and of the end. Empty if the text is the original.
    origins: Vec<usize>,
}

impl View {
    pub(super) fn of(bytes: &[u8], tolerance: Tolerance) -> Self {
        if tolerance == Tolerance::Exact {
            return Self { text: bytes.to_vec(), origins: Vec::new() };
        }
        let mut view = Self { text: Vec::with_capacity(bytes.len()), origins: Vec::with_capacity(bytes.len() + 1) };
        // Ignored blanks belong to the line ending after them.
        let (mut at, mut ignored) = (0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let (normal, length): (&[u8], usize) = match rest {
                [b'\r', b'\n', ..] => (b"\n", 2),
                [b' ' | b'\t', ..] => {
                    let ends = matches!(rest[blanks..], [] | [b'\n', ..] | [b'\r', b'\n', ..]);
                    (if ends && tolerance == Tolerance::Blanks { b"" } else { &rest[..blanks] }, blanks)
                }
                _ => (&rest[..1], 1),
            };
            let keeps_length = normal.len() == length;
            for (offset, byte) in normal.iter().enumerate() {
                view.text.push(*byte);
                view.origins.push(if keeps_length { at + offset - ignored } else { at - ignored });
                ignored = 0;
            }
            ignored += if normal.is_empty() { length } else { 0 };
            at += length;
        }
        view.origins.push(bytes.len());
        view
    }

    /// The original offset of a position.
    pub(super) fn origin(&self, position: usize) -> usize {
        self.origins.get(position).copied().unwrap_or(position)
    }

    /// The position of an original offset.
    pub(super) fn position(&self, offset: usize) -> usize {
        if self.origins.is_empty() { offset } else { self.origins.partition_point(|origin| *origin < offset) }
    }

    /// The occurrences of a text, including overlapping ones, because each of them would be a different edit. Stops
    /// after one more than the limit unless all are needed.
    pub(super) fn occurrences(&self, text: &[u8], whole_lines: bool, all: bool) -> Vec<usize> {
        let finder = memmem::Finder::new(text);
        let is_start = |at: usize| at == 0 || self.text[at - 1] == b'\n' || self.text[..at] == *"\u{feff}".as_bytes();
        let is_end = |at: usize| at == self.text.len() || self.text[at] == b'\n' || text.ends_with(b"\n");
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some(at) = self.text.get(from..).and_then(|rest| finder.find(rest)).map(|at| from + at) {
            let fits = !whole_lines || (is_start(at) && is_end(at + text.len()));
            from = at + if all && fits { text.len() } else { 1 };
            found.extend(fits.then_some(at));
            if !all && !whole_lines && found.len() > PLACES {
                break;
            }
        }
        found
    }
}

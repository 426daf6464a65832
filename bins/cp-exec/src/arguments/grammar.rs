//! How a program's options are written: the tables in [`super::tables`] are made of this, and [`mod@super::read`] goes by it.

/// How a program reads its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grammar {
    /// Letters as getopt(3) has them: `f:` takes a value, `i::` one that is attached, `l#` attached digits.
    pub letters: &'static str,
    /// Long names without their dashes: `file=` takes a value, `in-place[=]` one that is attached.
    pub long: &'static str,
    pub form: Form,
    /// Options end at the first operand: what follows is another program's.
    pub stops: bool,
    /// What the tables do not have cannot be read, and what the program would do is not known.
    pub closed: bool,
    /// Letters behind whose value nothing is an option.
    pub last: &'static str,
    /// What else begins an option.
    pub also: Also,
}

/// How a word with dashes reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `--name` is long, `-abc` are letters.
    Gnu,
    /// `-name` and `--name` are the same.
    OneDash,
    /// As `Gnu`, and nothing that begins with a dash is taken for a value.
    Npm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Also {
    Nothing,
    /// `-5` and `--5` are options by themselves.
    Numbers,
    /// `+x` are letters, as `-x`.
    Plus,
    /// `+name` is for whoever looks the program up.
    Toolchain,
    /// The first word holds letters even without a dash, and their values follow in order.
    Bundle,
}

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    Value,
    Attached,
    Digits,
}

/// The grammar of a program without a table: its options may or may not take the word behind them.
pub(crate) const OPEN: Grammar =
    Grammar { letters: "", long: "", form: Form::Gnu, stops: false, closed: false, last: "", also: Also::Nothing };

/// A program whose options may stand anywhere.
pub(crate) const fn permuted(letters: &'static str, long: &'static str) -> Grammar {
    Grammar { letters, long, ..OPEN }
}

/// A program that runs another, or a script: its own options come first, and all are known.
pub(crate) const fn leading(letters: &'static str, long: &'static str) -> Grammar {
    Grammar { letters, long, stops: true, closed: true, ..OPEN }
}

impl Grammar {
    /// What a letter takes; none if the table does not have it.
    pub(super) fn letter(&self, letter: char) -> Option<Takes> {
        let mut rest = self.letters.chars();
        while let Some(known) = rest.next() {
            if known == letter && !matches!(letter, ':' | '#') {
                let rest = rest.as_str();
                return Some(match rest {
                    _ if rest.starts_with("::") => Takes::Attached,
                    _ if rest.starts_with(':') => Takes::Value,
                    _ if rest.starts_with('#') => Takes::Digits,
                    _ => Takes::Nothing,
                });
            }
        }
        None
    }

    /// What a long name takes, and whether that is its whole name; none if it is not known, or could be several that differ.
    pub(super) fn long(&self, name: &str) -> Option<(Takes, bool)> {
        let mut found = None;
        let mut differ = false;
        for entry in self.long.split_ascii_whitespace() {
            let (known, takes) = if let Some(known) = entry.strip_suffix("[=]") {
                (known, Takes::Attached)
            } else if let Some(known) = entry.strip_suffix('=') {
                (known, Takes::Value)
            } else {
                (entry, Takes::Nothing)
            };
            if same_letters(known, name) {
                return Some((takes, true));
            }
            if known.len() > name.len()
                && known.is_char_boundary(name.len())
                && same_letters(&known[..name.len()], name)
            {
                differ |= found.is_some_and(|before| before != takes);
                found = Some(takes);
            }
        }
        found.filter(|_| !differ).map(|takes| (takes, false))
    }
}

/// Whether two names are one: some programs take `_` for `-`.
pub(super) fn same_letters(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

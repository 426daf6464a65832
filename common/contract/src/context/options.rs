//! Options that every program has, and options that all verbs of a class share.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::given::{self, without_line_end};
use crate::output::Format;
use crate::wire::{Code, Error, Page, Result};

/// The longest text that an option reads from a file, in bytes.
const LONGEST_TEXT: u64 = 4 << 20;

/// The value of an option that is a text, or `@FILE`: a file without its last line end, `@-` is standard input, and `@@`
/// stands for a leading `@`.
#[derive(Clone, Debug)]
pub struct TextOrFile(OsString);

impl TextOrFile {
    /// The file that it names, by any bytes.
    pub fn file(&self) -> Option<&Path> {
        let name = self.0.as_bytes().strip_prefix(b"@").filter(|name| !name.starts_with(b"@"))?;
        Some(Path::new(OsStr::from_bytes(name)))
    }

    /// Returns the text.
    pub fn text(&self) -> Result<String> {
        if let Some(file) = self.file() {
            let bytes = given::bytes(file, LONGEST_TEXT)?;
            return given::text_of(without_line_end(&bytes)).map(str::to_owned).map_err(|e| e.in_file(file));
        }
        let text = self.0.to_str().ok_or_else(Error::not_text)?;
        Ok(text.strip_prefix('@').unwrap_or(text).to_owned())
    }
}

impl From<OsString> for TextOrFile {
    fn from(given: OsString) -> Self {
        Self(given)
    }
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Origin {
    /// A person, at a prompt
    Person,
    /// A program or a model
    #[default]
    Program,
}

impl Origin {
    /// Returns the value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Program => "program",
        }
    }
}

/// The options of every program.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of every program")]
pub struct Shared {
    /// Output format
    #[arg(long, global = true, value_enum, value_name = "FORMAT", hide_short_help = true)]
    pub format: Option<Format>,
    /// The same as --format json
    #[arg(long, global = true, hide_short_help = true)]
    pub json: bool,
    /// Accepted, and has no effect: output is always compact
    #[arg(long, global = true, hide = true)]
    pub compact: bool,
    /// Print only errors on standard error
    #[arg(long, short, global = true, hide_short_help = true)]
    pub quiet: bool,
    /// The directory that holds configuration, sessions and ledgers
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub home: Option<PathBuf>,
    /// The ledger that effects are recorded in
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub ledger: Option<PathBuf>,
    /// The session this belongs to: an id, a unique prefix of one, or a path
    #[arg(long, global = true, value_name = "SESSION", hide_short_help = true)]
    pub session: Option<String>,
    /// The run this belongs to
    #[arg(long, global = true, value_name = "RUN", hide_short_help = true)]
    pub run: Option<String>,
    /// The directory that `.` means in policy
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub base: Option<PathBuf>,
    /// The governed tree that restricts commands and tools
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub root: Option<PathBuf>,
    /// Origin of the request: a person, or a program
    #[arg(long, global = true, value_enum, value_name = "WHO", hide_default_value = true, hide_short_help = true)]
    pub origin: Option<Origin>,
}

/// The format of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputKind {
    /// Bytes for people: the whole input, or each line, is one text
    Text,
    /// Envelopes, as these programs write them
    Records,
    /// Bare JSON objects, one a line
    Rows,
}

/// The effect of failed items on the exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowFailures {
    /// Process all items, and exit with 1 and `E_PARTIAL` if some failed, or with the code of the first failure if all
    /// failed
    #[default]
    Fail,
    /// Process all items, and exit with 0: each failed item has its record
    Ok,
    /// End after the first item that failed
    Stop,
}

/// The options of a verb that reads a stream.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Options of a stream")]
pub struct StreamOptions {
    /// Format of standard input (default: detected from its first line)
    #[arg(long, value_enum, value_name = "KIND", hide_short_help = true)]
    pub input: Option<InputKind>,
    /// The same as --input rows
    #[arg(long, conflicts_with = "input", hide_short_help = true)]
    pub rows: bool,
    /// Fail if the input ends without its closing line
    #[arg(long, hide_short_help = true)]
    pub closed: bool,
    /// Fail if a decision refuses or a proof does not hold; for rows this is the default
    #[arg(long, hide_short_help = true)]
    pub strict_exit: bool,
    /// Effect of failed items
    #[arg(long, value_enum, value_name = "EFFECT", default_value_t, hide_short_help = true)]
    #[arg(conflicts_with = "strict_exit")]
    pub row_failures: RowFailures,
    /// False is the same as --row-failures stop
    #[arg(long, value_name = "BOOL", hide_short_help = true, conflicts_with = "row_failures")]
    pub continue_on_error: Option<bool>,
}

impl StreamOptions {
    /// Returns the input format that the caller selected, if any.
    pub fn kind(&self) -> Option<InputKind> {
        if self.rows { Some(InputKind::Rows) } else { self.input }
    }

    /// Returns the options for items that must be finished after the stream has ended early.
    #[must_use]
    pub fn without_stop(self) -> Self {
        Self { row_failures: RowFailures::Fail, continue_on_error: None, ..self }
    }
}

/// Parses a duration: a number of seconds, or a number with the unit `ms`, `s`, `m` or `h`.
pub fn seconds(text: &str) -> std::result::Result<f64, &'static str> {
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let number =
        number.parse::<f64>().ok().map(|number| number * factor).filter(|seconds| (0.0..=1e9).contains(seconds));
    number.ok_or("must be a number of seconds, or a duration such as 30s, 5m or 2h")
}

/// Parses a duration that limits work. A limit of 0 would end all of it.
pub fn positive_seconds(text: &str) -> std::result::Result<f64, &'static str> {
    seconds(text).and_then(|seconds| if seconds > 0.0 { Ok(seconds) } else { Err("must be more than 0") })
}

/// The options of a query.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of a query")]
pub struct QueryOptions {
    /// Maximum number of items
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Cursor of the previous page, to continue after it
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// Number of hex digits that bind a cursor to its list.
const TAG_DIGITS: usize = 12;

/// The pages of one list, whose items are in the order of their keys `K`. A cursor holds the key of the last item of a
/// page, so that items added or removed between two pages cause no repeated and no missing items.
pub struct Pages<K> {
    /// The list and its filters; a cursor is valid only for the same scope.
    scope: String,
    /// The maximum number of items on a page.
    pub limit: usize,
    /// The key of the last item of the previous page.
    pub after: Option<K>,
}

impl<K: Serialize + DeserializeOwned + Ord> Pages<K> {
    /// Makes the pages for the options of a query. `list` is the verb; `asked` holds all filters. A cursor of another
    /// verb, file or filter is rejected.
    pub fn of(list: &str, asked: &impl Serialize, query: &QueryOptions) -> Result<Self> {
        let asked = serde_json::to_string(asked).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let scope = format!("{list}\n{asked}\n");
        let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let after = query.cursor.as_deref().map(|cursor| key_of(cursor, &scope)).transpose()?;
        Ok(Self { scope, limit, after })
    }

    /// True if an item was on a previous page.
    pub fn is_passed(&self, key: &K) -> bool {
        self.after.as_ref().is_some_and(|after| key <= after)
    }

    /// Returns the page from items in the order of their keys. Consumes only the items that it needs.
    pub fn page<T>(&self, items: impl IntoIterator<Item = (K, T)>) -> Result<Page<T>> {
        let mut left = items.into_iter().filter(|(key, _)| self.after.as_ref().is_none_or(|after| key > after));
        let (mut last, mut kept) = (None, Vec::new());
        while kept.len() < self.limit {
            let Some((key, item)) = left.next() else { break };
            last = Some(key);
            kept.push(item);
        }
        let has_more = left.next().is_some();
        let next_cursor = last.filter(|_| has_more).map(|last| self.cursor(&last)).transpose()?;
        Ok(Page { count: kept.len(), items: kept, next_cursor, has_more, untrusted: &[] })
    }

    /// Returns the cursor of the items after this key.
    pub fn cursor(&self, key: &K) -> Result<String> {
        let key = serde_json::to_string(key).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        Ok(format!("{}{}", tag(&self.scope, &key), base16ct::lower::encode_string(key.as_bytes())))
    }
}

fn tag(scope: &str, key: &str) -> String {
    let digest = Sha256::new().chain_update(scope).chain_update(key).finalize();
    let mut tag = base16ct::lower::encode_string(&digest);
    tag.truncate(TAG_DIGITS);
    tag
}

fn key_of<K: DeserializeOwned>(cursor: &str, scope: &str) -> Result<K> {
    let wrong = || {
        Error::validation("the cursor is not one of this list: it is damaged, or from another verb, file or filter")
            .hint("give the next_cursor of the page before, with the same options")
    };
    let (given, key) = cursor.split_at_checked(TAG_DIGITS).ok_or_else(wrong)?;
    let key = base16ct::lower::decode_vec(key).ok().and_then(|key| String::from_utf8(key).ok()).ok_or_else(wrong)?;
    if tag(scope, &key) != given {
        return Err(wrong());
    }
    serde_json::from_str(&key).map_err(|_| wrong())
}

/// The options of a verb that appends.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of an append")]
pub struct AppendOptions {
    /// Report the effect without doing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Idempotency key: a repeated request has no second effect
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub request_id: Option<String>,
}

/// The options of a verb that changes or deletes.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Options of a write")]
pub struct WriteOptions {
    /// Show what would change, and print a confirm token
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm token of a dry run: apply its change
    #[arg(long, value_name = "TOKEN")]
    pub confirm: Option<String>,
    /// Required for a change that cannot be undone
    #[arg(long)]
    pub dangerous: bool,
    /// Idempotency key: a repeated request has no second effect
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub request_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn seconds_are_plain_or_have_unit() {
        for (text, expected) in [("30", 30.0), ("1.5", 1.5), ("30s", 30.0), ("5m", 300.0), ("2h", 7200.0), ("0", 0.0)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert!((seconds("250ms").unwrap() - 0.25).abs() < 1e-9);
        assert!(positive_seconds("0.1").is_ok() && positive_seconds("0s").is_err() && positive_seconds("x").is_err());
        for text in ["", "s", "5 m", "1d", "m5", "five", "-1", "nan", "inf", "1e10"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_option_with_at_sign_reads_file_and_two_are_literal() {
        let place = tempfile::tempdir().unwrap();
        // The name of a file may be any bytes.
        let file = place.path().join(OsStr::from_bytes(b"soul\xff.md"));
        std::fs::write(&file, "Be brief.\r\n\n").unwrap();
        let text = |option: OsString| TextOrFile::from(option).text();
        let named = || [OsStr::new("@"), file.as_os_str()].into_iter().collect::<OsString>();
        assert_eq!(text(named()).unwrap(), "Be brief.\r\n");
        assert_eq!(text("@@home".into()).unwrap(), "@home");
        assert_eq!(text("plain".into()).unwrap(), "plain");
        assert_eq!(text("@/none".into()).unwrap_err().code(), Code::NotFound);
        assert_eq!(text(OsString::from_vec(b"a\xff".to_vec())).unwrap_err().code(), Code::Usage);
        std::fs::write(&file, b"a\xff").unwrap();
        let invalid = text(named()).unwrap_err();
        assert_eq!((invalid.code(), &invalid.details()["offset"]), (Code::Validation, &1.into()));
    }

    fn query(limit: u64, cursor: Option<&str>) -> QueryOptions {
        QueryOptions { limit: Some(limit), cursor: cursor.map(str::to_owned) }
    }

    fn page(items: &[u32], query: &QueryOptions) -> Page<u32> {
        let pages = Pages::of("a list", &"a filter", query).unwrap();
        pages.page(items.iter().map(|item| (Reverse(*item), *item))).unwrap()
    }

    #[test]
    fn pages_of_changing_list_neither_repeat_nor_skip_items() {
        let first = page(&[9, 7, 5, 3], &query(2, None));
        assert_eq!((first.items, first.has_more), (vec![9, 7], true));
        let cursor = first.next_cursor.unwrap();
        // 9, 8 and 7 are before the cursor: 8 was added, 7 was removed.
        let next = page(&[9, 8, 5, 4, 3], &query(2, Some(&cursor)));
        assert_eq!((next.items, next.has_more), (vec![5, 4], true));
        let last = page(&[3], &query(2, next.next_cursor.as_deref()));
        assert_eq!((last.items, last.has_more, last.next_cursor), (vec![3], false, None));
    }

    #[test]
    fn invalid_and_foreign_cursors_fail() {
        let cursor = page(&[9, 7, 5], &query(1, None)).next_cursor.unwrap();
        let refused = |list: &str, filter: &str, cursor: &str| {
            let pages = Pages::<Reverse<u32>>::of(list, &filter, &query(1, Some(cursor)));
            pages.err().map(|e| e.code()) == Some(Code::Validation)
        };
        assert!(!refused("a list", "a filter", &cursor));
        assert!(refused("another", "a filter", &cursor) && refused("a list", "another", &cursor));
        let changed = cursor.replacen(&cursor[..1], if cursor.starts_with('0') { "1" } else { "0" }, 1);
        for garbage in ["", "garbage", "2", "é", &cursor[1..], &cursor[..cursor.len() - 2], &changed] {
            assert!(refused("a list", "a filter", garbage), "{garbage}");
        }
    }
}

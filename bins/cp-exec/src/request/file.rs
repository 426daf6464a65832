//! The operations of the tool `filesystem`, and what each may be asked.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "operation", content = "arguments", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FileOperation {
    ReadFile(ReadFile),
    ListDirectory(ListDirectory),
    WriteFile(WriteFile),
    EditFile(EditFile),
    RemoveFile(RemoveFile),
    Search(Search),
    Find(Find),
    RestoreFiles(RestoreFiles),
}

/// Their names.
pub(super) const FILE_OPERATIONS: [&str; 8] =
    ["read_file", "list_directory", "write_file", "edit_file", "remove_file", "search", "find", "restore_files"];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    pub path: String,
    #[serde(default)]
    pub offset: u64,
    /// At most so many bytes.
    pub limit: Option<u64>,
    pub encoding: Option<Encoding>,
    /// The first line, from 1. With this or one of the next two it is read by lines.
    pub line: Option<u64>,
    /// At most so many lines.
    pub lines: Option<u64>,
    /// Whether each line has its number before it.
    #[serde(default)]
    pub numbered: bool,
}

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Encoding {
    /// As they are; they must be UTF-8.
    #[serde(rename = "utf-8")]
    Utf8,
    /// In base64.
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDirectory {
    pub path: String,
    /// At most so many entries.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub path: String,
    pub content: String,
    #[serde(default)]
    pub mode: WriteMode,
    /// The token that confirms an overwrite.
    pub confirm: Option<String>,
}

/// Whether a file may be there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WriteMode {
    /// It must not.
    #[default]
    Create,
    /// It is replaced.
    Overwrite,
}

/// Replaces text of a file, or applies a patch to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    pub path: String,
    /// What is replaced.
    pub old: Option<String>,
    /// By what.
    pub new: Option<String>,
    /// Whether every occurrence is replaced; else it must be the only one.
    #[serde(default)]
    pub all: bool,
    /// A unified difference, instead of `old` and `new`.
    pub patch: Option<String>,
    /// The hash of the file as the caller knows it.
    pub expected_sha256: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveFile {
    pub path: String,
    /// The hash of the file as the caller knows it.
    pub expected_sha256: Option<String>,
}

/// Looks for lines in files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    pub pattern: String,
    #[serde(default = "here")]
    pub path: String,
    /// Whether the pattern is text and not a regular expression.
    #[serde(default)]
    pub literal: bool,
    /// The files that are looked into.
    pub glob: Option<String>,
    /// Lines to show before and after each that matches.
    #[serde(default)]
    pub context: usize,
    /// Whether files are looked into whose names begin with a dot.
    #[serde(default)]
    pub hidden: bool,
    /// At most so many lines.
    pub limit: Option<usize>,
}

/// Looks for files by their names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Find {
    pub glob: Option<String>,
    #[serde(default = "here")]
    pub path: String,
    pub kind: Option<EntryKind>,
    /// Whether names that begin with a dot are found too.
    #[serde(default)]
    pub hidden: bool,
    /// At most so many.
    pub limit: Option<usize>,
}

/// What a path can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink,
}

/// Puts files back to contents that the ledger keeps: all of them, or none if one is not as the caller says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreFiles {
    pub files: Vec<Restore>,
}

/// One file, as it is and as it is to be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restore {
    pub path: String,
    /// The hash of what it holds now; none: it is not there.
    pub from: Option<String>,
    /// The hash of what it is to hold; none: it is removed.
    pub to: Option<String>,
    /// Its permissions then, in octal; those that it has if not given.
    pub permissions: Option<String>,
}

fn here() -> String {
    ".".to_owned()
}

//! The operations of the tool `filesystem`, and their arguments.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FileOperation {
    ReadFile(ReadFile),
    ListDirectory(ListDirectory),
    WriteFile(WriteFile),
    EditFile(EditFile),
    RemoveFile(RemoveFile),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    #[serde(alias = "file_path")]
    pub path: String,
    #[serde(default)]
    pub offset: u64,
    /// The most bytes to return.
    pub limit: Option<u64>,
    pub encoding: Option<Encoding>,
    /// The first line, from 1. This or one of the next two members selects reading by lines.
    pub line: Option<u64>,
    /// The most lines to return.
    pub lines: Option<u64>,
    /// True if each line starts with its number.
    #[serde(default)]
    pub numbered: bool,
}

/// The encoding of bytes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Encoding {
    /// The text itself, which must be UTF-8.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Base64.
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDirectory {
    pub path: String,
    /// The most entries to return.
    pub limit: Option<usize>,
    /// The position at which the last page ended.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    #[serde(alias = "file_path")]
    pub path: String,
    #[serde(alias = "file_text")]
    pub content: String,
    #[serde(default)]
    pub mode: WriteMode,
    /// The token that confirms an overwrite.
    pub confirm: Option<String>,
}

/// The behaviour if the file already exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WriteMode {
    /// An existing file is an error.
    #[default]
    Create,
    /// An existing file is replaced.
    Overwrite,
}

/// Replaces text of a file, or applies a patch to one or more files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The file. A patch that names its files does not need it.
    #[serde(alias = "file_path")]
    pub path: Option<String>,
    /// The text to replace. An empty text creates the file.
    #[serde(alias = "old_string", alias = "old_str")]
    pub old: Option<String>,
    /// The new text.
    #[serde(alias = "new_string", alias = "new_str")]
    pub new: Option<String>,
    /// True if every occurrence is replaced. Otherwise there must be exactly one.
    #[serde(default, alias = "replace_all")]
    pub all: bool,
    /// Several replacements, one after the other.
    #[serde(default)]
    pub edits: Vec<Replacement>,
    /// A patch (`*** Begin Patch`), instead of `old` and `new`.
    #[serde(alias = "input")]
    pub patch: Option<String>,
    /// The hash of the file that the caller expects.
    pub expected_sha256: Option<String>,
}

/// One of several replacements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replacement {
    /// The file, if it is not that of the request.
    #[serde(alias = "file_path")]
    pub path: Option<String>,
    #[serde(alias = "old_string", alias = "old_str", alias = "oldText")]
    pub old: String,
    #[serde(alias = "new_string", alias = "new_str", alias = "newText")]
    pub new: String,
    #[serde(default, alias = "replace_all")]
    pub all: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveFile {
    pub path: String,
    /// The hash of the file that the caller expects.
    pub expected_sha256: Option<String>,
}

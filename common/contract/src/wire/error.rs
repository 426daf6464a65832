//! Failures in one table: code on the wire, exit status, and whether a retry may succeed; and suggestions for mistyped
//! words.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use cp_json::words::Refusal;
use cp_redact::Redactor;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use strsim::osa_distance;

use crate::wire::reply::bytes_of;

/// The result of every fallible function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Defines the kinds of failures: the description, the name on the wire, the exit status, if a retry may succeed, and if
/// the public contract defines the code.
macro_rules! codes {
    ($($(#[$about:meta])* $code:ident = ($name:literal, $exit:literal, $retryable:literal, $core:literal),)*) => {
        /// A kind of failure. Programs add messages, never kinds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$about])* $code,)*
        }

        impl Code {
            /// The table: each code at its own place, those of the public contract first, in its order.
            pub const ROWS: &[Row] =
                &[$(Row { code: Self::$code, name: $name, exit: $exit, retryable: $retryable, core: $core },)*];
        }
    };
}

codes! {
    /// The command line is wrong.
    Usage = ("E_USAGE", 2, false, true),
    /// The input is wrong.
    Validation = ("E_VALIDATION", 2, false, true),
    /// A named object does not exist.
    NotFound = ("E_NOT_FOUND", 3, false, true),
    /// Credentials are missing or rejected.
    Auth = ("E_AUTH", 4, false, true),
    /// The policy, the file system, or a permission of an upstream service, forbids it.
    Forbidden = ("E_FORBIDDEN", 4, false, true),
    /// The configuration is missing or wrong.
    Config = ("E_CONFIG", 4, false, true),
    /// A write needs a confirm token.
    ConfirmationRequired = ("E_CONFIRMATION_REQUIRED", 5, false, true),
    /// State has changed, or a token is stale, forged or replayed.
    Conflict = ("E_CONFLICT", 6, false, true),
    /// The network failed before a response arrived.
    Network = ("E_NETWORK", 7, true, true),
    /// An upstream service limits the request rate.
    RateLimited = ("E_RATE_LIMITED", 7, true, true),
    /// An upstream service failed.
    Server = ("E_SERVER", 7, true, true),
    /// A deadline passed.
    Timeout = ("E_TIMEOUT", 8, true, true),
    /// Bytes differ from those that were signed, hashed or chained.
    Integrity = ("E_INTEGRITY", 1, false, true),
    /// The local file system or a pipe failed.
    Io = ("E_IO", 1, false, true),
    /// A bug, or an unforeseen condition.
    Unknown = ("E_UNKNOWN", 1, false, true),
    /// A signal interrupted the work.
    Interrupted = ("E_INTERRUPTED", 130, true, true),
    /// A command exited with a status other than 0.
    CommandFailed = ("E_COMMAND_FAILED", 1, false, false),
    /// Some items of a stream failed, but not all.
    Partial = ("E_PARTIAL", 1, false, false),
    /// A person must act before the work can continue.
    HumanRequired = ("E_HUMAN_REQUIRED", 9, false, false),
    /// A budget is exhausted.
    BudgetExhausted = ("E_BUDGET_EXHAUSTED", 9, false, false),
}

/// A row of the table: the representation of a [`Code`] outside the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The code.
    pub code: Code,
    /// The name on the wire, `E_…`.
    pub name: &'static str,
    /// The exit status, 0 to 255.
    pub exit: u8,
    /// True if retrying the same request may succeed.
    pub retryable: bool,
    /// True if the public contract defines the code; the others are extensions of these tools.
    pub core: bool,
}

impl Code {
    /// Returns the row of the table.
    pub const fn row(self) -> Row {
        Self::ROWS[self as usize]
    }

    /// Returns the code with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ROWS.iter().find(|row| row.name == name).map(|row| row.code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

/// The meaning of each exit status. `reference` must repeat these texts of the public contract exactly.
pub const EXITS: [(u8, &str); 11] = [
    (0, "success"),
    (1, "generic / integrity / io / unknown (non-retryable, read the envelope)"),
    (2, "usage / validation (fix args, do not retry)"),
    (3, "not found (do not retry)"),
    (4, "auth / forbidden / config (surface credentials/permission)"),
    (5, "confirmation required (run dry-run for a token)"),
    (6, "conflict / invalid token (re-read state, retry)"),
    (7, "retryable transient (network / rate-limit / server)"),
    (8, "timeout (back off, retry)"),
    (9, "human action required (optional; relay to user, run resume)"),
    (130, "interrupted by signal (retryable; nothing half-applied)"),
];

/// Details that are never redacted, because a changed value would be useless.
const VERBATIM: [&str; 6] = ["resume", "otherwise", "confirm_token", "cursor", "row", "receipt"];

/// Redacts a text: secrets of a known shape, values after names of secrets, and secrets in this process's environment.
pub fn without_secrets(text: &str) -> String {
    Redactor::from_environment().redact_text(text).0
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_secrets(text),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A failure: its code, a message with the location, details for programs, and a hint.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    /// With the hint, a sentence for a person, as `hint`.
    details: Map<String, Value>,
    fatal: bool,
    reader_gone: bool,
}

impl Error {
    /// Makes a failure. The message is lower case and names the location.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: without_errno(message.into()),
            details: Map::new(),
            fatal: false,
            reader_gone: false,
        }))
    }

    /// Makes a [`Code::Usage`] failure.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// Makes a [`Code::Validation`] failure.
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new(Code::Validation, message)
    }

    /// Makes a [`Code::NotFound`] failure.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// Makes a [`Code::Config`] failure.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Code::Config, message)
    }

    /// The error of an argument that must be a text.
    pub(crate) fn not_text() -> Self {
        Self::usage("an argument is not UTF-8").hint("write it as UTF-8; only the paths of files may be any bytes")
    }

    /// Makes the failure of a system call, mostly [`Code::Io`]; `doing` names the operation.
    pub fn io(doing: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        let mut error = Self::from(source.into());
        error.0.message = format!("{doing}: {}", error.0.message);
        error
    }

    /// Reports that the reader of standard output closed the pipe: the program ends, but not as a failure.
    pub fn reader_gone() -> Self {
        let mut error = Self::new(Code::Io, "the reader has gone");
        error.0.reader_gone = true;
        error
    }

    /// Adds a member to `details`. Never a secret.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }

    /// Like [`Error::with`], but keeps an existing member.
    #[must_use]
    pub fn with_absent(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.entry(name).or_insert_with(|| value.into());
        self
    }

    /// Adds the input row that failed, marked as untrusted, so that callers can join failures with rows. An existing
    /// row is kept.
    #[must_use]
    pub fn with_row(self, row: Option<&RawValue>) -> Self {
        let known = self.0.details.contains_key("row");
        let row = row.filter(|_| !known).and_then(|row| serde_json::from_str::<Value>(row.get()).ok());
        let Some(row) = row else { return self };
        let mut untrusted = self.0.details.get("_untrusted").and_then(Value::as_array).cloned().unwrap_or_default();
        untrusted.push("/row".into());
        self.with("row", row).with("_untrusted", untrusted)
    }

    /// Sets the hint, one sentence for a person; it is also `details.hint`.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.with("hint", hint.into())
    }

    /// Sets the hint to the known name that is nearest to an unknown one, else to `otherwise`.
    #[must_use]
    pub fn nearest<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> Self {
        match nearest(name, known) {
            Some(near) => self.with("nearest", near).hint(format!("did you mean `{near}`?")),
            None => self.hint(otherwise),
        }
    }

    /// Decodes the `error` member of an envelope, the reverse of [`Error::to_value`], without its index in a stream.
    pub fn from_value(error: &Value) -> Self {
        let code = error["code"].as_str().and_then(Code::from_name).unwrap_or(Code::Unknown);
        let message = error["message"].as_str().filter(|message| !message.is_empty());
        let mut found = Self::new(code, message.unwrap_or("the program failed without a message"));
        for (name, value) in error["details"].as_object().into_iter().flatten().filter(|(name, _)| *name != "index") {
            found = found.with(name, value.clone());
        }
        found
    }

    /// Puts a file name before the message and into `details.file`.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.message = format!("{}: {}", path.display(), self.0.message);
        let error = self.with("file", path.display().to_string());
        bytes_of(path).into_iter().fold(error, |error, bytes| error.with("file_bytes", bytes))
    }

    /// Puts a 1-based line number before the message and into `details.line`.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.message = format!("line {line}: {}", self.0.message);
        self.with("line", line)
    }

    /// Redacts the message, the hint and the details, because a rejected argument may be a key. Command lines to run
    /// and tokens to return are kept.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.0.message = without_secrets(&self.0.message);
        for (_, value) in self.0.details.iter_mut().filter(|(name, _)| !VERBATIM.contains(&name.as_str())) {
            clean(value);
        }
        self
    }

    /// Marks a failure that is not caused by the item: it ends the stream.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.0.fatal = true;
        self
    }

    /// The kind of failure.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message, a lower-case fragment.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.details.get("hint")?.as_str()
    }

    /// True if the stream must end here.
    pub fn is_fatal(&self) -> bool {
        self.0.fatal || matches!(self.0.code, Code::Interrupted) || self.0.reader_gone
    }

    /// True if the only cause is that the reader of standard output closed the pipe.
    pub fn is_reader_gone(&self) -> bool {
        self.0.reader_gone
    }

    /// Returns the details for programs, including the hint.
    pub fn details(&self) -> Map<String, Value> {
        self.0.details.clone()
    }

    /// Encodes the `error` member of an envelope: code, message, details, retryable, in this order.
    pub fn to_value(&self) -> Value {
        let Inner { code, message, details, .. } = &*self.0;
        let row = code.row();
        json!({ "code": row.name, "message": message, "details": details, "retryable": row.retryable })
    }
}

/// Removes Rust's "(os error N)" from a message, and the capital before it: an error number has one spelling.
fn without_errno(mut message: String) -> String {
    while let Some(at) = message.find(" (os error ") {
        let end = message[at..].find(')').map_or(message.len(), |end| at + end + 1);
        message.replace_range(at..end, "");
        let start = message[..at].rfind(": ").map_or(0, |colon| colon + 2);
        let lower = message[start..at].to_lowercase();
        message.replace_range(start..at, &lower);
    }
    message
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        let said = source.to_string();
        match source.kind() {
            ErrorKind::Interrupted => Self::new(Code::Interrupted, "interrupted"),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::new(Code::Forbidden, said),
            ErrorKind::StorageFull => Self::new(Code::Io, said).hint("free some space, then repeat it"),
            _ => Self::new(Code::Io, said),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(source: rustix::io::Errno) -> Self {
        Self::from(io::Error::from(source))
    }
}

impl From<Refusal> for Error {
    /// A string that needs a shell is forbidden; a malformed string is invalid.
    fn from(refusal: Refusal) -> Self {
        let code = if refusal.is_malformed() { Code::Validation } else { Code::Forbidden };
        Self::new(code, refusal.to_string())
            .with("rule", refusal.rule)
            .with("offset", refusal.offset)
            .with("reason", refusal.reason)
            .hint(refusal.hint)
    }
}

/// Returns the verb that a word of four letters or more misspells by one edit.
pub fn misspelt_verb<'a>(word: &str, verbs: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_word = word.chars().count() >= 4;
    verbs.into_iter().find(|verb| is_word && osa_distance(word, verb) == 1)
}

/// Returns the known word nearest to `word`, at most a third of its letters and two edits away (insert, delete, replace,
/// swap neighbours).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|known| (osa_distance(word, known), known))
        .filter(|(distance, known)| *distance <= (known.chars().count() / 3).min(2))
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use cp_json::words::split;

    use super::*;

    #[test]
    fn refusal_of_shell_syntax_is_forbidden_and_malformed_is_invalid() {
        assert_eq!(Error::from(split("a | b").unwrap_err()).code(), Code::Forbidden);
        let broken = Error::from(split("a 'b").unwrap_err());
        assert_eq!((broken.code(), &broken.details()["offset"]), (Code::Validation, &2.into()));
    }

    #[test]
    fn error_number_has_one_spelling_and_full_disk_has_hint() {
        for number in [2, 13, 17, 20, 21, 28, 30, 122] {
            let source = || io::Error::from_raw_os_error(number);
            let direct = Error::io("a File", source());
            let formatted = Error::new(Code::Io, format!("a File: {}", source()));
            let wrapped = Error::io("a File", io::Error::other(format!("{} at Path", source())));
            assert_eq!(direct.message(), formatted.message());
            assert_eq!(wrapped.message(), format!("{} at Path", direct.message()));
            let reason = &direct.message()["a File: ".len()..];
            assert!(reason == reason.to_lowercase() && !reason.contains("os error"), "{reason}");
            assert_eq!(direct.hint_text().is_some(), number == 28);
        }
    }

    #[test]
    fn nearest_finds_words_within_two_edits() {
        let verbs = ["append", "query", "verify", "tip"];
        assert_eq!(nearest("apend", verbs), Some("append"));
        assert_eq!(nearest("qurey", verbs), Some("query"));
        assert_eq!(nearest("vrfy", verbs), Some("verify"));
        assert_eq!(nearest("hello", verbs), None);
        for (word, known) in
            [("hi", "tip"), ("ab", "xy"), ("tail", "tip"), ("log", "blob"), ("tcsh", "zsh"), ("nope", "role")]
        {
            assert_eq!(nearest(word, [known]), None, "{word}");
        }
        for (word, known) in
            [("ti", "tip"), ("lst", "list"), ("tpi", "tip"), ("seession", "session"), ("sesson_", "session")]
        {
            assert_eq!(nearest(word, [known]), Some(known), "{word}");
        }
    }

    #[test]
    fn misspelt_verb_is_one_edit_from_a_longer_word() {
        let verbs = ["run", "help", "check", "doctor", "tip", "end"];
        for word in ["rm", "head", "docker", "new", "tail", "du", "ru", "check"] {
            assert_eq!(misspelt_verb(word, verbs), None, "{word}");
        }
        assert_eq!(
            ["chek", "helpp", "dotcor"].map(|word| misspelt_verb(word, verbs)),
            [Some("check"), Some("help"), Some("doctor")]
        );
    }
}

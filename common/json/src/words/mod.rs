//! The strict tokenizer: one string into words, or a refusal that says where and why.
//!
//! It knows quotes and the backslash, and refuses everything else that a shell would treat specially. So what is
//! decided about is what is executed, and no second parser can read the string otherwise. Whatever is accepted gives
//! the words `bash` would build, but for `* ? [ ] { }` outside quotes, which stay as they are and are noted.

use std::fmt;

/// The words of a command string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The words, quotes removed.
    pub argv: Vec<String>,
    /// Text that was kept literally although a shell would expand it.
    pub notices: Vec<String>,
    /// The words that began with an unquoted `~` or `~/`; see [`Words::with_home`].
    pub tildes: Vec<usize>,
}

impl Words {
    /// The words with each leading `~` replaced by a home directory.
    #[must_use]
    pub fn with_home(mut self, home: &str) -> Vec<String> {
        for &at in &self.tildes {
            self.argv[at].replace_range(..1, home.trim_end_matches('/'));
            if self.argv[at].is_empty() {
                "/".clone_into(&mut self.argv[at]);
            }
        }
        self.argv
    }
}

/// Which rule of the tokenizer a string broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A quote that is never closed.
    UnterminatedQuote,
    /// A backslash with nothing after it.
    TrailingBackslash,
    /// A NUL byte, which no argument can hold.
    NulByte,
    /// A control character other than a tab, or a newline inside quotes.
    ControlChar,
    /// `; & | < > ( )` or a newline, outside quotes.
    ShellOperator,
    /// A backquote or `$(`.
    CommandSubstitution,
    /// A `$` outside single quotes, or a `~` that a shell would expand.
    Expansion,
    /// `NAME=value` before the command.
    AssignmentPrefix,
    /// A `#` that begins a word.
    Comment,
    /// A command that begins with `~`.
    TildeCommand,
    /// A word that is syntax to a shell, such as `if` or `!`, where the command should be.
    ShellKeyword,
    /// No word at all.
    Empty,
}

impl Rule {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnterminatedQuote => "unterminated_quote",
            Self::TrailingBackslash => "trailing_backslash",
            Self::NulByte => "nul_byte",
            Self::ControlChar => "control_char",
            Self::ShellOperator => "shell_operator",
            Self::CommandSubstitution => "command_substitution",
            Self::Expansion => "expansion",
            Self::AssignmentPrefix => "assignment_prefix",
            Self::Comment => "comment",
            Self::TildeCommand => "tilde_command",
            Self::ShellKeyword => "shell_keyword",
            Self::Empty => "empty",
        }
    }

    /// True if the string is broken rather than asking for a shell.
    pub const fn is_malformed(self) -> bool {
        matches!(
            self,
            Self::UnterminatedQuote | Self::TrailingBackslash | Self::NulByte | Self::ControlChar | Self::Empty
        )
    }
}

/// Why a string is not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule it broke.
    pub rule: Rule,
    /// Where, in bytes from the start.
    pub offset: usize,
    /// The description of the fault.
    pub reason: String,
    /// The spelling to use instead.
    pub hint: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.reason)
    }
}

/// Splits a command string into words.
pub fn split(text: &str) -> Result<Words, Refusal> {
    let mut splitter = Splitter { text, at: 0, words: Words::default(), word: None };
    splitter.run()?;
    Ok(splitter.words)
}

/// Words a shell takes as syntax where a command should be.
const KEYWORDS: [&str; 22] = [
    "!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until",
    "do", "done", "time", "function", "coproc", "in",
];

/// The word being built.
#[derive(Default)]
struct Word {
    start: usize,
    text: String,
    /// Nothing in it was quoted so far.
    bare: bool,
    /// Its last character, if that was not quoted.
    last: Option<char>,
    /// It reads `NAME=`, `NAME+=` or `NAME[…]=` so far, unquoted up to the sign.
    assigns: bool,
    /// It began with `~`, and no slash has come yet.
    tilde: bool,
}

struct Splitter<'a> {
    text: &'a str,
    at: usize,
    words: Words,
    word: Option<Word>,
}

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        while let Some(c) = self.peek() {
            let start = self.at;
            Self::check(c, start)?;
            self.at += c.len_utf8();
            match c {
                ' ' | '\t' => self.end_word()?,
                '\'' => self.single_quoted(start)?,
                '"' => self.double_quoted(start)?,
                '\\' => self.escaped(start)?,
                '$' => return Err(self.dollar(start)),
                '`' => return Err(substitution(start)),
                ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n' => return Err(operator(c, start)),
                '#' if self.word.is_none() => {
                    return Err(refusal(
                        Rule::Comment,
                        start,
                        "a shell would drop everything from `#` on",
                        "quote the word: '#…'",
                    ));
                }
                '~' => self.tilde(start)?,
                _ => self.plain(c, start)?,
            }
        }
        self.end_word()?;
        if self.words.argv.is_empty() {
            return Err(refusal(Rule::Empty, 0, "the command is empty", "write the command and its arguments"));
        }
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Refuses bytes no argument should hold, wherever they stand.
    fn check(c: char, at: usize) -> Result<(), Refusal> {
        if c == '\0' {
            return Err(refusal(Rule::NulByte, at, "a NUL byte ends an argument", "leave the byte out"));
        }
        if c.is_control() && c != '\t' && c != '\n' {
            return Err(refusal(
                Rule::ControlChar,
                at,
                format!("control character U+{:04X}", u32::from(c)),
                "leave the character out, or give the argument through `argv`",
            ));
        }
        Ok(())
    }

    fn word(&mut self, start: usize) -> &mut Word {
        self.word.get_or_insert_with(|| Word { start, bare: true, ..Word::default() })
    }

    fn quoted(&mut self, start: usize) -> &mut Word {
        let word = self.word(start);
        word.bare = false;
        word.last = None;
        // A quote inside the tilde's own part makes the tilde literal.
        word.tilde = false;
        word
    }

    fn single_quoted(&mut self, start: usize) -> Result<(), Refusal> {
        self.quoted(start);
        let body = &self.text[self.at..];
        let Some(length) = body.find('\'') else { return Err(unterminated('\'', start)) };
        for (offset, c) in body[..length].char_indices() {
            Self::check(c, self.at + offset)?;
        }
        self.at += length + 1;
        let text = body[..length].to_owned();
        self.quoted(start).text.push_str(&text);
        Ok(())
    }

    fn double_quoted(&mut self, start: usize) -> Result<(), Refusal> {
        self.quoted(start);
        loop {
            let Some(c) = self.peek() else { return Err(unterminated('"', start)) };
            let at = self.at;
            Self::check(c, at)?;
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(()),
                '$' => return Err(self.dollar(at)),
                '`' => return Err(substitution(at)),
                '\\' => match self.peek() {
                    Some('\n') => self.at += 1,
                    Some(next @ ('$' | '`' | '"' | '\\')) => {
                        self.at += 1;
                        self.quoted(start).text.push(next);
                    }
                    // Before anything else the backslash is itself, inside double quotes.
                    _ => self.quoted(start).text.push('\\'),
                },
                _ => self.quoted(start).text.push(c),
            }
        }
    }

    fn escaped(&mut self, start: usize) -> Result<(), Refusal> {
        let Some(c) = self.peek() else {
            return Err(refusal(
                Rule::TrailingBackslash,
                start,
                "the backslash has nothing after it",
                "double it for a literal backslash",
            ));
        };
        Self::check(c, self.at)?;
        self.at += c.len_utf8();
        if c != '\n' {
            self.quoted(start).text.push(c);
        }
        Ok(())
    }

    fn tilde(&mut self, start: usize) -> Result<(), Refusal> {
        let first = self.words.argv.is_empty();
        let Some(word) = &mut self.word else {
            if first {
                return Err(refusal(
                    Rule::TildeCommand,
                    start,
                    "the command begins with `~`",
                    "name the program, or write its whole path",
                ));
            }
            let word = self.word(start);
            word.text.push('~');
            word.last = Some('~');
            word.tilde = true;
            return Ok(());
        };
        if word.tilde {
            return Err(other_home(word.start));
        }
        if word.assigns && matches!(word.last, Some('=' | ':')) {
            return Err(refusal(
                Rule::Expansion,
                start,
                "a shell would put a home directory here",
                "quote the `~`, or write the whole path",
            ));
        }
        word.text.push('~');
        word.last = Some('~');
        Ok(())
    }

    fn plain(&mut self, c: char, start: usize) -> Result<(), Refusal> {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}') {
            self.note(c, start);
        }
        let first = self.words.argv.is_empty();
        let word = self.word(start);
        if word.tilde {
            if c != '/' {
                return Err(other_home(word.start));
            }
            word.tilde = false;
            self.words.tildes.push(self.words.argv.len());
        }
        let word = self.word(start);
        // A shell reads on to the bracket that closes, over blanks and quotes.
        if c == '[' && first && word.bare && is_variable(&word.text) {
            return Err(refusal(
                Rule::AssignmentPrefix,
                word.start,
                "a shell would take this for the beginning of an assignment",
                "quote the word if a program has this name",
            ));
        }
        if c == '=' && !word.assigns && word.starts_assignment() {
            if first {
                return Err(refusal(
                    Rule::AssignmentPrefix,
                    word.start,
                    "a shell would take this as an assignment",
                    "send variables in `env`, or with --env",
                ));
            }
            word.assigns = true;
        }
        word.text.push(c);
        word.last = Some(c);
        Ok(())
    }

    /// Notes once for each kind of expansion that is not done.
    fn note(&mut self, c: char, at: usize) {
        let what = match c {
            '*' | '?' | '[' | ']' => "no glob expansion",
            _ => "no brace expansion",
        };
        if !self.words.notices.iter().any(|notice| notice.starts_with(what)) {
            self.words.notices.push(format!("{what}: `{c}` at byte {at} is literal"));
        }
    }

    fn end_word(&mut self) -> Result<(), Refusal> {
        let Some(word) = self.word.take() else { return Ok(()) };
        if word.tilde {
            self.words.tildes.push(self.words.argv.len());
        }
        if self.words.argv.is_empty() && word.bare && KEYWORDS.contains(&word.text.as_str()) {
            return Err(refusal(
                Rule::ShellKeyword,
                word.start,
                format!("`{}` is syntax of a shell", word.text),
                "send one command; quote the word if a program has this name",
            ));
        }
        // Also where it is quoted.
        if self.words.argv.is_empty() && word.text.starts_with('%') {
            return Err(refusal(
                Rule::ShellKeyword,
                word.start,
                "a shell would take this for one of its jobs",
                "write the whole path of the program",
            ));
        }
        self.words.argv.push(word.text);
        Ok(())
    }

    fn dollar(&self, at: usize) -> Refusal {
        if self.text[at + 1..].starts_with('(') {
            return substitution(at);
        }
        refusal(
            Rule::Expansion,
            at,
            "`$` outside single quotes is an expansion",
            "write the value itself, or '$' in single quotes",
        )
    }
}

impl Word {
    /// True if the text so far, unquoted, is a name that `=` may follow in an assignment.
    fn starts_assignment(&self) -> bool {
        // An index may hold quotes (`a["x"]=`), so quotes are permitted beyond the bracket.
        let name = self.text.split('[').next().unwrap_or_default();
        let indexed = name.len() < self.text.len();
        if !self.bare && !indexed {
            return false;
        }
        let name = if indexed { name } else { name.strip_suffix('+').unwrap_or(name) };
        is_variable(name)
    }
}

/// True if a shell could have a variable of this name.
fn is_variable(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn refusal(rule: Rule, offset: usize, reason: impl Into<String>, hint: &'static str) -> Refusal {
    Refusal { rule, offset, reason: reason.into(), hint }
}

fn unterminated(quote: char, at: usize) -> Refusal {
    refusal(Rule::UnterminatedQuote, at, format!("the {quote} opened here is never closed"), "close the quote")
}

fn substitution(at: usize) -> Refusal {
    refusal(
        Rule::CommandSubstitution,
        at,
        "a shell would run a command here",
        "run that command first, and write its output; or quote it in single quotes",
    )
}

fn other_home(at: usize) -> Refusal {
    refusal(
        Rule::Expansion,
        at,
        "a shell would look up another directory for this `~`",
        "write `~/…` or the whole path, or quote the `~`",
    )
}

fn operator(c: char, at: usize) -> Refusal {
    let (reason, hint) = match c {
        '|' => ("`|` makes a pipeline", "send the line to the tool `bash`, or as cp-exec -c LINE"),
        '<' | '>' => ("a redirection needs a shell", "send `stdin`, or read the output from the answer"),
        '&' | ';' => ("this is more than one command", "send one request for each command"),
        '\n' => ("a newline ends a command", "send one request for each command, or quote the newline"),
        _ => ("parentheses need a shell", "quote them, or send one request for each command"),
    };
    refusal(Rule::ShellOperator, at, reason, hint)
}

#[cfg(test)]
mod tests;

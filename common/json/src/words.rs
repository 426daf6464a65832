//! The strict tokenizer: one string into words, or a refusal that says where and why.
//!
//! It knows quotes and the backslash, and refuses everything else that a shell would treat specially. So what is
//! decided about is what is executed, and no second parser can read the string otherwise. Whatever is accepted gives
//! the words `bash` would build, but for `* ? [ ] { }` outside quotes, which stay as they are.

use std::fmt;

/// The words of a command string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The words, quotes removed.
    pub argv: Vec<String>,
    /// The words that began with an unquoted `~` or `~/`; see [`Words::with_home`].
    pub tildes: Vec<usize>,
}

impl Words {
    /// The words with each leading `~` replaced by a home directory.
    #[must_use]
    pub fn with_home(mut self, home: &str) -> Vec<String> {
        for &at in &self.tildes {
            self.argv[at].replace_range(..1, home);
        }
        self.argv
    }
}

/// Why a string is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule that it broke, by its name on the wire.
    pub rule: &'static str,
    /// Where, in bytes from the start.
    pub offset: usize,
    /// What is wrong.
    pub reason: &'static str,
    /// The spelling to use instead.
    pub hint: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.reason)
    }
}

impl Refusal {
    const fn new(rule: &'static str, reason: &'static str, hint: &'static str) -> Self {
        Self { rule, offset: 0, reason, hint }
    }

    const fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// True if the string is broken rather than asking for a shell.
    pub fn is_malformed(self) -> bool {
        [UNTERMINATED_QUOTE, TRAILING_BACKSLASH, NUL_BYTE, CONTROL_CHAR, EMPTY].contains(&self.at(0))
    }
}

const UNTERMINATED_QUOTE: Refusal =
    Refusal::new("unterminated_quote", "the quote opened here is never closed", "close the quote");
const TRAILING_BACKSLASH: Refusal =
    Refusal::new("trailing_backslash", "the backslash has nothing after it", "double it for a literal backslash");
const NUL_BYTE: Refusal = Refusal::new("nul_byte", "a NUL byte ends an argument", "leave the byte out");
/// A control character other than a tab, or a newline inside quotes.
const CONTROL_CHAR: Refusal =
    Refusal::new("control_char", "a control character", "leave it out, or give the argument through `argv`");
const SHELL_OPERATOR: Refusal = Refusal::new(
    "shell_operator",
    "pipelines, redirections, lists and groups need a shell",
    "send one command with its `stdin`, or the line to the tool `bash`, or as cp-exec -c LINE",
);
const COMMAND_SUBSTITUTION: Refusal = Refusal::new(
    "command_substitution",
    "a shell would run a command here",
    "run that command first, and write its output; or quote it in single quotes",
);
/// A `$` outside single quotes, or a `~` that a shell would expand.
const EXPANSION: Refusal = Refusal::new(
    "expansion",
    "a shell would put a value or a home directory here",
    "write the value itself, `~/…` as a word, or quote it in single quotes",
);
const ASSIGNMENT_PREFIX: Refusal = Refusal::new(
    "assignment_prefix",
    "a shell would take this for an assignment",
    "send variables in `env`, or with --env; quote the word if a program has this name",
);
const COMMENT: Refusal = Refusal::new("comment", "a shell would drop everything from `#` on", "quote the word: '#…'");
const TILDE_COMMAND: Refusal =
    Refusal::new("tilde_command", "the command begins with `~`", "name the program, or write its whole path");
const SHELL_KEYWORD: Refusal = Refusal::new(
    "shell_keyword",
    "a shell would take this for its own syntax",
    "send one command; quote the word, or write the whole path, if a program has this name",
);
const EMPTY: Refusal = Refusal::new("empty", "the command is empty", "write the command and its arguments");

/// Words a shell takes as syntax where a command should be.
const KEYWORDS: &str =
    "! { } [[ ]] if then else elif fi case esac for select while until do done time function coproc in";

/// Splits a command string into words.
pub fn split(text: &str) -> Result<Words, Refusal> {
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && *c != '\t' && *c != '\n') {
        return Err(if c == '\0' { NUL_BYTE } else { CONTROL_CHAR }.at(at));
    }
    let mut splitter = Splitter { text, at: 0, words: Words::default(), word: None };
    while let Some(c) = splitter.next() {
        splitter.take(c, splitter.at - c.len_utf8())?;
    }
    splitter.end_word()?;
    if splitter.words.argv.is_empty() { Err(EMPTY.at(0)) } else { Ok(splitter.words) }
}

/// The word being built.
struct Word {
    start: usize,
    text: String,
    /// Nothing in it was quoted so far.
    bare: bool,
}

struct Splitter<'a> {
    text: &'a str,
    at: usize,
    words: Words,
    word: Option<Word>,
}

impl Splitter<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn word(&mut self, start: usize) -> &mut Word {
        self.word.get_or_insert_with(|| Word { start, text: String::new(), bare: true })
    }

    fn quoted(&mut self, start: usize) -> &mut String {
        let word = self.word(start);
        word.bare = false;
        &mut word.text
    }

    /// Takes the character that starts there, and what belongs to it.
    fn take(&mut self, c: char, start: usize) -> Result<(), Refusal> {
        match c {
            ' ' | '\t' => return self.end_word(),
            '\'' => {
                let body = &self.text[self.at..];
                let length = body.find('\'').ok_or(UNTERMINATED_QUOTE.at(start))?;
                self.at += length + 1;
                self.quoted(start).push_str(&body[..length]);
            }
            '"' => return self.double_quoted(start),
            '\\' => match self.next().ok_or(TRAILING_BACKSLASH.at(start))? {
                '\n' => {}
                c => self.quoted(start).push(c),
            },
            '$' | '`' => return Err(self.expansion(c, start)),
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n' => return Err(SHELL_OPERATOR.at(start)),
            '#' if self.word.is_none() => return Err(COMMENT.at(start)),
            '~' => self.tilde(start)?,
            _ => self.plain(c, start)?,
        }
        Ok(())
    }

    fn double_quoted(&mut self, start: usize) -> Result<(), Refusal> {
        self.quoted(start);
        loop {
            let at = self.at;
            match self.next().ok_or(UNTERMINATED_QUOTE.at(start))? {
                '"' => return Ok(()),
                c @ ('$' | '`') => return Err(self.expansion(c, at)),
                '\\' => match self.peek() {
                    Some('\n') => self.at += 1,
                    Some(next @ ('$' | '`' | '"' | '\\')) => {
                        self.at += 1;
                        self.quoted(start).push(next);
                    }
                    // Before anything else the backslash is itself, inside double quotes.
                    _ => self.quoted(start).push('\\'),
                },
                c => self.quoted(start).push(c),
            }
        }
    }

    fn tilde(&mut self, start: usize) -> Result<(), Refusal> {
        if let Some(word) = &mut self.word {
            // A shell expands it in the value of an assignment.
            if word.text.ends_with(['=', ':']) && is_assignment(&word.text) {
                return Err(EXPANSION.at(start));
            }
            word.text.push('~');
            return Ok(());
        }
        if self.words.argv.is_empty() {
            return Err(TILDE_COMMAND.at(start));
        }
        // The directory of another user, or a stack of directories.
        if !matches!(self.peek(), None | Some(' ' | '\t' | '/')) {
            return Err(EXPANSION.at(start));
        }
        self.words.tildes.push(self.words.argv.len());
        self.word(start).text.push('~');
        Ok(())
    }

    fn plain(&mut self, c: char, start: usize) -> Result<(), Refusal> {
        let is_command = self.words.argv.is_empty();
        let word = self.word(start);
        // After a bracket a shell reads on to the one that closes, over blanks and quotes.
        let assigns = |text: &str| is_variable(if c == '=' { text.strip_suffix('+').unwrap_or(text) } else { text });
        if matches!(c, '[' | '=') && is_command && word.bare && assigns(&word.text) {
            return Err(ASSIGNMENT_PREFIX.at(word.start));
        }
        word.text.push(c);
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), Refusal> {
        let Some(word) = self.word.take() else { return Ok(()) };
        // A shell takes `%` for one of its jobs, also where it is quoted.
        let is_syntax = word.bare && KEYWORDS.split(' ').any(|known| known == word.text) || word.text.starts_with('%');
        if is_syntax && self.words.argv.is_empty() {
            return Err(SHELL_KEYWORD.at(word.start));
        }
        self.words.argv.push(word.text);
        Ok(())
    }

    fn expansion(&self, c: char, at: usize) -> Refusal {
        let is_command = c == '`' || self.text[at + 1..].starts_with('(');
        if is_command { COMMAND_SUBSTITUTION.at(at) } else { EXPANSION.at(at) }
    }
}

/// True if a word, up to its first `=`, is one that a shell may assign to.
fn is_assignment(word: &str) -> bool {
    is_variable(word.split(['=', '[']).next().unwrap_or_default().trim_end_matches('+'))
}

/// True if a shell could have a variable of this name.
fn is_variable(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests;

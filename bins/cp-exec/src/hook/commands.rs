//! The simple commands of a line for a shell, as the permission rules of the hosts see them. The result is never executed.

/// Words before a command, or alone, of the shells that people use.
const RESERVED: [&str; 26] = [
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "do",
    "done",
    "while",
    "until",
    "!",
    "{",
    "}",
    "time",
    "esac",
    "in",
    "coproc",
    "end",
    "begin",
    "and",
    "or",
    "not",
    "repeat",
    "foreach",
    "switch",
    "nocorrect",
    "noglob",
];
/// Words after which a shell reads words that are not a command.
const NOT_A_COMMAND: [&str; 5] = ["for", "case", "select", "function", "[["];

/// The words of each simple command, without redirections and quotes. Expansions stay as text.
pub(super) fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut scanner = Scanner { rest: line.chars().peekable(), ..Scanner::default() };
    scanner.scan();
    let kept = scanner
        .commands
        .into_iter()
        .map(|words| words.into_iter().skip_while(|word| RESERVED.contains(&word.as_str())).collect::<Vec<String>>());
    kept.filter(|words| words.first().is_some_and(|first| !NOT_A_COMMAND.contains(&first.as_str()))).collect()
}

struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    /// True if the next word is the target of a redirection.
    skips_word: bool,
    /// True if the next word ends a here-document, and those that are open.
    names_end: bool,
    ends: Vec<String>,
}

impl Default for Scanner<'_> {
    fn default() -> Self {
        let (commands, words, ends) = Default::default();
        Self { rest: "".chars().peekable(), commands, words, word: None, skips_word: false, names_end: false, ends }
    }
}

impl Scanner<'_> {
    fn scan(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                '\'' => self.quoted('\''),
                '"' => self.quoted('"'),
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(c) => self.push(c),
                },
                '#' if self.word.is_none() => while self.rest.next_if(|c| *c != '\n').is_some() {},
                ' ' | '\t' => self.end_word(),
                '<' | '>' => self.redirection(c),
                '\n' => {
                    self.end_command();
                    self.skip_documents();
                }
                '&' if self.rest.peek() == Some(&'>') => self.end_word(),
                ';' | '&' | '|' | '(' | ')' | '`' => self.end_command(),
                '$' if self.rest.peek() == Some(&'(') => self.end_command(),
                c => self.push(c),
            }
        }
        self.end_command();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    /// Reads a quoted part. A substitution in double quotes starts a command of its own.
    fn quoted(&mut self, quote: char) {
        self.word.get_or_insert_default();
        while let Some(c) = self.rest.next() {
            match c {
                c if c == quote => return,
                '\\' if quote == '"' => self.rest.next().into_iter().for_each(|c| self.push(c)),
                '`' if quote == '"' => self.substitution('`'),
                '$' if quote == '"' && self.rest.next_if_eq(&'(').is_some() => self.substitution(')'),
                c => self.push(c),
            }
        }
    }

    /// Reads a substitution in double quotes.
    fn substitution(&mut self, end: char) {
        let mut depth = 1;
        let inner: String = std::iter::from_fn(|| {
            let c = self.rest.next()?;
            depth += i32::from(c == '(' && end == ')');
            depth -= i32::from(c == end);
            (depth > 0).then_some(c)
        })
        .collect();
        self.commands.extend(simple_commands(&inner));
    }

    fn redirection(&mut self, sign: char) {
        // A number before the sign is part of it.
        if self.word.as_ref().is_some_and(|word| word.bytes().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        let is_double = self.rest.next_if_eq(&sign).is_some();
        if sign == '<' && is_double && self.rest.next_if_eq(&'<').is_none() {
            self.rest.next_if_eq(&'-');
            self.names_end = true;
        }
        if self.rest.next_if_eq(&'(').is_some() {
            return self.end_command();
        }
        while self.rest.next_if(|c| matches!(c, '&' | '|')).is_some() {}
        self.skips_word = true;
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.names_end) {
            self.ends.push(word.clone());
        }
        if !std::mem::take(&mut self.skips_word) {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.skips_word = false;
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }

    /// Skips the texts of the here-documents that begin on the next line.
    fn skip_documents(&mut self) {
        for end in std::mem::take(&mut self.ends) {
            loop {
                let mut line = String::new();
                while let Some(c) = self.rest.next_if(|c| *c != '\n') {
                    line.push(c);
                }
                let is_last = self.rest.next().is_none();
                if is_last || line.trim_start_matches('\t') == end {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_commands_are_those_that_a_shell_would_run() {
        for (line, expected) in [
            ("git push origin", "git push origin"),
            ("a && b;c|d&e\nf", "a+b+c+d+e+f"),
            ("cd x 2>&1 >out && git 'pu'sh \"a b\" >>log", "cd x+git push a b"),
            ("A=1 rm -rf x # rm y", "A=1 rm -rf x"),
            ("if test -f a; then rm a; else echo \"no; b\"; fi", "test -f a+rm a+echo no; b"),
            ("for i in a b; do git push $i; done", "git push $i"),
            ("echo $(git push) `rm x` \"in $(curl y)\"", "echo+git push+rm x+curl y+in "),
            ("cat <<EOF >f && id\nrm -rf /\nEOF\nls", "cat+id+ls"),
            ("cat <<-'E O'\n\trm\n\tE O\nls; wc <<<word", "cat+ls+wc"),
            ("(cd a; ! make -j2) &>log", "cd a+make -j2"),
            ("g\\it p\\\nush", "git push"),
            ("'unclosed rm", "unclosed rm"),
            ("diff <(git show) x", "diff+git show+x"),
            ("", ""),
        ] {
            let commands: Vec<String> = simple_commands(line).iter().map(|words| words.join(" ")).collect();
            assert_eq!(commands.join("+"), expected, "{line}");
        }
    }
}

//! Simple commands: assignments, words and redirections up to the operator that ends them.

use super::builtins::{self, KEYWORDS, Meaning};
use super::known::{Environment, Found, Known, Outcome, Variables};
use super::redirects::{self, Documents, broken};
use super::refusal::{Refusal, Rule};
use super::scan::{Scanner, Token, Unit, ends_word};
use super::steps::{Action, Part, Redirect, Target, Word};
use super::word;

/// A line on its way to steps.
pub(super) struct Reader<'a> {
    pub scanner: Scanner<'a>,
    pub environment: Environment<'a>,
    /// What is certain where the reader stands.
    pub known: Known,
    pub documents: Documents,
    /// The names of the commands so far.
    pub understood: Vec<String>,
    pub notices: Vec<String>,
}

/// Variables that mean something to the shell itself.
const OWN: [&str; 22] = [
    "BASHOPTS",
    "BASHPID",
    "CDPATH",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GLOBIGNORE",
    "GROUPS",
    "HISTCMD",
    "IFS",
    "LINENO",
    "OLDPWD",
    "POSIXLY_CORRECT",
    "PPID",
    "PWD",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
];

/// A simple command as it was read, before anyone asked what its name means.
#[derive(Default)]
struct Parts {
    env: Vec<(String, Word)>,
    argv: Vec<Word>,
    redirects: Vec<Redirect>,
    exports: bool,
}

impl Reader<'_> {
    fn variables(&self) -> Variables<'_> {
        Variables { known: &self.known, environment: &self.environment }
    }

    pub(super) fn refused<T>(&self, rule: Rule, reason: &str) -> Result<T, Refusal> {
        Err(Refusal::new(rule, self.scanner.at, reason))
    }

    /// The word that stands here without quotes, if it does and ends here.
    pub(super) fn bare(&self) -> &str {
        let rest = self.scanner.rest();
        &rest[..rest.find(ends_word).unwrap_or(rest.len())]
    }

    /// Reads a simple command, and what is certain after it.
    pub(super) fn simple(&mut self) -> Result<(Action, Outcome), Refusal> {
        let start = self.scanner.at;
        self.scanner.printed = false;
        let mut parts = self.parts(start)?;
        let names: Vec<&str> = parts.env.iter().map(|(name, _)| name.as_str()).collect();
        self.check_own_values(start, &names)?;
        if parts.argv.is_empty() || parts.exports {
            return self.assigned(start, parts);
        }
        if let Some(name) = self.known.uncertain() {
            let reason = format!("the command may or may not get the variable {name}");
            return Err(Refusal::new(Rule::Uncertain, start, reason));
        }
        let meaning = builtins::meaning(std::mem::take(&mut parts.argv)).map_err(|(rule, reason, hint)| {
            let refusal = Refusal::new(rule, start, reason);
            match hint {
                Some(hint) => refusal.hint(hint),
                None => refusal,
            }
        })?;
        let alone = parts.env.is_empty() && parts.redirects.is_empty();
        let same = self.known.either();
        match meaning {
            Meaning::Program(argv) => {
                self.understood.extend(argv[0].text().map(str::to_owned));
                let given = self.known.exported().map(|(name, text)| (name.to_owned(), Word::Text(text.to_owned())));
                let env = given.chain(parts.env).collect();
                Ok((Action::Pipeline(vec![Part { argv, env, redirects: parts.redirects }]), same))
            }
            Meaning::Nothing => {
                // Its program does the same; it is not needed where files are all that it is for.
                let argv = if parts.redirects.is_empty() { vec![Word::Text("true".to_owned())] } else { Vec::new() };
                Ok((
                    Action::Pipeline(vec![Part {
                        argv,
                        env: parts.env.into_iter().collect(),
                        redirects: parts.redirects,
                    }]),
                    same,
                ))
            }
            Meaning::Cd(to) if parts.env.is_empty() && parts.redirects.iter().all(is_silent) => {
                self.understood.push("cd".to_owned());
                if !parts.redirects.is_empty() {
                    self.notices.push("what `cd` has to say goes to standard error, redirected or not".to_owned());
                }
                let mut outcome = same;
                outcome.zero.set("PWD", None, false);
                Ok((Action::Cd(to), outcome))
            }
            Meaning::Exit(status) if alone => {
                self.understood.push("exit".to_owned());
                Ok((Action::Exit(status), Outcome { zero: Known::default(), other: Known::default() }))
            }
            Meaning::Cd(_) | Meaning::Exit(_) => Err(Refusal::new(
                Rule::Redirection,
                start,
                "`cd` and `exit` have no variables and no files of their own",
            )
            .hint("leave the redirection out")),
        }
    }

    /// Reads up to the operator that ends the command.
    fn parts(&mut self, start: usize) -> Result<Parts, Refusal> {
        let mut parts = Parts::default();
        loop {
            self.scanner.skip_blanks();
            let at = self.scanner.at;
            if redirects::begins(self.scanner.rest()) {
                self.redirect(at, None, &mut parts)?;
                continue;
            }
            match self.scanner.peek() {
                Some('(') if at > start => {
                    let rule = if parts.argv.len() == 1 { Rule::Function } else { Rule::Syntax };
                    return self.refused(rule, "a parenthesis cannot stand behind a word");
                }
                None => break,
                Some(c) if ends_word(c) => break,
                Some(_) => {}
            }
            let variables = Variables { known: &self.known, environment: &self.environment };
            let token = self.scanner.word(variables)?;
            if self.scanner.rest().starts_with(['<', '>']) {
                let text = self.scanner.text[at..self.scanner.at].replace("\\\n", "");
                if text.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.redirect(at, text.parse().ok().or(Some(u8::MAX)), &mut parts)?;
                    continue;
                }
                if text.starts_with('{') && text.ends_with('}') {
                    return Err(Refusal::new(Rule::Redirection, at, "a stream has a number"));
                }
            }
            self.word(token, at, &mut parts)?;
        }
        if parts.argv.is_empty() && parts.env.is_empty() && parts.redirects.is_empty() {
            return self.refused(Rule::Syntax, "a command is missing here");
        }
        Ok(parts)
    }

    fn redirect(&mut self, at: usize, fd: Option<u8>, parts: &mut Parts) -> Result<(), Refusal> {
        let variables = Variables { known: &self.known, environment: &self.environment };
        let made = redirects::redirect(&mut self.scanner, variables, at, fd, &mut self.documents)?;
        parts.redirects.extend(made);
        Ok(())
    }

    /// Takes one word into the command.
    fn word(&mut self, token: Token, at: usize, parts: &mut Parts) -> Result<(), Refusal> {
        let first = parts.argv.is_empty();
        let text = match token {
            Token::Bare(text) if first && KEYWORDS.contains(&text) => {
                return Err(keyword(text, at));
            }
            Token::Bare("export") if first && parts.env.is_empty() => {
                parts.exports = true;
                parts.argv.push(Word::Text("export".to_owned()));
                return Ok(());
            }
            Token::Bare(text) if parts.exports => {
                return self.export(text, at, parts);
            }
            Token::Bare(text) => {
                parts.argv.push(Word::Text(text.to_owned()));
                return Ok(());
            }
            Token::Units(units) => units,
        };
        let prefix = first || parts.exports;
        if let Some(equals) = word::assignment(&text).filter(|_| prefix) {
            let name: String = text[..equals].iter().copied().filter_map(word::plain).collect();
            if OWN.contains(&name.as_str()) || name.starts_with("BASH") {
                return Err(Refusal::new(Rule::Assignment, at, format!("{name} belongs to the shell itself")));
            }
            if parts.exports && word::has_braces(&text) {
                return Err(Refusal::new(Rule::Brace, at, "the value has braces"));
            }
            let home = self.variables().home();
            let value = word::value(text[equals + 1..].to_vec(), home).map_err(broken(at))?;
            parts.env.push((name, value));
            return Ok(());
        }
        if parts.exports {
            return Err(Refusal::new(Rule::Builtin, at, "`export` is understood with NAME=value"));
        }
        // A line that goes on is one line before a shell looks at its words.
        let source = self.scanner.text[at..self.scanner.at].replace("\\\n", "");
        if first && starts_array_or_sum(&source) {
            return Err(Refusal::new(Rule::Assignment, at, "a shell would take this for an assignment"));
        }
        if first && text.iter().all(|unit| matches!(unit, Unit::Plain(_))) {
            let bare: String = text.iter().copied().filter_map(word::plain).collect();
            if KEYWORDS.contains(&bare.as_str()) {
                return Err(keyword(&bare, at));
            }
        }
        let words = word::words(text, self.variables().home()).map_err(broken(at))?;
        parts.argv.extend(words);
        Ok(())
    }

    /// `export NAME`.
    fn export(&mut self, name: &str, at: usize, parts: &mut Parts) -> Result<(), Refusal> {
        match (Variables { known: &self.known, environment: &self.environment }).value(name) {
            Found::Certain(value) => parts.env.push((name.to_owned(), Word::Text(value.to_owned()))),
            Found::Uncertain | Found::Unknown => {
                return Err(Refusal::new(Rule::Builtin, at, "`export` is understood with NAME=value"));
            }
        }
        Ok(())
    }

    /// Variables that are set for the commands that follow.
    fn assigned(&mut self, start: usize, parts: Parts) -> Result<(Action, Outcome), Refusal> {
        let mut outcome = self.known.either();
        if parts.exports && (parts.env.is_empty() || parts.argv.len() > 1) {
            return Err(Refusal::new(Rule::Builtin, start, "`export` is understood with NAME=value"));
        }
        for (name, value) in &parts.env {
            if name == "LANG" || name.starts_with("LC_") {
                return Err(Refusal::new(
                    Rule::Assignment,
                    start,
                    format!("{name} changes how a shell reads what follows"),
                )
                .hint("write it before the command that needs it"));
            }
            let Some(text) = value.text() else {
                return Err(Refusal::new(Rule::Variable, start, "`$?` can be used, but not kept"));
            };
            let exported = parts.exports || self.environment.variables.contains_key(name);
            if self.known.uncertain() == Some(name) {
                return Err(Refusal::new(Rule::Uncertain, start, format!("{name} may or may not be exported")));
            }
            outcome.zero.set(name, Some(text.to_owned()), exported);
        }
        if parts.redirects.is_empty() {
            outcome.other = Known::default();
        }
        Ok((
            Action::Pipeline(vec![Part {
                argv: Vec::new(),
                env: parts.env.into_iter().collect(),
                redirects: parts.redirects,
            }]),
            outcome,
        ))
    }

    /// Refuses a value made of another that the same command sets: shells differ in which one they take.
    fn check_own_values(&self, start: usize, names: &[&str]) -> Result<(), Refusal> {
        if names.is_empty() {
            return Ok(());
        }
        let text = &self.scanner.text[start..self.scanner.at];
        let uses = |name: &&&str| {
            let tilde = **name == "HOME" && text.contains('~');
            tilde || text.contains(&format!("${name}")) || text.contains(&format!("${{{name}}}"))
        };
        // The last one may be made of its own old value: PATH=/x:$PATH.
        match names[..names.len() - 1].iter().find(uses) {
            Some(name) => {
                Err(Refusal::new(Rule::Variable, start, format!("{name} is set and used in the same command")))
            }
            None => Ok(()),
        }
    }
}

fn keyword(text: &str, at: usize) -> Refusal {
    let refusal = Refusal::new(Rule::Compound, at, format!("`{text}` is syntax of a shell"));
    match text {
        "[[" => refusal.hint("write [ … ] with one comparison"),
        "time" => refusal.hint("write `time` before the whole pipeline"),
        "!" => refusal.hint("write one `!`, before the whole pipeline"),
        _ => refusal,
    }
}

/// Whether a word begins with `NAME+=` or `NAME[`.
fn starts_array_or_sum(text: &str) -> bool {
    let length = text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let rest = &text[length..];
    word::is_name(text[..length].chars().map(Some)) && (rest.starts_with("+=") || rest.starts_with('['))
}

/// Whether a redirection only keeps a text from being seen.
fn is_silent(redirect: &Redirect) -> bool {
    match &redirect.target {
        Target::Write { path } | Target::Append { path } => path.text() == Some("/dev/null"),
        Target::Dup { .. } => true,
        Target::Read { .. } | Target::Text { .. } => false,
    }
}

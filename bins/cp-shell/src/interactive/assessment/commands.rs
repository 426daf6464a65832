//! Command lines in a text, whoever speaks of them: those of the table, and some that need a closer look.

use crate::interactive::assessment::lexicon::{Level, Table, words_taken};

/// A word of a command line, and where it begins.
type Word = (String, usize);

/// A command line that has a class.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) reason: String,
    pub(crate) is_mass_edit: bool,
    /// Where it begins.
    pub(crate) at: usize,
}

/// Where `rm -r` takes the system, or everything of a person, along.
const WHOLE: [&str; 16] = [
    "/", "/*", "~", "~/", "~/*", "$home", "$home/*", "*", ".", "./*", "/etc", "/usr", "/var", "/home", "/boot", "/bin",
];

/// The command lines of a text.
pub(crate) fn lines(text: &str, table: &Table) -> Vec<Line> {
    let words = words_of(text);
    let line = |level, class: &str, why: &str, at: usize, shown: &str| Line {
        level,
        reason: format!("{class} (command `{shown}`): {why}"),
        is_mass_edit: false,
        at,
    };
    let mut lines = Vec::new();
    if let Some(at) = foreign_code(text, true) {
        let shown = if runs_remote_code(text) { "curl | sh" } else { "base64 -d | sh" };
        let level = if words.iter().any(|(word, _)| word == "sudo") { Level::Critical } else { Level::Destructive };
        lines.push(line(level, "code from elsewhere", "runs before anyone has read it", at, shown));
    }
    let is_limited = words.iter().any(|(word, _)| word == "where");
    // Each place counts: what is only explained here may be meant there.
    for (start, (_, at)) in words.iter().enumerate() {
        let rest = &words[start..];
        if let Some(shown) = wide_removal(rest) {
            lines.push(line(Level::Critical, "data loss", "deletes a whole tree", *at, &shown));
        }
        if let Some(shown) = statement(rest) {
            let why = if is_limited { "changes rows of a table" } else { "changes every row of a table" };
            lines.push(line(Level::Destructive, "data loss", why, *at, &shown));
        }
        for command in &table.command {
            let mut patterns = command.patterns.iter();
            let taken = |pattern: &&Vec<String>| words_taken(rest, pattern, |word| word.0.as_str(), 3).is_some();
            let Some(pattern) = patterns.find(taken) else { continue };
            // The pattern is shown and not the line, which may hold a secret.
            let shown = pattern.join(" ").replace('*', "…");
            let shown = shown.trim_end_matches(['~', ' ']);
            let found = line(command.level, &command.name, &command.why, *at, shown);
            lines.push(Line { is_mass_edit: command.is_mass_edit, ..found });
        }
    }
    lines
}

/// Whether `curl` or `wget` is handed to an interpreter.
pub(crate) fn runs_remote_code(text: &str) -> bool {
    foreign_code(text, false).is_some()
}

/// Where a download begins, or what `base64` has `hidden`, that is handed to an interpreter.
fn foreign_code(text: &str, hidden: bool) -> Option<usize> {
    const INTERPRETERS: [&str; 14] =
        ["sh", "bash", "zsh", "dash", "ksh", "fish", "python", "python3", "perl", "ruby", "node", "php", "iex", "pwsh"];
    let fetches = |part: &str| {
        let words = words_of(part);
        let is_hidden = |word: &str| matches!(word, "-d" | "--decode" | "-di" | "-r");
        let decodes = words.iter().any(|(word, _)| matches!(word.as_str(), "base64" | "xxd"));
        words
            .iter()
            .any(|(word, _)| matches!(word.as_str(), "curl" | "wget" | "iwr") || (hidden && decodes && is_hidden(word)))
    };
    let interprets = |part: &str| {
        let words = words_of(part);
        let mut words = words.iter().map(|(word, _)| word.rsplit('/').next().unwrap_or(word));
        let first = words.find(|word| !matches!(*word, "sudo" | "env" | "exec" | "-e" | "-s") && !word.contains('='));
        first.is_some_and(|word| INTERPRETERS.contains(&word))
    };
    let (mut loaded, mut at) = (None, 0);
    for stage in text.split('|') {
        if loaded.is_some() && interprets(stage) {
            return loaded;
        }
        if loaded.is_none() && fetches(stage) {
            let names = ["curl", "wget", "iwr", "echo", "base64"].iter();
            loaded = Some(at + names.filter_map(|name| stage.find(name)).min().unwrap_or(0));
        }
        at += stage.len() + 1;
    }
    ["<(", "$(", "`"].iter().find_map(|open| {
        let mut at = 0;
        text.split(open).skip(1).zip(text.split(open)).find_map(|(inside, before)| {
            let last = before.split(['|', ';', '&', '\n']).next_back().unwrap_or_default();
            let begin = at + before.len() - last.trim_start().len();
            at += before.len() + open.len();
            let runs = words_of(last).iter().any(|(word, _)| INTERPRETERS.contains(&word.as_str()) || word == "eval");
            (runs && fetches(inside)).then_some(begin)
        })
    })
}

/// The words in lower case: signs of a command line stay in them, punctuation around them goes, an operator is a word.
fn words_of(text: &str) -> Vec<Word> {
    let (mut words, mut word, mut start) = (Vec::new(), String::new(), 0);
    let mut end = |word: &mut String, start: usize| {
        let bare = word.trim_end_matches(['.', '?', ':', ')']).trim_start_matches('(');
        if !word.is_empty() {
            words.push((if bare.is_empty() { word.clone() } else { bare.to_owned() }, start));
            word.clear();
        }
    };
    for (at, letter) in text.char_indices() {
        match letter {
            _ if text[at..].starts_with(":(){") => {
                end(&mut word, start);
                (word, start) = (":(){".to_owned(), at);
                end(&mut word, start);
            }
            '>' | '|' | ';' | '&' => {
                end(&mut word, start);
                (word, start) = (letter.to_string(), at);
                end(&mut word, start);
            }
            '"' | '\'' | '`' | ',' | '!' => end(&mut word, start),
            _ if letter.is_whitespace() => end(&mut word, start),
            // Text without blanks may follow a command at once.
            _ if !letter.is_ascii() && word.is_ascii() && !word.is_empty() => {
                end(&mut word, start);
                (word, start) = (letter.to_lowercase().collect(), at);
            }
            _ => {
                if word.is_empty() {
                    start = at;
                }
                word.extend(letter.to_lowercase());
            }
        }
    }
    end(&mut word, start);
    words
}

/// An `rm` that is recursive and takes everything along.
fn wide_removal(words: &[Word]) -> Option<String> {
    let ((first, _), rest) = words.split_first()?;
    if first != "rm" && !first.ends_with("/rm") {
        return None;
    }
    let ends = |word: &str| matches!(word, "|" | ";" | "&" | ">");
    let rest: Vec<&str> = rest.iter().map(|(word, _)| word.as_str()).take_while(|word| !ends(word)).take(8).collect();
    let recursive = rest
        .iter()
        .any(|word| *word == "--recursive" || (word.starts_with('-') && !word.starts_with("--") && word.contains('r')));
    let whole = rest.iter().find(|word| WHOLE.contains(word) || WHOLE.contains(&word.trim_end_matches('/')));
    whole.filter(|_| recursive).map(|whole| format!("rm -r {whole}"))
}

/// A statement that changes rows. Where English says the same, an article follows, or no `set`.
fn statement(words: &[Word]) -> Option<String> {
    const ENGLISH: [&str; 9] = ["the", "this", "my", "that", "all", "a", "an", "our", "it"];
    let [(first, _), (second, _), (third, _), ..] = words else { return None };
    match (first.as_str(), second.as_str(), third.as_str()) {
        ("delete", "from", table) if !ENGLISH.contains(&table) => Some(format!("delete from {table}")),
        ("update", table, "set") => Some(format!("update {table} set")),
        _ => None,
    }
}

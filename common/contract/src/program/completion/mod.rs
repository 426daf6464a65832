//! Shell completion. The shell scripts contain no table of their own; they call the program ([`candidates`]), which
//! reads its command tree.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use serde::Serialize;
use serde_json::Value;

use crate::home::config::Config;
use crate::home::{Home, TIERS};
use crate::program::command;
use crate::wire::Reply;

/// The word with which the scripts call the program. The words of the command line follow, up to the one that is being
/// typed.
pub const ASK: &str = "__complete";

/// A completion script.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// The name of the shell.
    pub shell: String,
    /// The script; `--format raw` prints only its bytes.
    pub script: String,
}

impl Reply for Completions {
    fn text(&self) -> String {
        self.script.trim_end().to_owned()
    }
}

/// Returns the script of a shell for a program; bash is the default.
pub fn script(program: &str, shell: &str) -> Completions {
    let text = match shell {
        "zsh" => include_str!("script.zsh"),
        "fish" => include_str!("script.fish"),
        _ => include_str!("script.bash"),
    };
    let script = text.replace("PROGRAM", program).replace("FUNCTION", &program.replace('-', "_"));
    Completions { shell: shell.to_owned(), script }
}

/// Returns the lines for a script: a candidate, a tab and its description. `:files`, `:directories` and `:commands` let
/// the shell complete.
pub fn candidates(root: &Command, words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let line = Line::read(root, before);
    let lines = match line.is_asked(typed) {
        Asked::Nothing => Vec::new(),
        Asked::Value(argument, typed) => starting_with(line.values(argument), typed),
        Asked::Attached(argument, name, typed) => {
            let whole = |value: String| if value.starts_with(':') { value } else { format!("{name}={value}") };
            starting_with(line.values(argument), typed).into_iter().map(whole).collect()
        }
        Asked::Option => starting_with(line.options(), typed),
        Asked::Operand => starting_with(line.operands(), typed),
    };
    lines.into_iter().map(|line| line + "\n").collect()
}

fn starting_with(lines: Vec<String>, typed: &str) -> Vec<String> {
    lines.into_iter().filter(|line| line.starts_with(':') || line.starts_with(typed)).collect()
}

/// The kind of the word that is being typed.
enum Asked<'a> {
    Nothing,
    /// The value of an option, as far as it is typed.
    Value(&'a Arg, &'a str),
    /// The value of an option in the same word, with the name of the option as it is typed.
    Attached(&'a Arg, &'a str, &'a str),
    Option,
    Operand,
}

/// The words before the one that is being typed.
struct Line<'a> {
    root: &'a Command,
    /// The deepest verb that they name; the root if they name none.
    here: &'a Command,
    /// The operands after the verb.
    operands: usize,
    /// The option that expects its value next.
    open: Option<&'a Arg>,
    is_after_dashes: bool,
    home: Option<PathBuf>,
}

impl<'a> Line<'a> {
    fn read(root: &'a Command, words: &[String]) -> Self {
        let mut line = Line { root, here: root, operands: 0, open: None, is_after_dashes: false, home: None };
        for word in words {
            line.take(word);
        }
        line
    }

    fn take(&mut self, word: &str) {
        // bash splits `--option=value` into three words.
        if word == "=" && self.open.is_some() {
            return;
        }
        if let Some(option) = self.open.take() {
            if option.get_long() == Some("home") {
                self.home = Some(PathBuf::from(word));
            }
        } else if self.is_after_dashes {
            self.operands += 1;
        } else if word == "--" {
            self.is_after_dashes = true;
        } else if word.starts_with('-') && word != "-" {
            self.open = self.option(word).filter(|option| option.get_action().takes_values());
        } else {
            match self.here.find_subcommand(word).filter(|verb| !verb.is_hide_set() && self.operands == 0) {
                Some(verb) => self.here = verb,
                None => self.operands += 1,
            }
        }
    }

    /// Returns the option that a whole word names; `None` if the word contains its value too.
    fn option(&self, word: &str) -> Option<&'a Arg> {
        let all = self.takers();
        if let Some(long) = word.strip_prefix("--") {
            return all.into_iter().find(|option| option.get_long() == Some(long));
        }
        let mut letters = word.chars().skip(1);
        let letter = letters.next().filter(|_| letters.next().is_none())?;
        all.into_iter().find(|option| option.get_short() == Some(letter))
    }

    /// Returns the options of the verb and those of every program.
    fn takers(&self) -> Vec<&'a Arg> {
        let own = self.here.get_arguments().filter(|option| !option.is_global_set());
        let shared = self.root.get_arguments().filter(|option| option.is_global_set());
        own.chain(shared).filter(|option| !option.is_positional() && !option.is_hide_set()).collect()
    }

    fn is_asked<'t>(&self, typed: &'t str) -> Asked<'t>
    where
        'a: 't,
    {
        if let Some(option) = self.open {
            return Asked::Value(option, typed.strip_prefix('=').unwrap_or(typed));
        }
        if self.is_after_dashes {
            return Asked::Operand;
        }
        if let Some((name, value)) = typed.split_once('=').filter(|(name, _)| name.starts_with("--")) {
            let option = self.option(name).filter(|option| option.get_action().takes_values());
            return option.map_or(Asked::Nothing, |option| Asked::Attached(option, name, value));
        }
        if typed.starts_with('-') { Asked::Option } else { Asked::Operand }
    }

    fn options(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for option in self.takers() {
            let about = option.get_help().map(ToString::to_string).unwrap_or_default();
            lines.extend(option.get_long().map(|long| format!("--{long}\t{about}")));
            lines.extend(option.get_short().map(|short| format!("-{short}\t{about}")));
        }
        lines.extend(["--help\tPrint help".to_owned(), "--version\tPrint the version".to_owned()]);
        lines
    }

    fn operands(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.operands == 0 && !self.is_after_dashes {
            let named = self.here.get_subcommands().filter(|verb| !verb.is_hide_set());
            lines.extend(named.map(|verb| {
                format!("{}\t{}", verb.get_name(), verb.get_about().map(ToString::to_string).unwrap_or_default())
            }));
        }
        let mut places = self.here.get_positionals().filter(|operand| !operand.is_hide_set());
        let operand = places
            .by_ref()
            .nth(self.operands)
            .or_else(|| self.here.get_positionals().last().filter(|last| command::is_multiple(last)));
        match operand {
            // The command's first word is completed as a program, the rest as files.
            Some(operand) if command::is_command(operand) && !self.is_after_dashes => {}
            Some(operand) if command::is_command(operand) => {
                lines.push(if self.operands == 0 { ":commands" } else { ":files" }.to_owned());
            }
            Some(operand) => lines.extend(self.values(operand)),
            None => {}
        }
        lines
    }

    fn values(&self, argument: &Arg) -> Vec<String> {
        let fixed = command::values(argument);
        if !fixed.is_empty() {
            let about = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string).unwrap_or_default();
            return fixed.iter().map(|value| format!("{}\t{}", value.get_name(), about(value.get_help()))).collect();
        }
        let home = Home::find(self.home.as_deref()).ok();
        values_of(argument, self.root.get_name(), home.as_ref())
    }
}

/// The names of backends. A user can replace each with a program.
const BACKENDS: &[&str] =
    &["anthropic", "openai", "openai-responses", "gemini", "ollama", "llamacpp", "vllm", "lmstudio", "llm", "stub"];
/// The names of loop backends.
const LOOPS: &[&str] = &["native", "bash", "llm", "elixir"];

/// Returns the values of an argument, by the name of an option or the value name of an operand. Unreadable sources are
/// empty, because completion must not print errors.
fn values_of(argument: &Arg, program: &str, home: Option<&Home>) -> Vec<String> {
    let found = |list: fn(&Home) -> Vec<String>| home.map(list).unwrap_or_default();
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    let value = command::value_name(argument);
    match (argument.get_long().unwrap_or_default(), value.as_str()) {
        ("session" | "ids", _) | ("", "SESSION") => found(sessions),
        ("agent", _) => found(agents),
        ("model", _) => found(models),
        ("backend", _) => words(BACKENDS),
        ("tool-backend", _) => words(LOOPS),
        ("template", "NAME") => found(|home| names(&home.path("config/templates"), "")),
        ("ledger", _) => found(ledgers_and_files),
        ("" | "file", "FILE") if program == "cp-log" => found(ledgers_and_files),
        (_, "RUN" | "FILE|RUN") => found(runs),
        (_, "DIR") => words(&[":directories"]),
        (_, value) if ["FILE", "OUT", "KEY", "PROGRAM", "DIR|FILE"].iter().any(|name| value.ends_with(name)) => {
            words(&[":files"])
        }
        _ => Vec::new(),
    }
}

/// Returns the names in a directory that end with `end`, sorted.
fn names(directory: &Path, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(end) && !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

fn sessions(home: &Home) -> Vec<String> {
    TIERS.into_iter().flat_map(|tier| names(&home.sessions(tier), "")).collect()
}

fn runs(home: &Home) -> Vec<String> {
    let ledgers = TIERS.into_iter().flat_map(|tier| names(&home.runs(tier), ".jsonl"));
    ledgers.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect()
}

fn ledgers_and_files(home: &Home) -> Vec<String> {
    let directory = home.path("ledger");
    let ledgers = names(&directory, ".jsonl").into_iter().map(|name| directory.join(name).display().to_string());
    ledgers.chain([":files".to_owned()]).collect()
}

fn agents(home: &Home) -> Vec<String> {
    let registered = home.agents::<Value>().unwrap_or_default().into_keys();
    let mut agents: Vec<String> =
        registered.chain(names(&home.path("agents"), "")).chain(["default".to_owned()]).collect();
    agents.sort();
    agents.dedup();
    agents
}

/// Returns the models in the settings and the price table, the aliases, and the endpoints as prefixes.
fn models(home: &Home) -> Vec<String> {
    let config = Config::load(&home.config_file()).unwrap_or_default();
    let endpoints = config.names("endpoints").map(|name| format!("{name}/"));
    let named = config.names("aliases").map(str::to_owned).chain(endpoints);
    let text = std::fs::read_to_string(home.path("config/prices.toml")).unwrap_or_default();
    let priced = toml::from_str::<toml::Table>(&text).unwrap_or_default();
    let mut models: Vec<String> = priced
        .iter()
        .filter(|(_, row)| row.is_table())
        .map(|(name, _)| name.clone())
        .chain(config.text("model", None))
        .chain(named)
        .collect();
    models.sort();
    models.dedup();
    models
}

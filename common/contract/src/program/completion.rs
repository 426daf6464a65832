//! Shell completion. `clap_complete` has the scripts and reads the line; this is the table of the values that only a
//! home knows.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use serde_json::Value;

use crate::home::config::Config;
use crate::home::{Home, TIERS};
use crate::program::command;

/// The variable with the name of the shell, with which the scripts call `PROGRAM -- WORDS`.
const ASK: &str = "_CP_COMPLETE";

/// Returns the script of a shell for a program.
pub fn script(program: &str, shell: &str) -> String {
    let mut script = Vec::new();
    let written = Shells::builtins()
        .completer(shell)
        .map(|found| found.write_registration(ASK, program, program, program, &mut script));
    let mut script = written.map_or_else(String::new, |_| String::from_utf8_lossy(&script).trim().to_owned() + "\n");
    if shell == "zsh" {
        // In a directory of fpath the script is the body of a function, whose first call must complete, too.
        let function = format!("_clap_dynamic_completer_{}", program.replace('-', "_"));
        script = format!("{script}[[ ${{funcstack[1]-}} != _{program} ]] || {function}\n");
    }
    script
}

/// Returns what a script asks for; `None` if no script asks.
pub fn candidates(command: impl FnOnce() -> Command, arguments: &[OsString]) -> Option<Vec<u8>> {
    let (_, words) = arguments.split_first().filter(|(first, words)| *first == "--" && !words.is_empty())?;
    let shell = std::env::var(ASK).ok()?;
    let mut words = words.to_vec();
    // bash splits `--option=value` into three words, and says which of all is being typed.
    for at in 2..words.len() {
        if words[at] == "=" {
            words.swap(at - 1, at);
            words[at - 1] = "--quiet".into();
        }
    }
    let mut found = Vec::new();
    let directory = std::env::current_dir().ok();
    let shells = Shells::builtins();
    let asked = shells.completer(&shell)?;
    // An error would be printed into the line that is being typed.
    let _ = asked.write_complete(
        &mut with_values(command()).no_binary_name(false),
        words,
        directory.as_deref(),
        &mut found,
    );
    Some(found)
}

/// Attaches the values of the home to the arguments of a command and those below it.
fn with_values(command: Command) -> Command {
    let program = command.get_name().to_owned();
    command.mut_args(|argument| with_value(&program, argument)).mut_subcommands(with_values)
}

fn with_value(program: &str, argument: Arg) -> Arg {
    let value = command::value_name(&argument);
    let list: fn(&Home) -> Vec<String> = match (argument.get_long().unwrap_or_default(), value.as_str()) {
        ("session", _) if program == "cp-ask" => {
            |home| [names(&home.state("session_names"), ""), sessions(home)].concat()
        }
        ("session" | "ids", _) | ("", "SESSION") => sessions,
        ("agent", _) => agents,
        ("model", _) => models,
        ("backend", _) => |_| owned(BACKENDS),
        ("tool-backend", _) => |_| owned(LOOPS),
        ("template", "NAME") => |home| names(&home.path("config/templates"), ""),
        (_, "RUN" | "FILE|RUN") => runs,
        (_, "CHANGE") => |_| owned(&["last", "all"]),
        (_, "DIR") => return argument.value_hint(ValueHint::DirPath),
        (_, name) if ["FILE", "OUT", "KEY", "PROGRAM"].iter().any(|end| name.ends_with(end)) => {
            return argument.value_hint(ValueHint::AnyPath);
        }
        _ if command::is_command(&argument) => return argument.value_hint(ValueHint::AnyPath),
        _ => return argument,
    };
    let found = move || Home::find(None).map(|home| list(&home)).unwrap_or_default();
    argument.add(ArgValueCandidates::new(move || found().into_iter().map(CompletionCandidate::new).collect()))
}

/// The names of backends. A user can replace each with a program.
const BACKENDS: &[&str] =
    &["anthropic", "openai", "openai-responses", "gemini", "ollama", "llamacpp", "vllm", "lmstudio", "llm", "stub"];
/// The names of loop backends.
const LOOPS: &[&str] = &["native", "bash", "llm", "elixir"];

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
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

fn agents(home: &Home) -> Vec<String> {
    let registered = home.agents::<Value>().unwrap_or_default().into_keys();
    sorted(registered.chain(names(&home.path("agents"), "")).chain(["default".to_owned()]))
}

/// Returns the models in the settings and the price table, the aliases, and the endpoints as prefixes.
fn models(home: &Home) -> Vec<String> {
    let config = Config::load(&home.config_file()).unwrap_or_default();
    let endpoints = config.names("endpoints").map(|name| format!("{name}/"));
    let named = config.names("aliases").map(str::to_owned).chain(endpoints);
    let text = std::fs::read_to_string(home.path("config/prices.toml")).unwrap_or_default();
    let priced = toml::from_str::<toml::Table>(&text).unwrap_or_default();
    let priced = priced.iter().filter(|(_, row)| row.is_table()).map(|(name, _)| name.clone());
    sorted(priced.chain(config.text("model", None)).chain(named))
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

//! The commands of the shell: the table with their names, operands, help, capability, class and function; and the
//! parser of lines. Commands begin with `:` or `/`, and a command of the system with `:!`; other lines are sent to the
//! model.

mod core;
mod hub;
pub(crate) mod run;

use std::path::Path;

use cp_common::program::Class;
use cp_common::{Code, Error, Result};

use crate::agent::Described;
use crate::interactive::memory;
use crate::interactive::state::{Outcome, State};

/// Runs a command with its argument.
type Run = fn(&mut State<'_>, &str) -> Result<Outcome>;

#[derive(Debug)]
pub(crate) struct Command {
    /// Its names, separated by blanks; the first is the full name.
    names: &'static str,
    /// Its operands, as help shows them.
    pub(crate) takes: &'static str,
    pub(crate) help: &'static str,
    /// The capability that the agent must have; empty if there is none.
    pub(crate) needs: &'static str,
    pub(crate) class: Class,
    pub(crate) run: Run,
}

impl Command {
    /// Its full name.
    pub(crate) fn name(&self) -> &'static str {
        self.names().next().unwrap_or_default()
    }

    /// All its names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.names.split(' ')
    }

    /// True if an agent has the capability.
    pub(crate) fn is_for(&self, agent: &Described) -> bool {
        self.needs.is_empty() || agent.can(self.needs)
    }
}

use Class::{Append, Query, Write};

macro_rules! commands {
    ($($names:literal $takes:literal $help:literal $needs:literal, $class:ident $run:expr;)*) => {
        /// Every command, in the order in which help shows them.
        pub(crate) const COMMANDS: &[Command] = &[$(Command {
            names: $names,
            takes: $takes,
            help: $help,
            needs: $needs,
            class: $class,
            run: $run,
        }),*];
    };
}

// Names, operands, help, capability, class, function.
commands! {
    "help h ?" "[COMMAND]" "list the commands, or describe one" "", Query core::help;
    "quit q exit x bye" "" "end the session" "", Query |state, _| Ok(core::quit(state));
    "clear c cls" "" "clear the screen" "", Query |state, _| Ok(core::clear(state));
    "state s" "" "show the state as JSON" "", Query |state, _| Ok(core::state(state));
    "agent a agents" "[NAME]" "show the agent, or switch to another one" "", Query core::agent;
    "ctx context" "[persistent|isolated]" "show or set whether the conversation is sent" "", Query core::mode;
    "explain why" "" "explain the last turn: risk, context, hints" "", Query |state, _| Ok(hub::explain(state));
    "undo rewind" "[RUN]" "put back the files that the last turn with tools changed" "", Write run::undo;
    "diff d" "[RUN]" "show what the last turn with tools changed" "", Query run::diff;
    "model" "[MODEL]" "show or choose the model" "", Query |state, model| core::choose(state, model, "model", |options| &mut options.model);
    "backend" "[NAME]" "show or choose the backend" "", Query |state, name| core::choose(state, name, "backend", |options| &mut options.backend);
    "tools" "[on|off]" "show the model's tools, or switch the built-in ones" "", Query core::tools;
    "export-session export" "" "write summary.json, without secrets" "", Append core::export;
    "memory m mem recall" "[QUERY]" "show memories" "MEMORY", Query memory::recall;
    "v view history" "[N]" "show the last turns of the session" "MEMORY", Query memory::view;
    "notes n nd" "" "show the notes" "MEMORY", Query memory::notes;
    "n+ note" "TEXT" "save a note in the memory of the home" "MEMORY", Append |state, text| memory::keep("note", text, state);
    "nd+" "TEXT" "save a note for developers" "MEMORY", Append |state, text| memory::keep("dev_note", text, state);
    "signals sig signal" "" "show the signals of the session" "SIGNALS", Query |state, _| Ok(core::signals(state));
    "trust t" "" "show the share of calls that were not denied" "TRUST", Query |state, _| Ok(core::trust(state));
    "learn l" "LESSON" "save a lesson in the memory of the home" "TRUST", Append |state, text| memory::keep("lesson", text, state);
    "pkg packages package pkgs" "[PKG-ID]" "list the packages, or show one" "PACKAGE_MGT", Query |state, argument| run::query(state, "pkg", argument);
    "ledger log" "[TYPE] [N]" "show the newest entries of a ledger" "LEDGER", Query |state, argument| run::query(state, "ledger", argument);
    "gate gates" "[GATE]" "show the gates and their failures" "GOVERNANCE", Query |state, argument| run::query(state, "gate", argument);
    "wo workorders work-orders" "[ID | apply FILE]" "show the work orders, or apply one" "GOVERNANCE", Append |state, argument| run::query(state, "wo", argument);
    "compliance" "" "show the governance of the tree" "GOVERNANCE", Query |state, argument| run::query(state, "compliance", argument);
    "trace" "ID" "show the lineage of an artifact" "GOVERNANCE", Query |state, argument| run::query(state, "trace", argument);
    "specs" "[FMWK-ID]" "list the specs" "GOVERNANCE", Query |state, argument| run::query(state, "specs", argument);
    "spec" "SPEC-ID" "show the manifest of a spec" "GOVERNANCE", Query |state, argument| run::query(state, "spec", argument);
    "frameworks framework" "" "list the frameworks" "GOVERNANCE", Query |state, argument| run::query(state, "frameworks", argument);
    "roots governed-roots" "" "list the governed roots" "GOVERNANCE", Query |state, argument| run::query(state, "roots", argument);
    "path explain-path" "PATH" "show the class of a path" "GOVERNANCE", Query |state, argument| run::query(state, "path", argument);
    "hub" "[log TEXT]" "show the answers of the hub, or post a note" "", Write hub::hub;
    "inbox" "[read ID]" "show unread messages, or mark one as read" "", Write hub::inbox;
}

/// Finds a command by any of its names, ignoring case.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    let name = name.to_lowercase();
    COMMANDS.iter().find(|command| command.names().any(|known| known == name))
}

/// A parsed line.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// An empty line.
    Nothing,
    /// A command of the shell and its argument.
    Command(&'static Command, &'a str),
    /// A command of the system.
    Run(&'a str),
    /// Text for the model.
    Say(&'a str),
    /// An unknown command.
    Unknown(&'a str),
}

/// Parses a line. A line that begins with a blank is sent to the model.
pub(crate) fn parse(line: &str) -> Input<'_> {
    let text = line.trim();
    if text.is_empty() {
        return Input::Nothing;
    }
    if let Some(command) =
        text.strip_prefix(":!").or_else(|| text.strip_prefix("/!")).or_else(|| text.strip_prefix('!'))
    {
        return Input::Run(command.trim());
    }
    if line.starts_with(char::is_whitespace) {
        return Input::Say(text);
    }
    let Some(rest) = text.strip_prefix([':', '/']) else { return Input::Say(text) };
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path is not a command.
    if name.contains('/') {
        return Input::Say(text);
    }
    // A single colon or slash is a mistake and is not sent.
    find(name).map_or(Input::Unknown(name), |command| Input::Command(command, argument.trim()))
}

/// Removes quotes around a text.
pub(crate) fn unquoted(text: &str) -> &str {
    let inside = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    inside.unwrap_or(text).trim()
}

/// Runs a command if the agent has its capability.
pub(crate) fn perform(state: &mut State<'_>, command: &Command, argument: &str) -> Result<Outcome> {
    let agent = state.agent.described();
    if !command.is_for(agent) {
        state.tracker.denied();
        let message = format!("Capability denied: {} on :{}", command.needs, command.name());
        let agent = &agent.name;
        return Err(Error::new(Code::Forbidden, message)
            .hint(format!("the agent `{agent}` has no such capability; `:agent` shows its capabilities")));
    }
    if command.takes.is_empty() && !argument.is_empty() {
        let message = format!(":{} takes no argument", command.name());
        return Err(Error::usage(message).hint("a line that begins with a blank is sent to the model"));
    }
    if argument.is_empty() && !command.takes.is_empty() && !command.takes.starts_with('[') {
        return Err(Error::usage(format!("write :{} {}", command.name(), command.takes)));
    }
    let about = || format!("`:help {}` describes the command", command.name());
    (command.run)(state, argument).map_err(|error| error.with_absent("hint", about()))
}

/// Runs the operation with a name that is not in the table; otherwise an error with the nearest name.
pub(crate) fn unlisted(state: &mut State<'_>, line: &str, name: &str) -> Result<Outcome> {
    run::operation(state, line).unwrap_or_else(|| {
        let known = COMMANDS.iter().flat_map(Command::names).filter(|name| name.len() > 3);
        let otherwise = "`:help` lists the commands; a line that begins with a blank is sent to the model";
        Err(Error::usage(format!("there is no command `{name}`")).nearest(&name.to_lowercase(), known, otherwise))
    })
}

/// The completions at the cursor, and where the completed word begins: paths after an `@`, and names of commands.
pub(crate) fn candidates(line: &str, at: usize) -> (usize, Vec<String>) {
    let typed = &line[..at];
    let word = typed.rsplit(char::is_whitespace).next().unwrap_or_default();
    let begun = typed.strip_prefix(":help ").or_else(|| typed.strip_prefix([':', '/'])).unwrap_or_default();
    let (begun, mut found) = match word.strip_prefix('@') {
        Some(begun) => (begun, paths(begun)),
        // Short names are not offered.
        None if typed.starts_with([':', '/']) => {
            let names = COMMANDS.iter().flat_map(Command::names).filter(|name| name.len() > 2 || *name == begun);
            (begun, names.map(str::to_owned).collect())
        }
        None => return (at, Vec::new()),
    };
    found.retain(|found| found.starts_with(begun));
    found.sort_unstable();
    (at - begun.len(), found)
}

/// The paths with this beginning. Directories get a slash; hidden files are offered only after a dot.
fn paths(begun: &str) -> Vec<String> {
    let (directory, name) = begun.split_at(begun.rfind('/').map_or(0, |at| at + 1));
    let listing = std::fs::read_dir(Path::new(".").join(directory)).into_iter().flatten().flatten();
    let path = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        let found = entry.file_name().into_string().ok()?;
        // A name with control characters is not shown.
        let is_meant = name.starts_with('.') || !found.starts_with('.');
        (is_meant && !found.contains(char::is_control)).then(|| format!("{directory}{found}{slash}"))
    };
    listing.filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::agent::CAPABILITIES;

    #[test]
    fn command_names_are_unique_and_capabilities_exist() {
        let mut seen = HashSet::new();
        for command in COMMANDS {
            assert!(!command.help.is_empty() && !command.help.ends_with('.'), "{}", command.name());
            assert!(command.needs.is_empty() || CAPABILITIES.contains(&command.needs), "{}", command.needs);
            for name in command.names() {
                assert!(seen.insert(name), "{name} twice");
                assert_eq!(find(name).map(Command::name), Some(command.name()));
            }
        }
    }

    #[test]
    fn standard_commands_exist() {
        let standard = "help h quit q clear c state s agent a memory m v ctx sig signals trust t learn l notes n n+ nd+ pkg \
                        ledger gate wo exit explain hub inbox export-session";
        for name in standard.split_whitespace() {
            assert!(find(name).is_some(), "{name}");
        }
    }

    fn act(line: &str) -> Option<(&'static str, &str)> {
        match parse(line) {
            Input::Command(command, argument) => Some((command.name(), argument)),
            _ => None,
        }
    }

    #[test]
    fn prefixes_and_aliases_select_same_command() {
        assert_eq!(act(":help"), Some(("help", "")));
        assert_eq!(act("/help pkg"), Some(("help", "pkg")));
        assert_eq!(act(":Q"), Some(("quit", "")));
        assert_eq!(act("/exit "), Some(("quit", "")));
        assert_eq!(act(":n+  buy milk "), Some(("n+", "buy milk")));
        assert_eq!(act("/hub log \"all done\""), Some(("hub", "log \"all done\"")));
    }

    #[test]
    fn other_lines_run_or_are_sent_to_model() {
        for line in [":! ls -la", ":!ls -la", "! ls -la", "  :! ls -la"] {
            assert!(matches!(parse(line), Input::Run("ls -la")), "{line}");
        }
        for line in ["hello :help", ":help", "/etc/passwd is odd"].map(|line| format!(" {line}")) {
            assert!(matches!(parse(&line), Input::Say(_)), "{line}");
        }
        assert!(matches!(parse("/etc/passwd is odd"), Input::Say(_)));
        assert!(matches!(parse(" \t "), Input::Nothing));
        assert!(matches!(parse(":qiut now"), Input::Unknown("qiut")));
        assert!(matches!(parse("/frobnicate"), Input::Unknown("frobnicate")));
    }

    #[test]
    fn completion_offers_commands_and_hidden_paths_after_dot() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("lib")).unwrap();
        for file in ["lib/x.py", "lib/.hidden", "lib/a b.md", "lib/\x1b[31m"] {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let path = root.path().display().to_string();
        for (line, from, words) in [
            (":he", 1, "help"),
            ("/expo", 1, "export,export-session"),
            (":help und", 6, "undo"),
            ("hello", 5, ""),
            ("me@ex", 5, ""),
            (":nothing x", 1, ""),
            ("see @{}/l", 5, "{}/lib/"),
            (":hub log @{}/lib/.", 10, "{}/lib/.hidden"),
            ("see @{}/lib/", 5, "{}/lib/a b.md,{}/lib/x.py"),
        ] {
            let (line, words) = (line.replace("{}", &path), words.replace("{}", &path));
            let words: Vec<String> = words.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
            assert_eq!(candidates(&line, line.len()), (from, words), "{line}");
        }
    }
}

//! The commands of the shell: the table with their names, operands, help, capability, class and function; and how a line is parsed.
//! Commands begin with `:` or `/`, a command of the system with `:!`; all else goes to the model.

mod answers;
pub(crate) mod completion;
mod core;
mod hub;
pub(crate) mod memory;
pub(crate) mod run;
pub(crate) mod sessions;

use cp_common::program::Class;
use cp_common::spelling::nearest;
use cp_common::{Code, Error, Result};

use crate::agent::Capability;
use crate::interactive::state::Outcome;
use crate::interactive::state::{Standing, State};

/// Carries a command out; the text is its argument.
type Run = fn(&mut State<'_>, &str) -> Result<Outcome>;

#[derive(Debug)]
pub(crate) struct Command {
    /// Its names, separated by blanks; the first is the full name.
    names: &'static str,
    /// Its operands, as help shows them.
    pub(crate) takes: &'static str,
    pub(crate) help: &'static str,
    /// The capability that the agent must have.
    pub(crate) needs: Option<Capability>,
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
}

use Capability::{Governance, Ledger, Memory, PackageMgt, Signals, Trust};
use Class::{Append, Governed, Query, Write};

macro_rules! commands {
    ($($names:literal $takes:literal $help:literal $needs:expr, $class:ident $run:expr;)*) => {
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
    "help h ?" "[COMMAND]" "show the commands, or one of them" None, Query core::help;
    "quit q exit x bye" "" "end the session" None, Query |_, _| Ok(Outcome::default());
    "clear c cls" "" "clear the screen" None, Query |state, _| Ok(core::clear(state));
    "state s" "" "show the state as JSON" None, Query core::state;
    "agent a agents" "[NAME]" "show who answers, or switch to another" None, Query core::agent;
    "ctx context" "[persistent|isolated]" "show or set what goes to the model" None, Query core::mode;
    "explain why" "" "explain the last turn: risk, context, hints" None, Query |state, _| Ok(hub::explain(state));
    "sessions ls" "[N]" "list the newest sessions" None, Query sessions::list;
    "resume open" "ID|NAME" "go on with another session" None, Append sessions::resume;
    "rename name" "NAME" "name this session" None, Append sessions::rename;
    "fork branch" "" "go on in a copy of this session" None, Append sessions::fork;
    "undo" "" "go on without the last round, in a copy" None, Append sessions::undo;
    "retry again" "" "ask the last question again" None, Append sessions::retry;
    "compact" "[KEEP]" "let the model summarise all but the newest turns" None, Append sessions::compact;
    "model" "[MODEL]" "show or choose the model" None, Query answers::model;
    "backend" "[NAME]" "show or choose what answers" None, Query answers::backend;
    "tools" "" "show the tools that the model may use" None, Query answers::tools;
    "attach file" "[PATH]" "attach a file to the next turn; so does @PATH in it" None, Query answers::attach;
    "edit e" "[TEXT]" "write the next turn in $EDITOR; so does Ctrl-O" None, Append answers::edit;
    "cmd" "WORDS" "let the model write a command line; it runs after a yes" None, Governed run::propose;
    "copy y" "" "copy the last answer to the clipboard" None, Query answers::copy;
    "save w" "FILE" "write the last answer to a new file" None, Write answers::save;
    "cost usage" "" "show the tokens and the cost since the shell was started" None, Query |state, _| Ok(answers::cost(state));
    "export-session export" "" "write summary.json, without secrets" None, Append core::export;
    "memory m mem recall" "[QUERY]" "show what is remembered" Some(Memory), Query memory::recall;
    "v view history" "[N]" "show the last turns of the session" Some(Memory), Query memory::view;
    "notes n nd" "" "show the notes" Some(Memory), Query memory::notes;
    "n+ note" "TEXT" "keep a note in the home's memory" Some(Memory), Append memory::add_note;
    "nd+" "TEXT" "keep a note for developers" Some(Memory), Append memory::add_developer_note;
    "signals sig signal" "" "show the signals of the session" Some(Signals), Query |state, _| Ok(core::signals(state));
    "trust t" "" "show the share of tools that were not denied" Some(Trust), Query |state, _| Ok(core::trust(state));
    "learn l" "[LESSON]" "keep a lesson in the home's memory" Some(Trust), Append memory::learn;
    "pkg packages package pkgs" "[PKG-ID]" "list the packages, or show one" Some(PackageMgt), Query |state, argument| run::query(state, "pkg", argument);
    "ledger log" "[TYPE] [N]" "show the newest entries of a ledger" Some(Ledger), Query |state, argument| run::query(state, "ledger", argument);
    "gate gates" "[GATE]" "show the gates and what failed there" Some(Governance), Query |state, argument| run::query(state, "gate", argument);
    "wo workorders work-orders" "[ID | apply FILE]" "show the work orders, or apply one" Some(Governance), Append |state, argument| run::query(state, "wo", argument);
    "compliance" "" "show how the tree is governed" Some(Governance), Query |state, argument| run::query(state, "compliance", argument);
    "trace" "ID" "show where an artifact comes from" Some(Governance), Query |state, argument| run::query(state, "trace", argument);
    "specs" "[FMWK-ID]" "list the specs" Some(Governance), Query |state, argument| run::query(state, "specs", argument);
    "spec" "SPEC-ID" "show the manifest of a spec" Some(Governance), Query |state, argument| run::query(state, "spec", argument);
    "frameworks framework" "" "list the frameworks" Some(Governance), Query |state, argument| run::query(state, "frameworks", argument);
    "roots governed-roots" "" "list the governed roots" Some(Governance), Query |state, argument| run::query(state, "roots", argument);
    "path explain-path" "PATH" "show what may be done with a path" Some(Governance), Query |state, argument| run::query(state, "path", argument);
    "hub" "[log TEXT]" "show what the hub answered, or post a note" None, Write hub::hub;
    "inbox" "[read ID]" "show unread messages, or mark one read" None, Write hub::inbox;
}

/// The command of a name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    let name = name.to_lowercase();
    COMMANDS.iter().find(|command| command.names().any(|known| known == name))
}

/// The name of a command that is nearest to this one.
pub(crate) fn near(name: &str) -> Option<&'static str> {
    nearest(&name.to_lowercase(), COMMANDS.iter().flat_map(Command::names).filter(|name| name.len() > 3))
}

/// What a line asks for.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// Nothing.
    Nothing,
    /// A command of the shell, and what follows it.
    Command(&'static Command, &'a str),
    /// A command for the system.
    Run(&'a str),
    /// Words for the model.
    Say(&'a str),
    /// Begins like a command and is not one: the name, and the nearest one.
    Unknown(&'a str, Option<&'static str>),
}

/// Reads a line. One that begins with a blank goes to the model as it is, whatever follows.
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
    // A lone colon or slash is a slip, and no words for a model.
    if name.is_empty() && argument.is_empty() {
        return Input::Unknown("", Some("help"));
    }
    match find(name) {
        Some(command) => Input::Command(command, argument.trim()),
        None => Input::Unknown(name, near(name)),
    }
}

/// Quoted text without its quotes: `log "all done"`.
pub(crate) fn unquoted(text: &str) -> &str {
    let inside = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    inside.unwrap_or(text).trim()
}

/// Carries a command out.
pub(crate) fn perform(state: &mut State<'_>, command: &Command, argument: &str) -> Result<Outcome> {
    if let Some(needed) = command.needs
        && !needed.is_in(state.agent.capabilities())
    {
        state.standing.tracker.denied();
        let message = format!("Capability denied: {} on :{}", needed.name(), command.name());
        let agent = state.agent.name();
        return Err(Error::new(Code::Forbidden, message)
            .hint(format!("the agent `{agent}` has no such capability; `:agent` shows which it has")));
    }
    if command.takes.is_empty() && !argument.is_empty() {
        let message = format!(":{} takes nothing after it", command.name());
        return Err(Error::usage(message).hint("a line that begins with a blank is sent as it is"));
    }
    (command.run)(state, argument)
}

/// A name that is not in the table may be the name of an operation; else it is an error with the nearest name.
pub(crate) fn unknown(standing: &mut Standing, line: &str, name: &str, near: Option<&str>) -> Result<Outcome> {
    run::operation(standing, line).unwrap_or_else(|| {
        let hint = match near {
            Some(near) => format!("did you mean `:{near}`? `:help` lists the commands"),
            None => "`:help` lists the commands; a line that begins with a blank is sent as it is".to_owned(),
        };
        Err(Error::usage(format!("there is no command `{name}`")).hint(hint))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_belongs_to_one_command() {
        let mut seen = HashSet::new();
        for command in COMMANDS {
            assert!(!command.help.is_empty() && !command.help.ends_with('.'), "{}", command.name());
            for name in command.names() {
                assert!(seen.insert(name), "{name} twice");
                assert_eq!(find(name).map(Command::name), Some(command.name()));
            }
        }
    }

    #[test]
    fn the_standard_names_are_there() {
        let standard = "help h quit q clear c state s agent a memory m v ctx sig signals trust t learn l notes n n+ nd+ pkg \
                        ledger gate wo exit explain hub inbox export-session";
        for name in standard.split_whitespace() {
            assert!(find(name).is_some(), "{name}");
        }
        assert_eq!(near("qiut"), Some("quit"));
    }

    fn act(line: &str) -> Option<(&'static str, &str)> {
        match parse(line) {
            Input::Command(command, argument) => Some((command.name(), argument)),
            _ => None,
        }
    }

    #[test]
    fn both_prefixes_and_every_alias_lead_to_the_same_command() {
        assert_eq!(act(":help"), Some(("help", "")));
        assert_eq!(act("/help pkg"), Some(("help", "pkg")));
        assert_eq!(act(":Q"), Some(("quit", "")));
        assert_eq!(act("/exit "), Some(("quit", "")));
        assert_eq!(act(":n+  buy milk "), Some(("n+", "buy milk")));
        assert_eq!(act("/hub log \"all done\""), Some(("hub", "log \"all done\"")));
    }

    #[test]
    fn a_command_for_the_system_is_told_apart() {
        for line in [":! ls -la", ":!ls -la", "! ls -la", "  :! ls -la"] {
            assert!(matches!(parse(line), Input::Run("ls -la")), "{line}");
        }
        assert!(matches!(parse(":!"), Input::Run("")));
    }

    #[test]
    fn what_is_no_command_is_said() {
        assert!(matches!(parse("hello :help"), Input::Say("hello :help")));
        assert!(matches!(parse(" :help"), Input::Say(":help")));
        assert!(matches!(parse("/etc/passwd is odd"), Input::Say(_)));
        assert!(matches!(parse(" \t "), Input::Nothing));
        assert!(matches!(parse(":qiut now"), Input::Unknown("qiut", Some("quit"))));
        assert!(matches!(parse("/frobnicate"), Input::Unknown("frobnicate", None)));
    }

    #[test]
    fn unquoted_removes_quotes_around_the_text() {
        assert_eq!(unquoted("\"all done\""), "all done");
        assert_eq!(unquoted("it's"), "it's");
    }
}

//! The commands: one table with their names, what they take, what they do, and which capability of the agent they need.

use cp_common::program::Class;
use cp_common::spelling::nearest;

use crate::agent::Capability;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Help,
    Quit,
    Clear,
    State,
    Agent,
    Mode,
    Explain,
    Export,
    Sessions,
    Resume,
    Rename,
    Fork,
    Undo,
    Retry,
    Compact,
    Model,
    Backend,
    Tools,
    Attach,
    Edit,
    Propose,
    Copy,
    Save,
    Cost,
    Signals,
    Trust,
    Learn,
    Memory,
    View,
    Notes,
    AddNote,
    AddDeveloperNote,
    /// A question about the tree, by its whole name.
    Plane,
    Hub,
    Inbox,
}

#[derive(Debug)]
pub(crate) struct Command {
    /// The whole name first.
    pub(crate) names: &'static [&'static str],
    /// Its operands, as help shows them.
    pub(crate) takes: &'static str,
    pub(crate) help: &'static str,
    /// The capability that the agent must have.
    pub(crate) needs: Option<Capability>,
    pub(crate) class: Class,
    pub(crate) act: Act,
}

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

const fn command(
    act: Act,
    names: &'static [&'static str],
    takes: &'static str,
    help: &'static str,
    needs: Option<Capability>,
    class: Class,
) -> Command {
    Command { names, takes, help, needs, class, act }
}

use Capability::{Governance, Ledger, Memory, PackageMgt, Signals, Trust};
use Class::{Append, Governed, Query, Write};

/// Every command, in the order help shows them.
pub(crate) const COMMANDS: [Command; 45] = [
    command(Act::Help, &["help", "h", "?"], "[COMMAND]", "show the commands, or one of them", None, Query),
    command(Act::Quit, &["quit", "q", "exit", "x", "bye"], "", "end the session", None, Query),
    command(Act::Clear, &["clear", "c", "cls"], "", "clear the screen", None, Query),
    command(Act::State, &["state", "s"], "", "show the state as JSON", None, Query),
    command(Act::Agent, &["agent", "a", "agents"], "[NAME]", "show who answers, or switch to another", None, Query),
    command(Act::Mode, &["ctx", "context"], "[persistent|isolated]", "show or set what goes to the model", None, Query),
    command(Act::Explain, &["explain", "why"], "", "explain the last turn: risk, context, hints", None, Query),
    command(Act::Sessions, &["sessions", "ls"], "[N]", "list the newest sessions", None, Query),
    command(Act::Resume, &["resume", "open"], "ID|NAME", "go on with another session", None, Append),
    command(Act::Rename, &["rename", "name"], "NAME", "name this session", None, Append),
    command(Act::Fork, &["fork", "branch"], "", "go on in a copy of this session", None, Append),
    command(Act::Undo, &["undo"], "", "go on without the last round, in a copy", None, Append),
    command(Act::Retry, &["retry", "again"], "", "ask the last question again", None, Append),
    command(Act::Compact, &["compact"], "[KEEP]", "let the model summarise all but the newest turns", None, Append),
    command(Act::Model, &["model"], "[MODEL]", "show or choose the model", None, Query),
    command(Act::Backend, &["backend"], "[NAME]", "show or choose what answers", None, Query),
    command(Act::Tools, &["tools"], "", "show the tools that the model may use", None, Query),
    command(
        Act::Attach,
        &["attach", "file"],
        "[PATH]",
        "attach a file to the next turn; so does @PATH in it",
        None,
        Query,
    ),
    command(Act::Edit, &["edit", "e"], "[TEXT]", "write the next turn in $EDITOR; so does Ctrl-O", None, Append),
    command(Act::Propose, &["cmd"], "WORDS", "let the model write a command line; it runs after a yes", None, Governed),
    command(Act::Copy, &["copy", "y"], "", "copy the last answer to the clipboard", None, Query),
    command(Act::Save, &["save", "w"], "FILE", "write the last answer to a new file", None, Write),
    command(Act::Cost, &["cost", "usage"], "", "show the tokens and the cost since the shell was started", None, Query),
    command(Act::Export, &["export-session", "export"], "", "write summary.json, without secrets", None, Append),
    command(Act::Memory, &["memory", "m", "mem", "recall"], "[QUERY]", "show what is remembered", Some(Memory), Query),
    command(Act::View, &["v", "view", "history"], "[N]", "show the last turns of the session", Some(Memory), Query),
    command(Act::Notes, &["notes", "n", "nd"], "", "show the notes", Some(Memory), Query),
    command(Act::AddNote, &["n+", "note"], "TEXT", "keep a note in the home's memory", Some(Memory), Append),
    command(Act::AddDeveloperNote, &["nd+"], "TEXT", "keep a note for developers", Some(Memory), Append),
    command(Act::Signals, &["signals", "sig", "signal"], "", "show the signals of the session", Some(Signals), Query),
    command(Act::Trust, &["trust", "t"], "", "show the share of tools that were not denied", Some(Trust), Query),
    command(Act::Learn, &["learn", "l"], "[LESSON]", "keep a lesson in the home's memory", Some(Trust), Append),
    command(
        Act::Plane,
        &["pkg", "packages", "package", "pkgs"],
        "[PKG-ID]",
        "list the packages, or show one",
        Some(PackageMgt),
        Query,
    ),
    command(Act::Plane, &["ledger", "log"], "[TYPE] [N]", "show the newest entries of a ledger", Some(Ledger), Query),
    command(Act::Plane, &["gate", "gates"], "[GATE]", "show the gates and what failed there", Some(Governance), Query),
    command(
        Act::Plane,
        &["wo", "workorders", "work-orders"],
        "[ID | apply FILE]",
        "show the work orders, or apply one",
        Some(Governance),
        Append,
    ),
    command(Act::Plane, &["compliance"], "", "show how the tree is governed", Some(Governance), Query),
    command(Act::Plane, &["trace"], "ID", "show where an artifact comes from", Some(Governance), Query),
    command(Act::Plane, &["specs"], "[FMWK-ID]", "list the specs", Some(Governance), Query),
    command(Act::Plane, &["spec"], "SPEC-ID", "show the manifest of a spec", Some(Governance), Query),
    command(Act::Plane, &["frameworks", "framework"], "", "list the frameworks", Some(Governance), Query),
    command(Act::Plane, &["roots", "governed-roots"], "", "list the governed roots", Some(Governance), Query),
    command(
        Act::Plane,
        &["path", "explain-path"],
        "PATH",
        "show what may be done with a path",
        Some(Governance),
        Query,
    ),
    command(Act::Hub, &["hub"], "[log TEXT]", "show what the hub answered, or post a note", None, Write),
    command(Act::Inbox, &["inbox"], "[read ID]", "show unread messages, or mark one read", None, Write),
];

/// The command of a name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    let name = name.to_lowercase();
    COMMANDS.iter().find(|command| command.names.contains(&name.as_str()))
}

/// The name of a command that is nearest to this one.
pub(crate) fn near(name: &str) -> Option<&'static str> {
    nearest(
        &name.to_lowercase(),
        COMMANDS.iter().flat_map(|command| command.names.iter().copied()).filter(|name| name.len() > 3),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_belongs_to_one_command() {
        let mut seen = HashSet::new();
        for command in &COMMANDS {
            assert!(!command.help.is_empty() && !command.help.ends_with('.'), "{}", command.name());
            for name in command.names {
                assert!(seen.insert(*name), "{name} twice");
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
}

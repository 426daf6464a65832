//! A line into what it asks for. Commands begin with `:` or `/`, a command for the system with `:!`; all else goes to the model.

use crate::interactive::syntax::table::{self, Command};

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
    match table::find(name) {
        Some(command) => Input::Command(command, argument.trim()),
        None => Input::Unknown(name, table::near(name)),
    }
}

/// Whether more lines belong to it: it ends with a backslash, or a fence of three backquotes or quotes is open.
pub(crate) fn goes_on(text: &str) -> bool {
    let is_open = |fence: &str| text.matches(fence).count() % 2 == 1;
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    backslashes % 2 == 1 || is_open("```") || is_open("\"\"\"")
}

/// The text of one or more lines: a backslash at the end of a line, and quotes that only hold the lines together, are gone.
pub(crate) fn joined(text: &str) -> String {
    let text = text.replace("\\\n", "\n");
    let inside = text.trim().strip_prefix("\"\"\"").and_then(|text| text.strip_suffix("\"\"\""));
    inside.map_or_else(|| text.clone(), |inside| inside.trim_matches('\n').to_owned())
}

/// Quoted text without its quotes: `log "all done"`.
pub(crate) fn unquoted(text: &str) -> &str {
    let inside = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    inside.unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interactive::syntax::table::Act;

    fn act(line: &str) -> Option<(Act, &str)> {
        match parse(line) {
            Input::Command(command, argument) => Some((command.act, argument)),
            _ => None,
        }
    }

    #[test]
    fn both_prefixes_and_every_alias_lead_to_the_same_command() {
        assert_eq!(act(":help"), Some((Act::Help, "")));
        assert_eq!(act("/help pkg"), Some((Act::Help, "pkg")));
        assert_eq!(act(":Q"), Some((Act::Quit, "")));
        assert_eq!(act("/exit "), Some((Act::Quit, "")));
        assert_eq!(act(":n+  buy milk "), Some((Act::AddNote, "buy milk")));
        assert_eq!(act("/hub log \"all done\""), Some((Act::Hub, "log \"all done\"")));
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
    fn a_backslash_and_an_open_fence_ask_for_more() {
        assert!(goes_on("one \\") && goes_on("```sh\nls") && goes_on("\"\"\"a"));
        assert!(!goes_on("one \\\\") && !goes_on("```sh\nls\n```") && !goes_on("\"\"\"a\"\"\"") && !goes_on("x"));
        assert_eq!(joined("one \\\ntwo"), "one \ntwo");
        assert_eq!(joined("\"\"\"\na\n\nb\n\"\"\""), "a\n\nb");
        assert_eq!(unquoted("\"all done\""), "all done");
        assert_eq!(unquoted("it's"), "it's");
    }
}

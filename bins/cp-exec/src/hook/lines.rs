//! Command lines of hosts: those that are rewritten to run in this program, and those that Claude Code passes to the
//! program of `CLAUDE_CODE_SHELL_PREFIX`, with a command in `eval`, between what restores the person's shell and what
//! records the working directory.

use std::path::PathBuf;

use cp_common::glob::name_matches;
use cp_common::wire::quoted;

/// A line of the host's shell that runs another one with this program: its path, and options.
pub(crate) fn rewritten(line: &str, program: &[String]) -> String {
    let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
    format!("{}; {} -c '{}'", words_for_rules(line), words.join(" "), line.replace('\'', r"'\''"))
}

/// Words that a shell does not take for the name of a command.
#[rustfmt::skip]
const RESERVED: [&str; 23] = [
    "if", "then", "elif", "else", "fi", "while", "until", "for", "foreach", "select", "repeat", "do", "done", "end", "case",
    "in", "esac", "function", "coproc", "time", "!", "{", "}",
];

/// The words of each command of a line, for the rules of the host: a list that never runs. The name of a command is
/// quoted only if it has other characters than names have, because Codex has no rules for a quoted name; such a name
/// can end no list. Quotes of the line are left out, because one that the shell ends elsewhere would hide a command;
/// therefore a rule may also match text in quotes and here-documents.
fn words_for_rules(line: &str) -> String {
    let plain = line.replace("\\\n", "").replace(['\'', '"', '\\'], "");
    // A file descriptor is no word, and the target of a redirection no command.
    let plain = plain.replace("2>", ">").replace(">&", ">");
    let mut listed = "false".to_owned();
    for part in plain.split([';', '&', '|', '(', ')', '`', '\n']) {
        for (number, part) in part.split(['<', '>']).enumerate() {
            let words = part.split_whitespace().skip(usize::from(number > 0));
            let mut words = words.skip_while(|word| RESERVED.contains(word) || word.contains('='));
            listed.extend(words.next().map(|name| format!(" && {}", quoted(name))));
            listed.extend(words.map(|word| format!(" '{word}'")));
        }
    }
    listed
}

/// A line of Claude Code's shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrappedLine {
    /// The command of the tool or of the file.
    pub command: String,
    /// The text between the command and the record of the working directory.
    input: &'static str,
    /// The file to which the working directory is written, and its name.
    pub cwd_file: PathBuf,
    pub cwd_name: String,
}

const RECORD: &str = " && pwd -P >| ";
const NO_INPUT: &str = " < /dev/null";
const EVAL: &str = "eval ";

impl WrappedLine {
    /// Parses a line; `None` if Claude Code did not write it for a command.
    pub(crate) fn of(line: &str) -> Option<Self> {
        let (rest, file) = line.rsplit_once(RECORD)?;
        let cwd_file = PathBuf::from(one_word(file)?);
        let cwd_name = cwd_file.file_name()?.to_str().filter(|name| name_matches("claude-*-cwd", name))?.to_owned();
        let (rest, input) = rest.strip_suffix(NO_INPUT).map_or((rest, ""), |rest| (rest, NO_INPUT));
        // The command is quoted, so the first `eval` with one word until the end is that of Claude Code.
        let command = rest.match_indices(EVAL).find_map(|(at, _)| one_word(&rest[at + EVAL.len()..]))?;
        Some(Self { command, input, cwd_file, cwd_name })
    }

    /// The text for the shell of the sandbox, which records the working directory in a file of the sandbox. What
    /// restores the person's shell is left out, because it names programs that may not run.
    pub(crate) fn text(&self, cwd_file: &str) -> String {
        let Self { command, input, .. } = self;
        format!("{EVAL}{}{input}{RECORD}{}", quoted(command), quoted(cwd_file))
    }
}

/// The value of a text that is one word of a shell. What a shell would expand in it stays as it is.
fn one_word(text: &str) -> Option<String> {
    let [word] = <[String; 1]>::try_from(shlex::split(text)?).ok()?;
    Some(word)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "source /u/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && { \\builtin shopt -u extglob || \\builtin setopt NO_EXTENDED_GLOB; } >/dev/null 2>&1 || true && eval COMMAND < /dev/null && pwd -P >| /tmp/claude-9414-cwd";

    /// The quoting of Claude Code.
    fn line(command: &str) -> String {
        LINE.replace("COMMAND", &format!("'{}'", command.replace('\'', "'\"'\"'")))
    }

    #[test]
    fn wrapped_line_names_command_and_cwd_file() {
        let wrapped = WrappedLine::of(&line("echo it's")).unwrap();
        assert_eq!(wrapped.command, "echo it's");
        assert_eq!(wrapped.cwd_file, Path::new("/tmp/claude-9414-cwd"));
    }

    #[test]
    fn other_lines_are_not_wrapped() {
        for line in ["id", "", "eval 'id'", "eval id; ls && pwd -P >| /tmp/a", "eval 'a' 'b' && pwd -P >| /tmp/a"] {
            assert_eq!(WrappedLine::of(line), None, "{line}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn wrapped_command_is_found_and_runs_unchanged(command in r#"[^\x00\r]{0,30}['"\\$`! *;|&\n~a]{0,12}( && pwd -P >\| /tmp/x| eval 'x')?"#) {
            let wrapped = WrappedLine::of(&line(&command)).unwrap();
            prop_assert_eq!(&wrapped.command, &command);
            let place = tempfile::tempdir().unwrap();
            let (text, file) = (wrapped.text(&place.path().join("cwd").display().to_string()), place.path().join("cwd"));
            // `eval` shows its argument.
            let shown = format!("eval() {{ printf %s \"$1\"; }}\n{text}");
            let output = Command::new("bash").args(["-c", &shown]).current_dir("/").output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), command);
            prop_assert_eq!(std::fs::read_to_string(file).unwrap(), "/\n");
        }
    }
}

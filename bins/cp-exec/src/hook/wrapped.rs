//! Lines that Claude Code passes to the program of `CLAUDE_CODE_SHELL_PREFIX`: a command in `eval`, between what
//! restores the person's shell and what records the working directory.

use std::path::PathBuf;

use cp_common::wire::quoted;

/// A line of Claude Code's shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrappedLine {
    /// The command of the tool or of the file.
    pub command: String,
    /// The text between the command and the record of the working directory.
    input: &'static str,
    /// The file to which the working directory is written.
    pub cwd_file: PathBuf,
}

const RECORD: &str = " && pwd -P >| ";
const NO_INPUT: &str = " < /dev/null";
const EVAL: &str = "eval ";

impl WrappedLine {
    /// Parses a line; `None` if Claude Code did not write it for a command.
    pub(crate) fn of(line: &str) -> Option<Self> {
        let (rest, file) = line.rsplit_once(RECORD)?;
        let cwd_file = PathBuf::from(one_word(file)?);
        let (rest, input) = rest.strip_suffix(NO_INPUT).map_or((rest, ""), |rest| (rest, NO_INPUT));
        // The command is quoted, so the first `eval` with one word until the end is that of Claude Code.
        let command = rest.match_indices(EVAL).find_map(|(at, _)| one_word(&rest[at + EVAL.len()..]))?;
        Some(Self { command, input, cwd_file })
    }

    /// The text for the shell of the sandbox, which records the working directory in a file of the sandbox. What
    /// restores the person's shell is left out, because it names programs that may not run.
    pub(crate) fn text(&self, cwd_file: &str) -> String {
        let Self { command, input, .. } = self;
        format!("{EVAL}{}{input}{RECORD}{}", quoted(command), quoted(cwd_file))
    }
}

/// The value of a text that is one word of a shell, without expansions.
fn one_word(text: &str) -> Option<String> {
    let (mut word, mut rest) = (String::new(), text.chars());
    while let Some(sign) = rest.next() {
        match sign {
            '\'' => {
                let (inside, after) = rest.as_str().split_once('\'')?;
                word.push_str(inside);
                rest = after.chars();
            }
            '"' => {
                let (inside, after) = rest.as_str().split_once('"')?;
                if inside.contains(['\\', '$', '`']) {
                    return None;
                }
                word.push_str(inside);
                rest = after.chars();
            }
            '\\' => word.push(rest.next().filter(|sign| *sign != '\n')?),
            sign if sign.is_ascii_alphanumeric() || "-_./:,@%+=".contains(sign) => word.push(sign),
            _ => return None,
        }
    }
    (!text.is_empty()).then_some(word)
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

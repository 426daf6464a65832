//! Command strings: either the arguments of one program, split by the strict tokenizer, or a line for a shell in the
//! sandbox.

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;
use cp_common::{Error, Result, words};

use crate::policy::{Policy, Strings};
use crate::request::{Command, Form};

/// The shells for command lines; the first that exists is used.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// Parses the string of a command according to `exec.strings` of the policy.
pub(crate) fn read_string(policy: &Policy, mut command: Command) -> Result<Command> {
    command.form = match command.form {
        Form::Line(text) if policy.exec().strings == Strings::Single => strict(policy, &text, &mut command.notices)?,
        Form::Strict(text) => strict(policy, &text, &mut command.notices)?,
        Form::Pipeline(mut stages) if stages.len() == 1 => Form::Words(stages.remove(0)),
        other => other,
    };
    command.check()?;
    Ok(command)
}

fn strict(policy: &Policy, text: &str, notices: &mut Vec<String>) -> Result<Form> {
    let words = words::split(text)?;
    notices.clone_from(&words.notices);
    Ok(Form::Words(words.with_home(&policy.home_text())))
}

/// Shell code that makes a pipeline return the status of the first stage that fails. The status of SIGPIPE (141) is
/// not a failure.
const FIRST_FAILURE: &str = r#"; for s in "${PIPESTATUS[@]}"; do [ $s = 0 ] || [ $s = 141 ] || exit $s; done"#;

/// The shell of this machine, and the arguments with which it runs a line.
pub(crate) fn shell_words(line: &str, is_pipeline: bool) -> Result<(PathBuf, Vec<String>)> {
    let shell = SHELLS.iter().find_map(|path| Path::new(path).canonicalize().ok());
    let shell = shell.ok_or_else(|| Error::not_found("this machine has neither bash nor sh").with("rule", "shell"))?;
    let name = shell.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut line = line.to_owned();
    if is_pipeline && name == "bash" {
        line.push_str(FIRST_FAILURE);
    }
    let mut words = vec![name, "-c".to_owned()];
    // A shell would parse such a line as an option.
    if line.starts_with(['-', '+']) {
        words.push("--".to_owned());
    }
    words.push(line);
    Ok((shell, words))
}

/// The command line of a pipeline, with each word quoted.
pub(crate) fn line_of(stages: &[Vec<String>]) -> String {
    let stage = |argv: &Vec<String>| argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    stages.iter().map(stage).collect::<Vec<_>>().join(" | ")
}

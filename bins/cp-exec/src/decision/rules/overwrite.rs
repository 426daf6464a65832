//! Commands that write over a file: it is asked for where there is one.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Risk};
use crate::arguments::Arguments;
use crate::policy::Verdict;

const ABOUT: [&str; 6] = ["cp", "mv", "ln", "tee", "install", "ginstall"];

/// Whether a command is one of those.
pub(super) fn is_about(arguments: &Arguments<'_>) -> bool {
    ABOUT.contains(&arguments.name())
}

/// Judges a command by the files that are there.
pub(super) fn judge(arguments: &Arguments<'_>, cwd: &Path) -> Option<Finding> {
    if !is_about(arguments) || keeps(arguments) {
        return None;
    }
    let lost = targets(arguments, cwd).into_iter().find(|path| is_file(path))?;
    Some(Finding {
        verdict: Verdict::Confirm,
        rule: "overwrite".to_owned(),
        reason: format!("`{}`: overwrites {}", arguments.name(), lost.display()),
        risk: Risk::High,
    })
}

/// Whether what is there stays, by what the options say.
fn keeps(arguments: &Arguments<'_>) -> bool {
    match arguments.name() {
        "tee" => arguments.has_option(&["-a", "--append"]),
        "ln" => !arguments.has_option(&["-f", "--force"]),
        "install" | "ginstall" => arguments.has_option(&["-d", "--directory"]),
        _ => {
            arguments.has_option(&["-n", "--no-clobber"])
                && !arguments.has_option(&["-f", "--force", "--remove-destination"])
        }
    }
}

/// The files that a command would write.
fn targets(arguments: &Arguments<'_>, cwd: &Path) -> Vec<PathBuf> {
    let mut operands: Vec<&str> = arguments.operands().map(|operand| operand.word).collect();
    if arguments.name() == "tee" {
        return operands.into_iter().map(|word| cwd.join(word)).collect();
    }
    let directory = arguments.values_of(&["-t", "--target-directory"]).next();
    let target = match directory {
        Some(directory) => cwd.join(directory),
        None if operands.len() > 1 => cwd.join(operands.pop().unwrap_or_default()),
        // `ln -f a/b` makes `b`.
        None => cwd.to_owned(),
    };
    if directory.is_none() && (arguments.has_option(&["-T", "--no-target-directory"]) || !target.is_dir()) {
        return vec![target];
    }
    operands.iter().filter_map(|source| Some(target.join(Path::new(source).file_name()?))).collect()
}

/// A file with something in it to lose: not a directory, and no device.
fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file())
        || std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

//! `git checkout NAME`: a branch, or a file whose changes are lost. What is there tells them apart.

use std::path::Path;

use super::finding::{Finding, Risk};
use crate::arguments::{Arguments, Item, Name};
use crate::policy::Verdict;

/// Judges a `git checkout` by the files of the directory it would run in.
pub(super) fn judge(arguments: &Arguments<'_>, cwd: &Path) -> Option<Finding> {
    if arguments.name() != "git" || !arguments.is_command(&["checkout"]) || arguments.has_option(&["-b", "--orphan"]) {
        return None;
    }
    let mut directory = cwd.to_owned();
    for item in arguments.items() {
        match item {
            Item::Option(Name::Letter('C'), Some(value)) => directory.push(value),
            Item::Option(..) => {}
            Item::Operand(_) => break,
        }
    }
    let is_file = |word: &str| {
        word != "-" && (word.contains(['*', '?', '[']) || std::fs::symlink_metadata(directory.join(word)).is_ok())
    };
    let file = arguments.operands_of_command().find(|operand| is_file(operand.word))?;
    Some(Finding {
        verdict: Verdict::Confirm,
        is_final: true,
        rule: "git.discard".to_owned(),
        reason: format!("`git`: discards the changes of {}, which exist nowhere else", file.word),
        risk: Risk::High,
    })
}

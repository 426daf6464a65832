//! `git config`: reading is free, and so are settings that name no program and no file.

use crate::arguments::Arguments;
use crate::glob::name_matches;

/// Keys that may be set. Any other can make git run, read or write something.
const HARMLESS: &[&str] = &[
    "advice.*",
    "author.email",
    "author.name",
    "branch.*.description",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.remote",
    "color.*",
    "column.*",
    "commit.verbose",
    "committer.email",
    "committer.name",
    "core.abbrev",
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.quotepath",
    "core.safecrlf",
    "core.whitespace",
    "diff.algorithm",
    "diff.colormoved",
    "diff.context",
    "diff.renames",
    "fetch.prune",
    "init.defaultbranch",
    "log.*",
    "merge.conflictstyle",
    "merge.ff",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "rebase.autosquash",
    "rebase.autostash",
    "rerere.enabled",
    "status.*",
    "tag.sort",
    "user.email",
    "user.name",
];

const READS: &[&str] =
    &["--get", "--get-all", "--get-regexp", "--get-urlmatch", "--get-color", "--get-colorbool", "-l", "--list"];

/// Why this `git config` may not run, if it may not.
pub(super) fn objection(arguments: &Arguments<'_>) -> Option<&'static str> {
    const EDITS: &str = "opens the configuration in a program";
    const ELSEWHERE: &str = "changes a file of any name";
    const KEY: &str = "this setting can name a program or a file; only harmless ones are set this way";
    if arguments.name() != "git" || !arguments.is_command(&["config"]) {
        return None;
    }
    let mut operands = arguments.operands_of_command().map(|operand| operand.word).peekable();
    let action = operands.next_if(|word| ["get", "list", "set", "unset", "edit"].contains(word));
    if action == Some("edit") || arguments.has_option(&["-e", "--edit"]) {
        return Some(EDITS);
    }
    let changes = ["--add", "--replace-all", "--unset", "--unset-all", "--rename-section", "--remove-section"];
    let key = operands.next();
    let reads = match action {
        Some("get" | "list") => true,
        Some(_) => false,
        None => !arguments.has_option(&changes) && (arguments.has_option(READS) || operands.next().is_none()),
    };
    if reads {
        return None;
    }
    if arguments.has_option(&["-f", "--file", "--blob", "--url"]) {
        return Some(ELSEWHERE);
    }
    let key = key.unwrap_or_default().to_ascii_lowercase();
    (!HARMLESS.iter().any(|form| name_matches(form, &key))).then_some(KEY)
}

#[cfg(test)]
mod tests {
    use super::objection;
    use crate::arguments::Arguments;

    #[test]
    fn what_can_name_a_program_is_not_set() {
        let objects = |line: &str| objection(&Arguments::read(&cp_common::words::split(line).unwrap().argv)).is_some();
        for line in [
            "git config core.fsmonitor id",
            "git config set core.sshCommand id",
            "git config --add alias.x '!id'",
            "git config core.hooksPath user.name",
            "git config -f x user.name y",
            "git config --local core.pager id",
            "git config -e",
            "git config edit",
            "git config --rename-section user alias",
            "git config Core.FsMonitor id",
            "git config --unset core.bare",
        ] {
            assert!(objects(line), "{line}");
        }
        for line in [
            "git config user.name x",
            "git config set user.email x@y",
            "git config --local pull.rebase true",
            "git config user.name",
            "git config --get core.fsmonitor",
            "git config -l",
            "git config list",
            "git config get core.pager",
            "git config --unset user.name",
            "git status",
        ] {
            assert!(!objects(line), "{line}");
        }
    }
}

//! Which of its operands a command writes, where that is plain. The sandbox holds what is governed whatever a command does; this says
//! why before anything runs.

use std::path::Path;

use cp_common::Result;

use super::paths::reached;
use crate::arguments::Arguments;
use crate::policy::Policy;

/// Programs that write every operand.
const ALL: [&str; 14] = [
    "tee", "touch", "mkdir", "rmdir", "truncate", "shred", "unlink", "rm", "mv", "chmod", "chown", "chgrp", "mkfifo",
    "mknod",
];

/// Programs that write their last operand.
const LAST: [&str; 5] = ["cp", "ln", "install", "link", "rsync"];

/// Refuses a command that would write what a tree governs.
pub(super) fn governed_stays(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let Some(governed) = &policy.governed else { return Ok(()) };
    let name = arguments.name();
    let operands: Vec<&String> = arguments.words().iter().filter(|word| !word.starts_with('-')).collect();
    let written = match name {
        _ if ALL.contains(&name) => operands.as_slice(),
        _ if LAST.contains(&name) => operands.last().map_or(&[][..], std::slice::from_ref),
        _ => &[],
    };
    written.iter().try_for_each(|word| governed.check_writable(&reached(cwd, &policy.expand(word))))
}

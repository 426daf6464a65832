//! Wrappers: what `env`, `timeout` or `xargs` runs is judged as if it had been requested.

use cp_common::Result;

use crate::arguments::Arguments;
use crate::refusal::refuse;

/// The words of the command that a wrapper runs; none where the command is not a wrapper.
pub(super) fn inner<'a>(arguments: &Arguments<'a>) -> Result<Option<&'a [String]>> {
    let Some(wrapper) = arguments.wrapper() else { return Ok(None) };
    let name = arguments.name();
    if wrapper.rewrites() {
        return Err(refuse(
            "wrapper.string",
            format!("`{name}` would build the command, or choose its directory, by rules of its own"),
        )
        .hint("give the words separately, and the directory as `cwd`"));
    }
    if name == "env" && wrapper.first().is_some_and(|word| word.contains('=')) {
        return Err(refuse("wrapper.env", "`env` would set variables that were not checked")
            .hint("set them in `env` of the request"));
    }
    Ok(Some(wrapper.inner()))
}

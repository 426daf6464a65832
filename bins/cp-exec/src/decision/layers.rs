//! Wrappers: what `env`, `timeout` or `xargs` runs is decided as if it had been requested, by its name and by every rule.

use cp_common::Result;

use super::allowed::allowed_name;
use super::rules::has_rules;
use super::served::{point_to, served};
use crate::arguments::{Arguments, Inner};
use crate::policy::{ArgumentRules, Policy};
use crate::refusal::refuse;

/// How deep wrappers may be nested.
const DEPTH: usize = 3;

/// The command lines that a command runs, each the one before it; none where it is not a wrapper, or runs nothing.
pub(super) fn wrapped(policy: &Policy, arguments: &Arguments<'_>) -> Result<Vec<Vec<String>>> {
    let mut layers = Vec::new();
    // What a wrapper takes from its input goes to what the innermost one runs.
    let (mut fed, mut replaced) = (None, false);
    let mut inner = inner_of(arguments)?;
    let mut name = arguments.name().to_owned();
    if let Some(wrapper) = arguments.wrapper().filter(|wrapper| wrapper.feeds() && inner.is_some()) {
        fed = Some(name.clone());
        replaced = wrapper.replaces();
    }
    while let Some(argv) = inner {
        if layers.len() == DEPTH {
            return Err(refuse("wrapper.depth", "wrappers are nested too deeply").hint("run the command itself"));
        }
        let arguments = Arguments::read(&argv);
        let command = arguments.command().unwrap_or_default();
        allowed_name(policy, &arguments).map_err(|error| point_to(error, policy, served(&arguments)))?;
        // `/usr/bin/rm` is `rm`, and the wrapper would run it without looking it up.
        if command.contains('/') {
            return Err(refuse("wrapper.path", format!("`{name}` would run {command} by its path"))
                .hint("write the name; it is looked up on the policy's path"));
        }
        inner = inner_of(&arguments)?;
        if let Some(feeder) = &fed {
            let built_in = policy.exec().argument_rules == ArgumentRules::Default;
            let chooses = arguments.wrapper().is_some() && (inner.is_none() || replaced);
            if chooses || inner.is_none() && built_in && has_rules(&arguments) {
                return Err(from_input(feeder, command));
            }
        } else if let Some(wrapper) = arguments.wrapper().filter(|wrapper| wrapper.feeds() && inner.is_some()) {
            fed = Some(arguments.name().to_owned());
            replaced = wrapper.replaces();
        }
        arguments.name().clone_into(&mut name);
        drop(arguments);
        layers.push(argv);
    }
    Ok(layers)
}

/// The words that a wrapper runs, if it is one and runs something.
fn inner_of(arguments: &Arguments<'_>) -> Result<Option<Vec<String>>> {
    let Some(wrapper) = arguments.wrapper() else { return Ok(None) };
    let name = arguments.name();
    if let Some(word) = arguments.unknown() {
        return Err(refuse("wrapper.options", format!("`{name}`: {word} is not an option of it that is known"))
            .hint("write the option in full, as the program's own manual has it, or run the inner command itself"));
    }
    match wrapper.inner() {
        Inner::Nothing => Ok(None),
        Inner::Words(words) | Inner::Again(words) => Ok(Some(words)),
        Inner::Built => Err(refuse(
            "wrapper.string",
            format!("`{name}` would build the command, or choose its directory or its name, by rules of its own"),
        )
        .hint("give the words separately, and the directory as `cwd`")),
        Inner::Variables => Err(refuse("wrapper.env", format!("`{name}` would set variables that were not checked"))
            .hint("set them in `env` of the request")),
        Inner::FromInput => {
            Err(refuse("wrapper.input", format!("`{name}` would read the name of the command from its input"))
                .hint("write the command's name in full, and what is replaced among its arguments"))
        }
    }
}

fn from_input(feeder: &str, command: &str) -> cp_common::Error {
    refuse("wrapper.input", format!("`{command}` would get arguments from `{feeder}` that were not checked"))
        .hint("run it with its arguments on the command line")
}

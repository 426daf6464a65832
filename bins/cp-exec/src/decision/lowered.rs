//! A command string read as policy says: as the words of one command, or as a plan.

use std::collections::BTreeMap;

use cp_common::{Error, Result, words};

use super::environment;
use super::paths::asked_cwd;
use super::plan::search_path;
use crate::lowering::steps::{Action, Part, Step, Word};
use crate::lowering::{Environment, lower};
use crate::policy::{Policy, Strings, name_of};
use crate::request::Command;

/// The command, with its string read if it has one.
pub(crate) fn lowered(policy: &Policy, mut command: Command) -> Result<Command> {
    let Some(text) = command.string.take() else { return Ok(command) };
    command.stages.clear();
    match policy.exec().strings {
        Strings::Single => {
            let words = words::split(&text)?;
            command.notices.clone_from(&words.notices);
            command.stages = vec![words.with_home(&policy.tilde())];
        }
        Strings::List => {
            let directory = asked_cwd(policy, &command)?.display().to_string();
            let variables = variables(policy, &command)?;
            let home = policy.tilde();
            let environment = Environment { home: &home, directory: &directory, variables: &variables };
            let lowered = lower(&text, &environment).map_err(|refusal| Error::from(*refusal))?;
            command.notices = lowered.notices;
            match simple(lowered.steps) {
                Ok(part) => {
                    let text = |word: Word| word.with_status(0);
                    command.env.extend(part.env.into_iter().map(|(name, value)| (name, text(value))));
                    command.stages = vec![part.argv.into_iter().map(text).collect()];
                }
                Err(steps) => command.steps = steps,
            }
        }
    }
    command.check()?;
    Ok(command)
}

/// The variables that every command gets.
fn variables(policy: &Policy, command: &Command) -> Result<BTreeMap<String, String>> {
    let exec = policy.exec();
    let set = exec.env_set.iter().map(|(name, value)| (name.clone(), policy.value(value))).collect();
    let user = name_of(rustix::process::geteuid().as_raw());
    let env = environment::build(&search_path(policy), &user, &set, &exec.env_allow, &command.env)?;
    Ok(env.into_iter().collect())
}

/// The one command, where that is all and everything in it is known before it starts.
fn simple(mut steps: Vec<Step>) -> std::result::Result<Part, Vec<Step>> {
    let is_simple = match steps.as_slice() {
        [Step { negated: false, action: Action::Pipeline(parts), .. }] => match parts.as_slice() {
            [part] => {
                let mut words = part.argv.iter().chain(part.env.values());
                !part.argv.is_empty() && part.redirects.is_empty() && words.all(|word| word.text().is_some())
            }
            _ => false,
        },
        _ => false,
    };
    match steps.pop() {
        Some(Step { action: Action::Pipeline(mut parts), .. }) if is_simple => parts.pop().ok_or(steps),
        last => {
            steps.extend(last);
            Err(steps)
        }
    }
}

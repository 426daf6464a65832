//! The decision about a whole agent. Its owner types the command, so the policy need not list the program; the program
//! is pinned, and its installation becomes readable and executable.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::{Error, Result};

use super::checks::check_cwd;
use super::program::{self, HashCache, Pinned, locate};
use super::{Caller, Decision, Ruling};
use crate::nofollow::follow;
use crate::policy::{Policy, node_of};
use crate::request::Command;
use crate::rules::Finding;
use crate::sandbox::pieces::sees;
use crate::sandbox::plan::{Operation, Place, Plan, Profile};

/// Decides about an agent, and plans its run. `env` are variables that it gets in addition to those of every command.
/// It may write and execute its `state`, which is neither searched nor recorded. The policy of this start gets the
/// programs of the agent.
pub(crate) fn decide_agent(
    policy: &mut Policy,
    hashes: &mut HashCache,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    state: Vec<PathBuf>,
    timeout: Duration,
) -> Result<Ruling> {
    if policy.loaded.file.is_none() {
        let error = Error::config("there is no policy, so nothing limits the agent").with("rule", "not_allowed");
        return Err(error.hint("run `cp-exec policy init --for .` in the project"));
    }
    policy.check_base()?;
    let cwd = policy.base.clone();
    check_cwd(policy, &cwd)?;
    let pinned = pin(policy, hashes, argv.first().map(String::as_str).unwrap_or_default())?;
    policy.loaded.settings.exec.profile = Profile::Build;
    let finding =
        Finding::contained("the sandbox contains the agent, and each program is decided about when it starts");
    let command = Command { argv, env, ..Command::default() };
    let decision = Decision { command, finding, pinned, cwd, timeout, caller: Caller::Program };
    let mut ruling = super::plan(policy, decision)?;
    let plan = &mut ruling.plan;
    let view = &mut plan.view;
    for state in state {
        view.places.retain(|place| place.operation != Operation::Hidden || !state.starts_with(&place.path));
        // The states of other agents stay hidden.
        let beside = state.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten();
        if policy.cp_home.contains(&state) {
            let others = beside.map(|entry| entry.path()).filter(|path| *path != state);
            view.add(Operation::Hidden, true, others);
        }
        let node = node_of(&state)?.ok_or_else(|| Error::not_found("no such directory").in_file(&state))?;
        for operation in [Operation::Write, Operation::Execute] {
            view.places.push(Place { node: Some(node), ..Place::new(&state, operation, true) });
        }
        view.state.push(state);
    }
    let is_absent = |value: &str| !Path::new(value).canonicalize().is_ok_and(|shell| sees(plan, &shell));
    if let Some(at) = plan.env.iter().position(|(name, value)| name == "SHELL" && is_absent(value)) {
        plan.env.remove(at);
    }
    Ok(ruling)
}

/// The files of a command line that the view does not have: each word, also within an argument, that is the path of a
/// file.
pub(crate) fn unseen_files(policy: &Policy, plan: &Plan) -> Vec<PathBuf> {
    let words = plan.argv.iter().skip(1).flat_map(|argument| {
        let parts = argument.split(|sign: char| sign.is_whitespace() || "\"'=,()".contains(sign));
        std::iter::once(argument.as_str()).chain(parts)
    });
    let files = words.filter_map(|word| {
        let path = policy.base.join(policy.expand(word.trim_start_matches('@')));
        path.canonicalize().ok().filter(|real| real.is_file() && !real.starts_with("/proc") && !sees(plan, real))
    });
    files.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Pins the program, and adds its installation to the policy.
fn pin(policy: &mut Policy, hashes: &mut HashCache, name: &str) -> Result<Pinned> {
    // The caller's names are looked up in the directories of the caller.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut outside = policy.clone();
    outside.loaded.settings.exec.path = std::env::split_paths(&path).filter(|path| path.is_absolute()).collect();
    let named = if name.contains('/') { policy.base.join(policy.expand(name)) } else { locate(&outside, name)? };
    let path = named.canonicalize().map_err(|e| Error::io("the agent's program", e).in_file(&named))?;
    let pinned = program::pin(&outside, &path, hashes)?;
    let packages = installation(&pinned.path);
    let mut trees = vec![pinned.path.clone(), pinned.exe.path.clone()];
    add_pin(policy, &named);
    if let Some(links) = links_of(&packages) {
        policy.loaded.settings.exec.path.push(links.clone());
        trees.push(links);
    }
    trees.push(packages);
    if pinned.script.is_some() {
        trees.push(prefix(policy, &pinned.exe.path));
        let interpreter = pinned.exe.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if let Ok(named) = locate(&outside, interpreter) {
            add_pin(policy, &named);
        }
    }
    for tree in trees {
        policy.allow(&tree, true);
    }
    Ok(pinned)
}

/// Makes a program available under its name, with its directory in PATH.
fn add_pin(policy: &mut Policy, named: &Path) {
    if let Some(name) = named.file_name().and_then(OsStr::to_str) {
        policy.links.extend(follow(named).1);
        policy.loaded.settings.exec.pin.entry(name.to_owned()).or_insert_with(|| named.to_owned());
    }
}

/// The directory with the files of a program: the outermost `node_modules` around it, because packages lie beside the
/// packages that they use. A program outside of one is a single file.
fn installation(program: &Path) -> PathBuf {
    let packages = program.ancestors().filter(|path| path.ends_with("node_modules")).last();
    packages.unwrap_or(program).to_owned()
}

/// The directory with the links to the programs of packages: `.bin` in them, or the `bin` of their npm prefix.
fn links_of(packages: &Path) -> Option<PathBuf> {
    let above = packages.parent().filter(|_| packages.ends_with("node_modules"))?;
    let beside = above.parent().filter(|_| above.ends_with("lib")).map(|prefix| prefix.join("bin"));
    [Some(packages.join(".bin")), beside].into_iter().flatten().find(|path| path.is_dir())
}

/// The directory in which an interpreter has its libraries: `PREFIX` of `PREFIX/bin/NAME`. Directories of the system
/// are readable already, and directories of a user that hold more than programs are not a prefix.
fn prefix(policy: &Policy, interpreter: &Path) -> PathBuf {
    let home = &policy.loaded.home;
    let beside = interpreter.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
    let own = |path: &&Path| !home.starts_with(path) && **path != home.join(".local");
    beside.filter(own).unwrap_or(interpreter).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installation_is_outermost_package_directory_or_file() {
        for (program, tree) in [
            ("/home/me/.nvm/v20/lib/node_modules/@x/agent/cli.js", "/home/me/.nvm/v20/lib/node_modules"),
            ("/p/node_modules/.pnpm/a@1/node_modules/a/cli.js", "/p/node_modules"),
            ("/home/me/.local/share/agent/versions/2.1", "/home/me/.local/share/agent/versions/2.1"),
        ] {
            assert_eq!(installation(Path::new(program)), Path::new(tree));
        }
    }
}

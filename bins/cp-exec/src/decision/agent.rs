//! The decision about a whole agent. Its owner types the command, so the policy need not list the program; the program
//! is pinned, and its installation becomes readable and executable.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::{Error, Result};
use cp_egress::Network;

use super::checks::check_cwd;
use super::program::{self, HashCache, Pinned};
use super::{Caller, Decision, Ruling};
use crate::nofollow::follow;
use crate::policy::{Policy, node_of};
use crate::rules::Finding;
use crate::sandbox::pieces::sees;
use crate::sandbox::plan::{Operation, Place, Plan, Profile};

/// The time limit of an agent without one: ten years.
pub(crate) const UNLIMITED: Duration = Duration::from_hours(10 * 365 * 24);

/// An agent to start.
pub(crate) struct AgentCommand {
    /// Its arguments, its own name first.
    pub argv: Vec<String>,
    /// The directories in which its name is looked up.
    pub path: Vec<PathBuf>,
    /// Variables that it gets in addition to those of every command.
    pub env: BTreeMap<String, String>,
    /// Directories of its state. It may write and execute them; they are neither searched nor recorded.
    pub state: Vec<PathBuf>,
    /// Other programs that it may execute.
    pub programs: Vec<PathBuf>,
    pub network: Network,
    /// The size of its terminal.
    pub terminal: Option<(u16, u16)>,
    pub timeout: Duration,
}

/// Decides about an agent, and plans its run. The policy of this start gets the programs of the agent. Returns the
/// files of its command line that the sandbox does not show as well.
pub(crate) fn decide_agent(
    policy: &mut Policy,
    hashes: &mut HashCache,
    agent: AgentCommand,
) -> Result<(Ruling, Vec<PathBuf>)> {
    if policy.loaded.file.is_none() {
        let error = Error::config("there is no policy, so nothing limits the agent").with("rule", "not_allowed");
        return Err(error.hint("run `cp-exec policy init --for .` in the project"));
    }
    policy.check_base()?;
    let cwd = policy.base.clone();
    check_cwd(policy, &cwd)?;
    let pinned = pin(policy, hashes, &agent)?;
    let settings = &mut policy.loaded.settings.exec;
    (settings.profile, settings.network) = (Profile::Build, agent.network);
    let finding =
        Finding::contained("the sandbox contains the agent, and each program is decided about when it starts");
    let decision = Decision::of(agent.argv, finding, pinned, cwd, agent.timeout);
    let mut ruling = super::plan(policy, Decision { variables: agent.env, caller: Caller::Program, ..decision })?;
    let plan = &mut ruling.plan;
    plan.terminal = agent.terminal;
    let view = &mut plan.view;
    for state in agent.state {
        view.places.retain(|place| place.operation != Operation::Hidden || !state.starts_with(&place.path));
        // The states of other agents stay hidden.
        let beside = state.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten();
        if policy.cp_home.contains(&state) {
            let others = beside.map(|entry| entry.path()).filter(|path| *path != state);
            view.add(Operation::Hidden, true, others);
        }
        let node = node_of(&state)?.ok_or_else(|| Error::not_found("no such directory").in_file(&state))?;
        for operation in [Operation::Write, Operation::Execute] {
            view.places.push(Place { path: state.clone(), operation, is_pinned: true, node: Some(node) });
        }
        view.state.push(state);
    }
    let is_absent = |value: &str| !Path::new(value).canonicalize().is_ok_and(|shell| sees(plan, &shell));
    if let Some(at) = plan.env.iter().position(|(name, value)| name == "SHELL" && is_absent(value)) {
        plan.env.remove(at);
    }
    let unseen = unseen_files(policy, plan);
    Ok((ruling, unseen))
}

/// The files of a command line that the view does not have: each word, also within an argument, that is the path of a
/// file.
fn unseen_files(policy: &Policy, plan: &Plan) -> Vec<PathBuf> {
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
fn pin(policy: &mut Policy, hashes: &mut HashCache, agent: &AgentCommand) -> Result<Pinned> {
    let name = agent.argv.first().map(String::as_str).unwrap_or_default();
    let named = find(name, agent, policy)?;
    // The caller's names are looked up in the directories of the caller.
    let mut outside = policy.clone();
    outside.loaded.settings.exec.path.clone_from(&agent.path);
    let path = if name.contains('/') {
        named.canonicalize().map_err(|e| Error::io("the agent's program", e).in_file(&named))?
    } else {
        program::resolve(&outside, name)?
    };
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
        if let Ok(named) = find(interpreter, agent, policy) {
            add_pin(policy, &named);
        }
    }
    trees.extend(agent.programs.iter().cloned());
    for tree in trees {
        policy.allow(&tree, true);
    }
    Ok(pinned)
}

/// The path of a program as it is named: in the directories of the caller, or relative to the base.
fn find(name: &str, agent: &AgentCommand, policy: &Policy) -> Result<PathBuf> {
    if name.contains('/') {
        return Ok(policy.base.join(policy.expand(name)));
    }
    let pin = policy.exec().pin.get(name).cloned();
    let mut candidates = agent.path.iter().map(|directory| directory.join(name)).filter(|path| path.is_file());
    pin.or_else(|| candidates.next()).ok_or_else(|| {
        Error::not_found(format!("program `{name}` not found on PATH"))
            .with("rule", "not_found")
            .hint("install the agent, or give the path of its program")
    })
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

//! The plan of one run, derived from the policy: program, environment, files, limits and layers.
//!
//! The environment is built from fixed variables, the policy and the request. Nothing is inherited.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cp_common::keys::random;
use cp_common::{Error, Result};

use super::owner_git::{self, OwnerGit};
use super::program::{self, Pinned};
use super::{Caller, Decision, Ruling};
use crate::git_dir::without_unchanged;
use crate::guard::Watched;
use crate::names::Guarded;
use crate::nofollow::Link;
use crate::policy::{Access, Degraded, Module, Pattern, Policy, allowable, built_in, name_of, node_of};
use crate::refusal::refuse;
use crate::request::Command;
use crate::rules::Arguments;
use crate::sandbox::plan::{Identity, Layer, Limits, OWN_FILES, Operation, Plan, Profile, View};
use cp_common::glob::name_matches;

/// Plans the run of a command that was decided about.
pub(crate) fn plan(policy: &Policy, decision: Decision) -> Result<Ruling> {
    let exec = policy.exec();
    let Decision { command, pinned, cwd, timeout, .. } = &decision;
    let (argv, line) = (&command.argv, command.line.is_some());
    let mut git = OwnerGit::list(policy, cwd);
    let meta = fs::metadata(cwd).map_err(|e| Error::io("the working directory", e).in_file(cwd))?;
    let certificates = certificates();
    let env = environment(policy, command, &certificates);
    let (mut view, guarded) = view(policy, pinned, cwd, certificates.into_values())?;
    let watched = Watched::of(policy, &view, guarded);
    watched.add_to(&mut view);
    if !line && Arguments::read(argv).name() == "git" {
        git.read().check_alias(policy, argv, cwd)?;
    }
    let mut programs = Vec::new();
    if line && exec.profile == Profile::Strict {
        for (named, file) in exec.allowed_commands.iter().filter_map(|name| program::files(policy, name).next()) {
            if named != file {
                view.links.push(Link { at: named, to: file.clone() });
            }
            programs.push(file);
        }
    }
    identify(&mut view, pinned)?;
    let mut require = exec.require.clone();
    if line || decision.caller == Caller::Program {
        // Only all layers contain what is decided about program by program.
        require.extend([Layer::Namespaces, Layer::Landlock, Layer::Seccomp, Layer::Listener]);
    }
    require.extend((exec.degraded == Degraded::Refuse).then_some(Layer::Namespaces));
    require.extend((exec.profile == Profile::Strict).then_some(Layer::Listener));
    let plan = Plan {
        argv: words(policy, argv, pinned),
        env,
        exe: pinned.exe.clone(),
        script: pinned.script.clone(),
        cwd: Identity::of(cwd, &meta),
        profile: exec.profile,
        programs,
        sockets: !policy.bounds.read_only && (exec.profile != Profile::Strict || !exec.network.is_closed()),
        network: exec.network.clone(),
        view,
        limits: Limits {
            cpu_seconds: timeout.as_secs() + 1,
            processes: exec.processes,
            memory_bytes: exec.memory,
            scratch_bytes: exec.scratch,
        },
        require,
        cgroup: None,
        has_terminal: false,
    };
    let call = policy.actor.call.clone();
    Ok(Ruling { decision, plan, watched, git, call, approved: None, confirmed: None })
}

/// The value of PATH. The directory of a pinned program comes last; for the shell of a line it comes first, and after
/// the others if it has more programs that are pinned elsewhere, so that a name means its pin.
fn search_path(policy: &Policy, line: bool) -> String {
    let pins = &policy.exec().pin;
    let shadowed = |directory: &Path| {
        let elsewhere = pins.iter().filter(|(_, path)| path.parent() != Some(directory));
        elsewhere.filter(|(name, _)| directory.join(name).exists()).count()
    };
    let mut beside: Vec<&Path> = pins.values().filter_map(|path| path.parent()).collect();
    beside.sort_by_cached_key(|directory| shadowed(directory));
    let beside = beside.into_iter();
    let listed = policy.exec().path.iter().map(PathBuf::as_path);
    let directories: Vec<&Path> = if line { beside.chain(listed).collect() } else { listed.chain(beside).collect() };
    let mut path: Vec<String> = Vec::new();
    for directory in directories {
        let directory = directory.display().to_string();
        // A directory with a colon cannot be in PATH.
        if !directory.contains(':') && !path.contains(&directory) {
            path.push(directory);
        }
    }
    path.join(":")
}

/// The arguments of the program: its own name, or an interpreter and the script, before the command's arguments.
fn words(policy: &Policy, argv: &[String], pinned: &Pinned) -> Vec<String> {
    let mut words = pinned.prefix.clone();
    if words.is_empty() {
        words.extend(argv.first().map(|name| program::argv0(policy, name)));
    }
    words.extend(argv.iter().skip(1).cloned());
    words
}

/// The files that the command sees: the policy's bounds, narrowed by the modules that it runs in. Also returns the
/// guarded paths.
fn view(
    policy: &Policy,
    pinned: &Pinned,
    cwd: &Path,
    certificates: impl Iterator<Item = String>,
) -> Result<(View, Guarded)> {
    let (mut read, mut write) = (policy.bounds.trees(Access::Read), policy.bounds.trees(Access::Write));
    let mut execute = policy.bounds.executable(&write);
    let mut mask = policy.masks();
    for module in policy.modules_at(&[cwd, &pinned.path])? {
        read = module.narrow(Access::Read, &read);
        write = module.narrow(Access::Write, &write);
        execute = module.narrow(Access::Execute, &execute);
    }
    let modules = policy.modules_that_forbid(&[cwd, &pinned.path])?;
    let forbidden: Vec<&Pattern> = modules.into_iter().flat_map(Module::forbidden).collect();
    mask.extend(forbidden.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)));
    let programs = policy.exec().path.iter().chain(policy.exec().pin.values());
    execute.extend(programs.filter_map(|path| path.canonicalize().ok()));
    execute.extend(policy.tools.iter().cloned());
    read.extend(policy.tools.iter().cloned());
    read.push(pinned.path.clone());
    // The variables often name one file.
    let certificates: BTreeSet<String> = certificates.collect();
    read.extend(certificates.into_iter().map(PathBuf::from));
    let roots: Vec<&Path> = read.iter().chain(&write).chain(&execute).map(PathBuf::as_path).collect();
    let (found, guarded) = policy.scan_trees(&roots, &write, &forbidden)?;
    let (hidden, others): (Vec<_>, Vec<_>) =
        policy.tree_limits().into_iter().chain(found).partition(|place| place.operation == Operation::Hidden);
    let (pinned, by_name): (Vec<_>, Vec<_>) = hidden.into_iter().partition(|place| place.is_pinned);
    mask.extend(pinned.into_iter().map(|place| place.path));
    let mask = policy.followed(mask)?;
    let mut mask_found: Vec<PathBuf> = by_name.into_iter().map(|place| place.path).collect();
    if let Some(git) = policy.git().filter(|_| !mask_found.is_empty()) {
        mask_found = without_unchanged(&git, mask_found);
    }
    let mut view = View {
        links: policy.bounds.links().chain(&policy.links).cloned().collect(),
        session_tmp: policy.session_tmp(),
        scratch: std::env::temp_dir().join(format!("cp-exec-{:x}", u64::from_ne_bytes(random()?))),
        ..View::default()
    };
    for (operation, paths) in [(Operation::Read, read), (Operation::Write, write), (Operation::Execute, execute)] {
        // A forbidden path stays hidden even if another list declares it.
        let is_hidden = |path: &PathBuf| mask.iter().chain(&mask_found).any(|mask| path.starts_with(mask));
        view.add(operation, true, paths.into_iter().filter(|path| !is_hidden(path)));
    }
    view.places.extend(others);
    view.add(Operation::ReadOnly, true, policy.protected()?);
    view.add(Operation::Hidden, false, mask_found);
    view.add(Operation::Hidden, true, mask);
    Ok((view, guarded))
}

/// Sets the device and inode of the paths of a view. Fails if a path goes through a link.
fn identify(view: &mut View, pinned: &Pinned) -> Result<()> {
    for place in &mut view.places {
        // A script is covered with the text that was hashed, so its inode does not matter.
        let is_script = pinned.script.as_ref().is_some_and(|(script, _)| script.path == place.path);
        if place.operation < Operation::Empty && !is_script {
            place.node = node_of(&place.path)?;
        }
    }
    Ok(())
}

/// The files that the variables of the person for certificates name. A file with a private key, or without a
/// certificate, is left out, because the command can read it.
fn certificates() -> BTreeMap<String, String> {
    let is_public = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.contains("-----BEGIN CERTIFICATE-----") && !text.contains("PRIVATE KEY-----")
    };
    // Often all of them name one file.
    let mut known = BTreeMap::new();
    let named = built_in().certificates.iter().filter_map(|name| {
        let file = PathBuf::from(std::env::var_os(name)?).canonicalize().ok()?;
        let passed = *known.entry(file.clone()).or_insert_with_key(is_public);
        Some((name.clone(), file.to_str().filter(|_| passed)?.to_owned()))
    });
    named.collect()
}

/// The environment except HOME and TMPDIR, sorted by name. The variables of the request were checked.
fn environment(policy: &Policy, command: &Command, certificates: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let (user, git) = (name_of(rustix::process::geteuid().as_raw()), &built_in().git);
    let own = [
        ("PATH", search_path(policy, command.line.is_some())),
        ("USER", user.clone()),
        ("LOGNAME", user),
        ("GIT_CONFIG_GLOBAL", format!("{OWN_FILES}/{}", owner_git::CONFIG)),
        ("GIT_CONFIG_COUNT", git.len().to_string()),
    ];
    let git = git.iter().enumerate().flat_map(|(at, (key, value))| {
        [(format!("GIT_CONFIG_KEY_{at}"), key.clone()), (format!("GIT_CONFIG_VALUE_{at}"), value.clone())]
    });
    let is_passed = |name: &String| built_in().passed_variables.iter().any(|pattern| name_matches(pattern, name));
    let of_person =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut env = built_in().variables.clone();
    env.extend(of_person.filter(|(name, value)| is_passed(name) && !value.is_empty()));
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    env.extend(git);
    env.extend(certificates.clone());
    env.extend(policy.exec().env_set.iter().map(|(name, value)| (name.clone(), policy.value(value))));
    env.extend(command.env.clone());
    env.into_iter().collect()
}

/// Checks the variables that a request sets. A variable that is not allowed is an error, because the command could
/// behave differently without it.
pub(crate) fn check_variables(allowed_by_policy: &[String], asked: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in asked {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = format!("`{name}` is not a valid environment variable");
            return Err(Error::validation(message).with("rule", "env_name"));
        }
        if let Some(pattern) = built_in().denied_variables.iter().find(|pattern| name_matches(pattern, name)) {
            return Err(refuse("env_never", format!("`{name}` changes what programs load or run (`{pattern}`)"))
                .hint("remove it; no policy lets a request set it"));
        }
        let mut allowed = built_in().allowed_variables.iter().chain(allowed_by_policy);
        if !allowed.any(|pattern| name_matches(pattern, name)) {
            let message = format!("`{name}` is not on the list of variables a request may set");
            return Err(allowable(refuse("env_not_allowed", message).hint("remove it"), "env", name));
        }
    }
    Ok(())
}

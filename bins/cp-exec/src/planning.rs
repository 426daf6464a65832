//! The plan of one run: what the helper is told about files, environment, limits and layers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cp_common::{Error, Result};

use crate::capabilities::Access;
use crate::environment;
use crate::governor::{Governor, expand, trees};
use crate::names::Pinned;
use crate::policy::{Degraded, RunAs};
use crate::request::Command;
use crate::sandbox::plan::{Identity, Layer, Limits, Plan};

/// Runs planned by this process, to tell their scratch directories apart.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Everything the helper needs, from a policy and a pinned file.
pub(crate) fn plan(
    governor: &Governor,
    command: &Command,
    argv: &[String],
    pinned: &Pinned,
    cwd: &Path,
    timeout: Duration,
) -> Result<(Plan, Vec<PathBuf>)> {
    let exec = &governor.loaded.policy.exec;
    let home = governor.tilde();
    // What a pinned program starts, it looks for beside itself last.
    let beside = governor.pins.iter().filter_map(|(_, path)| path.parent().map(Path::to_owned));
    let mut path: Vec<String> = Vec::new();
    for directory in exec.path.iter().cloned().chain(beside) {
        let directory = directory.display().to_string();
        if !path.contains(&directory) {
            path.push(directory);
        }
    }
    let set = exec.env_set.iter().map(|(name, value)| (name.clone(), expand(value, &home))).collect();
    let meta = fs::metadata(cwd).map_err(|e| Error::io("the working directory", e).in_file(cwd))?;
    let run_as = run_as(exec.run_as.as_ref(), &meta);
    let uid = run_as.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
    let env = environment::build(&path.join(":"), &user_name(uid), &set, &exec.env_allow, &command.env)?;

    let mut words = pinned.prefix.clone();
    if words.is_empty() {
        words.extend(argv.first().map(|name| governor.names().told(name)));
    }
    words.extend(argv.iter().skip(1).cloned());

    let mut write: Vec<PathBuf> = trees(&governor.write);
    let made = make_execute_directories(governor, &write);
    let (mut read, mut execute) = (trees(&governor.read), trees(&governor.execute));
    let mut mask = governor.masks(cwd);
    for module in governor.modules_at(&[cwd, &pinned.path]) {
        read = module.narrow(Access::Read, &read)?;
        write = module.narrow(Access::Write, &write)?;
        execute = module.narrow(Access::Execute, &execute)?;
        mask.extend(module.hidden()?);
    }
    execute.extend(exec.path.iter().filter_map(|path| path.canonicalize().ok()));
    execute.extend(governor.pins.iter().filter_map(|(_, path)| path.canonicalize().ok()));
    execute.extend(governor.tools.iter().cloned());
    read.extend(governor.tools.iter().cloned());
    read.push(pinned.path.clone());

    let count = RUNS.fetch_add(1, Ordering::Relaxed);
    let scratch = std::env::temp_dir().join(format!("cp-exec-{}-{count}", std::process::id()));
    let plan = Plan {
        argv: words,
        env,
        exe: pinned.exe.clone(),
        script: pinned.script.clone(),
        cwd: Identity::of(cwd, &meta),
        profile: exec.profile,
        network: exec.network,
        read,
        write,
        execute,
        protect: governor.protected(),
        mask,
        refuse_unmasked: exec.degraded == Degraded::Refuse,
        scratch,
        limits: Limits {
            cpu_seconds: timeout.as_secs() + 1,
            file_bytes: 8 << 30,
            open_files: 4096,
            processes: exec.processes,
            memory_bytes: exec.memory,
            scratch_bytes: exec.scratch,
        },
        run_as,
        require: exec.require.clone(),
        wants_cgroup: exec.cgroup || exec.require.contains(&Layer::Cgroup),
        cgroups: Vec::new(),
    };
    Ok((plan, made))
}

/// The kernel can only be told of directories that are there. An execute directory inside a writable one, such as a
/// build's `target`, is made before the build makes it.
fn make_execute_directories(governor: &Governor, write: &[PathBuf]) -> Vec<PathBuf> {
    let missing = governor.execute.iter().filter_map(|pattern| pattern.tree()).filter(|path| !path.exists());
    missing
        .filter(|path| write.iter().any(|root| path.starts_with(root)))
        .filter(|path| fs::create_dir(path).is_ok())
        .map(Path::to_owned)
        .collect()
}

fn run_as(asked: Option<&RunAs>, cwd: &fs::Metadata) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    match asked? {
        RunAs::Uid(uid) => Some((*uid, *uid)),
        RunAs::Named(_) => Some((cwd.uid(), cwd.gid())),
    }
}

fn user_name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = uid.to_string();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    name.unwrap_or(uid)
}

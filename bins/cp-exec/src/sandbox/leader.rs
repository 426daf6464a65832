//! The process of the command, from the fork in the init to the execution of the pinned file.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::mounts::devices::{LEAST_PID_MAX, own_pid_limit};
use super::plan::{HOME, Identity, Layer, Plan};
use super::report::{Cause, Enforcement, Failure, Report};
use super::sys;
use super::wire::{self, die_with_parent, report_and_exit};
use super::{landlock, seccomp, terminal};
use crate::nofollow;

/// Executes the command, or reports why it cannot.
pub(super) fn run(plan: &Plan, enforcement: Enforcement, socket: BorrowedFd<'_>, terminal: Option<&OwnedFd>) -> ! {
    let joined = match terminal {
        Some(terminal) => terminal::enter(terminal),
        None => rustix::process::setsid().map(drop).map_err(|e| Failure::setup("setsid", e)),
    };
    let Err(failure) = joined.and_then(|()| become_command(plan, enforcement, socket));
    report_and_exit(socket, failure)
}

/// The most messages about missing layers in a result.
const MOST_MISSING: usize = 100;

/// Executes the command. Returns only if that fails.
fn become_command(plan: &Plan, mut enforcement: Enforcement, socket: BorrowedFd<'_>) -> Result<Infallible, Failure> {
    sys::unblock_signals();
    die_with_parent().map_err(|e| Failure::setup("parent_death", e))?;
    let private = enforcement.is_private();
    let scratch = if private { None } else { Some(make_scratch(plan).map_err(|e| Failure::setup("scratch", e))?) };
    let (tmp, home) = (scratch.unwrap_or(plan.tmpdir()), scratch.unwrap_or(Path::new(HOME)));

    let directory = open_same(&plan.cwd)?;
    rustix::process::fchdir(&directory).map_err(|e| Failure::setup("cwd", e))?;
    let file = open_same(&plan.exe)?;
    // In a private view the script is a copy of the text that was hashed.
    if let Some(script) = plan.script.as_ref().filter(|_| !private) {
        open_same(script)?;
    }
    limit(plan, &mut enforcement)?;

    if let Some((uid, gid)) = plan.run_as {
        become_user(uid, gid).map_err(|e| Failure::setup("run_as", e))?;
        die_with_parent().map_err(|e| Failure::setup("parent_death", e))?;
    }
    drop_capabilities()?;
    rustix::thread::set_no_new_privs(true).map_err(|e| Failure::setup(Layer::NoNewPrivs.name(), e))?;
    enforcement.no_new_privs = true;
    match landlock::restrict(plan, tmp, private) {
        Ok(landlock) => {
            if landlock.status != "full" {
                enforcement.missing.push(format!("landlock: {}", landlock.status));
            }
            enforcement.landlock = landlock;
        }
        Err(landlock::Refusal::Kernel(e)) => enforcement.missing.push(format!("landlock: {e}")),
        Err(landlock::Refusal::Path(failure)) => return Err(failure),
    }
    let words = |words: Vec<String>| words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = words(plan.argv.clone()).map_err(|e| Failure::setup("argv", std::io::Error::other(e)))?;
    let mut env: Vec<String> = plan.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.push(format!("HOME={}", home.display()));
    env.push(format!("TMPDIR={}", tmp.display()));
    let env = words(env).map_err(|e| Failure::setup("env", std::io::Error::other(e)))?;
    let listening = seccomp::listen(plan.network_kind());
    let listening = listening.and_then(|fd| wire::send_report(socket, &Report::Listener, Some(fd.as_fd())));
    (enforcement.listener, enforcement.seccomp) = (listening.is_ok(), listening.is_ok());
    if let Err(e) = listening {
        enforcement.missing.push(format!("listener: {e}"));
        let filtered = seccomp::install(plan.network_kind());
        enforcement.seccomp = filtered.is_ok();
        enforcement.missing.extend(filtered.err().map(|e| format!("seccomp: {e}")));
    }
    required(plan, &enforcement)?;

    bound(&mut enforcement.missing);
    // The command must not run if its enforcement cannot be reported.
    wire::send_report(socket, &Report::Ready(Box::new(enforcement)), None).map_err(|e| Failure::setup("report", e))?;
    sys::close_on_exec().map_err(|e| Failure::setup("close", e))?;
    let error = sys::execute(file.as_fd(), &argv, &env);
    let message = format!("{}: {error}", plan.exe.path.display());
    Err(Failure { step: "exec".to_owned(), message, cause: Cause::Exec })
}

/// Truncates a list of messages whose length depends on the project.
fn bound(missing: &mut Vec<String>) {
    let more = missing.len().saturating_sub(MOST_MISSING);
    if more > 0 {
        missing.truncate(MOST_MISSING);
        missing.push(format!("and {more} more"));
    }
}

/// Makes the directory for temporary files of a run without a view of its own. Other users can write to the parent, so
/// it must not exist yet.
fn make_scratch(plan: &Plan) -> std::io::Result<&Path> {
    let scratch = &plan.view.scratch;
    fs::DirBuilder::new().mode(0o700).create(scratch)?;
    if let Some((uid, gid)) = plan.run_as {
        std::os::unix::fs::chown(scratch, Some(uid), Some(gid))?;
    }
    Ok(scratch)
}

fn limit(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    let set = |resource, value: u64| {
        // A limit is never raised above that of this process.
        let value = rustix::process::getrlimit(resource).maximum.map_or(value, |most| most.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .map_err(|e| Failure::setup("limits", e))
    };
    // The kernel starts a program that receives cores for a limit of 0, but not for 1.
    set(Resource::Core, 1)?;
    set(Resource::Cpu, plan.limits.cpu_seconds)?;
    if plan.cgroup.is_none() {
        // The limit counts all processes of the user, and does not apply to root.
        let own_user = enforcement.has(Layer::User) || plan.run_as.is_some();
        if own_user {
            set(Resource::Nproc, plan.limits.processes)?;
        }
        "rlimits".clone_into(&mut enforcement.cgroup);
        if enforcement.is_private() {
            enforcement.cgroup.push_str("+pid_namespace");
        }
        let pid_max = enforcement.is_private() && own_pid_limit();
        if !own_user && (!pid_max || plan.limits.processes < LEAST_PID_MAX) {
            enforcement
                .missing
                .push("processes: the limit does not hold without a user namespace or a control group".to_owned());
        }
        enforcement.missing.push("memory: the limit holds only with a control group".to_owned());
        if plan.wants_cgroup {
            enforcement
                .missing
                .push("cgroup: no control group of version 2 with pids and memory can be created here".to_owned());
        }
    } else {
        "cgroup_v2".clone_into(&mut enforcement.cgroup);
    }
    Ok(())
}

/// Opens a path, and checks that it is the file that was decided about.
fn open_same(identity: &Identity) -> Result<OwnedFd, Failure> {
    let open = || -> std::io::Result<(OwnedFd, Identity)> {
        let fd = nofollow::open(&identity.path)?.ok_or(std::io::ErrorKind::NotFound)?;
        let now = Identity::of(&identity.path, &fs::File::from(fd.try_clone()?).metadata()?);
        Ok((fd, now))
    };
    let (fd, now) = open().map_err(|e| Failure::changed(&identity.path, &e.to_string()))?;
    if now != *identity {
        return Err(Failure::changed(&identity.path, "it is not the file that was checked"));
    }
    Ok(fd)
}

fn become_user(uid: u32, gid: u32) -> std::io::Result<()> {
    let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Drops every capability, so that even uid 0 has the rights of an ordinary user.
fn drop_capabilities() -> Result<(), Failure> {
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    // Both calls need CAP_SETPCAP. Without user namespaces an ordinary user has no capabilities, so there is nothing
    // to drop.
    let _ = rustix::thread::set_capabilities_secure_bits(bits);
    empty_bounding_set();
    let _ = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(|e| Failure::setup("capabilities", e))
}

/// Empties the bounding set, which limits the capabilities that execution can grant. The helper does this once, as
/// far as it is permitted; a new user namespace has a full set again.
pub(super) fn empty_bounding_set() {
    if rustix::thread::capability_is_in_bounding_set(CapabilitySet::CHOWN).is_ok_and(|there| !there) {
        return;
    }
    for bit in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << bit) else { continue };
        // The kernel supports no capability above the first one that it refuses.
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
}

/// Fails if a layer is missing that the policy requires. Without namespaces the policy must allow degraded runs, and
/// Landlock must confine what the command reads.
fn required(plan: &Plan, enforcement: &Enforcement) -> Result<(), Failure> {
    let missing = |layer: &Layer| match layer {
        Layer::NoNewPrivs => !enforcement.no_new_privs,
        Layer::Seccomp => !enforcement.seccomp,
        Layer::Landlock => enforcement.landlock.status != "full",
        Layer::Cgroup => plan.cgroup.is_none(),
        Layer::RunAs => plan.run_as.is_none(),
        Layer::NoListener => !enforcement.listener,
        Layer::User | Layer::Pid | Layer::Mount | Layer::Network | Layer::Ipc | Layer::Uts => !enforcement.has(*layer),
    };
    let refusal = |layer: Layer, message: String| {
        let message = format!("{message}, which this machine does not provide");
        Err(Failure { step: layer.name().to_owned(), message, cause: Cause::Required })
    };
    if !enforcement.is_private() && plan.view.refuse_degraded {
        return refusal(Layer::Mount, "a command is confined by namespaces (`mount`, `pid`, `network`)".to_owned());
    }
    if !enforcement.is_private() && enforcement.landlock.abi == 0 {
        return refusal(
            Layer::Landlock,
            "a command without namespaces is confined by Landlock (`landlock`)".to_owned(),
        );
    }
    let mut contain = vec![Layer::Mount, Layer::Landlock, Layer::Seccomp];
    contain.extend((!plan.require.contains(&Layer::NoListener)).then_some(Layer::NoListener));
    if let Some(layer) = contain.iter().find(|layer| plan.is_contained && missing(layer)) {
        return refusal(*layer, format!("the command requires {}", layer.words()));
    }
    if plan.is_alone() && !enforcement.listener {
        return refusal(Layer::NoListener, format!("the profile `strict` requires {}", Layer::NoListener.words()));
    }
    let required = plan.require.iter().filter(|layer| **layer != Layer::NoListener);
    let Some(layer) = required.into_iter().find(|layer| missing(layer)) else { return Ok(()) };
    refusal(*layer, format!("the policy requires {}", layer.words()))
}

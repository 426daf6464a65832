//! The process of the command, from the fork in the init to the execution of the pinned file.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit};
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::mounts::{LEAST_PID_MAX, own_pid_limit};
use super::pieces::open_there;
use super::plan::{HOME, Identity, Layer, Plan};
use super::report::{self, At, Enforcement, Failure, Report};
use super::{landlock, seccomp, sys};
use crate::file_id::FileId;

/// Executes the command, or reports why it cannot.
pub(super) fn run(plan: &Plan, enforcement: Enforcement, socket: BorrowedFd<'_>, terminal: Option<&OwnedFd>) -> ! {
    let joined = match terminal {
        Some(terminal) => enter_terminal(terminal),
        None => rustix::process::setsid().map(drop),
    };
    let Err(failure) = joined.at("session").and_then(|()| become_command(plan, enforcement, socket));
    report::report_and_exit(socket, failure)
}

/// Executes the command. Returns only if that fails.
fn become_command(plan: &Plan, mut enforcement: Enforcement, socket: BorrowedFd<'_>) -> Result<Infallible, Failure> {
    sys::default_signals();
    sys::die_with_parent().at("parent_death")?;
    let private = enforcement.is_private();
    let (tmp, home) = if private {
        (plan.tmpdir(), Path::new(HOME))
    } else {
        // Other users can write to the parent, so the directory must not exist yet.
        fs::DirBuilder::new().mode(0o700).create(&plan.view.scratch).at("scratch")?;
        (&*plan.view.scratch, &*plan.view.scratch)
    };
    if private {
        sys::reopen_null_input().at("streams")?;
    }
    rustix::process::fchdir(open_same(&plan.cwd)?).at("cwd")?;
    let file = open_same(&plan.exe)?;
    // In a private view the script is a copy of the text that was hashed.
    if let Some((script, _)) = plan.script.as_ref().filter(|_| !private) {
        open_same(script)?;
    }
    limit(plan, &mut enforcement)?;
    drop_capabilities()?;
    rustix::thread::set_no_new_privs(true).at("no_new_privs")?;
    match landlock::restrict(plan, tmp, private) {
        Ok(landlock) => {
            if landlock.status != "full" {
                enforcement.missing.push(format!("landlock: {}", landlock.status));
            }
            enforcement.landlock = landlock;
        }
        Err(Failure::Missing(_, message)) => enforcement.missing.push(message),
        Err(failure) => return Err(failure),
    }
    let words = |words: Vec<String>| words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = words(plan.argv.clone()).at("argv")?;
    let mut env: Vec<String> = plan.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.push(format!("HOME={}", home.display()));
    env.push(format!("TMPDIR={}", tmp.display()));
    let env = words(env).at("env")?;
    let network = plan.network_kind();
    let listening = seccomp::install(network, true)
        .and_then(|fd| report::send(socket, &Report::Listener, fd.as_ref().map(AsFd::as_fd).as_slice()));
    enforcement.listener = listening.is_ok();
    enforcement.missing.extend(listening.err().map(|e| format!("listener: {e}")));
    let filtered = if enforcement.listener { Ok(None) } else { seccomp::install(network, false) };
    enforcement.seccomp = filtered.is_ok();
    enforcement.missing.extend(filtered.err().map(|e| format!("seccomp: {e}")));
    required(plan, &enforcement)?;
    // The command must not run if its enforcement cannot be reported.
    report::send(socket, &Report::Ready(Box::new(enforcement)), &[]).at("report")?;
    sys::close_on_exec().at("close")?;
    let error = sys::execute(file.as_fd(), &argv, &env);
    Err(Failure::Exec(format!("{}: {error}", plan.exe.path.display())))
}

fn limit(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    let set = |resource, value: u64| {
        // A limit is never raised above that of this process.
        let value = rustix::process::getrlimit(resource).maximum.map_or(value, |most| most.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) }).at("limits")
    };
    // The kernel starts a program that receives cores for a limit of 0, but not for 1.
    set(Resource::Core, 1)?;
    set(Resource::Cpu, plan.limits.cpu_seconds)?;
    if enforcement.cgroup {
        return Ok(());
    }
    let private = enforcement.is_private();
    let mut missing = |what: &str| enforcement.missing.push(what.to_owned());
    // The limit counts all processes of the user, and does not apply to root.
    if enforcement.namespaces.iter().any(|name| name == "user") {
        set(Resource::Nproc, plan.limits.processes)?;
    } else if !(private && own_pid_limit()) || plan.limits.processes < LEAST_PID_MAX {
        missing("processes: the limit does not hold without a user namespace or a control group");
    }
    missing("memory: the limit holds only with a control group");
    Ok(())
}

/// Opens a path, and checks that it is the file that was decided about.
fn open_same(identity: &Identity) -> Result<OwnedFd, Failure> {
    let (file, stat) = open_there(&identity.path, Some(identity.node))?;
    if identity.content.is_some_and(|content| content != FileId::from(&stat)) {
        return Err(Failure::changed(&identity.path, "it is not the file that was checked"));
    }
    Ok(file)
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
    let empty = CapabilitySet::empty();
    let none = CapabilitySets { effective: empty, permitted: empty, inheritable: empty };
    rustix::thread::set_capabilities(None, none).at("capabilities")
}

/// Empties the bounding set, which limits the capabilities that execution can grant. The helper does this once, as
/// far as it is permitted; a new user namespace has a full set again.
pub(super) fn empty_bounding_set() {
    for bit in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << bit) else { continue };
        // The kernel supports no capability above the first one that it refuses.
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
}

/// Fails if a required layer is missing. Without namespaces Landlock must confine what the command reads.
fn required(plan: &Plan, enforcement: &Enforcement) -> Result<(), Failure> {
    let is_missing = |layer: &Layer| match layer {
        Layer::Namespaces => !enforcement.is_private(),
        Layer::Landlock => enforcement.landlock.status != "full",
        Layer::Seccomp => !enforcement.seccomp,
        Layer::Cgroup => !enforcement.cgroup,
        Layer::Listener => !enforcement.listener,
    };
    let is_unconfined = !enforcement.is_private() && enforcement.landlock.abi == 0;
    let missing = plan.require.iter().copied().find(is_missing).or(is_unconfined.then_some(Layer::Landlock));
    missing.map_or(Ok(()), |layer| Err(Failure::missing(layer)))
}

/// Makes a new pseudo-terminal the controlling terminal of this process, if the plan has one, and sends its other side
/// to the supervisor, which relays it.
///
/// The init is the leader of the terminal's session, and the command is a process group in it. If the command led the
/// session itself, its group would be orphaned, and the kernel ignores Ctrl-Z in an orphaned group.
pub(super) fn control_terminal(plan: &Plan, socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Failure> {
    if !plan.has_terminal {
        return Ok(None);
    }
    let opened = open_terminal().and_then(|(relayed, terminal)| {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(&terminal)?;
        report::send(socket, &Report::Terminal, &[relayed.as_fd()])?;
        Ok(terminal)
    });
    opened.map(Some).at("terminal")
}

/// Opens a pseudo-terminal: the side of the supervisor, which sets its size, and that of the command.
fn open_terminal() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let relayed = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&relayed)?;
    let terminal = rustix::pty::ioctl_tiocgptpeer(&relayed, flags)?;
    let mut modes = rustix::termios::tcgetattr(&terminal)?;
    modes.input_modes |= InputModes::IUTF8;
    rustix::termios::tcsetattr(&terminal, OptionalActions::Now, &modes)?;
    Ok((relayed, terminal))
}

/// Makes this process the foreground group of the terminal, which becomes its standard streams.
fn enter_terminal(terminal: &OwnedFd) -> rustix::io::Result<()> {
    rustix::process::setpgid(None, None)?;
    rustix::termios::tcsetpgrp(terminal, rustix::process::getpid())?;
    sys::become_streams(&[terminal, terminal, terminal])
}

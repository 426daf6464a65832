//! The system call filter: refuses calls that commands do not need, and calls that would leave the sandbox.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use super::plan::Network;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are refused with EPERM regardless of their arguments.
const REFUSED: [i64; 43] = [
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Kernel interfaces with many past vulnerabilities, or that bypass other filters.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The kernel itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // The view of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    // Namespaces.
    libc::SYS_setns,
    libc::SYS_unshare,
];

/// The newest call that is allowed: `mseal` of Linux 6.10. From 424 on all architectures have the same numbers.
const NEWEST_CALL: u32 = 462;

/// Every flag of `clone` that makes a namespace.
const NEW_NAMESPACE: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    0x80, // CLONE_NEWTIME
];

/// Terminal input injection, and pasting into a console.
const TERMINAL_INJECTION: [u64; 2] = [0x5412, 0x541c];

/// The set-user-id and set-group-id bits of a mode.
pub(super) const SET_ID: u32 = 0o6000;
const SET_ID_BITS: [u64; 2] = [0o4000, 0o2000];

/// The calls that change a mode, each with the index of the argument that is the mode.
#[cfg(target_arch = "x86_64")]
pub(super) const MODES: [(i64, u32); 4] =
    [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_fchmodat2, 2), (libc::SYS_chmod, 1)];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const MODES: [(i64, u32); 3] = [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_fchmodat2, 2)];

/// Flags of `open` that create a file: `O_CREAT` and `O_TMPFILE`. Only with these does the mode matter.
const MAKES_A_FILE: [u64; 2] = [0o100, 0o20_000_000];

/// The types of device nodes: character and block.
const DEVICES: [u64; 2] = [0o020_000, 0o060_000];

/// The flag of `memfd_create` that creates a file that cannot be executed.
const NOEXEC_SEAL: u64 = 8;

/// The protocol of netlink that describes interfaces, addresses and routes.
const NETLINK_ROUTE: u64 = 0;

/// The compiled filters: without network sockets, with those of a private network, and with those of the machine's.
pub(super) struct Filters {
    local: Result<BpfProgram, String>,
    private: Result<BpfProgram, String>,
    host: Result<BpfProgram, String>,
}

impl Filters {
    /// Compiles the filters.
    pub(super) fn compile() -> Self {
        let compile = |network| program(network).map_err(|e| e.to_string());
        Self { local: compile(Network::None), private: compile(Network::Names), host: compile(Network::Host) }
    }

    /// Installs the filter in this thread and all programs that it executes.
    pub(super) fn install(&self, network: Network) -> Result<(), String> {
        let program = match network {
            Network::None => &self.local,
            Network::Loopback | Network::Names => &self.private,
            Network::Host => &self.host,
        };
        seccompiler::apply_filter(program.as_ref().map_err(Clone::clone)?).map_err(|e| e.to_string())
    }
}

/// Refuses to change a mode to a set-id one, where no listener makes the change.
pub(super) fn refuse_set_id() -> Result<(), String> {
    let refused = || -> Result<BpfProgram, seccompiler::Error> {
        let rules = MODES.map(|(call, mode)| Ok((call, set_id(u8::try_from(mode).unwrap_or_default())?)));
        filter(rules.into_iter().collect::<Result<_, seccompiler::Error>>()?, libc::EPERM)
    };
    seccompiler::apply_filter(&refused().map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

/// Rules for a mode with a set-id bit.
fn set_id(mode: u8) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    SET_ID_BITS.into_iter().map(|bit| rule(vec![arg(mode, SeccompCmpOp::MaskedEq(bit), bit)?])).collect()
}

/// The offset of the lower half of an argument in the filter's input. Both supported architectures are little-endian.
pub(super) const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// Combines several filters with different error numbers. A call must pass all of them.
fn program(network: Network) -> Result<BpfProgram, seccompiler::Error> {
    let mut program = no_newer_calls();
    program.extend(refused_outright());
    let filters = [refused()?, missing()?, kept_limit()?, other_sockets(network)?];
    let last = filters.len() - 1;
    for (at, mut filter) in filters.into_iter().enumerate() {
        let length = filter.len();
        for (place, instruction) in filter.iter_mut().enumerate() {
            if at < last && instruction.code == RETURN && instruction.k == ALLOW {
                let to_next = u32::try_from(length - place - 1).unwrap_or_default();
                *instruction = sock_filter { code: JUMP, jt: 0, jf: 0, k: to_next };
            }
        }
        program.extend(filter);
    }
    Ok(program)
}

/// Refuses the calls of [`REFUSED`] with one comparison each, because the kernel compiles the filter for every run.
fn refused_outright() -> BpfProgram {
    let calls = REFUSED.iter().filter_map(|call| u32::try_from(*call).ok());
    let mut left = u8::try_from(REFUSED.len()).unwrap_or(u8::MAX);
    let compare = |call| {
        let to_refusal = left;
        left = left.saturating_sub(1);
        sock_filter { code: JUMP_IF_EQUAL, jt: to_refusal, jf: 0, k: call }
    };
    let mut program = vec![sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 }];
    program.extend(calls.map(compare));
    program.push(sock_filter { code: JUMP, jt: 0, jf: 0, k: 1 });
    program.push(sock_filter { code: RETURN, jt: 0, jf: 0, k: ERRNO | libc::EPERM.cast_unsigned() });
    program
}

/// Calls that are refused for some arguments only.
fn refused() -> Result<BpfProgram, seccompiler::Error> {
    let mut refused = Rules::new();
    refused.insert(
        libc::SYS_ioctl,
        TERMINAL_INJECTION
            .into_iter()
            .map(|request| rule(vec![arg(1, SeccompCmpOp::Eq, request)?]))
            .collect::<Result<_, _>>()?,
    );
    refused.insert(
        libc::SYS_clone,
        NEW_NAMESPACE
            .into_iter()
            .map(|flag| u64::from(flag.cast_unsigned()))
            .map(|flag| rule(vec![arg(0, SeccompCmpOp::MaskedEq(flag), flag)?]))
            .collect::<Result<_, _>>()?,
    );
    // Reading the personality, or setting the default one, is harmless.
    refused.insert(
        libc::SYS_personality,
        vec![rule(vec![arg(0, SeccompCmpOp::Ne, 0xffff_ffff)?, arg(0, SeccompCmpOp::Ne, 0)?])?],
    );
    refuse_modes(&mut refused)?;
    filter(refused, libc::EPERM)
}

/// Refuses to make set-id files and device nodes, which other users could use after the run. The kernel itself makes no
/// set-id directories.
fn refuse_modes(refused: &mut Rules) -> Result<(), seccompiler::Error> {
    let mut make_node = vec![(libc::SYS_mknodat, 2)];
    let mut open = vec![(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    {
        refused.insert(libc::SYS_creat, set_id(1)?);
        make_node.push((libc::SYS_mknod, 1));
        open.push((libc::SYS_open, 1));
    }
    for (call, mode) in make_node {
        let mut rules = set_id(mode)?;
        for device in DEVICES {
            rules.push(rule(vec![arg(mode, SeccompCmpOp::MaskedEq(0o170_000), device)?])?);
        }
        refused.insert(call, rules);
    }
    for (call, flags) in open {
        let mut rules = Vec::new();
        for (flag, bit) in MAKES_A_FILE.into_iter().flat_map(|flag| SET_ID_BITS.map(|bit| (flag, bit))) {
            let makes = arg(flags, SeccompCmpOp::MaskedEq(flag), flag)?;
            rules.push(rule(vec![makes, arg(flags + 1, SeccompCmpOp::MaskedEq(bit), bit)?])?);
        }
        refused.insert(call, rules);
    }
    Ok(())
}

/// Calls that fail as if the kernel did not support them.
fn missing() -> Result<BpfProgram, seccompiler::Error> {
    // The flags of `clone3` and the mode of `openat2` are in memory, which a filter cannot read. Libraries fall back
    // to `clone` and `openat`.
    // A file in memory can be executed regardless of its origin, unless it is sealed against execution.
    let unsealed = rule(vec![arg(1, SeccompCmpOp::MaskedEq(NOEXEC_SEAL), 0)?])?;
    filter(
        [(libc::SYS_clone3, Vec::new()), (libc::SYS_openat2, Vec::new()), (libc::SYS_memfd_create, vec![unsealed])]
            .into(),
        libc::ENOSYS,
    )
}

/// Keeps the limit of core files, without which the kernel could start the machine's receiver of cores. Agents of keys
/// set it to 0 and end if that fails, so the call succeeds without effect.
fn kept_limit() -> Result<BpfProgram, seccompiler::Error> {
    let is_core = |index| arg(index, SeccompCmpOp::Eq, u64::from(libc::RLIMIT_CORE));
    let is_set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let calls = [
        (libc::SYS_setrlimit, vec![rule(vec![is_core(0)?])?]),
        (libc::SYS_prlimit64, vec![rule(vec![is_core(1)?, is_set])?]),
    ];
    filter(calls.into(), 0)
}

/// Refuses sockets of every family that the network does not need. In a private network programs may list their
/// interfaces.
fn other_sockets(network: Network) -> Result<BpfProgram, seccompiler::Error> {
    let families: &[i32] = match network {
        Network::None => &[libc::AF_UNIX],
        Network::Loopback | Network::Names => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        Network::Host => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
    };
    let is = |operator, family: i32| arg(0, operator, u64::from(family.cast_unsigned()));
    let other = families.iter().map(|family| is(SeccompCmpOp::Ne, *family)).collect::<Result<Vec<_>, _>>()?;
    let other_netlink = vec![is(SeccompCmpOp::Eq, libc::AF_NETLINK)?, arg(2, SeccompCmpOp::Ne, NETLINK_ROUTE)?];
    // Other raw sockets would need a capability anyway.
    let raw = vec![is(SeccompCmpOp::Ne, libc::AF_NETLINK)?, arg(1, SeccompCmpOp::MaskedEq(0xf), 3)?];
    let sockets = vec![rule(other)?, rule(other_netlink)?, rule(raw)?];
    filter([(libc::SYS_socket, sockets.clone()), (libc::SYS_socketpair, sockets)].into(), libc::EAFNOSUPPORT)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(conditions)?)
}

/// A condition on the lower half of an argument. The kernel ignores the upper half of these arguments.
fn arg(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?)
}

fn filter(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::Error> {
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(BpfProgram::try_from(filter)?)
}

// BPF instructions.
pub(super) const LOAD_WORD: u16 = 0x20;
pub(super) const JUMP_IF_EQUAL: u16 = 0x15;
pub(super) const JUMP_IF_SET: u16 = 0x45;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP: u16 = 0x05;
pub(super) const RETURN: u16 = 0x06;
/// The return value that allows a call.
pub(super) const ALLOW: u32 = 0x7fff_0000;
/// The return value for an error, with its number in the lower half.
const ERRNO: u32 = 0x0005_0000;

/// Refuses calls above the newest known one with ENOSYS, as an older kernel does. This includes x32 calls, which run
/// under other numbers of the same architecture.
fn no_newer_calls() -> BpfProgram {
    vec![
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: NEWEST_CALL + 1 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: ERRNO | libc::ENOSYS.cast_unsigned() },
    ]
}

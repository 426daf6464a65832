//! The system call filter: refuses calls that commands do not need, and calls that would leave the sandbox.
//!
//! With a listener, the kernel suspends each execution until the supervisor has decided about it, and each change of a
//! mode to a set-id one, because a filter cannot tell files from directories.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use libc::sock_filter;

use super::plan::Network;
use super::sys;

macro_rules! calls {
    ($($call:ident)*) => { &[$(libc::$call),*] };
}

/// Calls that are refused with EPERM regardless of their arguments.
const REFUSED: &[i64] = calls![
    // Other processes.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_pidfd_getfd SYS_kcmp
    // Kernel interfaces with many past vulnerabilities, or that bypass other filters.
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_bpf SYS_perf_event_open SYS_userfaultfd
    SYS_keyctl SYS_add_key SYS_request_key
    // The kernel itself.
    SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module SYS_reboot SYS_swapon
    SYS_swapoff SYS_acct SYS_syslog SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
    // The view of the file system.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount
    SYS_fspick SYS_mount_setattr SYS_open_by_handle_at
    // Namespaces.
    SYS_setns SYS_unshare
];

/// Calls that fail as on a kernel without them. The flags of `clone3` and the mode of `openat2` are in memory, which a
/// filter cannot read. Libraries fall back to `clone` and `openat`.
const MISSING: &[i64] = calls![SYS_clone3 SYS_openat2];

/// The newest call that is allowed: `mseal` of Linux 6.10. From 424 on all architectures have the same numbers.
const NEWEST_CALL: u32 = 462;

/// Every flag of `clone` that makes a namespace.
const NEW_NAMESPACE: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | 0x80; // CLONE_NEWTIME

/// Terminal input injection, and pasting into a console.
const TERMINAL_INJECTION: [u32; 2] = [0x5412, 0x541c];

/// The set-user-id and set-group-id bits of a mode.
const SET_ID: u32 = 0o6000;

/// The calls that execute a program.
pub(super) const EXECUTIONS: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// The calls that change a mode, each with the index of the argument that is the mode.
pub(super) const MODES: &[(i64, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
];

/// The calls that open a file, each with the index of its flags, which is followed by the mode.
const OPEN: &[(i64, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// The calls that make a node, each with the index of its mode.
const MAKE_NODE: &[(i64, u32)] = &[
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Flags of `open` that create a file: `O_CREAT` and `O_TMPFILE`. Only with these does the mode matter.
const MAKES_A_FILE: u32 = 0o20_000_100;

/// The types of device nodes: character and block.
const DEVICES: [u32; 2] = [0o020_000, 0o060_000];

/// The flag of `memfd_create` that creates a file that cannot be executed.
const NOEXEC_SEAL: u32 = 8;

/// Installs the filter in this thread and all programs that it executes. A change of a mode to a set-id one fails,
/// unless there is a listener, whose descriptor is returned.
pub(super) fn install(network: Network, listens: bool) -> io::Result<Option<OwnedFd>> {
    sys::install_filter(&program(network, if listens { NOTIFY } else { error(libc::EPERM) }), listens)
}

/// The conditions of a rule, which must all hold, and its answer to the call.
type Rule = (Vec<When>, u32);

/// A condition on half of an argument: these bits have a value, or another one.
struct When {
    argument: u32,
    /// The offset of the half. The kernel ignores the upper one of all arguments here but pointers. Both supported
    /// architectures are little-endian.
    half: u32,
    bits: u32,
    value: u32,
    is: bool,
}

const fn equals(argument: u32, value: u32) -> When {
    When { argument, half: 0, bits: u32::MAX, value, is: true }
}

const fn differs(argument: u32, value: u32) -> When {
    When { is: false, ..equals(argument, value) }
}

/// True if one of the bits is set.
const fn has(argument: u32, bits: u32) -> When {
    When { bits, ..differs(argument, 0) }
}

/// The program of the filter. `set_id` is the answer to a change of a mode to a set-id one.
fn program(network: Network, set_id: u32) -> Vec<sock_filter> {
    let mut program = vec![
        instruction(LOAD_WORD, ARCHITECTURE_WORD),
        jump(ARCHITECTURE, 1, 0),
        instruction(RETURN, KILL),
        instruction(LOAD_WORD, 0),
        // An older kernel does not know newer calls. This includes x32 calls, which run under other numbers of the same
        // architecture.
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: NEWEST_CALL + 1 },
        instruction(RETURN, error(libc::ENOSYS)),
    ];
    for (call, rules) in rules(network, set_id) {
        let mut body: Vec<sock_filter> = rules.into_iter().flat_map(check).collect();
        body.push(instruction(RETURN, ALLOW));
        program.push(jump(u32::try_from(call).unwrap_or(u32::MAX), 0, body.len()));
        program.extend(body);
    }
    program.push(instruction(RETURN, ALLOW));
    program
}

/// The instructions of a rule. A condition that does not hold leads to the next rule.
fn check((conditions, answer): Rule) -> Vec<sock_filter> {
    let mut code = Vec::new();
    let mut past = 3 * conditions.len() + 1;
    for When { argument, half, bits, value, is } in conditions {
        past -= 3;
        let (then, otherwise) = if is { (0, past) } else { (past, 0) };
        code.extend([
            instruction(LOAD_WORD, FIRST_ARGUMENT + 8 * argument + half),
            instruction(AND, bits),
            jump(value, then, otherwise),
        ]);
    }
    code.push(instruction(RETURN, answer));
    code
}

/// The rules of each call.
fn rules(network: Network, set_id: u32) -> BTreeMap<i64, Vec<Rule>> {
    let (refused, missing) = (error(libc::EPERM), error(libc::ENOSYS));
    let mut rules: BTreeMap<i64, Vec<Rule>> = BTreeMap::new();
    let mut add = |call, conditions, answer| rules.entry(call).or_default().push((conditions, answer));
    let calls = REFUSED.iter().map(|call| (call, refused)).chain(MISSING.iter().map(|call| (call, missing)));
    for (call, answer) in calls {
        add(*call, vec![], answer);
    }
    for request in TERMINAL_INJECTION {
        add(libc::SYS_ioctl, vec![equals(1, request)], refused);
    }
    add(libc::SYS_clone, vec![has(0, NEW_NAMESPACE.cast_unsigned())], refused);
    // Reading the personality, or setting the default one, is harmless.
    add(libc::SYS_personality, vec![differs(0, u32::MAX), differs(0, 0)], refused);
    // Other users could use set-id files and device nodes after the run. The kernel itself makes no set-id directories.
    #[cfg(target_arch = "x86_64")]
    add(libc::SYS_creat, vec![has(1, SET_ID)], refused);
    for &(call, flags) in OPEN {
        add(call, vec![has(flags, MAKES_A_FILE), has(flags + 1, SET_ID)], refused);
    }
    for &(call, mode) in MAKE_NODE {
        add(call, vec![has(mode, SET_ID)], refused);
        for device in DEVICES {
            add(call, vec![When { bits: 0o170_000, ..equals(mode, device) }], refused);
        }
    }
    for &(call, mode) in MODES {
        add(call, vec![has(mode, SET_ID)], set_id);
    }
    if set_id == NOTIFY {
        for call in EXECUTIONS {
            add(call, vec![], NOTIFY);
        }
    }
    // A file in memory can be executed regardless of its origin, unless it is sealed against execution.
    add(libc::SYS_memfd_create, vec![When { bits: NOEXEC_SEAL, ..equals(1, 0) }], missing);
    // Without the limit of core files the kernel could start the machine's receiver of cores. Agents of keys set it to
    // 0 and end if that fails, so the call succeeds without effect.
    add(libc::SYS_setrlimit, vec![equals(0, libc::RLIMIT_CORE)], error(0));
    for half in [0, 4] {
        // Without new limits the call reads them.
        let has_limits = When { half, ..differs(2, 0) };
        add(libc::SYS_prlimit64, vec![equals(1, libc::RLIMIT_CORE), has_limits], error(0));
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        for conditions in other_sockets(network) {
            add(call, conditions, error(libc::EAFNOSUPPORT));
        }
    }
    rules
}

/// The sockets of every family that the network does not need. In a private network programs may list their interfaces.
fn other_sockets(network: Network) -> [Vec<When>; 3] {
    const NETLINK: u32 = libc::AF_NETLINK.cast_unsigned();
    let families: &[i32] = match network {
        Network::None => &[libc::AF_UNIX],
        Network::Loopback | Network::Names => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        Network::Host => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
    };
    let other = families.iter().map(|family| differs(0, family.cast_unsigned())).collect();
    let other_netlink = vec![equals(0, NETLINK), differs(2, libc::NETLINK_ROUTE.cast_unsigned())];
    // Other raw sockets would need a capability anyway.
    let raw = vec![differs(0, NETLINK), When { bits: 0xf, ..equals(1, libc::SOCK_RAW.cast_unsigned()) }];
    [other, other_netlink, raw]
}

fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Compares with a value, and skips instructions if it is equal, or not.
fn jump(value: u32, then: usize, otherwise: usize) -> sock_filter {
    // A distance that is too long would leave the program, which the kernel refuses.
    let [jt, jf] = [then, otherwise].map(|skipped| u8::try_from(skipped).unwrap_or(u8::MAX));
    sock_filter { code: JUMP_IF_EQUAL, jt, jf, k: value }
}

// BPF instructions.
const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The offset of the arguments in the input of the filter.
const FIRST_ARGUMENT: u32 = 16;

/// The offset of the architecture in the input of the filter, and its value: the machine of ELF with flags.
const ARCHITECTURE_WORD: u32 = 4;
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

// Answers to a call.
const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const KILL: u32 = 0x8000_0000;

/// The answer that makes a call fail with an error number. With 0 it succeeds without effect.
const fn error(number: i32) -> u32 {
    0x0005_0000 | number.cast_unsigned()
}

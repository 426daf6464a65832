//! Landlock: which files the command may read, write and execute, and that it cannot reach anything outside by TCP,
//! signals or abstract sockets.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::FileType;

use super::plan::{Network, Plan, Profile};
use super::report::Landlock;

/// The newest interface whose rights are requested; an older kernel enforces those it knows.
const NEWEST: ABI = ABI::V6;

/// Libraries and what programs read to work at all.
const LIBRARIES: [&str; 12] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/usr/include",
    "/usr/local/lib",
    "/usr/local/share",
    "/usr/local/include",
];

/// Configuration without secrets, and the kernel's description of this machine.
const SETTINGS: [&str; 40] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/default/locale",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/machine-id",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/proc",
    "/sys/fs/cgroup",
];

/// The kernel's description of processors and memory.
const MACHINE: [&str; 2] = ["/sys/devices/system", "/sys/kernel/mm"];

/// Programs, in the build profile.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"];

/// Restricts this thread, and says how much of it the kernel enforces.
pub(super) fn restrict(plan: &Plan, scratch: &[&Path]) -> Result<Landlock, RulesetError> {
    let status = ruleset(plan, scratch)?.restrict_self()?;
    Ok(describe(&status))
}

fn describe(status: &RestrictionStatus) -> Landlock {
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    };
    let status = match status.ruleset {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "partial",
        RulesetStatus::NotEnforced => "none",
    };
    Landlock { abi, status: status.to_owned() }
}

fn ruleset(plan: &Plan, scratch: &[&Path]) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    if plan.network != Network::Host {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let mut rules = ruleset.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = read | AccessFs::Execute;
    let write = AccessFs::from_all(NEWEST) & !AccessFs::Execute;
    // Programs and libraries lie in the same trees, so one rule says both.
    let (trees, rights): (&[&str], _) = match plan.profile {
        Profile::Strict => (&LIBRARIES, read),
        Profile::Build => (&PROGRAMS, run),
    };
    for path in trees.iter().filter(|path| !leads_into(path, trees)) {
        rules = allow(rules, Path::new(path), rights)?;
    }
    for path in SETTINGS.iter().chain(&MACHINE) {
        rules = allow(rules, Path::new(path), read)?;
    }
    // The kernel opens a program's loader with the right to execute it.
    for path in loaders() {
        rules = allow(rules, &path, AccessFs::ReadFile | AccessFs::Execute)?;
    }
    for device in ["null", "zero", "full", "random", "urandom"] {
        rules = allow(rules, &Path::new("/dev").join(device), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    for path in &plan.view.read {
        rules = allow(rules, path, read)?;
    }
    for path in plan.view.write.iter().map(std::path::PathBuf::as_path).chain(scratch.iter().copied()) {
        rules = allow(rules, path, write)?;
    }
    rules = allow(rules, &plan.exe.path, AccessFs::ReadFile | AccessFs::Execute)?;
    if plan.profile == Profile::Build {
        for path in &plan.view.execute {
            rules = allow(rules, path, run)?;
        }
    }
    Ok(rules)
}

/// Whether a path is a link into another tree, as `/lib` is on most systems.
fn leads_into(path: &str, trees: &[&str]) -> bool {
    let target = std::fs::read_link(path).map(|target| Path::new("/").join(target));
    target.is_ok_and(|target| trees.iter().any(|tree| *tree != path && target.starts_with(tree)))
}

/// Adds a rule for a path that exists. A file gets only the rights of files: with one of directories among them the
/// kernel would count the whole as partial.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(rules) };
    let directory = rustix::fs::fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    let access = if directory { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(file, access))
}

/// The dynamic loaders of this machine.
fn loaders() -> Vec<std::path::PathBuf> {
    [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ]
    .into_iter()
    .map(std::path::PathBuf::from)
    .filter(|path| path.exists())
    .collect()
}

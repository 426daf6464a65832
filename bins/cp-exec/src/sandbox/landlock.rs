//! Landlock rules: the files that the command may read, write and execute. TCP, signals and abstract sockets to
//! processes outside are denied.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::FileType;

use super::mounts::MESSAGE_QUEUES;
use super::pieces;
use super::plan::{Layer, Network, OWN_FILES, Operation, Plan, Profile, TMP};
use super::report::{Failure, Landlock};

/// The newest Landlock ABI whose rights are requested. An older kernel enforces the rights that it supports.
const NEWEST: ABI = ABI::V6;

/// Restricts this thread, and returns the level of enforcement. A layer is missing if the kernel refuses. `tmp` is the directory for temporary files. `private`:
/// the run has its own mount view, and with it its own `/tmp` and `/dev/shm`.
pub(super) fn restrict(plan: &Plan, tmp: &Path, private: bool) -> Result<Landlock, Failure> {
    let status = ruleset(plan, tmp, private)?.restrict_self()?;
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    };
    let status = match status.ruleset {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "partial",
        RulesetStatus::NotEnforced => "none",
    };
    Ok(Landlock { abi, status: status.to_owned() })
}

impl From<RulesetError> for Failure {
    fn from(error: RulesetError) -> Self {
        Self::Missing(Layer::Landlock.name().to_owned(), format!("landlock: {error}"))
    }
}

fn ruleset(plan: &Plan, tmp: &Path, private: bool) -> Result<RulesetCreated, Failure> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    // A private loopback interface leads nowhere else.
    if plan.network_kind() == Network::None {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let mut rules = ruleset.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = read | AccessFs::Execute;
    let write = AccessFs::from_all(NEWEST) & !AccessFs::Execute;
    // Programs and libraries lie in the same trees, so one rule covers both.
    let rights = if plan.profile == Profile::Strict { read } else { run };
    for path in pieces::trees(plan.profile) {
        rules = allow(rules, Path::new(path), rights)?;
    }
    // A private view contains only declared paths in the directories of settings, and a rule for a directory covers its
    // mounts.
    let settings = if private { pieces::HOLD_SETTINGS.map(PathBuf::from).to_vec() } else { pieces::settings() };
    for path in settings {
        rules = allow(rules, &path, read)?;
    }
    // The kernel opens the dynamic loader of a program with the right to execute it.
    for path in pieces::LOADERS {
        rules = allow(rules, Path::new(path), AccessFs::ReadFile | AccessFs::Execute)?;
    }
    // Without the right to ioctls, isatty(3) fails in a way that programs do not expect.
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for name in ["null", "zero", "full", "random", "urandom"] {
        rules = allow(rules, &Path::new("/dev").join(name), device)?;
    }
    if private {
        rules = allow(rules, Path::new("/dev/tty"), device)?;
        rules = allow(rules, Path::new("/dev/pts"), device)?;
        rules = allow(rules, Path::new(MESSAGE_QUEUES), write)?;
        rules = allow(rules, Path::new(OWN_FILES), read)?;
        // The mounts of the view leave only the files of processes writable, and the kernel decides about these.
        rules = allow(rules, Path::new("/proc"), read | AccessFs::WriteFile | AccessFs::Truncate)?;
        // The view contains nothing undeclared, so all of it can be listed.
        rules = allow(rules, Path::new("/"), AccessFs::ReadDir.into())?;
    }
    for place in &plan.view.places {
        let rights = match place.operation {
            Operation::Read => read,
            Operation::Write => write,
            Operation::Execute if plan.profile == Profile::Build => run,
            _ => continue,
        };
        if let Some((file, _)) = pieces::open_known(&place.path, place.node)? {
            rules = allow_file(rules, file, rights)?;
        }
    }
    for path in std::iter::once(tmp).chain([TMP, "/dev/shm"].map(Path::new).into_iter().filter(|_| private)) {
        let runs = plan.profile == Profile::Build && path == plan.tmpdir();
        let rights = if runs { write | AccessFs::Execute } else { write };
        rules = allow(rules, path, rights)?;
    }
    for path in std::iter::once(&plan.exe.path).chain(&plan.programs) {
        rules = allow(rules, path, AccessFs::ReadFile | AccessFs::Execute)?;
    }
    Ok(rules)
}

/// Adds a rule for an existing path. A file gets only the rights that apply to files, because otherwise the kernel
/// would report the ruleset as partially enforced.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(rules) };
    allow_file(rules, file, access)
}

fn allow_file(
    rules: RulesetCreated,
    file: impl AsFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let directory = rustix::fs::fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    let access = if directory { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(file, access))
}

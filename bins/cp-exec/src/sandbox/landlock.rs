//! Landlock rules: the files that the command may read, write and execute. TCP, signals and abstract sockets to
//! processes outside are denied.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{FileType, Mode, OFlags};

use super::mounts::MESSAGE_QUEUES;
use super::pieces;
use super::plan::{Layer, Network, Operation, Plan, Profile, TMP};
use super::report::{At, Failure, Landlock};

/// The newest Landlock ABI whose rights are requested. An older kernel enforces the rights that it supports.
const NEWEST: ABI = ABI::V6;

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const RUN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});

/// Every right but that to execute.
fn write() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !AccessFs::Execute
}

/// Restricts this thread, and returns the level of enforcement. A layer is missing if the kernel refuses. `tmp` is the
/// directory for temporary files. `private`: the run has its own mount view, and with it its own `/tmp` and `/dev/shm`.
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
        Self::Missing(Layer::Landlock.to_string(), format!("landlock: {error}"))
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
    let mut allow = |file: OwnedFd, rights: BitFlags<AccessFs>| -> Result<(), Failure> {
        // A file gets only the rights that apply to files, because otherwise the kernel would report the ruleset as
        // partially enforced.
        let is_directory = FileType::from_raw_mode(rustix::fs::fstat(&file).at("landlock")?.st_mode).is_dir();
        let rights = if is_directory { rights } else { rights & AccessFs::from_file(NEWEST) };
        (&mut rules).add_rule(PathBeneath::new(file, rights))?;
        Ok(())
    };
    for place in &plan.view.places {
        let rights = match place.operation {
            Operation::Read => READ,
            Operation::Write => write(),
            Operation::Execute if plan.profile == Profile::Build => RUN,
            _ => continue,
        };
        if let Some((file, _)) = pieces::open_known(&place.path, place.node)? {
            allow(file, rights)?;
        }
    }
    for (path, rights) in others(plan, tmp, private) {
        // Paths of the system may lead through links, and need not exist.
        if let Ok(file) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            allow(file, rights)?;
        }
    }
    Ok(rules)
}

/// The paths beside those of the view, and the rights to them.
fn others(plan: &Plan, tmp: &Path, private: bool) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    // Without the right to ioctls, isatty(3) fails in a way that programs do not expect.
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    // A view contains nothing undeclared, so all of it can be read.
    let read = if private { vec!["/".into()] } else { pieces::settings() };
    let mut all: Vec<_> = read.into_iter().map(|path| (path, READ)).collect();
    let mut add = |paths: &[&str], rights| all.extend(paths.iter().map(|path| (path.into(), rights)));
    // Programs and libraries lie in the same trees, so one rule covers both.
    add(pieces::trees(plan.profile), if plan.profile == Profile::Strict { READ } else { RUN });
    // The kernel opens the dynamic loader of a program with the right to execute it.
    add(&pieces::LOADERS, RUN);
    add(&["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"], device);
    if private {
        add(&["/dev/tty", "/dev/pts"], device);
        add(&[MESSAGE_QUEUES, TMP, "/dev/shm"], write());
        // The mounts of the view leave only the files of processes writable, and the kernel decides about these.
        add(&["/proc"], AccessFs::WriteFile | AccessFs::Truncate);
    }
    let runs = plan.profile == Profile::Build && tmp == plan.tmpdir();
    all.push((tmp.to_owned(), if runs { write() | AccessFs::Execute } else { write() }));
    all.extend([&plan.exe.path].into_iter().chain(&plan.programs).map(|path| (path.clone(), RUN)));
    all
}

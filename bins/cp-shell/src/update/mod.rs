//! `cp-shell update`: updates all programs to the newest release, or to another one: discover, download, verify the signature and checksum,
//! replace, sync the skill. The steps before the replacement use a directory of their own, and the installer of the release replaces the
//! programs by one rename.
//!
//! The parts are [`install`] (releases and package managers), [`release`] (sources and signatures) and [`tree`] (files and the skill).

mod install;
mod release;
mod tree;

use std::path::{Path, PathBuf};

use cp_common::output::{Newest, Notice, Progress, Severity, number};
use cp_common::program::{Class, VERSION, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Code, Context, Error, Result, clock, signals};
use serde::Serialize;

use self::install::{Install, Manager};
use self::release::{Release, Source, broken};
use self::tree::Skill;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "update",
    // No confirm token is needed, because releases are signed and `--rollback` restores the previous one.
    class: Class::Governed,
    output: "update",
    examples: &["cp-shell --version | cut -d' ' -f2 >latest; cp-shell update --check --from ."],
    ..VerbDoc::EMPTY
};

/// Update all programs, and the skill, to the newest signed release
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check for a newer release, and record it for the notices
    #[arg(long, conflicts_with_all = ["dry_run", "rollback"])]
    check: bool,
    /// Show the update without performing it
    #[arg(long, conflicts_with = "rollback")]
    dry_run: bool,
    /// The location of releases (default: `update_from` of config/cp.toml)
    #[arg(long, value_name = "URL|DIR", conflicts_with = "rollback")]
    from: Option<String>,
    /// Install this version, even if it is older
    #[arg(long, value_name = "VERSION", conflicts_with = "rollback")]
    target_version: Option<String>,
    /// Restore the version that was replaced last
    #[arg(long)]
    rollback: bool,
    /// Verify with this key, or the key in this file, instead of the built-in one
    #[arg(long = "trust", value_name = "VKEY|FILE", conflicts_with = "rollback")]
    key: Option<String>,
}

/// How the programs were installed.
enum Method {
    Release(Install),
    Managed(Manager),
    Development,
}

/// An update and its progress.
struct Update {
    /// The program that runs.
    program: PathBuf,
    method: Method,
    stage: &'static str,
    /// The active version.
    current: String,
    replaced: bool,
    skill_status: &'static str,
    skill_command: Option<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // A signal interrupts only waits, so that the closing line reports the progress.
    std::mem::forget(signals::effect());
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    let program = program.map_err(|e| Error::io("finding this program", e))?;
    let method = match Install::of(&program) {
        Some(install) => Method::Release(install),
        None => Manager::of(&program).map_or(Method::Development, Method::Managed),
    };
    let (skill_status, skill_command) = ("not_started", None);
    let current = VERSION.to_owned();
    let mut update =
        Update { program, method, stage: "discover", current, replaced: false, skill_status, skill_command };
    let done = update.run(args, context).map_err(|error| update.explained(error))?;
    context.out.answer(&done)
}

impl Update {
    fn run(&mut self, args: &Args, context: &mut Context) -> Result<Updated> {
        let is_asked = args.check || args.dry_run;
        let lock = match &self.method {
            Method::Release(install) if !is_asked => Some(install.lock()?),
            Method::Development if !is_asked => {
                let error = Error::config(format!("{} was not installed as a release", self.program.display()));
                return Err(error.hint("install the programs with scripts/install, and update those"));
            }
            _ => None,
        };
        if let Method::Release(install) = &self.method {
            self.current = install.current()?;
        }
        match (&self.method, &lock) {
            (Method::Release(install), Some(_)) if args.rollback => self.roll_back(&install.clone()),
            _ if args.rollback => Err(Error::config("only an installed release can be rolled back")
                .hint("install the older version with the same package manager")),
            (Method::Managed(manager), _) if !args.check => self.managed(&manager.clone(), args),
            _ => self.released(args, lock.is_some(), context),
        }
    }

    /// Updates with the package manager that installed the programs.
    fn managed(&mut self, manager: &Manager, args: &Args) -> Result<Updated> {
        let before = self.current.clone();
        let version = args.target_version.as_deref().map(release::version).transpose()?;
        let words = manager.command(version)?;
        if !args.dry_run {
            self.stage = "replace";
            self.current = Manager::run(&words, &self.program)?;
            self.replaced = self.current != before;
            self.sync_skill(&before)?;
        }
        let status = if args.dry_run { "planned" } else { self.done() };
        Ok(self.answer(status, before, version.map(str::to_owned), install::line(&words)))
    }

    fn roll_back(&mut self, install: &Install) -> Result<Updated> {
        let before = self.current.clone();
        let previous = install.previous().filter(|(_, version)| *version != before);
        let (tree, version) = previous.ok_or_else(|| Error::not_found("there is no previous version"))?;
        let stage = install.stage()?;
        let outcome = self.activate(install, &tree, &version);
        drop(stage);
        self.settle(outcome, &before)?;
        // The version before a rollback is the newer one.
        let status = if number(&version) > number(&before) { "updated" } else { "rolled_back" };
        Ok(self.answer(status, before, Some(version), "cp-shell update --rollback".to_owned()))
    }

    /// Finds a release, and installs it if the installation `is_locked` for it.
    fn released(&mut self, args: &Args, is_locked: bool, context: &mut Context) -> Result<Updated> {
        let before = self.current.clone();
        let from = context.config.text("update_from", args.from.as_deref()).ok_or_else(|| {
            Error::config("no location of releases is configured")
                .hint("add --from URL|DIR, or set update_from = \"…\" in config/cp.toml")
        })?;
        let source = Source::of(&from)?;
        let key = release::key(args.key.as_deref())?;
        let target = match &args.target_version {
            Some(version) => release::version(version)?.to_owned(),
            None => release::latest(&source)?,
        };
        let is_newer = number(&target) > number(&before);
        let is_meant = is_newer || args.target_version.is_some() && target != before;
        if !is_meant && target != before && is_locked {
            let message = format!("the newest release there is {target}, older than {before}");
            let error = Error::new(Code::Conflict, message);
            return Err(error.hint(format!("add --target-version {target} to install it")));
        }
        let mut found = None;
        if is_meant {
            let list = release::listed(&source, &target)?;
            self.stage = "verify_signature";
            found = Some(Release::verified(&source, &target, &list, &key, &before)?);
        }
        let command = self.command(args);
        if !args.dry_run && args.target_version.is_none() {
            let newest = Newest {
                latest_version: target.clone(),
                severity: found.as_ref().map_or(Severity::Info, |release| release.severity),
                checked_at: clock::now(),
                recommended_command: command.clone(),
            };
            if let Err(error) = newest.keep(&context.home) {
                context.warn(&format!("the newest release was not recorded: {error}"));
            }
        }
        let status = match (&found, is_locked) {
            (Some(release), true) => {
                self.install(&source, release, context.out.progress())?;
                self.done()
            }
            // An earlier update may have been killed after the replacement.
            (None, true) => {
                let outcome = self.repaired();
                self.settle(outcome, &before).map(|()| "current")?
            }
            (None, false) => "current",
            (Some(_), false) if args.check => "available",
            (Some(_), false) => "planned",
        };
        if args.check {
            context.out.notice_of_update(&context.home);
        }
        let verification = found.map(|release| release.verified);
        Ok(Updated {
            update_available: is_newer && !self.replaced,
            signature_status: if verification.is_some() { "verified" } else { "not_checked" },
            signature_verified: verification.is_some(),
            verification,
            notices: context.out.notices().to_vec(),
            ..self.answer(status, before, Some(target), command)
        })
    }

    /// The command for this update.
    fn command(&self, args: &Args) -> String {
        let options = [("--from", &args.from), ("--target-version", &args.target_version), ("--trust", &args.key)];
        let words = options.iter().filter_map(|(name, value)| Some(format!(" {name} {}", quoted(value.as_deref()?))));
        match self.method {
            Method::Development => "scripts/install".to_owned(),
            _ => format!("cp-shell update{}", words.collect::<String>()),
        }
    }

    /// Downloads, verifies and activates a release.
    fn install(&mut self, source: &Source, release: &Release, progress: Progress) -> Result<()> {
        let Method::Release(install) = &self.method else { return Ok(()) };
        let before = self.current.clone();
        self.stage = "download";
        let stage = install.stage()?;
        let (archive, sum) = tree::fetch(source, release, stage.path(), progress)?;
        self.stage = "verify_checksum";
        if sum != release.verified.sha256 {
            return Err(broken(format!("{} is not the archive that was signed", release.verified.archive)));
        }
        self.stage = "replace";
        let tree = tree::unpack(&archive, &release.version, stage.path())?;
        let outcome = self.activate(&install.clone(), &tree, &release.version);
        self.settle(outcome, &before)
    }

    /// Activates the active tree again, which creates its missing links and removes unused trees.
    fn repaired(&self) -> Result<()> {
        let Method::Release(install) = &self.method else { return Ok(()) };
        install.activate(&install.path("current"))
    }

    /// Verifies, tests and activates a tree.
    fn activate(&mut self, install: &Install, tree: &Path, version: &str) -> Result<()> {
        self.stage = "verify_checksum";
        install.check(tree)?;
        self.stage = "replace";
        tree::try_out(tree, version)?;
        install.activate(tree)
    }

    /// Finishes after the replacement, even if it failed: the active version is read and not assumed.
    fn settle(&mut self, outcome: Result<()>, before: &str) -> Result<()> {
        let Method::Release(install) = &self.method else { return outcome };
        self.current = install.current()?;
        self.replaced = self.current != before;
        outcome?;
        self.sync_skill(before)
    }

    /// Updates the installed skills to the active version.
    fn sync_skill(&mut self, before: &str) -> Result<()> {
        self.stage = "skill_sync";
        let prefix = match &self.method {
            Method::Release(install) => install.path("current"),
            _ => self.program.ancestors().nth(2).unwrap_or(&self.program).to_owned(),
        };
        let is_release = |place: &Path| matches!(&self.method, Method::Release(install) if install.has(place));
        let skill = Skill::of(prefix.join("share/cp-tools/skill"), is_release);
        self.skill_status = skill.sync().map_err(|e| {
            self.skill_status = "failed";
            self.skill_command = skill.command();
            let message = format!("the programs are at {}, the skill is not: {}", self.current, e.message());
            let by_hand = self.skill_command.as_deref().unwrap_or("copy skills/cp-tools of the source over it");
            Error::new(Code::Partial, message).hint(format!("{by_hand}; then cp-shell changelog --since {before}"))
        })?;
        Ok(())
    }

    fn done(&self) -> &'static str {
        if self.replaced { "updated" } else { "current" }
    }

    fn answer(&self, status: &'static str, before: String, target: Option<String>, command: String) -> Updated {
        let next_steps = match status {
            "available" | "planned" => vec![command.clone()],
            _ if self.replaced && number(&self.current) > number(&before) => {
                vec![format!("cp-shell changelog --since {before}")]
            }
            _ => Vec::new(),
        };
        Updated {
            status,
            previous_version: before,
            current_version: self.current.clone(),
            target_version: target,
            update_available: false,
            install_method: match &self.method {
                Method::Release(_) => "release",
                Method::Managed(manager) => manager.name(),
                Method::Development => "development",
            },
            command,
            binary_replaced: self.replaced,
            signature_status: "not_checked",
            signature_verified: false,
            verification: None,
            skill_sync_supported: true,
            skill_sync_status: self.skill_status,
            next_steps,
            notices: Vec::new(),
        }
    }

    /// Adds the progress of the update and a hint to an error.
    fn explained(&self, error: Error) -> Error {
        let error = match error.code() {
            Code::Interrupted => Error::new(Code::Interrupted, format!("cancelled: {} is active", self.current))
                .hint("run it again to start over"),
            Code::Integrity => {
                let message = format!("{}; nothing was installed", error.message());
                Error::new(Code::Integrity, message).hint("do not retry; report the problem")
            }
            code if code.row().retryable => error.hint("run it again; completed steps are not repeated"),
            _ => error,
        };
        let error = match &self.skill_command {
            Some(command) => error.with("skill_sync_command", command.as_str()),
            None => error,
        };
        error
            .with("stage", self.stage)
            .with("current_version", self.current.as_str())
            .with("binary_replaced", self.replaced)
            .with("skill_sync_status", self.skill_status)
    }
}

/// The result or plan of an update.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the answer")]
pub(super) struct Updated {
    /// `updated`, `rolled_back`, `current` if there was nothing to do, `available` for `--check`, `planned` for `--dry-run`.
    pub(super) status: &'static str,
    /// The version that was active before.
    pub(super) previous_version: String,
    /// The version that is active now.
    pub(super) current_version: String,
    /// The requested or newest version; null if the package manager selects it.
    pub(super) target_version: Option<String>,
    /// True if the target is newer than the active version.
    pub(super) update_available: bool,
    /// `release`, `apt`, `cargo`, or `development`, which is not updated.
    pub(super) install_method: &'static str,
    /// The command that installs the target.
    pub(super) command: String,
    /// True if the programs were replaced.
    pub(super) binary_replaced: bool,
    /// `verified`, or `not_checked` if nothing was installed or a package manager verifies it.
    pub(super) signature_status: &'static str,
    /// True if a signature was verified by this command.
    pub(super) signature_verified: bool,
    /// The verified release.
    pub(super) verification: Option<Verification>,
    /// True if installed skills are updated too.
    pub(super) skill_sync_supported: bool,
    /// `synced`, `current`, `not_installed`, or `not_started`.
    pub(super) skill_sync_status: &'static str,
    /// The next steps, in order.
    pub(super) next_steps: Vec<String>,
    /// The notices, such as a newer release.
    pub(super) notices: Vec<Notice>,
}

/// The verified facts about a release.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Verification {
    /// The key that signed the list of its files.
    pub(super) key: String,
    /// Its archive for this machine.
    pub(super) archive: String,
    /// The hash of the archive in that list.
    pub(super) sha256: String,
}

impl Reply for Updated {
    fn text(&self) -> String {
        let Self { status, previous_version, current_version, target_version, skill_sync_status, .. } = self;
        let line = match *status {
            "current" => format!("{current_version} is the newest version that this mirror offers"),
            "available" | "planned" => {
                format!("{} would replace {current_version}", target_version.as_deref().unwrap_or("the newest version"))
            }
            _ => format!("{status}: {previous_version} → {current_version}, skill: {skill_sync_status}"),
        };
        [line]
            .into_iter()
            .chain(self.next_steps.iter().map(|step| format!("next: {step}")))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

//! `cp-shell update`: bring all programs to the newest release, or to another one: discover, download, verify signature and checksum,
//! replace, sync the skill. What comes before the replacing touches a directory of its own, and the replacing is one rename.
//!
//! - [`install`]: where a release is installed · [`manager`]: who else installed the programs · [`skill`]: what agents read
//! - [`tree`]: the files of a release · [`release`]: what is signed of it · [`source`]: where it comes from

mod install;
mod release;
mod tree;

use std::path::{Path, PathBuf};

use cp_common::output::{Newest, Notice, Severity, number};
use cp_common::program::{Class, VERSION, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Code, Context, Error, Result, clock, signals};
use serde::Serialize;

use self::install::{Install, Lock, Manager};
use self::release::{Release, Source, broken};
use self::tree::Skill;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "update",
    // Exempt from the confirm token: what it installs is signed, and `--rollback` takes it back.
    class: Class::Governed,
    output: "update",
    examples: &["cp-shell --version | cut -d' ' -f2 >latest; cp-shell update --check --from ."],
    is_for_person: true,
    ..VerbDoc::EMPTY
};

/// Update all programs, and the skill, to the newest signed release
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only look for a newer release, and remember it for the notices
    #[arg(long, conflicts_with_all = ["dry_run", "rollback"])]
    check: bool,
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with = "rollback")]
    dry_run: bool,
    /// Where releases are (default: `update_from` of config/cp.toml)
    #[arg(long, value_name = "URL|DIR", conflicts_with = "rollback")]
    from: Option<String>,
    /// This version, also where it is older
    #[arg(long, value_name = "VERSION", conflicts_with = "rollback")]
    target_version: Option<String>,
    /// Go back to the version that was replaced last
    #[arg(long)]
    rollback: bool,
    /// Believe this verifier key instead of the built-in one, this time: the key, or its file
    #[arg(long, value_name = "VKEY|FILE", conflicts_with = "rollback")]
    key: Option<String>,
}

/// How the programs came here.
enum Method {
    Release(Install),
    Managed(Manager),
    Development,
}

/// An update, and how far it has come.
struct Update {
    /// The program that runs.
    program: PathBuf,
    method: Method,
    stage: &'static str,
    /// The version that is in force.
    current: String,
    replaced: bool,
    skill_status: &'static str,
    skill_command: Option<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // A signal ends it where it waits, so that the closing line says how far it came.
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
        match (&self.method, lock) {
            (Method::Release(install), Some(lock)) if args.rollback => self.roll_back(&install.clone(), &lock),
            _ if args.rollback => {
                Err(Error::config("only a release is rolled back")
                    .hint("install the older version as the newer one was"))
            }
            (Method::Managed(manager), _) if !args.check => self.managed(&manager.clone(), args),
            (_, lock) => self.released(args, lock.as_ref(), context),
        }
    }

    /// Has the package manager that installed the programs do it.
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

    fn roll_back(&mut self, install: &Install, lock: &Lock) -> Result<Updated> {
        let before = self.current.clone();
        let version = install.previous().filter(|version| *version != before);
        let version = version.ok_or_else(|| Error::not_found("there is no version to go back to"))?;
        self.stage = "verify_checksum";
        tree::check(&install.tree(&version))?;
        self.stage = "replace";
        tree::try_out(&install.tree(&version), &version)?;
        let stage = install.stage(lock)?;
        let outcome = install.put_in_force(&version, &stage);
        self.settle(outcome, &before)?;
        Ok(self.answer("rolled_back", before, Some(version), "cp-shell update --rollback".to_owned()))
    }

    /// Looks for a release, and unless that is all that was asked for, installs it.
    fn released(&mut self, args: &Args, lock: Option<&Lock>, context: &mut Context) -> Result<Updated> {
        let before = self.current.clone();
        let from = context.config.text("update_from", args.from.as_deref()).ok_or_else(|| {
            Error::config("nothing says where releases are")
                .hint("give --from URL|DIR, or write update_from = \"…\" to config/cp.toml")
        })?;
        let source = Source::of(&from)?;
        let key = release::key(args.key.as_deref())?;
        let target = match &args.target_version {
            Some(version) => release::version(version)?.to_owned(),
            None => release::latest(&source)?,
        };
        let is_newer = number(&target) > number(&before);
        let is_meant = is_newer || args.target_version.is_some() && target != before;
        if !is_meant && target != before && lock.is_some() {
            let message = format!("the newest release there is {target}, older than {before}");
            let error = Error::new(Code::Conflict, message);
            return Err(error.hint(format!("add --target-version {target} if that is meant")));
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
                context.warn(&format!("what was found is not remembered: {error}"));
            }
        }
        let status = match (&found, lock) {
            (Some(release), Some(lock)) => {
                context.progress(&format!("fetching {}", release.verified.archive));
                self.install(&source, release, lock)?;
                self.done()
            }
            // A kill may have come after the replacing.
            (None, Some(_)) => self.settle(Ok(()), &before).map(|()| "current")?,
            (None, None) => "current",
            (Some(_), None) if args.check => "available",
            (Some(_), None) => "planned",
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

    /// What does this, or did.
    fn command(&self, args: &Args) -> String {
        let options = [("--from", &args.from), ("--target-version", &args.target_version), ("--key", &args.key)];
        let words = options.iter().filter_map(|(name, value)| Some(format!(" {name} {}", quoted(value.as_deref()?))));
        match self.method {
            Method::Development => "scripts/install".to_owned(),
            _ => format!("cp-shell update{}", words.collect::<String>()),
        }
    }

    /// Fetches a release, proves it, and puts it in force.
    fn install(&mut self, source: &Source, release: &Release, lock: &Lock) -> Result<()> {
        let Method::Release(install) = &self.method else { return Ok(()) };
        let before = self.current.clone();
        self.stage = "download";
        let stage = install.stage(lock)?;
        let (archive, sum) = tree::fetch(source, release, stage.path())?;
        self.stage = "verify_checksum";
        if sum != release.verified.sha256 {
            return Err(broken(format!("{} is not the archive that was signed", release.verified.archive)));
        }
        self.stage = "replace";
        let tree = tree::unpack(&archive, &release.version, stage.path())?;
        self.stage = "verify_checksum";
        tree::check(&tree)?;
        self.stage = "replace";
        tree::try_out(&tree, &release.version)?;
        signals::check()?;
        let outcome = install.replace(&tree, &release.version, &stage);
        self.settle(outcome, &before)
    }

    /// What follows the replacing, whether that came to its end or not: the version in force is read, not assumed.
    fn settle(&mut self, outcome: Result<()>, before: &str) -> Result<()> {
        let Method::Release(install) = &self.method else { return outcome };
        self.current = install.current()?;
        self.replaced = self.current != before;
        outcome?;
        install.tidy(&self.program)?;
        self.sync_skill(before)
    }

    /// Brings the skills that a person installed to that of the version in force.
    fn sync_skill(&mut self, before: &str) -> Result<()> {
        self.stage = "skill_sync";
        let prefix = match &self.method {
            Method::Release(install) => install.tree("current"),
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
            _ if self.replaced => vec![format!("cp-shell changelog --since {before}")],
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

    /// A failure with how far the update came, and what to do next.
    fn explained(&self, error: Error) -> Error {
        let error = match error.code() {
            Code::Interrupted => Error::new(Code::Interrupted, format!("cancelled: {} is in force", self.current))
                .hint("run it again: it begins anew"),
            Code::Integrity => {
                let message = format!("{}; nothing was installed", error.message());
                Error::new(Code::Integrity, message).hint("do not try again: stop, and report it")
            }
            code if code.row().retryable => error.hint("run it again: what was done is not done twice"),
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

/// What was done, or would be.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the answer")]
pub(super) struct Updated {
    /// `updated`, `rolled_back`, `current` where there was nothing to do, `available` for `--check`, `planned` for `--dry-run`.
    pub(super) status: &'static str,
    /// The version that was in force before.
    pub(super) previous_version: String,
    /// The version that is in force now.
    pub(super) current_version: String,
    /// The version that was asked for, or the newest; null where a package manager knows it.
    pub(super) target_version: Option<String>,
    /// Whether the target is newer than what is in force.
    pub(super) update_available: bool,
    /// `release`, `apt`, `cargo`, or `development`, which is not updated.
    pub(super) install_method: &'static str,
    /// What installs the target.
    pub(super) command: String,
    /// Whether the programs were replaced.
    pub(super) binary_replaced: bool,
    /// `verified`, or `not_checked` where nothing was to be installed or a package manager answers for it.
    pub(super) signature_status: &'static str,
    /// Whether a signature was verified, here and now.
    pub(super) signature_verified: bool,
    /// What was verified.
    pub(super) verification: Option<Verification>,
    /// Whether skills that a person installed are brought up to date too.
    pub(super) skill_sync_supported: bool,
    /// `synced`, `current`, `not_installed`, or `not_started`.
    pub(super) skill_sync_status: &'static str,
    /// What to do next, in order.
    pub(super) next_steps: Vec<String>,
    /// What a caller should know: the notice of a newer release.
    pub(super) notices: Vec<Notice>,
}

/// What is certain of a release.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Verification {
    /// The key that signed the list of its files.
    pub(super) key: String,
    /// Its archive for this machine.
    pub(super) archive: String,
    /// The hash of the archive in that list; what is installed has it.
    pub(super) sha256: String,
}

impl Reply for Updated {
    fn text(&self) -> String {
        let Self { status, previous_version, current_version, target_version, skill_sync_status, .. } = self;
        let line = match *status {
            "current" => format!("{current_version} is the newest version"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_type() {
        cp_common::wire::schemas::same_or_update(env!("CARGO_MANIFEST_DIR"), "update", &schemars::schema_for!(Updated));
    }
}

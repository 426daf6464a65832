//! `cp-shell update`: bring all programs to the newest release, or to another one: discover, download, verify signature and checksum,
//! replace, sync the skill. What comes before the replacing touches a directory of its own, and the replacing is one rename.
//!
//! - [`install`]: where a release is installed · [`manager`]: who else installed the programs · [`skill`]: what agents read
//! - [`tree`]: the files of a release · [`release`]: what is signed of it · [`source`]: where it comes from

mod install;
mod manager;
mod release;
mod skill;
mod source;
mod tree;

use std::path::{Path, PathBuf};

use cp_common::output::{Newest, Notice, Severity, number};
use cp_common::program::{Class, VERSION, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Code, Context, Error, Result, clock, signals};
use serde::Serialize;

use self::install::Install;
use self::manager::Manager;
use self::release::{Release, broken};
use self::skill::Skill;
use self::source::Source;

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

/// What was done, or would be.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Updated {
    /// `updated`, `rolled_back`, `current` where there was nothing to do, `available` for `--check`, `planned` for `--dry-run`.
    status: &'static str,
    /// The version that was in force before.
    previous_version: String,
    /// The version that is in force now.
    current_version: String,
    /// The version that was asked for, or the newest; null where a package manager knows it.
    target_version: Option<String>,
    /// Whether the target is newer than what is in force.
    update_available: bool,
    /// `release`, `apt`, `cargo`, or `development`, which is not updated.
    install_method: &'static str,
    /// What installs the target.
    command: String,
    /// Whether the programs were replaced.
    binary_replaced: bool,
    /// `verified`, or `not_checked` where nothing was to be installed or a package manager answers for it.
    signature_status: &'static str,
    /// Whether a signature was verified, here and now.
    signature_verified: bool,
    /// What was verified.
    verification: Option<Verification>,
    /// Whether skills that a person installed are brought up to date too.
    skill_sync_supported: bool,
    /// `synced`, `current`, `not_installed`, or `not_started`.
    skill_sync_status: &'static str,
    /// What to do next, in order.
    next_steps: Vec<String>,
    /// What a caller should know: the notice of a newer release.
    notices: Vec<Notice>,
}

/// What is certain of a release.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Verification {
    /// The key that signed the list of its files.
    key: String,
    /// Its archive for this machine.
    archive: String,
    /// The hash of the archive in that list; what is installed has it.
    sha256: String,
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
    let method = match (Install::of(&program), Manager::of(&program)) {
        (Some(install), _) => Method::Release(install),
        (None, Some(manager)) => Method::Managed(manager),
        (None, None) => Method::Development,
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
        let before = self.current.clone();
        if let (Method::Managed(manager), false) = (&self.method, args.check) {
            let version = args.target_version.as_deref().map(release::version).transpose()?;
            let words = manager.command(version)?;
            let target = version.map(str::to_owned);
            if !args.dry_run {
                self.stage = "replace";
                self.current = Manager::run(&words, &self.program)?;
                self.replaced = self.current != before;
                self.sync_skill(&before)?;
            }
            let status = if args.dry_run { "planned" } else { self.done("updated") };
            return Ok(Updated {
                target_version: target,
                command: manager::line(&words),
                ..self.answer(status, before)
            });
        }
        if args.rollback {
            let (Method::Release(install), Some(lock)) = (&self.method, &lock) else {
                return Err(Error::config("only a release is rolled back").hint("install the older version again"));
            };
            let version = install.previous().filter(|version| *version != before);
            let version = version.ok_or_else(|| Error::not_found("there is no version to go back to"))?;
            self.stage = "verify_checksum";
            tree::check(&install.tree(&version))?;
            self.stage = "replace";
            tree::try_out(&install.tree(&version), &version)?;
            let stage = install.stage(lock)?;
            let outcome = install.put_in_force(&version, &stage);
            self.settle(outcome, &before)?;
            return Ok(self.answer("rolled_back", before));
        }
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
        let options = [("--from", &args.from), ("--target-version", &args.target_version), ("--key", &args.key)];
        let words = options.iter().filter_map(|(name, value)| Some(format!(" {name} {}", quoted(value.as_deref()?))));
        let command = match self.method {
            Method::Development => "scripts/install".to_owned(),
            _ => format!("cp-shell update{}", words.collect::<String>()),
        };
        let is_newer = number(&target) > number(&before);
        if !is_newer && args.target_version.is_none() && target != before && !is_asked {
            let error =
                Error::new(Code::Conflict, format!("the newest release there is {target}, older than {before}"));
            return Err(error.hint(format!("add --target-version {target} if that is meant")));
        }
        let found = if target == before || !is_newer && args.target_version.is_none() {
            None
        } else {
            let list = release::listed(&source, &target)?;
            self.stage = "verify_signature";
            let release = Release::verified(&source, &target, &list, &key, &before)?;
            self.stage = "verify_checksum";
            let (archive, sum) = release.archive()?;
            let verified = Verification { key: release.key.clone(), archive, sha256: sum.to_owned() };
            Some((release, verified))
        };
        if !args.dry_run && args.target_version.is_none() {
            let newest = Newest {
                latest_version: target.clone(),
                severity: found.as_ref().map_or(Severity::Info, |(release, _)| release.severity),
                checked_at: clock::now(),
                recommended_command: command.clone(),
            };
            if let Err(error) = newest.keep(&context.home) {
                context.warn(&format!("what was found is not remembered: {error}"));
            }
        }
        let status = match (&found, args.check) {
            (Some(_), true) => "available",
            (Some(_), false) if args.dry_run => "planned",
            (Some((release, verified)), false) => {
                self.install(&source, release, verified, lock.as_ref(), context)?;
                self.done("updated")
            }
            (None, _) => {
                if let (Method::Release(_), false) = (&self.method, is_asked) {
                    // A kill may have come after the replacing.
                    self.settle(Ok(()), &before)?;
                }
                "current"
            }
        };
        if args.check {
            context.out.notice_of_update(&context.home);
        }
        let verification = found.map(|(_, verified)| verified);
        Ok(Updated {
            target_version: Some(target),
            update_available: is_newer && !self.replaced,
            command,
            signature_status: if verification.is_some() { "verified" } else { "not_checked" },
            signature_verified: verification.is_some(),
            verification,
            notices: context.out.notices().to_vec(),
            ..self.answer(status, before)
        })
    }

    /// Fetches a release, proves it, and puts it in force.
    fn install(
        &mut self,
        source: &Source,
        release: &Release,
        verified: &Verification,
        lock: Option<&install::Lock>,
        context: &Context,
    ) -> Result<()> {
        let (Method::Release(install), Some(lock)) = (&self.method, lock) else { return Ok(()) };
        let before = self.current.clone();
        self.stage = "download";
        let stage = install.stage(lock)?;
        context.progress(&format!("fetching {}", verified.archive));
        let (archive, sum) = tree::fetch(source, release, stage.path())?;
        self.stage = "verify_checksum";
        if sum != verified.sha256 {
            return Err(broken(format!("{} is not the archive that was signed", verified.archive)));
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

    fn done(&self, status: &'static str) -> &'static str {
        if self.replaced { status } else { "current" }
    }

    /// The answer of one that replaced a version, or none, without looking for a release.
    fn answer(&self, status: &'static str, before: String) -> Updated {
        let steps = match status {
            "available" | "planned" => vec!["cp-shell update".to_owned()],
            _ if self.replaced => vec![format!("cp-shell changelog --since {before}")],
            _ => Vec::new(),
        };
        Updated {
            status,
            previous_version: before,
            current_version: self.current.clone(),
            target_version: None,
            update_available: false,
            install_method: match &self.method {
                Method::Release(_) => "release",
                Method::Managed(manager) => manager.name(),
                Method::Development => "development",
            },
            command: "cp-shell update".to_owned(),
            binary_replaced: self.replaced,
            signature_status: "not_checked",
            signature_verified: false,
            verification: None,
            skill_sync_supported: true,
            skill_sync_status: self.skill_status,
            next_steps: steps,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_type() {
        cp_common::wire::schemas::same_or_update(env!("CARGO_MANIFEST_DIR"), "update", &schemars::schema_for!(Updated));
    }

    #[test]
    fn the_built_in_key_is_one() {
        assert!(release::key(None).is_ok());
    }
}

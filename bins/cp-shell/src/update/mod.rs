//! `cp-shell update`: updates all programs to the newest release, or to another one: discover, download, verify the
//! signature and checksum, replace, sync the skill. The steps before the replacement use a directory of their own, and
//! the installer of the release replaces the programs by one rename.
//!
//! The parts are [`release`] (sources and signatures) and [`method`] (releases on this machine, and package managers).

mod method;
mod release;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::coprocess::cmd;
use cp_common::keys::hex;
use cp_common::output::{Progress, Severity};
use cp_common::program::describe::{Newest, number};
use cp_common::program::{Class, VERSION, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Code, Context, Error, Result, clock, signals};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use self::method::Method;
use self::release::{LARGEST, Release, Source, broken};

pub(crate) const DOC: VerbDoc = VerbDoc {
    // No confirm token is needed, because releases are signed and `--target-version` installs the one before.
    examples: &["cp-shell --version | cut -d' ' -f2 >latest; cp-shell update --check --from ."],
    ..VerbDoc::new("update", Class::Governed, "update")
};

/// Update the programs and the skill to the newest signed release
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check for a newer release, and record it for the notices
    #[arg(long, conflicts_with = "dry_run")]
    check: bool,
    /// Show the update without performing it
    #[arg(long)]
    dry_run: bool,
    /// The location of releases (default: `update_from` of config/cp.toml)
    #[arg(long, value_name = "URL|DIR")]
    from: Option<String>,
    /// Install this version, even if it is older
    #[arg(long, value_name = "VERSION")]
    target_version: Option<String>,
    /// Verify with this key, or the key in this file, instead of the built-in one
    #[arg(long = "trust", value_name = "VKEY|FILE")]
    key: Option<String>,
}

/// An update and its progress.
struct Update {
    /// The program that runs.
    program: PathBuf,
    method: Method,
    stage: &'static str,
    answer: Updated,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // A signal interrupts only waits, so that the closing line reports the progress.
    std::mem::forget(signals::effect());
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    let program = program.map_err(|e| Error::io("finding this program", e))?;
    let method = Method::of(&program);
    let answer = Updated {
        status: "current",
        previous_version: VERSION.to_owned(),
        current_version: VERSION.to_owned(),
        target_version: None,
        update_available: false,
        install_method: method.name(),
        signature_verified: false,
        signature_status: "not_checked",
        verified_by: None,
        skill_sync_status: "not_started",
        command: None,
    };
    let mut update = Update { program, method, stage: "discover", answer };
    update.run(args, context).map_err(|error| update.explained(error))?;
    context.out.answer(&update.answer)
}

impl Update {
    fn run(&mut self, args: &Args, context: &mut Context) -> Result<()> {
        let is_asked = args.check || args.dry_run;
        let method = self.method.clone();
        match &method {
            Method::Release(base) => {
                // Locked until the end.
                let _lock = if is_asked { None } else { Some(method::lock(base)?) };
                self.answer.previous_version = active(base)?;
                self.answer.current_version.clone_from(&self.answer.previous_version);
                self.released(args, Some(base), context)
            }
            Method::Development if !is_asked => {
                Err(Error::config(format!("{} was not installed as a release", self.program.display()))
                    .hint("install the programs with scripts/install, and update those"))
            }
            Method::Apt(_) | Method::Cargo(_) if !args.check => self.managed(args),
            _ => self.released(args, None, context),
        }
    }

    /// Updates with the package manager that installed the programs.
    fn managed(&mut self, args: &Args) -> Result<()> {
        let version = args.target_version.as_deref().map(release::version).transpose()?;
        let words = self.method.command(version)?;
        if !args.dry_run {
            self.stage = "replace";
            self.answer.current_version = method::manage(&words, &self.program)?;
            let prefix = self.program.ancestors().nth(2).unwrap_or(&self.program).to_owned();
            self.sync_skill(&prefix)?;
        }
        self.answer.target_version = version.map(str::to_owned);
        self.conclude(args.dry_run.then_some("planned"), method::line(&words));
        Ok(())
    }

    /// Finds a release, and installs it below `base`.
    fn released(&mut self, args: &Args, base: Option<&Path>, context: &mut Context) -> Result<()> {
        let from = context.config.text("update_from", args.from.as_deref()).ok_or_else(|| {
            Error::config("no location of releases is configured")
                .hint("add --from URL|DIR, or set update_from = \"…\" in config/cp.toml")
        })?;
        let source = Source::of(&from)?;
        let key = release::key(args.key.as_deref())?;
        let target = match &args.target_version {
            Some(version) => release::version(version)?.to_owned(),
            None => source.latest()?,
        };
        let base = base.filter(|_| !args.check && !args.dry_run);
        let before = self.answer.previous_version.clone();
        let is_meant = number(&target) > number(&before) || args.target_version.is_some();
        if !is_meant && target != before && base.is_some() {
            let message = format!("the newest release there is {target}, older than {before}");
            let error = Error::new(Code::Conflict, message);
            return Err(error.hint(format!("add --target-version {target} to install it")));
        }
        let mut found = None;
        if is_meant && target != before {
            self.stage = "verify_signature";
            found = Some(Release::signed(&source, &target, &key, &before)?);
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
        match (&found, base) {
            (Some(release), Some(base)) => self.install(&source, release, base, &target, context.out.progress())?,
            // An earlier update may have been killed after the replacement.
            (None, Some(base)) => self.activate(base, &base.join("current"), &target)?,
            (_, None) => {}
        }
        if args.check {
            context.out.notice_of_update(&context.home);
        }
        let planned = if args.check { "available" } else { "planned" };
        self.conclude((found.is_some() && base.is_none()).then_some(planned), command);
        if found.is_some() {
            self.answer.signature_verified = true;
            self.answer.signature_status = "verified";
            self.answer.verified_by = Some(key.to_text());
        }
        self.answer.target_version = Some(target);
        Ok(())
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

    /// Downloads, verifies, unpacks and activates a release.
    fn install(
        &mut self,
        source: &Source,
        release: &Release,
        base: &Path,
        version: &str,
        progress: Progress,
    ) -> Result<()> {
        self.stage = "download";
        // Removed when it is dropped.
        let stage = tempfile::Builder::new().prefix(".update-").tempdir_in(base).map_err(|e| {
            if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
                let message = format!("{} cannot be changed: {e}", base.display());
                return Error::new(Code::Forbidden, message).hint("run it as the user who installed the programs");
            }
            Error::io("replacing the programs", e).in_file(base)
        })?;
        let bytes = source.file(&release.archive, LARGEST, Some(progress))?;
        let bytes =
            bytes.ok_or_else(|| broken(format!("the release lists {}, and does not have it", release.archive)))?;
        let (archive, tree) = (stage.path().join("archive"), stage.path().join("tree"));
        let kept = std::fs::create_dir(&tree).and_then(|()| std::fs::write(&archive, &bytes));
        kept.map_err(|e| Error::io("keeping the archive", e).in_file(&archive))?;
        self.stage = "verify_checksum";
        if hex(&Sha256::digest(&bytes)) != release.sha256 {
            return Err(broken(format!("{} is not the archive that was signed", release.archive)));
        }
        self.stage = "replace";
        let options = ["--no-same-owner", "--no-same-permissions", "--strip-components=1", "-C"].map(OsStr::new);
        let words = options.into_iter().chain([tree.as_os_str(), "-xzf".as_ref(), archive.as_os_str()]);
        // The environment could contain options for tar.
        let path = std::env::var_os("PATH").unwrap_or_default();
        method::run("tar", &cmd("tar", words).full_env([("PATH", path)]), |_| Code::Io)?;
        self.activate(base, &tree, version)
    }

    /// Activates a tree of a version. The active version is then read and not assumed, even if this failed.
    fn activate(&mut self, base: &Path, tree: &Path, version: &str) -> Result<()> {
        let installed = method::install(base, tree, version);
        self.answer.current_version = active(base)?;
        installed?;
        self.sync_skill(&base.join("current"))
    }

    /// Replaces the installed skills by the skill below `tree`.
    fn sync_skill(&mut self, tree: &Path) -> Result<()> {
        self.stage = "skill_sync";
        self.answer.skill_sync_status = "not_installed";
        let (source, home) = (tree.join("share/cp-tools/skill"), std::env::var_os("HOME").unwrap_or_default());
        let places = [".claude/skills/cp-tools", ".agents/skills/cp-tools"].map(|place| Path::new(&home).join(place));
        for place in places.iter().filter_map(|place| place.canonicalize().ok()) {
            let text = std::fs::read_to_string(place.join("SKILL.md")).unwrap_or_default();
            // A link to the releases needs no update.
            let is_release = matches!(&self.method, Method::Release(base) if place.starts_with(base));
            if is_release || !text.starts_with("---\nname: cp-tools\n") {
                continue;
            }
            self.answer.skill_sync_status = "failed";
            let compare = cmd("diff", ["-r".as_ref(), source.as_os_str(), place.as_os_str()]);
            if method::run("diff", &compare, |_| Code::Io).is_ok() {
                self.answer.skill_sync_status = "current";
                continue;
            }
            let stage = place.with_file_name(".cp-tools-new");
            // A killed update may have left this directory.
            let _ = std::fs::remove_dir_all(&stage);
            let copy = cmd("cp", ["-RT".as_ref(), source.as_os_str(), stage.as_os_str()]);
            let copied = method::run("cp", &copy, |_| Code::Io);
            let replaced = copied.and_then(|_| {
                renameat_with(CWD, &stage, CWD, &place, RenameFlags::EXCHANGE).map_err(std::io::Error::from)?;
                Ok(std::fs::remove_dir_all(&stage)?)
            });
            replaced.map_err(|e| {
                let Updated { previous_version, current_version, .. } = &self.answer;
                let message = format!("the programs are at {current_version}, the skill is not: {}", e.message());
                let word = |path: &Path| quoted(&path.display().to_string());
                let by_hand = format!("cp -RT {} {}", word(&source), word(&place));
                let next = format!("{by_hand}; then cp-shell changelog --since {previous_version}");
                Error::new(Code::Partial, message).with("skill_sync_command", by_hand).hint(next)
            })?;
            self.answer.skill_sync_status = "synced";
        }
        Ok(())
    }

    /// Sets the status and the next command: `command` for an update that is only planned.
    fn conclude(&mut self, planned: Option<&'static str>, command: String) {
        let Updated { previous_version: before, current_version: current, .. } = &self.answer;
        let done = if current == before { "current" } else { "updated" };
        let changelog = || format!("cp-shell changelog --since {before}");
        let shown = (number(current) > number(before)).then(changelog);
        self.answer.command = planned.map_or(shown, |_| Some(command));
        self.answer.update_available = planned.is_some();
        self.answer.status = planned.unwrap_or(done);
    }

    /// Adds the progress of the update and a hint to an error.
    fn explained(&self, error: Error) -> Error {
        let Updated { previous_version: before, current_version: current, skill_sync_status: skill, .. } = &self.answer;
        let error = match error.code() {
            Code::Interrupted => Error::new(Code::Interrupted, format!("cancelled: {current} is active"))
                .hint("run it again to start over"),
            Code::Integrity => broken(error.message()).hint("nothing was installed: do not retry, report it"),
            _ => error,
        };
        let error = error.with("stage", self.stage).with("current_version", current.as_str());
        error.with("binary_replaced", current != before).with("skill_sync_status", *skill)
    }
}

/// The active version of an installation.
fn active(base: &Path) -> Result<String> {
    let current = base.join("current");
    method::version_of(&current).ok_or_else(|| {
        Error::config("no release is active here").in_file(&current).hint("install one with scripts/install")
    })
}

/// The result or plan of an update.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Updated {
    /// `updated`, `current` if there was nothing to do, `available` for `--check`, `planned` for
    /// `--dry-run`.
    status: &'static str,
    /// The version that was active before.
    previous_version: String,
    /// The version that is active now.
    current_version: String,
    /// The requested or newest version; null if the package manager selects it.
    target_version: Option<String>,
    /// True if the command would install the target.
    update_available: bool,
    /// `release`, `apt`, `cargo`, or `development`, which is not updated.
    install_method: &'static str,
    /// True if the signature of the target was verified.
    signature_verified: bool,
    /// `verified`, or `not_checked` if nothing was downloaded or a package manager verifies it.
    signature_status: &'static str,
    /// The key that signed the target, if it was verified.
    verified_by: Option<String>,
    /// `synced`, `current`, `not_installed`, or `not_started`.
    skill_sync_status: &'static str,
    /// The next command: the one that installs the target, or shows what an update changed.
    command: Option<String>,
}

impl Reply for Updated {
    fn text(&self) -> String {
        let Self { status, previous_version, current_version, target_version, skill_sync_status: skill, .. } = self;
        let line = match *status {
            "current" => format!("{current_version} is the newest version that this mirror offers"),
            "available" | "planned" => {
                format!("{} would replace {current_version}", target_version.as_deref().unwrap_or("the newest version"))
            }
            _ => format!("{status}: {previous_version} → {current_version}, skill: {skill}"),
        };
        self.command.iter().fold(line, |line, next| line + "\nnext: " + next)
    }
}

//! The decision about one command: may it run, as what file, where, and under which limits.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use cp_common::context::options::Origin;
use cp_common::{Code, Error, Result};

use crate::capabilities::Access;
use crate::capture::sha256;
use crate::environment;
use crate::governor::{Governor, expand};
use crate::intent::{self, Served};
use crate::names::{Names, Pinned, refuse};
use crate::patterns::covering;
use crate::planning::plan;
use crate::policy::{Confirm, Intent, LONGEST, Verdict};
use crate::request::Command;
use crate::rules::{self, Finding};
use crate::sandbox::plan::Plan;

/// Programs that give rights or leave the sandbox. No policy allows them.
const PRIVILEGE: [&str; 34] = [
    "sudo",
    "sudoedit",
    "su",
    "doas",
    "pkexec",
    "run0",
    "runuser",
    "setpriv",
    "capsh",
    "nsenter",
    "unshare",
    "chroot",
    "mount",
    "umount",
    "pivot_root",
    "switch_root",
    "systemd-run",
    "systemctl",
    "machinectl",
    "newgrp",
    "sg",
    "gosu",
    "su-exec",
    "setcap",
    "insmod",
    "modprobe",
    "rmmod",
    "kexec",
    "docker",
    "podman",
    "nerdctl",
    "ctr",
    "bwrap",
    "at",
];

/// How much harm a command can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Risk {
    /// It reads, or writes what it may.
    Low,
    /// It runs code of the repository, or reaches others.
    Medium,
    /// It destroys, overwrites or publishes.
    High,
}

/// A command that may run: now, or when it is confirmed.
pub(crate) struct Ruling {
    /// What the helper gets.
    pub plan: Plan,
    /// The words the command was asked for with.
    pub argv: Vec<String>,
    /// Its file.
    pub pinned: Pinned,
    /// How long it may take.
    pub timeout: Duration,
    /// The rule that decided.
    pub rule: String,
    /// What to confirm, and why, where it is not simply allowed.
    pub confirm: Option<String>,
    /// Who confirms it.
    pub level: Confirm,
    /// The token that was spent for it.
    pub confirmed: Option<String>,
    /// The hash of what it reads, where that came with the request.
    pub stdin: Option<String>,
    /// How much harm it can do.
    pub risk: Risk,
    /// Worth saying, though no reason to refuse.
    pub notices: Vec<String>,
    /// Directories made so that the kernel can be told of them; removed afterwards if they stayed empty.
    pub made: Vec<PathBuf>,
}

impl Ruling {
    /// Takes the directories away that were made for it, if they stayed empty.
    pub(crate) fn leave(&self) {
        for made in &self.made {
            drop(fs::remove_dir(made));
        }
    }
}

/// What is decided about a command, before its sandbox is planned.
pub(crate) struct Considered {
    /// What the rules say.
    pub finding: Finding,
    /// The file it would be.
    pub pinned: Pinned,
    /// Where it would run.
    pub cwd: PathBuf,
    /// How long it may take.
    pub timeout: Duration,
    /// Worth saying.
    pub notices: Vec<String>,
}

impl Considered {
    /// Whether it needs to be confirmed.
    pub(crate) fn asks(&self) -> bool {
        self.finding.verdict == Verdict::Confirm
    }
}

/// Decides about one stage of a command, and plans its run.
pub(crate) fn decide(governor: &mut Governor, command: &Command, argv: &[String]) -> Result<Ruling> {
    let considered = consider(governor, command, argv)?;
    let asks = considered.asks();
    let Considered { finding, pinned, cwd, timeout, notices } = considered;
    let (plan, made) = plan(governor, command, argv, &pinned, &cwd, timeout)?;
    Ok(Ruling {
        plan,
        argv: argv.to_vec(),
        pinned,
        timeout,
        rule: finding.rule,
        confirm: asks.then_some(finding.reason),
        level: exec_of(governor).confirm,
        confirmed: None,
        stdin: command.stdin.as_ref().map(|text| sha256(text.as_bytes())),
        risk: finding.risk,
        notices,
        made,
    })
}

/// Decides about one stage of a command.
pub(crate) fn consider(governor: &mut Governor, command: &Command, argv: &[String]) -> Result<Considered> {
    let served = intent::served(argv);
    let mut notices = command.notices.clone();
    let outcome = allowed_name(governor, argv).and_then(|()| redirect(governor, served, &mut notices));
    outcome.map_err(|error| point_to(error, governor, served))?;

    governor.check_base()?;
    let cwd = cwd_of(governor, command)?;
    let finding = rules::judge(governor, argv, &cwd)?;
    let path = canonical_program(governor, &argv[0], &cwd)?;
    let mut hashes = std::mem::take(&mut governor.hashes);
    let writable = |path: &Path| governor.writable_only(path);
    let pinned = governor.names().pin(&path, &mut hashes, &writable, Names::depth());
    governor.hashes = hashes;
    let pinned = pinned?;
    restricted_target(governor, &pinned.path)?;

    declared_by_modules(governor, &cwd, &pinned.path)?;
    arguments_allowed(governor, argv, &cwd)?;
    let timeout = timeout_of(governor, command)?;
    environment::check_all(&exec_of(governor).env_allow, &command.env)?;
    Ok(Considered { finding, pinned, cwd, timeout, notices })
}

fn exec_of(governor: &Governor) -> &crate::policy::Exec {
    &governor.loaded.policy.exec
}

/// The base command against the lists. What is restricted stays restricted, whatever allows it.
pub(crate) fn allowed_name(governor: &Governor, argv: &[String]) -> Result<()> {
    let exec = &governor.loaded.policy.exec;
    let Some(word) = argv.first() else { return Err(Error::validation("there is no command").with("rule", "empty")) };
    let name = word.rsplit('/').next().unwrap_or(word);
    if PRIVILEGE.contains(&name) {
        return Err(refuse("privilege", format!("`{name}` gives rights or leaves the sandbox; no policy allows it"))
            .hint("run the command itself, without it"));
    }
    if exec.restricted_commands.iter().any(|restricted| restricted == name || restricted == word) {
        return Err(refuse("restricted", format!("`{name}` is in restricted_commands"))
            .hint("use another way, or ask the owner of the policy"));
    }
    if exec.allowed_commands.iter().any(|allowed| allowed == name || allowed == word) {
        return Ok(());
    }
    if exec.allowed_commands.is_empty() {
        let reason = match &governor.loaded.file {
            None => format!("there is no policy, and so `{name}` is not allowed"),
            Some(_) => format!("the policy allows no command, and so not `{name}`"),
        };
        return Err(refuse("not_allowed", reason)
            .hint("`cp-exec policy init` writes a starter policy; add the name to allowed_commands"));
    }
    if word.contains(char::is_whitespace) {
        return Err(Error::validation(format!("`{word}` is one word with blanks, and no program"))
            .with("rule", "one_word")
            .hint("write words: cp-exec -- COMMAND ARG…, or use -c"));
    }
    Err(refuse("not_allowed", format!("`{name}` is not in allowed_commands"))
        .with("allowed", exec.allowed_commands.clone())
        .hint("add it to allowed_commands of the policy, or use an allowed command"))
}

/// A program's or a model's read-only command is refused with the tool that serves it.
fn redirect(governor: &Governor, served: Option<Served>, notices: &mut Vec<String>) -> Result<()> {
    let Some(served) = served else { return Ok(()) };
    let person = governor.origin == Origin::Person;
    match governor.loaded.policy.exec.intent {
        Intent::Off => Ok(()),
        Intent::Enforce if !person => {
            Err(refuse("intent", format!("a read-only command: `{}` serves it without running anything", served.by)))
        }
        Intent::Enforce | Intent::Warn => {
            notices.push(format!("`{}` would serve this without running anything", served.by));
            Ok(())
        }
    }
}

/// Adds the tool that serves a refused command to its refusal.
fn point_to(error: Error, governor: &Governor, served: Option<Served>) -> Error {
    match served {
        Some(served) if governor.loaded.policy.exec.intent != Intent::Off && error.code() == Code::Forbidden => {
            error.with("use", served.by).hint(format!("send {}", served.request))
        }
        _ => error,
    }
}

/// The canonical file of the command's first word. A path must lead to the file that its name leads to, or be allowed
/// as it is written and lie in an execute path.
fn canonical_program(governor: &Governor, word: &str, cwd: &Path) -> Result<PathBuf> {
    if !word.contains('/') {
        return governor.names().resolve(word);
    }
    let asked = cwd.join(expand(word, &governor.tilde()));
    let path = asked.canonicalize().map_err(|_| {
        Error::not_found(format!("no program {}", asked.display()))
            .with("rule", "not_found")
            .hint("a name without a slash is looked up on the policy's path")
    })?;
    let listed = governor.loaded.policy.exec.allowed_commands.iter().any(|allowed| {
        allowed.contains('/')
            && governor.places.base.join(expand(allowed, &governor.tilde())).canonicalize().is_ok_and(|p| p == path)
    });
    if listed && governor.execute.iter().any(|pattern| pattern.matches(&path)) {
        return Ok(path);
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    if governor.names().resolve(name).is_ok_and(|pinned| pinned == path) {
        return Ok(path);
    }
    Err(refuse("path", format!("{} is not the file that the policy runs for `{name}`", path.display()))
        .hint(format!("write `{name}`, pin it in exec.pin, or list the path in allowed_commands and paths.execute")))
}

/// A link with an allowed name to a restricted program is that program.
fn restricted_target(governor: &Governor, path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let restricted = governor.loaded.policy.exec.restricted_commands.iter().any(|restricted| *restricted == name);
    if restricted || PRIVILEGE.contains(&name.as_ref()) {
        return Err(refuse("restricted", format!("it leads to {}, which is restricted", path.display())));
    }
    Ok(())
}

fn cwd_of(governor: &Governor, command: &Command) -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|e| Error::io("the working directory", e))?;
    let cwd = match &command.cwd {
        // The kernel's own answer has no links in it.
        None => here,
        Some(asked) => {
            let asked = here.join(expand(asked, &governor.tilde()));
            asked.canonicalize().map_err(|e| {
                Error::not_found(format!("the working directory {}: {e}", asked.display())).with("rule", "cwd")
            })?
        }
    };
    if command.cwd.is_some() && !cwd.is_dir() {
        return Err(Error::validation(format!("{} is not a directory", cwd.display())).with("rule", "cwd"));
    }
    if !governor.read.iter().any(|pattern| pattern.matches(&cwd)) {
        return Err(denied("execute", &cwd)
            .with("rule", "cwd")
            .hint("choose a working directory inside paths.read of the policy"));
    }
    if let Some(pattern) = covering(&governor.forbidden, &cwd) {
        return Err(denied("execute", &cwd).with("rule", "forbidden").with("pattern", pattern.text()));
    }
    Ok(cwd)
}

/// What a module runs of its root, it declares, and it is run where the module may look.
pub(crate) fn declared_by_modules(governor: &Governor, cwd: &Path, program: &Path) -> Result<()> {
    for module in governor.modules_at(&[cwd, program]) {
        module.check(Access::Read, cwd)?;
        if governor.execute.iter().any(|pattern| pattern.matches(program)) {
            module.check(Access::Execute, program)?;
        }
    }
    Ok(())
}

/// The words of a refusal about a path.
pub(crate) fn denied(operation: &str, path: &Path) -> Error {
    let message = format!("Capability denied: {operation} on {}", path.display());
    Error::new(Code::Forbidden, message.clone()).with("reason", message).with("path", path.display().to_string())
}

/// No argument may name what is forbidden; the kernel hides what it can, and this says it before anything runs.
fn arguments_allowed(governor: &Governor, argv: &[String], cwd: &Path) -> Result<()> {
    let modules = governor.modules_at(&[cwd]);
    if governor.forbidden.is_empty() && modules.is_empty() {
        return Ok(());
    }
    for word in &argv[1..] {
        let value = word.split_once('=').filter(|_| word.starts_with('-')).map_or(word.as_str(), |(_, value)| value);
        if value.is_empty() || value.starts_with('-') {
            continue;
        }
        let path = reached(cwd, &expand(value, &governor.tilde()));
        if let Some(pattern) = covering(&governor.forbidden, &path) {
            return Err(denied("read", &path)
                .with("rule", "forbidden")
                .with("pattern", pattern.text())
                .hint("the policy's paths.forbidden covers it"));
        }
        for module in &modules {
            module.check_not_forbidden(&path)?;
        }
    }
    Ok(())
}

/// Where a word leads from a canonical directory, as far as it is there.
fn reached(cwd: &Path, word: &str) -> PathBuf {
    if word.starts_with('/') {
        return cp_common::home::resolved(Path::new(word));
    }
    let mut path = cwd.to_owned();
    for part in Path::new(word).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => {
                path.push(other);
                if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
                    path = path.canonicalize().unwrap_or(path);
                }
            }
        }
    }
    path
}

fn timeout_of(governor: &Governor, command: &Command) -> Result<Duration> {
    let seconds = command.timeout.unwrap_or(governor.loaded.policy.exec.timeout);
    if !seconds.is_finite() || seconds <= 0.0 || seconds > LONGEST {
        return Err(Error::validation(format!("timeout must be more than 0 and at most {LONGEST} seconds"))
            .with("rule", "timeout"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

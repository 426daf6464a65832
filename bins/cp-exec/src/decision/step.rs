//! The decision about a program at the time it is started, when its arguments are final.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::wire::Approval;
use cp_common::{Error, Result};

use super::checks::{check_command_name, check_modules, check_script, check_target, runs_by_path};
use super::confirm;
use super::program::HashCache;
use super::program::ProgramLookup;
use crate::glob::name_matches;
use crate::policy::{Access, Policy, Verdict};
use crate::refusal::refuse;
use crate::rules::{Arguments, Finding, Risk, Scope, judge};
use crate::sandbox::ExecRequest;
use crate::sandbox::plan::TMP;

/// Variables that load code into a program or run it before a shell's line. A line may not change them.
const LOADERS: [&str; 4] = ["LD_*", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV"];

/// Files up to this size are hashed while the start of a program is delayed.
const HASHED: u64 = 64 << 20;

/// The rule about commands that write the configuration of the repository.
const WRITES_CONFIG: &str = "git.config";

/// The kind of process that starts a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The line: its shell, or a program that only starts other programs, such as `env` and `xargs`.
    Line,
    /// A program that the line started, such as `make`.
    Program,
    /// git, which implements some of its commands by starting other git programs.
    Git,
}

/// A start of a program that was decided about.
pub(crate) struct StepRuling {
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    pub file: PathBuf,
    pub sha256: Option<String>,
    pub rule: String,
    pub reason: String,
}

pub(crate) enum StepVerdict {
    Allow,
    /// This approval is required.
    Ask(Box<Approval>),
    Deny(Error),
}

/// Decides about a start of a program. `given` is the environment of the run.
pub(crate) fn decide_step(
    policy: &Policy,
    hashes: &mut HashCache,
    caller: Caller,
    request: &ExecRequest,
    given: &BTreeMap<String, String>,
) -> (StepRuling, StepVerdict) {
    let file = request.file.path.clone();
    let name = request.named.file_name().or_else(|| file.file_name()).unwrap_or_default();
    let mut argv = request.argv.clone();
    match argv.first_mut() {
        // A caller can set any `argv[0]`, so the rules use the name of the file.
        Some(first) => *first = name.to_string_lossy().into_owned(),
        None => argv.push(name.to_string_lossy().into_owned()),
    }
    let size = request.file.content.map_or(u64::MAX, |(size, ..)| size);
    let sha256 = match &request.opened {
        Some(opened) if caller == Caller::Line && size <= HASHED => hashes.of_opened(&request.file, opened).ok(),
        _ => None,
    };
    let finding = match caller {
        Caller::Line => check_environment(request, given).and_then(|()| of_line(policy, &argv, request)),
        Caller::Git if argv[0].starts_with("git") => Ok(Finding::allowed(Risk::Low)),
        Caller::Program | Caller::Git => of_program(policy, &argv, request),
    };
    let verdict = match finding {
        Err(error) => {
            let rule = error.details().get("rule").and_then(|rule| rule.as_str()).unwrap_or("policy").to_owned();
            (rule, error.message().to_owned(), StepVerdict::Deny(error))
        }
        Ok(finding) if finding.verdict == Verdict::Confirm => {
            let approval = confirm::approval_of_step(policy, &argv, &request.cwd, sha256.as_deref(), &finding);
            let verdict = approval.map_or_else(StepVerdict::Deny, |approval| StepVerdict::Ask(Box::new(approval)));
            (finding.rule, finding.reason, verdict)
        }
        Ok(finding) => (finding.rule, finding.reason, StepVerdict::Allow),
    };
    let (rule, reason, verdict) = verdict;
    (StepRuling { argv, cwd: request.cwd.clone(), file, sha256, rule, reason }, verdict)
}

/// Refuses a variable that loads code if the line changed it.
fn check_environment(request: &ExecRequest, given: &BTreeMap<String, String>) -> Result<()> {
    for variable in &request.env {
        let mut parts = variable.splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if LOADERS.iter().any(|loader| name_matches(loader, name)) {
            let name = String::from_utf8_lossy(name);
            if given.get(name.as_ref()).is_none_or(|given| given.as_bytes() != value) {
                return Err(refuse("env_never", format!("`{name}` changes the code that programs load"))
                    .hint("remove the variable from the line"));
            }
        }
    }
    Ok(())
}

/// Checks a program that another program starts: scripts of the governed tree, then the rules.
fn of_program(policy: &Policy, argv: &[String], request: &ExecRequest) -> Result<Finding> {
    let arguments = Arguments::read(argv);
    if policy.governed.is_some() {
        check_script(policy, &arguments, &request.cwd)?;
        policy.check_tree_script(&request.file.path, arguments.words())?;
    }
    judge(policy, argv, &request.cwd, Scope::Child).or_refused()
}

/// Checks a program that the line starts: its name and file against the policy, then the rules.
fn of_line(policy: &Policy, argv: &[String], request: &ExecRequest) -> Result<Finding> {
    let arguments = Arguments::read(argv);
    let file = &request.file.path;
    check_target(policy, file)?;
    let named = request.cwd.join(&request.named);
    if !runs_by_path(policy, &named, file) && !is_allowed_path(policy, file) && !is_in_own_tmp(policy, file) {
        check_command_name(policy, &arguments)?;
        check_file(policy, &argv[0], file)?;
    }
    check_modules(policy, &request.cwd, file, arguments.words())?;
    check_script(policy, &arguments, &request.cwd)?;
    let finding = judge(policy, argv, &request.cwd, Scope::Line);
    if finding.rule == WRITES_CONFIG && is_in_new_repository(argv, request) {
        return Ok(Finding::allowed(Risk::Low));
    }
    finding.or_refused()
}

/// True if a file lies in the private `/tmp` of the run, which contains only files of the run or its session. The
/// kernel decides if the file is executable.
fn is_in_own_tmp(policy: &Policy, file: &Path) -> bool {
    file.starts_with(TMP) && ![Access::Read, Access::Write].iter().any(|access| policy.bounds.lists(*access, file))
}

/// True if a git command targets a repository that the run created. The configuration of such a repository is not
/// read-only, and is checked after the run.
fn is_in_new_repository(argv: &[String], request: &ExecRequest) -> bool {
    let options = argv.windows(2).filter(|words| words[0] == "-C");
    let directory = options.fold(request.cwd.clone(), |directory, words| directory.join(&words[1]));
    directory.ancestors().find_map(|above| request.sees_read_only(&above.join(".git/config"))) == Some(false)
}

/// True if the policy allows a program by its path.
fn is_allowed_path(policy: &Policy, file: &Path) -> bool {
    let mut paths = policy.exec().allowed_commands.iter().filter(|allowed| allowed.contains('/'));
    paths.any(|allowed| policy.base.join(policy.expand(allowed)).canonicalize().is_ok_and(|path| path == file))
}

/// Checks that a file with an allowed name lies in `exec.path` or is pinned.
fn check_file(policy: &Policy, name: &str, file: &Path) -> Result<()> {
    let names = ProgramLookup::of(policy);
    let on_path = names.path.iter().map(|directory| directory.join(name));
    let pins = names.pins.iter().filter(|(pinned, _)| pinned == name).map(|(_, path)| path.clone());
    let mut known = on_path.chain(pins).filter_map(|path| path.canonicalize().ok());
    if known.any(|path| path == file) {
        return Ok(());
    }
    let error = refuse("path", format!("{} is not a file that the policy runs for `{name}`", file.display()));
    Err(policy.with_grant(error, Access::Execute, file))
}

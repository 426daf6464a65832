//! The decision about a program at the time it is started, when its arguments are final.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use cp_common::Result;
use cp_common::wire::Approval;
use sha2::{Digest as _, Sha256};

use super::checks::{check_command_name, check_declared, check_script, check_target, not_of_name};
use super::confirm;
use super::own_repository::{is_about_own_repository, is_in_own_tmp};
use super::owner_git::OwnerGit;
use super::program::{self, HashCache, runs_by_path};
use crate::digest::format_digest;
use crate::policy::{Access, Policy, Verdict};
use crate::refusal::refuse;
use crate::rules::{Arguments, Finding, Scope, is_multicall, is_shell, is_wrapper, judge};
use crate::sandbox::plan::HOME;
use crate::sandbox::{ExecRequest, Role};
use cp_common::glob::name_matches;

/// Variables that load code into a program or run it before a shell's line. A line may not change them.
const LOADERS: [&str; 4] = ["LD_*", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV"];

/// Files up to this size are hashed while the start of a program is delayed.
const HASHED: u64 = 64 << 20;

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

/// The most bytes of the words of a step that are kept.
const KEPT: usize = 4 << 10;

/// The environment of a run.
type Given = BTreeMap<String, String>;

/// A start of a program that was decided about.
pub(crate) struct StepRuling {
    pub caller: Caller,
    /// The words, as [`kept`] shortens them.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    pub file: PathBuf,
    pub sha256: Option<String>,
    pub rule: String,
    pub reason: String,
}

/// What the starts of one run are judged by.
pub(crate) struct StepRules {
    pub policy: Policy,
    pub hashes: HashCache,
    /// The environment of the run.
    pub given: Given,
    /// True if no program may be started after the planned one.
    pub is_alone: bool,
    /// The git configuration of the owner.
    pub git: OwnerGit,
}

/// Decides about a start of a program. Also returns the approval that it requires, or the error of a refusal.
pub(crate) fn decide_step(
    rules: &mut StepRules,
    caller: Caller,
    request: &ExecRequest,
) -> (StepRuling, Result<Option<Box<Approval>>>) {
    let size = request.file.content.map_or(u64::MAX, |id| id.size);
    let sha256 = match &request.opened {
        Some(opened) if caller == Caller::Line && size <= HASHED => {
            rules.hashes.of(&request.file, Some(opened)).ok().map(|(hash, _)| hash)
        }
        _ => None,
    };
    let mut readings = readings(request);
    // An alias of the owner is judged as the command that it stands for.
    let by_file = readings.last().filter(|_| request.file.path.ends_with("git"));
    readings.extend(by_file.and_then(|argv| rules.git.expanded(argv)));
    let judged = readings.into_iter().enumerate().rev().map(|(at, argv)| {
        let finding = rules.judge(request, caller, at, &argv);
        (argv, finding)
    });
    let strictness = |(_, finding): &(_, Result<Finding>)| match finding {
        Err(_) => 2,
        Ok(finding) => u8::from(finding.verdict == Verdict::Ask),
    };
    let nothing = || (Vec::new(), Ok(Finding::allowed()));
    let (argv, mut finding) = judged.max_by_key(strictness).unwrap_or_else(nothing);
    if rules.is_alone {
        finding = Err(refuse("strict", "the profile `strict` executes one program, and nothing after it"));
    }
    let (rule, mut reason) = match &finding {
        Ok(finding) => (finding.rule.clone(), finding.reason.clone()),
        Err(error) => {
            let rule = error.details().get("rule").and_then(|rule| rule.as_str()).unwrap_or("policy").to_owned();
            (rule, error.message().to_owned())
        }
    };
    let approval_of = |finding: Finding| {
        let variables = rules.changed_variables(request, &argv[0]);
        confirm::approval_of_step(&rules.policy, &argv, &request.cwd, &variables, sha256.as_deref(), &finding)
            .map(Box::new)
    };
    let verdict = finding.and_then(|found| (found.verdict == Verdict::Ask).then(|| approval_of(found)).transpose());
    reason.truncate(reason.floor_char_boundary(KEPT));
    let (cwd, file) = (request.cwd.clone(), request.file.path.clone());
    (StepRuling { caller, argv: kept(argv), cwd, file, sha256, rule, reason }, verdict)
}

/// The beginning of long words, with the length and the hash of all of them. It ends at a blank, because half of a
/// secret would not be recognized.
fn kept(argv: Vec<String>) -> Vec<String> {
    let length: usize = argv.iter().map(|word| word.len() + 1).sum();
    if length <= KEPT {
        return argv;
    }
    let all = argv.iter().fold(Sha256::new(), |all, word| all.chain_update(word).chain_update([0]));
    let mut left = KEPT;
    let fits = |word: &&String| left.checked_sub(word.len() + 1).inspect(|rest| left = *rest).is_some();
    let mut beginning: Vec<String> = argv.iter().take_while(fits).cloned().collect();
    let cut = argv.get(beginning.len()).map_or("", |word| &word[..word.floor_char_boundary(left)]);
    let cut = cut.rfind(char::is_whitespace).map_or("", |blank| &cut[..=blank]);
    beginning.push(format!("{cut}[… {length} bytes in all, {}]", format_digest(all)));
    beginning
}

/// The arguments as the rules read them: under the name that the caller wrote, and under the name of the file.
fn readings(request: &ExecRequest) -> Vec<Vec<String>> {
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut of_file = name_of(&request.file.path);
    // A caller can set any `argv[0]`, and only programs with many names act by it.
    if is_multicall(&of_file)
        && let Some(first) = request.argv.first()
    {
        of_file = name_of(Path::new(first.trim_start_matches('-')));
    }
    let written = request.is_named.then(|| name_of(&request.named)).filter(|written| *written != of_file);
    let words = request.argv.get(1..).unwrap_or_default();
    let reading = |name| std::iter::once(name).chain(words.iter().cloned()).collect();
    written.into_iter().chain([of_file]).map(reading).collect()
}

impl StepRules {
    /// The finding about one of the [`readings`]. The first is about the name that the caller wrote.
    fn judge(&self, request: &ExecRequest, caller: Caller, at: usize, argv: &[String]) -> Result<Finding> {
        let file = &request.file;
        if request.opened.is_none() && file.content.is_some() {
            let message = format!("{} cannot be read, so nothing is known about it", file.path.display());
            return Err(refuse("unreadable", message).hint("make the file readable for its owner"));
        }
        match caller {
            Caller::Line if at > 0 => {
                check_target(&self.policy, Path::new(Arguments::read(argv).name()))?;
                self.by_rules(request, argv, Scope::Line)
            }
            Caller::Line => {
                self.check_environment(request)?;
                self.of_line(request, argv)
            }
            Caller::Git if argv[0].starts_with("git") => Ok(Finding::allowed()),
            Caller::Program | Caller::Git => self.of_program(request, argv),
        }
    }

    /// The variables of a start that differ from those of the run and that the program reads: those with its name, as
    /// git reads `GIT_DIR`, and those that lead to its settings.
    fn changed_variables(&self, request: &ExecRequest, program: &str) -> Vec<(String, String)> {
        let own = format!("{}_", program.to_uppercase());
        let is_read = |name: &str| name.to_uppercase().starts_with(&own) || ["HOME", "XDG_CONFIG_HOME"].contains(&name);
        let mut before = self.given.clone();
        before.insert("HOME".to_owned(), HOME.to_owned());
        let now = request.env.iter().map(|variable| {
            let text = String::from_utf8_lossy(variable);
            let (name, value) = text.split_once('=').unwrap_or((&text, ""));
            (name.to_owned(), value.to_owned())
        });
        let now: Given = now.collect();
        let mut names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        names.retain(|name| is_read(name) && before.get(*name) != now.get(*name));
        names.into_iter().map(|name| (name.clone(), now.get(name).cloned().unwrap_or_default())).collect()
    }

    /// True for directories of libraries that all lie where commands can write. Their code is that of the project.
    fn are_of_project(&self, cwd: &Path, directories: &[u8]) -> bool {
        let trees = self.policy.bounds.trees(Access::Write);
        directories.split(|byte| *byte == b':').all(|directory| {
            let path = cwd.join(OsStr::from_bytes(directory));
            !path.components().any(|part| part == Component::ParentDir)
                && trees.iter().any(|tree| path.starts_with(tree))
        })
    }

    /// Refuses a variable that loads code if the line changed it.
    fn check_environment(&self, request: &ExecRequest) -> Result<()> {
        for variable in &request.env {
            let mut parts = variable.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let is_of_project = name == b"LD_LIBRARY_PATH" && self.are_of_project(&request.cwd, value);
            if !is_of_project && LOADERS.iter().any(|loader| name_matches(loader, name)) {
                let name = String::from_utf8_lossy(name);
                if self.given.get(name.as_ref()).is_none_or(|given| given.as_bytes() != value) {
                    return Err(refuse("env_never", format!("`{name}` changes the code that programs load"))
                        .hint("remove the variable from the line"));
                }
            }
        }
        Ok(())
    }

    /// Checks a program that another program starts: scripts of the governed tree, then the rules.
    fn of_program(&self, request: &ExecRequest, argv: &[String]) -> Result<Finding> {
        let arguments = Arguments::read(argv);
        if self.policy.governed.is_some() {
            check_script(&self.policy, &arguments, &request.cwd)?;
            self.policy.check_tree(Access::Execute, &request.file.path, arguments.words())?;
        }
        self.by_rules(request, argv, Scope::Child)
    }

    /// Checks a program that the line starts: its name and file against the policy, then the rules.
    fn of_line(&self, request: &ExecRequest, argv: &[String]) -> Result<Finding> {
        let (policy, file) = (&self.policy, &request.file.path);
        let arguments = Arguments::read(argv);
        check_target(policy, file)?;
        let by_file = readings(request).pop().unwrap_or_default();
        let is_declared = request.role == Role::Interpreter && runs_script(&by_file);
        let named = request.cwd.join(&request.named);
        if !is_declared && !runs_by_path(policy, &named, file) && !is_in_own_tmp(policy, file) {
            check_command_name(policy, &arguments)?;
            if !program::files(policy, &argv[0]).any(|(_, known)| known == *file) {
                return Err(not_of_name(policy, &argv[0], file));
            }
        }
        check_declared(policy, &arguments, &request.cwd, file)?;
        self.by_rules(request, argv, Scope::Line)
    }

    /// Judges the arguments of a program. Rules about repositories are about the owner's.
    fn by_rules(&self, request: &ExecRequest, argv: &[String], scope: Scope) -> Result<Finding> {
        let finding = judge(&self.policy, argv, &request.cwd, scope);
        let variables = self.changed_variables(request, "git");
        if is_about_own_repository(&self.policy, argv, request, &variables, &finding.rule) {
            return Ok(Finding::allowed());
        }
        finding.or_refused()
    }
}

/// True if an interpreter runs the script that names it: then the decision about the script holds for
/// it too. All programs that a shell or a wrapper starts are decided about.
pub(super) fn runs_script(argv: &[String]) -> bool {
    let arguments = Arguments::read(argv);
    is_shell(arguments.name()) || is_wrapper(arguments.name()) || arguments.script().is_some()
}

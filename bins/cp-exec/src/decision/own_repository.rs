//! Rules about repositories are about those of the owner, and not about those that this run or an earlier one made.

use std::path::{Path, PathBuf};

use crate::git_dir::addresses;
use crate::guard::top_of;
use crate::policy::{Access, Policy};
use crate::rules::Arguments;
use crate::sandbox::ExecRequest;
use crate::sandbox::plan::TMP;

/// How the rules about commands that write the configuration of the repository begin.
const WRITES_CONFIG: &str = "git.config";
/// The rule about pushes that overwrite nothing.
const PUSHES: &str = "git.push";
/// The rule about files of repositories.
const DESTROYS_REPOSITORY: &str = "destroy.place";
/// Variables that lead git to another repository than the one of the directory.
const MOVED: [&str; 3] = ["GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"];

/// True if a finding is about repositories that runs made, so that no history of the owner is at stake, or about a
/// push that reaches nobody else. What the run makes of the whole project is the owner's too, except for a
/// configuration, which is checked after the run.
pub(super) fn is_about_own_repository(
    policy: &Policy,
    argv: &[String],
    request: &ExecRequest,
    variables: &[(String, String)],
    rule: &str,
) -> bool {
    let arguments = Arguments::read(argv);
    let is_own = |place: &PathBuf| {
        let root = own_repository(policy, request, place);
        root.is_some_and(|root| rule.starts_with(WRITES_CONFIG) || !policy.base.starts_with(root))
    };
    if rule == DESTROYS_REPOSITORY {
        let words = arguments.words().iter().filter(|word| !word.starts_with('-'));
        let places: Vec<PathBuf> = words.map(|word| request.cwd.join(word)).collect();
        return !places.is_empty() && places.iter().all(is_own);
    }
    let is_push = arguments.is_command(&["push"]);
    if !rule.starts_with("git.") || is_moved(argv, variables, is_push) {
        return false;
    }
    let directory = arguments.directories().fold(request.cwd.clone(), |directory, next| directory.join(next));
    if !is_push {
        return is_own(&directory);
    }
    let remote = arguments.operands_of_command().first().map(|remote| remote.word);
    let reaches_no_other = |address: &String| match path_of(address, &directory) {
        Some(path) => is_repository(request, &path) && (rule == PUSHES || is_own(&path)),
        None => policy.exec().network.is_closed(),
    };
    (!rule.starts_with(WRITES_CONFIG) || is_own(&directory))
        && addresses_of(request, &directory, remote).is_some_and(|all| all.iter().all(reaches_no_other))
}

/// True if changed variables or options lead git to another repository, or a push to other addresses.
fn is_moved(argv: &[String], variables: &[(String, String)], is_push: bool) -> bool {
    let sets = |word: &String| word == "-c" || word.starts_with("--config-env");
    argv.iter().any(|word| word.starts_with("--git-dir") || is_push && sets(word))
        || variables.iter().any(|(name, _)| MOVED.contains(&name.as_str()))
}

/// The addresses to which a push leads.
fn addresses_of(request: &ExecRequest, directory: &Path, remote: Option<&str>) -> Option<Vec<String>> {
    let config = repository_at(request, directory)?.join("config");
    let known = addresses(&request.text_of(&config)?, remote)?;
    match remote {
        // A word that is not the name of a remote is an address.
        Some(remote) if known.is_empty() => Some(vec![remote.to_owned()]),
        _ => Some(known).filter(|known| !known.is_empty()),
    }
}

/// The path that the address of a remote names; `None` for one on the network: `scheme://…`, `host:path`, or
/// `helper::address`.
fn path_of(address: &str, directory: &Path) -> Option<PathBuf> {
    let is_remote = |address: &str| address.split('/').next().is_some_and(|first| first.contains(':'));
    let path = address.strip_prefix("file://").or_else(|| (!is_remote(address)).then_some(address));
    path.map(|path| directory.join(path))
}

/// The top directory of the repository at a place, if a run made it: its configuration is not read-only.
fn own_repository(policy: &Policy, request: &ExecRequest, place: &Path) -> Option<PathBuf> {
    let place = request.resolved(place).unwrap_or_else(|| place.to_owned());
    let Some(git) = repository_at(request, &place) else { return is_in_own_tmp(policy, &place).then_some(place) };
    let is_own = request.sees_read_only(&git.join("config")) == Some(false);
    is_own.then(|| top_of(&git).to_owned())
}

/// True if a path is a repository, or the top directory of one.
fn is_repository(request: &ExecRequest, path: &Path) -> bool {
    let path = request.resolved(path).unwrap_or_else(|| path.to_owned());
    repository_at(request, &path).is_some_and(|git| git == path || top_of(&git) == path)
}

/// The directory of the repository that git uses at a place, as the caller sees it.
fn repository_at(request: &ExecRequest, place: &Path) -> Option<PathBuf> {
    let is_there = |path: PathBuf| request.sees_read_only(&path).is_some();
    let is_repository = |path: &Path| ["HEAD", "objects", "refs"].iter().all(|part| is_there(path.join(part)));
    let place = request.resolved(place).unwrap_or_else(|| place.to_owned());
    let mut found = place.ancestors().filter_map(|above| {
        let git = above.join(".git");
        if let Some(text) = request.text_of(&git) {
            return Some(above.join(text.strip_prefix("gitdir:").unwrap_or_default().trim()));
        }
        // The place may lie in the directory of a repository, which may be incomplete.
        let is_in_it = above.ends_with(".git") && is_there(above.join("config"));
        if is_there(git.join("config")) || is_repository(&git) {
            return Some(git);
        }
        (is_in_it || is_repository(above)).then(|| above.to_owned())
    });
    let git = found.next()?;
    let common = request.text_of(&git.join("commondir")).map(|text| git.join(text.trim()));
    let common = common.unwrap_or(git);
    Some(request.resolved(&common).unwrap_or(common))
}

/// True if a file lies in the private `/tmp` of the run, which contains only files of the run or its session. The
/// kernel decides if the file is executable.
pub(super) fn is_in_own_tmp(policy: &Policy, file: &Path) -> bool {
    file.starts_with(TMP) && ![Access::Read, Access::Write].iter().any(|access| policy.bounds.lists(*access, file))
}

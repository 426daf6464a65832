//! Compares files with the index of their repository. Git reads the repository without any setting of it that names a
//! program.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions};
use cp_common::keys::hex;
use cp_common::{Code, Error};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::GIT;

/// The time limit of git, and the limit of its output.
const TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST: usize = 16 << 20;

/// Starts git with settings that start no program, and these variables in addition.
pub(crate) fn start<'w>(
    git: &Path,
    at: &Path,
    words: impl IntoIterator<Item = &'w str>,
    variables: impl IntoIterator<Item = (&'w str, OsString)>,
) -> Option<Child> {
    let settings = GIT.settings.iter().flat_map(|setting| ["-c", setting]);
    let fixed = GIT.environment.iter().map(|(name, value)| (name.as_str(), value.into()));
    let command = duct::cmd(git, settings.chain(words)).dir(at).full_env(fixed.chain(variables).collect::<Vec<_>>());
    let options = ChildOptions { after_input: Duration::ZERO, ..ChildOptions::DEFAULT };
    Child::start("git", &command.stderr_null(), options).ok()
}

/// Leaves out of hidden files those that a repository has unchanged, because whoever reads the repository reads them.
pub(crate) fn without_unchanged(git: &Path, mut hidden: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut by_top: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for path in &hidden {
        let top = path.ancestors().skip(1).find(|above| above.join(".git").symlink_metadata().is_ok());
        by_top.entry(top.unwrap_or(Path::new("")).to_owned()).or_default().push(path.clone());
    }
    for (top, paths) in by_top {
        let unchanged = unchanged(git, &top, &paths).unwrap_or_default();
        hidden.retain(|path| !unchanged.contains(path));
    }
    hidden
}

/// The files of a working tree whose content is that of the index.
fn unchanged(git: &Path, top: &Path, paths: &[PathBuf]) -> Option<BTreeSet<PathBuf>> {
    let link = super::read_small(&top.join(".git"));
    let directory = link.map_or_else(|| top.join(".git"), |text| top.join(text.trim().trim_start_matches("gitdir: ")));
    let names = paths.iter().map(|path| path.strip_prefix(top).ok()?.to_str()).collect::<Option<Vec<_>>>()?;
    let words = ["--literal-pathspecs", "ls-files", "-s", "-z", "--"].into_iter().chain(names);
    let variables = [("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")];
    let variables = variables.map(|(name, value)| (name, value.into())).into_iter();
    let git = start(git, &directory, words, variables.chain([("GIT_DIR", directory.clone().into())]))?;
    let listed = output_of(git)?;
    let is_unchanged = |entry: &[u8]| {
        let text = String::from_utf8_lossy(entry);
        let (known, name) = text.split_once('\t')?;
        let ["100644" | "100755", id, "0"] = known.split(' ').collect::<Vec<_>>()[..] else { return None };
        let path = top.join(name);
        (blob_id(&path, id.len())? == id).then_some(path)
    };
    Some(listed.split(|byte| *byte == 0).filter_map(is_unchanged).collect())
}

/// The id that a file would have as an object, with the hash of the repository.
fn blob_id(path: &Path, length: usize) -> Option<String> {
    let text = super::read_small(path)?;
    let object = format!("blob {}\0{text}", text.len());
    let id = if length == 40 { hex(&Sha1::digest(&object)) } else { hex(&Sha256::digest(&object)) };
    Some(id)
}

/// The output of git within the limits; `None` if git fails.
pub(crate) fn output_of(mut git: Child) -> Option<Vec<u8>> {
    let limit = |printed: &[u8]| {
        if printed.len() < LONGEST { Ok(()) } else { Err(Error::new(Code::Io, "git prints too much")) }
    };
    let ended = git.output(Some(Instant::now() + TIMEOUT), &mut { limit });
    ended.ok()?.filter(|(status, _)| status.success()).map(|(_, printed)| printed)
}

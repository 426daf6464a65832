//! Resolves the name of a command to the file that will be executed. The name is looked up in `exec.path` of the
//! policy, and the file is checked and hashed; a script is resolved together with its interpreter.
//!
//! [`HashCache`] keeps hashes of programs by device, inode, size, modification and change time. Hashes of large files
//! are also stored in the home, because reading a whole interpreter for each command takes longer than starting it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cp_common::home::{Home, resolved};
use cp_common::wire::quoted;
use cp_common::{Error, Result, clock};

use crate::digest::{hash_of, sha256};
use crate::file_id::FileId;
use crate::files::append_bounded;
use crate::policy::{Access, Policy, allowable, check_directory, normal, others_write};
use crate::refusal::refuse;
use crate::sandbox::plan::Identity;
use crate::sandbox::{HEAD, first_line};

/// The most scripts that may be interpreters of each other.
const DEPTH: u8 = 4;

/// A file that may be executed, with its identity at the time of the check.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    /// The file that the kernel executes: the program itself, or the interpreter of a script.
    pub exe: Identity,
    /// The script with its text, if the kernel executes an interpreter for it.
    pub script: Option<(Identity, Vec<u8>)>,
    /// The hash of the program or script.
    pub sha256: String,
    /// The path of the program or script.
    pub path: PathBuf,
    /// True if the hash was cached.
    pub cached: bool,
    /// Arguments before the command's own: those of the interpreter, and the script.
    pub prefix: Vec<String>,
}

/// Resolves a name without slashes to a file.
pub(crate) fn resolve(policy: &Policy, name: &str) -> Result<PathBuf> {
    let file = locate(policy, name)?;
    file.canonicalize().map_err(|e| Error::io("cannot be resolved", e).in_file(&file))
}

/// True for a file that may be executed.
pub(super) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The path of a name without slashes, before links are resolved.
pub(super) fn locate(policy: &Policy, name: &str) -> Result<PathBuf> {
    if let Some(pin) = policy.exec().pin.get(name) {
        return Ok(pin.clone());
    }
    let directories = &policy.exec().path;
    if let Some(directory) = directories.iter().find(|directory| is_program(&directory.join(name))) {
        return check_directory(directory, policy.loaded.owner).map(|()| directory.join(name));
    }
    let looked: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
    let error = Error::not_found(format!("program `{name}` not found")).with("rule", "not_found").with("path", looked);
    let is_outside = on_own_path(name).is_some();
    Err(if is_outside { startable(error, policy, name) } else { error.hint("install it, or give its path") })
}

/// Adds the line that runs or allows a program to a refusal. A name is never pinned to a file that commands can write,
/// such as a program of a virtual environment, so the line has the path that a shell outside finds.
pub(super) fn startable(error: Error, policy: &Policy, word: &str) -> Error {
    let is_known = word.contains('/') || files(policy, word).next().is_some();
    let is_written = |found: &PathBuf| policy.bounds.is_written(found) || policy.bounds.is_written(&resolved(found));
    let found = on_own_path(word).filter(|found| !is_known && is_written(found));
    let Some(found) = found else { return allowable(error, "program", word) };
    let shown = found.display().to_string();
    if runs_by_path(policy, &found, &resolved(&found)) {
        return error.hint(format!("it runs by its path: cp-exec -- {}", quoted(&shown)));
    }
    allowable(error, "program", &shown)
}

/// True if a program runs by its path, whatever its name: it lies in an execute path, or it is a link there to a
/// program that the policy runs, as `.venv/bin/python` is.
pub(super) fn runs_by_path(policy: &Policy, asked: &Path, file: &Path) -> bool {
    let exec = policy.exec();
    let is_of_path = || exec.path.iter().any(|place| place.canonicalize().ok().as_deref() == file.parent());
    let is_pinned = || exec.pin.values().any(|pin| pin.canonicalize().is_ok_and(|pin| pin == file));
    let is_listed = || {
        exec.allowed_commands.iter().any(|name| files(policy, name).next().is_some_and(|(_, listed)| listed == file))
    };
    let is_run = || exec.allows_all() && (is_of_path() || is_pinned()) || is_listed();
    policy.bounds.lists(Access::Execute, file) || policy.bounds.lists(Access::Execute, &normal(asked)) && is_run()
}

/// The files that a name may mean, each with its path before and after links are resolved.
pub(super) fn files(policy: &Policy, name: &str) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let on_path = policy.exec().path.iter().map(move |directory| directory.join(name));
    let paths = policy.exec().pin.get(name).cloned().into_iter().chain(on_path);
    paths.filter_map(|path| path.canonicalize().ok().map(|file| (path, file)))
}

/// The `argv[0]` of a program. For a pinned program it is the pinned path, because Python finds its virtual environment
/// by that path.
pub(super) fn argv0(policy: &Policy, name: &str) -> String {
    policy.exec().pin.get(name).map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// Checks a canonical file and pins it.
pub(crate) fn pin(policy: &Policy, path: &Path, hashes: &mut HashCache) -> Result<Pinned> {
    pin_at(policy, path, hashes, DEPTH)
}

fn pin_at(policy: &Policy, path: &Path, hashes: &mut HashCache, depth: u8) -> Result<Pinned> {
    let file = check(policy, path)?;
    let path = path.to_owned();
    let Some((text, words)) = script(&path)? else {
        let (sha256, cached) = hashes.of(&file, None)?;
        return Ok(Pinned { exe: file, script: None, sha256, path, cached, prefix: Vec::new() });
    };
    if depth == 0 {
        let message = format!("{}: interpreter chain too deep", path.display());
        return Err(refuse("interpreter_depth", message));
    }
    let name = &words[0];
    let program = if name.contains('/') {
        Path::new(name).canonicalize().map_err(|e| Error::io("the interpreter", e).in_file(Path::new(name)))?
    } else {
        resolve(policy, name)?
    };
    let Pinned { exe, mut prefix, .. } = pin_at(policy, &program, hashes, depth - 1)?;
    if prefix.is_empty() {
        prefix.push(argv0(policy, name));
    }
    prefix.extend_from_slice(&words[1..]);
    prefix.push(path.to_str().ok_or_else(|| Error::validation("the script's path is not UTF-8"))?.to_owned());
    Ok(Pinned { exe, sha256: sha256(&text), script: Some((file, text)), path, cached: false, prefix })
}

/// Refuses a file that gives rights, or that others or commands can write.
fn check(policy: &Policy, path: &Path) -> Result<Identity> {
    let meta = fs::metadata(path).map_err(|e| Error::io("cannot read the attributes", e).in_file(path))?;
    let shown = path.display();
    if !meta.is_file() {
        return Err(refuse("not_a_file", format!("{shown} is not a file")));
    }
    if meta.permissions().mode() & 0o6000 != 0 {
        return Err(refuse("setuid", format!("{shown} is set-user-id or set-group-id"))
            .hint("commands never gain rights; choose a program that needs none"));
    }
    let capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]);
    if capabilities.is_ok_and(|length| length > 0) {
        return Err(refuse("file_capabilities", format!("{shown} has file capabilities")));
    }
    if others_write(&meta) {
        return Err(refuse("writable_by_others", format!("other users can write {shown}")));
    }
    if policy.writable_only(path) {
        let hint = policy.setting_hint("paths.execute, where commands make their own programs");
        let message = format!("{shown} is in a directory that commands may write");
        return Err(refuse("writable_program", message).hint(hint));
    }
    Ok(Identity::of(path, &meta))
}

/// The file that a shell outside finds for the name of a program.
pub(crate) fn on_own_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The text of a script, and the words of its interpreter, as its first line names it; `None` for another file.
/// `env NAME` and `env -S NAME ARG…` stand for the program that `env` would run.
fn script(path: &Path) -> Result<Option<(Vec<u8>, Vec<String>)>> {
    let failed = |e| Error::io("cannot be read", e).in_file(path);
    let (mut text, file) = (Vec::with_capacity(HEAD), File::open(path).map_err(failed)?);
    (&file).take(HEAD as u64).read_to_end(&mut text).map_err(failed)?;
    let mut head = [0; HEAD];
    head[..text.len()].copy_from_slice(&text);
    let Some((interpreter, word)) = first_line(&head) else { return Ok(None) };
    (&file).read_to_end(&mut text).map_err(failed)?;
    let (Ok(interpreter), Ok(word)) =
        (interpreter.into_os_string().into_string(), word.map(OsString::into_string).transpose())
    else {
        return Err(refuse("interpreter", "the script's first line is not UTF-8"));
    };
    if Path::new(&interpreter).file_name().is_none_or(|name| name != "env") {
        return Ok(Some((text, [interpreter].into_iter().chain(word).collect())));
    }
    let word = word.unwrap_or_default();
    let words: Vec<String> = match word.strip_prefix("-S") {
        Some(words) => words.split_whitespace().map(str::to_owned).collect(),
        None => vec![word.clone()],
    };
    match words.first() {
        Some(name) if !name.is_empty() && !name.starts_with('-') && !name.contains(['=', ' ']) => {
            Ok(Some((text, words)))
        }
        _ => Err(refuse("interpreter", format!("{}: `env {word}` does not name a program", path.display()))),
    }
}

/// Hashes of files of at least this size are stored in the home.
const LARGE: u64 = 1 << 20;
/// A cache file that reaches this size is truncated.
const FULL: u64 = 256 << 10;

/// Hashes of files by their identity.
#[derive(Clone, Default)]
pub(crate) struct HashCache {
    known: HashMap<FileId, String>,
    /// The cache file for large files; `None` if nothing is stored.
    kept: Option<PathBuf>,
}

impl HashCache {
    /// The cache of a home. Its file is not read if other users could have written it.
    pub(crate) fn of_home(home: &Home) -> Self {
        let (file, me) = (home.state("program-hashes"), rustix::process::geteuid().as_raw());
        let is_trusted = fs::metadata(&file).is_ok_and(|meta| meta.uid() == me && !others_write(&meta));
        let text = if is_trusted { fs::read_to_string(&file).unwrap_or_default() } else { String::new() };
        Self { known: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(), kept: Some(file) }
    }

    /// The hash of a file, which may be open for reading, and whether the hash was cached.
    pub(crate) fn of(&mut self, identity: &Identity, opened: Option<&File>) -> Result<(String, bool)> {
        let key = identity.content;
        if let Some(known) = key.and_then(|key| self.known.get(&key)) {
            return Ok((known.clone(), true));
        }
        let hash = opened
            .map_or_else(|| File::open(&identity.path), File::try_clone)
            .and_then(hash_of)
            .map(|hash| hash.to_string())
            .map_err(|e| Error::io("cannot be read", e).in_file(&identity.path))?;
        if let Some(key) = key {
            self.known.insert(key, hash.clone());
            let now = i64::try_from(clock::unix_seconds()).unwrap_or(0).saturating_mul(1_000_000_000);
            if let Some(file) = self.kept.as_ref().filter(|_| key.size >= LARGE && key.is_settled(now)) {
                // It can be computed again.
                drop(append_bounded(file, FULL, &format!("{}\n", serde_json::json!((key, &hash)))));
            }
        }
        Ok((hash, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &Path) -> Identity {
        Identity::of(path, &fs::metadata(path).unwrap())
    }

    #[test]
    fn large_file_hash_is_cached_until_file_changes() {
        let home = tempfile::tempdir().unwrap();
        let own = Home::find(Some(home.path())).unwrap();
        let large = home.path().join("large");
        fs::write(&large, vec![7; 2 << 20]).unwrap();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_mins(1);
        File::options().write(true).open(&large).unwrap().set_modified(long_ago).unwrap();
        let mut old = identity(&large);
        // The change time cannot be set, so the test replaces it in the identity.
        let id = old.content.as_mut().unwrap();
        id.ctime = id.mtime;
        let (hash, known) = HashCache::of_home(&own).of(&old, None).unwrap();
        assert!(!known);
        assert_eq!(HashCache::of_home(&own).of(&old, None).unwrap(), (hash.clone(), true));
        fs::write(&large, vec![8; 2 << 20]).unwrap();
        let (other, known) = HashCache::of_home(&own).of(&identity(&large), None).unwrap();
        assert!(!known && other != hash);
        // The file changed just now, so its hash is not stored.
        assert!(!HashCache::of_home(&own).of(&identity(&large), None).unwrap().1);
    }
}

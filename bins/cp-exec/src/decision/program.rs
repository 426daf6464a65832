//! Resolves the name of a command to the file that will be executed. The name is looked up in `exec.path` of the
//! policy, and the file is checked and hashed; a script is resolved together with its interpreter.
//!
//! [`HashCache`] keeps hashes of programs by device, inode, size, modification and change time. Hashes of large files
//! are also stored in the home, because reading a whole interpreter for each command takes longer than starting it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cp_common::home::Home;
use cp_common::{Error, Result, clock};

use crate::digest::sha256_of;
use crate::policy::{Policy, allowable, check_directory, others_write};
use crate::refusal::{owner_hint, refuse};
use crate::sandbox::plan::Identity;
use crate::sandbox::{HEAD, first_line};

/// The most scripts that may be interpreters of each other.
const DEPTH: u8 = 4;

/// A file that may be executed, with its identity at the time of the check.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    /// The file that the kernel executes: the program itself, or the interpreter of a script.
    pub exe: Identity,
    /// The script, if the kernel executes an interpreter for it.
    pub script: Option<Identity>,
    /// The hash of the program or script.
    pub sha256: String,
    /// The path of the program or script.
    pub path: PathBuf,
    /// True if the hash was cached.
    pub cached: bool,
    /// Arguments before the command's own: those of the interpreter, and the script.
    pub prefix: Vec<String>,
}

/// The directories in which names are looked up, and the user whose files are trusted.
pub(crate) struct ProgramLookup<'a> {
    pub path: &'a [PathBuf],
    /// Names that are pinned to one file.
    pub pins: &'a [(String, PathBuf)],
    pub owner: u32,
}

impl<'a> ProgramLookup<'a> {
    /// The lookup that a policy defines.
    pub(crate) fn of(policy: &'a Policy) -> Self {
        Self { path: &policy.exec().path, pins: &policy.pins, owner: policy.loaded.owner }
    }
}

impl ProgramLookup<'_> {
    /// Resolves a name without slashes to a file.
    pub(crate) fn resolve(&self, name: &str) -> Result<PathBuf> {
        if let Some((_, path)) = self.pins.iter().find(|(pinned, _)| pinned == name) {
            return path.canonicalize().map_err(|e| Error::io("the pinned file", e).in_file(path));
        }
        for directory in self.path {
            let candidate = directory.join(name);
            let Ok(meta) = fs::metadata(&candidate) else { continue };
            if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
                continue;
            }
            check_directory(directory, self.owner)?;
            return candidate.canonicalize().map_err(|e| Error::io("cannot be resolved", e).in_file(&candidate));
        }
        let looked: Vec<String> = self.path.iter().map(|path| path.display().to_string()).collect();
        let error = Error::not_found(format!("program `{name}` not found on the policy's path"))
            .with("rule", "not_found")
            .with("path", looked);
        Err(if on_own_path(name) { allowable(error, "program", name) } else { error })
    }

    /// The files of some names, each with its path before and after links are resolved. Names that are not found are
    /// omitted.
    pub(super) fn listed(&self, names: &[String]) -> Vec<(PathBuf, PathBuf)> {
        let found = |name: &String| {
            let pins = self.pins.iter().filter(|(pinned, _)| pinned == name).map(|(_, path)| path.clone());
            let mut candidates = pins.chain(self.path.iter().map(|directory| directory.join(name)));
            candidates.find_map(|path| path.canonicalize().ok().map(|file| (path, file)))
        };
        names.iter().filter_map(found).collect()
    }

    /// The `argv[0]` of a program. For a pinned program it is the pinned path, because Python finds its virtual
    /// environment by that path.
    pub(super) fn argv0(&self, name: &str) -> String {
        let pin = self.pins.iter().find(|(pinned, _)| pinned == name);
        pin.map_or_else(|| name.to_owned(), |(_, path)| path.display().to_string())
    }

    /// Checks a canonical file and pins it. `writable` is true for a path that a command can write and that lies
    /// outside of every execute path.
    pub(crate) fn pin(&self, path: &Path, hashes: &mut HashCache, writable: &dyn Fn(&Path) -> bool) -> Result<Pinned> {
        self.pin_at(path, hashes, writable, DEPTH)
    }

    fn pin_at(
        &self,
        path: &Path,
        hashes: &mut HashCache,
        writable: &dyn Fn(&Path) -> bool,
        depth: u8,
    ) -> Result<Pinned> {
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
        if writable(path) {
            return Err(refuse("writable_program", format!("{shown} is in a directory that commands may write"))
                .hint(owner_hint("paths.execute, where commands make their own programs")));
        }
        let identity = Identity::of(path, &meta);
        let (sha256, cached) = hashes.of(&identity)?;
        let interpreter = hashes.interpreter(&identity, shebang)?;
        let pinned = Pinned { exe: identity, script: None, sha256, path: path.to_owned(), cached, prefix: Vec::new() };
        match interpreter {
            None => Ok(pinned),
            Some(_) if depth == 0 => Err(refuse("interpreter_depth", format!("{shown}: interpreter chain too deep"))),
            Some((interpreter, argument)) => {
                self.with_interpreter(pinned, &interpreter, argument, hashes, writable, depth)
            }
        }
    }

    /// Combines a script with the interpreter that its first line names.
    fn with_interpreter(
        &self,
        script: Pinned,
        interpreter: &str,
        argument: Option<String>,
        hashes: &mut HashCache,
        writable: &dyn Fn(&Path) -> bool,
        depth: u8,
    ) -> Result<Pinned> {
        let (name, arguments) = resolve_env(interpreter, argument, &script.path)?;
        let path = if name.contains('/') {
            Path::new(&name).canonicalize().map_err(|e| Error::io("the interpreter", e).in_file(Path::new(&name)))?
        } else {
            self.resolve(&name)?
        };
        let interpreter = self.pin_at(&path, hashes, writable, depth - 1)?;
        let script_path = script.path.to_str().ok_or_else(|| Error::validation("the script's path is not UTF-8"))?;
        let mut prefix = interpreter.prefix;
        if prefix.is_empty() {
            prefix.push(self.argv0(&name));
        }
        prefix.extend(arguments);
        prefix.push(script_path.to_owned());
        Ok(Pinned { exe: interpreter.exe, script: Some(script.exe.clone()), prefix, ..script })
    }
}

/// True if a shell outside finds a program.
pub(crate) fn on_own_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    !name.is_empty() && std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// The interpreter and its one argument from the first line of a script; `None` if the file is not a script.
fn shebang(path: &Path) -> Result<Interpreter> {
    let mut head = Vec::new();
    let failed = |e| Error::io("cannot be read", e).in_file(path);
    File::open(path).map_err(failed)?.take(HEAD as u64).read_to_end(&mut head).map_err(failed)?;
    head.resize(HEAD, 0);
    let Some((interpreter, word)) = head.first_chunk().and_then(first_line) else { return Ok(None) };
    match (interpreter.into_os_string().into_string(), word.map(OsString::into_string).transpose()) {
        (Ok(interpreter), Ok(word)) => Ok(Some((interpreter, word))),
        _ => Err(refuse("interpreter", "the script's first line is not UTF-8")),
    }
}

/// Resolves `env NAME` and `env -S NAME ARG…` to the program that `env` would run.
fn resolve_env(interpreter: &str, argument: Option<String>, script: &Path) -> Result<(String, Vec<String>)> {
    let is_env = Path::new(interpreter).file_name().is_some_and(|name| name == "env");
    if !is_env {
        return Ok((interpreter.to_owned(), argument.into_iter().collect()));
    }
    let argument = argument.unwrap_or_default();
    let split = argument.strip_prefix("-S").map(str::trim);
    let mut words: Vec<String> = match split {
        Some(words) => words.split_whitespace().map(str::to_owned).collect(),
        None => vec![argument.clone()],
    };
    if words.is_empty() || words[0].is_empty() || words[0].starts_with('-') || words[0].contains(['=', ' ']) {
        return Err(refuse("interpreter", format!("{}: `env {argument}` does not name a program", script.display())));
    }
    let name = words.remove(0);
    Ok((name, words))
}

/// Hashes of files of at least this size are stored in the home.
const LARGE: u64 = 1 << 20;
/// A cache file that reaches this size is truncated.
const FULL: u64 = 256 << 10;
/// A file that changed within this time, in nanoseconds, could change again without a new time stamp.
const SETTLED: i64 = 2_000_000_000;

/// Hashes of files by their identity.
#[derive(Clone, Default)]
pub(crate) struct HashCache {
    known: HashMap<Key, String>,
    /// The interpreters that the first lines of scripts name.
    interpreters: HashMap<Key, Interpreter>,
    /// The cache file for large files; `None` if nothing is stored.
    kept: Option<PathBuf>,
    loaded: bool,
}

/// The interpreter that the first line of a script names, with its one argument; `None` for a program.
pub(crate) type Interpreter = Option<(String, Option<String>)>;

/// Device, inode, size, modification and change time.
type Key = (u64, u64, u64, i64, i64);

fn key(identity: &Identity) -> Option<Key> {
    identity.content.map(|(size, modified, changed)| (identity.dev, identity.ino, size, modified, changed))
}

impl HashCache {
    /// The cache of a home.
    pub(crate) fn of_home(home: &Home) -> Self {
        Self { kept: Some(home.state("program-hashes")), ..Self::default() }
    }

    /// The hash of a file, and whether the hash was cached.
    pub(crate) fn of(&mut self, identity: &Identity) -> Result<(String, bool)> {
        self.of_file(identity, || File::open(&identity.path))
    }

    /// The hash of a file that is open for reading.
    pub(crate) fn of_opened(&mut self, identity: &Identity, opened: &File) -> Result<String> {
        self.of_file(identity, || opened.try_clone()).map(|(hash, _)| hash)
    }

    fn of_file(&mut self, identity: &Identity, open: impl FnOnce() -> std::io::Result<File>) -> Result<(String, bool)> {
        let key = key(identity);
        let large = key.is_some_and(|(_, _, size, ..)| size >= LARGE);
        if large && !self.loaded {
            self.load();
        }
        if let Some(known) = key.and_then(|key| self.known.get(&key)) {
            return Ok((known.clone(), true));
        }
        let failed = |e| Error::io("cannot be read", e).in_file(&identity.path);
        let text = open().and_then(sha256_of).map_err(failed)?;
        if let Some(key) = key {
            self.known.insert(key, text.clone());
            if large {
                self.keep(key, &text);
            }
        }
        Ok((text, false))
    }

    /// The interpreter of a file. `read` determines it if it is not cached.
    pub(crate) fn interpreter(
        &mut self,
        identity: &Identity,
        read: impl FnOnce(&Path) -> Result<Interpreter>,
    ) -> Result<Interpreter> {
        let key = key(identity);
        if let Some(known) = key.and_then(|key| self.interpreters.get(&key)) {
            return Ok(known.clone());
        }
        let found = read(&identity.path)?;
        if let Some(key) = key {
            self.interpreters.insert(key, found.clone());
        }
        Ok(found)
    }

    /// Reads the cache file, unless other users could have written it.
    fn load(&mut self) {
        self.loaded = true;
        let Some(file) = &self.kept else { return };
        let me = rustix::process::geteuid().as_raw();
        let trusted = fs::metadata(file).is_ok_and(|meta| meta.uid() == me && !others_write(&meta));
        let text = if trusted { fs::read_to_string(file).unwrap_or_default() } else { String::new() };
        for line in text.lines() {
            let mut words = line.split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
            let (Some(dev), Some(ino), Some(size), Some(modified), Some(changed)) =
                (number(), number(), number(), number(), number())
            else {
                continue;
            };
            let Some(hash) = words.next().filter(|hash| hash.len() == 71 && hash.starts_with("sha256:")) else {
                continue;
            };
            let key = (dev.cast_unsigned(), ino.cast_unsigned(), size.cast_unsigned(), modified, changed);
            self.known.insert(key, hash.to_owned());
        }
    }

    /// Appends a hash to the cache file. Errors are ignored, because the hash can be computed again.
    fn keep(&self, key: Key, hash: &str) {
        let (dev, ino, size, modified, changed) = key;
        let now = i64::try_from(clock::unix_seconds()).unwrap_or(0).saturating_mul(1_000_000_000);
        let Some(file) = self.kept.as_ref().filter(|_| changed.max(modified) < now.saturating_sub(SETTLED)) else {
            return;
        };
        let mut line = String::new();
        let (dev, ino, size) = (dev.cast_signed(), ino.cast_signed(), size.cast_signed());
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{dev} {ino} {size} {modified} {changed} {hash}");
        let full = fs::metadata(file).is_ok_and(|meta| meta.len() > FULL);
        if let Some(directory) = file.parent()
            && cp_common::home::make_directory(directory).is_ok()
            && let Ok(mut file) =
                OpenOptions::new().append(!full).write(true).truncate(full).create(true).mode(0o600).open(file)
        {
            drop(file.write_all(line.as_bytes()));
        }
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
        let (size, modified, _) = old.content.unwrap();
        old.content = Some((size, modified, modified));
        let (hash, known) = HashCache::of_home(&own).of(&old).unwrap();
        assert!(!known);
        assert_eq!(HashCache::of_home(&own).of(&old).unwrap(), (hash.clone(), true));
        fs::write(&large, vec![8; 2 << 20]).unwrap();
        let (other, known) = HashCache::of_home(&own).of(&identity(&large)).unwrap();
        assert!(!known && other != hash);
        // The file changed just now, so its hash is not stored.
        assert!(!HashCache::of_home(&own).of(&identity(&large)).unwrap().1);
    }
}

//! The files of a release: fetched, unpacked beside what is installed, compared with their list, tried.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, Grace, on_path};
use cp_common::keys::hex;
use cp_common::{Code, Error, Result, signals};
use sha2::{Digest as _, Sha256};

use super::release::{Release, broken, sums};
use super::source::Source;

/// The largest archive, in bytes.
const LARGEST: u64 = 256 << 20;
/// How long the new program may take to say its version.
const TRIAL: Duration = Duration::from_secs(30);

/// Fetches the archive of a release: its file, and the hash that it has.
pub(super) fn fetch(source: &Source, release: &Release, into: &Path) -> Result<(PathBuf, String)> {
    let name = &release.verified.archive;
    let path = into.join("archive");
    let file = File::create_new(&path).map_err(|e| Error::io("creating", e).in_file(&path))?;
    let mut file = Hashed { into: file, hash: Sha256::new() };
    if !source.copy(&format!("v{}/{name}", release.version), LARGEST, &mut file)? {
        return Err(broken(format!("the release {} lists {name}, and does not have it", release.version)));
    }
    Ok((path, hex(&file.hash.finalize())))
}

/// The hash of what was written.
struct Hashed<W> {
    into: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = self.into.write(bytes)?;
        self.hash.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.into.flush()
    }
}

/// Unpacks an archive whose members all lie in one folder, and gives that.
pub(super) fn unpack(archive: &Path, version: &str, into: &Path) -> Result<PathBuf> {
    let tar = |words: &[&str]| {
        let program = on_path("tar").ok_or_else(|| Error::config("tar is missing").hint("install tar and gzip"))?;
        let mut command = Command::new(program);
        command.args(words).arg(archive).arg("-C").arg(into);
        // Options of the caller's environment are not for this.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
        run(&mut command, Duration::MAX)?.printed("tar", Code::Io)
    };
    let top = format!("cp-tools-{version}");
    let listed = tar(&["-tzf"])?;
    let is_inside = |member: &str| {
        member.split('/').next() == Some(&top) && !member.split('/').any(|part| matches!(part, ".." | "."))
    };
    if let Some(member) = listed.lines().find(|member| !is_inside(member)) {
        return Err(broken(format!("the archive has a member that does not lie in {top}: {member}")));
    }
    tar(&["--no-same-owner", "--no-same-permissions", "-xzf"])?;
    Ok(into.join(top))
}

/// Compares a tree with the list in it: every file is there as it is listed, none is there that is not, and nothing is a link.
pub(super) fn check(tree: &Path) -> Result<()> {
    let list = std::fs::read_to_string(tree.join("SHA256SUMS"));
    let mut listed = sums(&list.map_err(|e| broken(format!("the tree has no readable SHA256SUMS: {e}")))?)?;
    for (name, path) in files(tree)? {
        signals::check()?;
        // Neither the list nor what installs the tree by hand can be in it.
        match listed.remove(&name) {
            None if matches!(name.as_str(), "SHA256SUMS" | "install") => {}
            None => return Err(broken(format!("{name} is in the release, and not in its list"))),
            Some(sum) => {
                let mut hashed = Hashed { into: std::io::sink(), hash: Sha256::new() };
                let read = File::open(&path).and_then(|mut file| std::io::copy(&mut file, &mut hashed));
                read.map_err(|e| Error::io("reading", e).in_file(&path))?;
                if hex(&hashed.hash.finalize()) != sum {
                    return Err(broken(format!("{name} is not the file that the release lists")));
                }
            }
        }
    }
    listed.keys().next().map_or(Ok(()), |name| Err(broken(format!("{name} is missing from the release"))))
}

/// The files below a directory, by their names in it. What is neither a file nor a directory is refused.
pub(super) fn files(tree: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).map_err(|e| Error::io("reading", e).in_file(&directory))? {
            let path = entry?.path();
            let kind = path.symlink_metadata()?.file_type();
            let name = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().into_owned();
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                found.insert(name, path);
            } else {
                return Err(broken(format!("{name} is neither a file nor a directory")));
            }
        }
    }
    Ok(found)
}

/// Tries whether the programs of a tree run here, and are of this version.
pub(super) fn try_out(tree: &Path, version: &str) -> Result<()> {
    let mut command = Command::new(tree.join("bin/cp-shell"));
    let said = run(command.arg("--version"), TRIAL).and_then(|ran| ran.printed("cp-shell --version", Code::Config));
    let said = said.map_err(|e| match e.code() {
        Code::Interrupted => e,
        _ => Error::config(format!("the programs of {version} do not run here: {}", e.message()))
            .hint("build them from source, with scripts/install"),
    })?;
    let is_it = said.trim() == format!("cp-shell {version}");
    if is_it { Ok(()) } else { Err(broken(format!("the programs of {version} say that they are {}", said.trim()))) }
}

/// How a command ended.
pub(super) struct Ran {
    is_success: bool,
    printed: Vec<u8>,
    said: String,
}

impl Ran {
    /// What it printed, where it ended with 0.
    pub(super) fn printed(self, name: &str, code: Code) -> Result<String> {
        if self.is_success {
            return Ok(String::from_utf8_lossy(&self.printed).into_owned());
        }
        Err(Error::new(code, format!("{name} failed: {}", self.said)))
    }
}

/// Runs a command until it ends, a signal comes, or the time is over.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Ran> {
    let (started, mut printed) = (Instant::now(), Vec::new());
    let mut child = Child::start(command.stderr(Stdio::piped()), Grace::default())?;
    child.close_input();
    let mut is_open = true;
    while is_open || child.is_running() {
        signals::check()?;
        if started.elapsed() > limit {
            return Err(Error::new(Code::Timeout, format!("{} takes too long", child.name())));
        }
        if is_open {
            is_open = child.read_some(&mut printed, Duration::from_millis(50))? != Some(0);
        } else {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(Ran { is_success: child.wait()?.success(), printed, said: child.error_text() })
}

//! The files of a release: downloaded, unpacked beside the installed version, and tested; and the skill for agents, which is updated with the
//! programs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, Grace, on_path};
use cp_common::keys::hex;
use cp_common::output::Progress;
use cp_common::wire::quoted;
use cp_common::{Code, Error, Result, signals};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest as _, Sha256};

use super::release::{Release, Source, broken};

/// The largest archive, in bytes.
const LARGEST: u64 = 256 << 20;
/// The time limit for the version check of the new program.
const TRIAL: Duration = Duration::from_secs(30);

/// Downloads the archive of a release, and returns its file and hash.
pub(super) fn fetch(source: &Source, release: &Release, into: &Path, progress: Progress) -> Result<(PathBuf, String)> {
    let name = &release.verified.archive;
    let path = into.join("archive");
    let file = File::create_new(&path).map_err(|e| Error::io("creating", e).in_file(&path))?;
    let mut file = Hashed { into: file, hash: Sha256::new(), length: 0, name, progress };
    if !source.copy(&format!("v{}/{name}", release.version), LARGEST, &mut file)? {
        return Err(broken(format!("the release {} lists {name}, and does not have it", release.version)));
    }
    Ok((path, hex(&file.hash.finalize())))
}

/// A writer that hashes the written bytes, and reports their number.
struct Hashed<'a> {
    into: File,
    hash: Sha256,
    length: usize,
    name: &'a str,
    progress: Progress,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = self.into.write(bytes)?;
        self.hash.update(&bytes[..length]);
        self.length += length;
        self.progress.report(|| format!("{}: {} MB", self.name, self.length >> 20));
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.into.flush()
    }
}

/// Unpacks an archive whose members are all in one directory, and returns this directory.
pub(super) fn unpack(archive: &Path, version: &str, into: &Path) -> Result<PathBuf> {
    let tar = |words: &[&str]| {
        let program = on_path("tar").ok_or_else(|| Error::config("tar is missing").hint("install tar and gzip"))?;
        let mut command = Command::new(program);
        command.args(words).arg(archive).arg("-C").arg(into);
        // The environment could contain options for tar.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
        run(&mut command, Duration::MAX, "tar", |_| Code::Io)
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

/// The files below a directory by their relative names. Other kinds of entries are refused.
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

/// Tests that the programs of a tree run on this machine, and report this version.
pub(super) fn try_out(tree: &Path, version: &str) -> Result<()> {
    let mut command = Command::new(tree.join("bin/cp-shell"));
    let reported = run(command.arg("--version"), TRIAL, "cp-shell --version", |_| Code::Config);
    let reported = reported.map_err(|e| match e.code() {
        Code::Interrupted => e,
        _ => Error::config(format!("the programs of {version} do not run here: {}", e.message()))
            .hint("build them from source, with scripts/install"),
    })?;
    let is_it = reported.trim() == format!("cp-shell {version}");
    if is_it { Ok(()) } else { Err(broken(format!("the programs of {version} say that they are {}", reported.trim()))) }
}

/// Runs a command until it exits, a signal arrives, or the time limit is reached, and returns its output. `code` maps the exit status of a
/// command that fails.
pub(super) fn run(command: &mut Command, limit: Duration, name: &str, code: impl Fn(i32) -> Code) -> Result<String> {
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
    let status = child.wait()?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&printed).into_owned());
    }
    Err(Error::new(code(status.code().unwrap_or_default()), format!("{name} failed: {}", child.error_text())))
}

/// The directories of skills, below the user's home.
const PLACES: [&str; 2] = [".claude/skills/cp-tools", ".agents/skills/cp-tools"];

/// The skill of a release, and the directories in which it is installed.
pub(super) struct Skill {
    source: PathBuf,
    places: Vec<PathBuf>,
}

impl Skill {
    /// The skill at `source`, and its installed copies. A link to the releases needs no update.
    pub(super) fn of(source: PathBuf, is_release: impl Fn(&Path) -> bool) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let found = PLACES.iter().filter_map(|place| home.join(place).canonicalize().ok());
        let mut places: Vec<PathBuf> = found.filter(|place| is_ours(place) && !is_release(place)).collect();
        places.dedup();
        Self { source, places }
    }

    /// A command that does the same as [`Self::sync`]; `None` if the programs were installed without the skill.
    pub(super) fn command(&self) -> Option<String> {
        let word = |path: &Path| quoted(&path.display().to_string());
        let copy = |place: &PathBuf| format!("cp -RT {} {}", word(&self.source), word(place));
        let copies: Vec<String> = self.places.iter().map(copy).collect();
        self.source.is_dir().then(|| copies.join(" && "))
    }

    /// Replaces each outdated copy of the skill: `synced`, `current`, or `not_installed`.
    pub(super) fn sync(&self) -> Result<&'static str> {
        let texts = |directory: &Path| -> Result<Vec<(String, Vec<u8>)>> {
            files(directory)?.into_iter().map(|(name, path)| Ok((name, std::fs::read(path)?))).collect()
        };
        if self.places.is_empty() {
            return Ok("not_installed");
        }
        let new = texts(&self.source)?;
        let mut status = "current";
        for place in &self.places {
            if texts(place).is_ok_and(|old| old == new) {
                continue;
            }
            let replace = || -> std::io::Result<()> {
                let stage = place.with_file_name(".cp-tools-new");
                // A killed update may have left this directory.
                let _ = std::fs::remove_dir_all(&stage);
                for (name, bytes) in &new {
                    let file = stage.join(name);
                    std::fs::create_dir_all(file.parent().unwrap_or(&stage))?;
                    std::fs::write(file, bytes)?;
                }
                renameat_with(CWD, &stage, CWD, place, RenameFlags::EXCHANGE)?;
                std::fs::remove_dir_all(stage)
            };
            replace().map_err(|e| Error::io("replacing the skill", e).in_file(place))?;
            status = "synced";
        }
        Ok(status)
    }
}

/// True if the skill in a directory belongs to these programs.
fn is_ours(place: &Path) -> bool {
    let file = place.join("SKILL.md");
    file.is_file() && std::fs::read_to_string(file).is_ok_and(|text| text.starts_with("---\nname: cp-tools\n"))
}

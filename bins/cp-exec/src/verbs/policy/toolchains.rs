//! Where programs lie on this machine: on the path of the system, or where installers of toolchains put them below a home directory. It
//! only looks, and runs nothing.

use std::path::{Path, PathBuf};

/// The directories of a starter's `exec.path`.
pub(super) const SYSTEM: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Where an installer puts programs: their directory, absolute or below the home, in which a `*` is a version; what they need to read
/// beside themselves, the directory above theirs if this is empty, and execute; variables that name it.
type Installed =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const INSTALLED: [Installed; 11] = [
    (".cargo/bin", &["~/.cargo/**", "~/.rustup/**"], &["~/.cargo/bin/**", "~/.rustup/toolchains/**"],
        &[("CARGO_HOME", "~/.cargo"), ("RUSTUP_HOME", "~/.rustup")]),
    ("/usr/local/go/bin", &[], &[], &[]),
    ("go/bin", &[], &[], &[]),
    (".local/node/bin", &[], &[], &[]),
    (".nvm/versions/node/*/bin", &[], &[], &[]),
    (".volta/tools/image/node/*/bin", &[], &[], &[]),
    (".local/share/fnm/node-versions/*/installation/bin", &[], &[], &[]),
    (".pyenv/versions/*/bin", &[], &[], &[]),
    (".local/share/uv/python/*/bin", &[], &[], &[]),
    (".local/share/mise/installs/*/*/bin", &[], &[], &[]),
    ("/opt/hostedtoolcache/*/*/*/bin", &[], &[], &[]),
];

/// A program of this machine, and what a policy has to say for it to work. One on the path of the system needs nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// Its file, where its name does not lead to it.
    pub(super) pin: Option<String>,
    pub(super) read: Vec<String>,
    pub(super) execute: Vec<String>,
    pub(super) set: Vec<(&'static str, &'static str)>,
}

/// The program of a name: that of the system, else the one that is first on PATH, else the newest.
pub(super) fn find(name: &str, home: &Path) -> Option<Program> {
    if SYSTEM.iter().any(|directory| Path::new(directory).join(name).is_file()) {
        return Some(Program::default());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let place = |directory: &PathBuf| on_path.iter().position(|entry| entry == directory);
    let directories = INSTALLED.iter().flat_map(|(programs, ..)| present(home, programs));
    let mut found: Vec<PathBuf> = directories.filter(|directory| directory.join(name).is_file()).collect();
    found.sort_by_key(|directory| (place(directory).unwrap_or(usize::MAX), std::cmp::Reverse(version(directory))));
    let directory = found.first()?;
    let pin = of_home(&directory.join(name), home)?;
    Some(Program { pin: Some(pin), ..installed_in(directory, home)? })
}

/// What a program needs that lies in this directory, if that is one of the system or of an installer.
pub(super) fn installed_in(directory: &Path, home: &Path) -> Option<Program> {
    if SYSTEM.iter().any(|system| Path::new(system) == directory) {
        return Some(Program::default());
    }
    let is_there = |place: PathBuf| place == directory || place.canonicalize().is_ok_and(|place| place == directory);
    let (_, reads, executes, set) =
        INSTALLED.iter().find(|(programs, ..)| present(home, programs).into_iter().any(is_there))?;
    if !reads.is_empty() {
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        return Some(Program { read: owned(reads), execute: owned(executes), set: set.to_vec(), pin: None });
    }
    let whole = format!("{}/**", of_home(directory.parent()?, home)?);
    Some(Program { read: vec![whole.clone()], execute: vec![whole], ..Program::default() })
}

/// A path as a policy has it, with `~` for the home; none where it holds what would not be plain there.
pub(super) fn of_home(path: &Path, home: &Path) -> Option<String> {
    let text = match path.strip_prefix(home) {
        Ok(below) => format!("~/{}", below.to_str()?),
        Err(_) => path.to_str()?.to_owned(),
    };
    let is_plain = |c: char| c.is_alphanumeric() || "/~._+-@ ".contains(c);
    text.chars().all(is_plain).then_some(text)
}

/// The directories that a pattern names below a home.
fn present(home: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { home.to_owned() }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match part {
            "*" => {
                found.iter().filter_map(|above| above.read_dir().ok()).flatten().flatten().map(|e| e.path()).collect()
            }
            name => found.iter().map(|above| above.join(name)).collect(),
        };
    }
    found.retain(|directory| directory.is_dir());
    found
}

/// The numbers in a path, which order versions.
fn version(path: &Path) -> Vec<u64> {
    let text = path.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_several_versions_is_found_with_its_own_files() {
        let home = tempfile::tempdir().unwrap();
        for version in ["v9.1.0", "v20.2.0", "v18.0.0"] {
            let bin = home.path().join(".nvm/versions/node").join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("no-such-program"), "").unwrap();
        }
        let program = find("no-such-program", home.path()).unwrap();
        assert_eq!(program.pin.unwrap(), "~/.nvm/versions/node/v20.2.0/bin/no-such-program");
        assert_eq!(program.read, ["~/.nvm/versions/node/v20.2.0/**"]);
        assert!(find("no-such-program-either", home.path()).is_none());
    }

    #[test]
    fn what_no_installer_put_there_is_nobodys() {
        let home = tempfile::tempdir().unwrap();
        let below = |path: &str| {
            std::fs::create_dir_all(home.path().join(path)).unwrap();
            installed_in(&home.path().join(path), home.path())
        };
        assert!(installed_in(Path::new("/usr/bin"), home.path()).is_some());
        assert!(below(".pyenv/versions/3.12.1/bin").is_some());
        for other in [".ssh", "", ".pyenv/versions/a/b/bin", "bin"] {
            assert!(below(other).is_none(), "{other}");
        }
        assert_eq!(of_home(&home.path().join("a\"]\n"), home.path()), None);
    }
}

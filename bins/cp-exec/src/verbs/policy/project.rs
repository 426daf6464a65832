//! The needs of a project, derived from the names of its files. Programs of this machine are looked up on the path of the
//! system and in directories of toolchain installers below a home directory. Nothing is executed, and no text of the
//! project is copied into the policy.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::policy::{SYSTEM_PATH, escaped};
use cp_common::glob::name_matches;

/// The most names in a project's directory that are read.
const NAMES: usize = 10_000;

/// The group of an interpreter that a virtual environment may replace.
const PYTHON: &str = "python";

/// What projects need.
#[derive(Default)]
pub(super) struct Needs {
    /// The kinds of work: python, node, pnpm, cargo, go, java, ruby, c, make, just or git, each with the files that
    /// indicate it, the programs that are not installed or cannot be trusted, and the names for `cp-exec allow network`.
    pub(super) lines: Vec<String>,
    /// The additions to the policy.
    pub(super) adds: Vec<Value>,
}

/// The needs of the files in a directory.
pub(super) fn find_kinds(directory: &Path, home: &Path) -> Needs {
    let listing = directory.read_dir().into_iter().flatten().flatten().take(NAMES);
    // Links are ignored, because their targets do not belong to the project.
    let names: Vec<String> = listing
        .filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_file() || entry.file_name() == ".git" && kind.is_dir())
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let mut needs = Needs::default();
    for group in &CATALOGUE.group {
        let is_there = |pattern: &&str| names.iter().any(|name| name_matches(pattern, name));
        let evidence: Vec<&str> = group.files.iter().map(String::as_str).filter(is_there).collect();
        if evidence.is_empty() {
            continue;
        }
        needs.lines.push(format!("{} ({})", group.name, evidence.join(", ")));
        let before = needs.adds.len();
        // Of two pins of one name the first is added.
        if group.name == PYTHON {
            needs.environment(group, directory, home);
        }
        needs.programs(group, home);
        if needs.adds.len() > before {
            needs.adds.push(group.adds.clone());
            let line = format!("  to download packages: cp-exec allow network {}", group.registries.join(" "));
            needs.lines.extend((!group.registries.is_empty()).then_some(line));
        }
    }
    needs
}

/// The programs of this machine for all kinds of projects.
pub(super) fn of_each_kind(home: &Path) -> Vec<Value> {
    let mut needs = Needs::default();
    CATALOGUE.group.iter().for_each(|group| needs.programs(group, home));
    needs.adds
}

impl Needs {
    /// Adds the programs of a group that this machine has. Programs of another installation than the first required
    /// program are skipped, such as pip of another Python.
    fn programs(&mut self, group: &Group, home: &Path) {
        let first = group.needs.first().and_then(|name| find(name, home)).map(|first| first.directory);
        for name in group.names() {
            let is_needed = group.needs.iter().any(|needed| needed == name);
            let is_beside = |program: &Program| {
                is_needed || is_of_system(&program.directory) || first.as_ref() == Some(&program.directory)
            };
            match find(name, home).filter(is_beside) {
                Some(program) => {
                    self.adds.push(json!({ "allowed_commands": [name] }));
                    self.adds.extend(program.additions);
                }
                None => self.lines.extend(is_needed.then(|| format!("  missing: {name}"))),
            }
        }
    }

    /// Adds what the active virtual environment needs, or that of the project. Its programs run by their paths, and
    /// those of the active one also by their names, because the shell finds them.
    fn environment(&mut self, group: &Group, directory: &Path, home: &Path) {
        let is_environment = |root: &PathBuf| {
            is_directory(&root.join("bin"))
                && root.join("pyvenv.cfg").symlink_metadata().is_ok_and(|meta| meta.is_file())
        };
        let active = std::env::var_os("VIRTUAL_ENV").and_then(|root| PathBuf::from(root).canonicalize().ok());
        let own = [".venv", "venv"].map(|name| directory.join(name)).into_iter().filter(|root| is_directory(root));
        let Some(root) = active.iter().cloned().chain(own).find(is_environment) else { return };
        let bin = root.join("bin");
        let interpreter = bin.join("python3").canonicalize().ok();
        let files = interpreter.as_deref().and_then(|file| python(file, home));
        let own = if root.starts_with(directory) { Some(Vec::new()) } else { whole(&root, home) };
        let (Some(files), Some(own)) = (files, own) else {
            self.lines.push(format!("  missing: {}: its interpreter is not one of this machine", root.display()));
            return;
        };
        let names = group.names().filter(|name| active.as_ref() == Some(&root) && bin.join(name).exists());
        let pinned = names.filter_map(|name| Some((name, below_home(&bin.join(name), home)?)));
        for (name, file) in pinned {
            self.adds.push(json!({ "allowed_commands": [name], "pin": { name: file } }));
        }
        self.adds.extend(files.into_iter().chain(own));
    }
}

/// The needs of a Python interpreter. The description of the environment is not trusted: its link must lead to an
/// interpreter of this machine.
fn python(file: &Path, home: &Path) -> Option<Vec<Value>> {
    let version = file.file_name()?.to_str()?.strip_prefix("python3")?;
    let is_version = version.chars().all(|c| c == '.' || c.is_ascii_digit());
    installed_in(file.parent()?, home).filter(|_| is_version)
}

/// True if a path is a directory and not a link.
fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// The data of `programs.toml`.
#[derive(Default, Deserialize)]
pub(crate) struct Catalogue {
    pub(crate) group: Vec<Group>,
    installed: Vec<Installed>,
}

/// Programs for one kind of work.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Group {
    name: String,
    /// Names of files that indicate such a project.
    files: Vec<String>,
    /// Programs that are reported if they are missing.
    needs: Vec<String>,
    commands: Vec<String>,
    /// What such a project needs beside its programs.
    adds: Value,
    /// Names from which its programs download packages.
    pub(crate) registries: Vec<String>,
    /// Variables of a project that may use a registry.
    pub(crate) online: Value,
}

impl Group {
    /// The names of all its programs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.needs.iter().chain(&self.commands).map(String::as_str)
    }
}

/// The directories of an installer.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Installed {
    /// The directory of programs, absolute or below the home. A `*` matches a version.
    programs: String,
    /// A directory below the home with launchers for the selected version.
    shims: Option<String>,
    /// A file below the home that names the selected version.
    version: Option<String>,
    /// What the programs need: the parent directory if this is empty.
    adds: Value,
}

/// The known programs.
pub(in crate::verbs) static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| crate::data::parsed(include_str!("programs.toml")));

/// A program of this machine: its directory, and what a policy needs to run it. A program of the system needs nothing.
pub(crate) struct Program {
    directory: PathBuf,
    pub(crate) additions: Vec<Value>,
}

/// The program that a shell would find: the first on PATH, otherwise that of the system, otherwise the newest
/// version.
pub(crate) fn find(name: &str, home: &Path) -> Option<Program> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_on(&std::env::split_paths(&path).collect::<Vec<_>>(), name, home)
}

fn find_on(path: &[PathBuf], name: &str, home: &Path) -> Option<Program> {
    let place = |directory: &Path| path.iter().position(|entry| entry == directory).unwrap_or(usize::MAX);
    let system = SYSTEM_PATH.iter().map(|directory| (place(Path::new(directory)), PathBuf::from(directory)));
    let installed = CATALOGUE.installed.iter().flat_map(|installed| {
        let chosen = installed.chosen(home);
        let shims = installed.shims.as_ref().map_or(usize::MAX, |shims| place(&home.join(shims)));
        let mut directories = present(home, &installed.programs);
        directories.sort_by_key(|directory| Reverse((Some(directory) == chosen.as_ref(), version(directory))));
        directories.into_iter().map(move |directory| (place(&directory).min(shims), directory))
    });
    let found = system.chain(installed).filter(|(_, directory)| directory.join(name).is_file());
    // If a place contains several, the first one is used.
    let (_, directory) = found.min_by_key(|(place, _)| *place)?;
    let mut additions = installed_in(&directory, home)?;
    if !is_of_system(&directory) {
        additions.insert(0, json!({ "pin": { name: below_home(&directory.join(name), home)? } }));
    }
    Some(Program { directory, additions })
}

fn is_of_system(directory: &Path) -> bool {
    SYSTEM_PATH.iter().any(|system| Path::new(system) == directory)
}

impl Installed {
    /// The directory of the selected version.
    fn chosen(&self, home: &Path) -> Option<PathBuf> {
        let text = std::fs::read_to_string(home.join(self.version.as_ref()?)).ok()?;
        let version = text.split_whitespace().next().filter(|version| !version.contains('/'))?;
        Some(home.join(self.programs.replacen('*', version, 1)))
    }
}

/// The needs of a program in this directory, if it belongs to the system or to an installer.
fn installed_in(directory: &Path, home: &Path) -> Option<Vec<Value>> {
    if is_of_system(directory) {
        return Some(Vec::new());
    }
    let is_there = |place: PathBuf| place == directory || place.canonicalize().is_ok_and(|place| place == directory);
    let programs = |installed: &&Installed| present(home, &installed.programs).into_iter().any(is_there);
    let declared = CATALOGUE.installed.iter().find(programs)?.adds.clone();
    if declared.is_null() { whole(directory.parent()?, home) } else { Some(vec![declared]) }
}

/// The additions for everything below a directory.
fn whole(directory: &Path, home: &Path) -> Option<Vec<Value>> {
    let tree = escaped(&below_home(directory, home)?) + "/**";
    Some(vec![json!({ "read": [tree], "execute": [tree] })])
}

/// A path in the form of a policy, with `~` for the home; `None` if it is not UTF-8.
pub(crate) fn below_home(path: &Path, home: &Path) -> Option<String> {
    match path.strip_prefix(home) {
        Ok(below) => Some(format!("~/{}", below.to_str()?)),
        Err(_) => path.to_str().map(str::to_owned),
    }
}

/// The existing directories that a pattern matches below a home.
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
    use std::collections::BTreeSet;

    use cp_egress::Destination;

    use super::*;

    #[test]
    fn catalogue_parses_and_lists_each_program_once() {
        let catalogue: Catalogue = toml::from_str(include_str!("programs.toml")).unwrap();
        let names: Vec<&str> = catalogue.group.iter().flat_map(Group::names).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(names.len() > 80 && catalogue.installed.len() > 10);
        for group in &catalogue.group {
            assert!(!group.name.is_empty());
            for registry in &group.registries {
                assert_eq!(Destination::parse(registry).unwrap().ports(), cp_egress::PORTS, "{registry}");
            }
        }
    }

    #[test]
    fn newest_version_is_found_with_its_files() {
        let home = tempfile::tempdir().unwrap();
        for version in ["v9.1.0", "v20.2.0", "v18.0.0"] {
            let bin = home.path().join(".nvm/versions/node").join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("no-such-program"), "").unwrap();
        }
        let program = find("no-such-program", home.path()).unwrap();
        let newest = "~/.nvm/versions/node/v20.2.0";
        let pin = json!({ "pin": { "no-such-program": format!("{newest}/bin/no-such-program") } });
        let tree = [format!("{newest}/**")];
        assert_eq!(program.additions, [pin, json!({ "read": tree, "execute": tree })]);
        assert!(find("no-such-program-either", home.path()).is_none());
    }

    #[test]
    fn first_program_on_path_is_found_behind_shims() {
        let home = tempfile::tempdir().unwrap();
        let bin = |version: &str| home.path().join(".pyenv/versions").join(version).join("bin");
        for version in ["3.9.1", "3.12.0"] {
            std::fs::create_dir_all(bin(version)).unwrap();
            std::fs::write(bin(version).join("true"), "").unwrap();
        }
        let shims = home.path().join(".pyenv/shims");
        let found = |path: &[PathBuf]| find_on(path, "true", home.path()).unwrap();
        let system = PathBuf::from("/usr/bin");
        assert!(is_of_system(&found(&[]).directory));
        assert!(found(&[system.clone(), shims.clone()]).additions.is_empty());
        assert_eq!(found(&[shims.clone(), system.clone()]).directory, bin("3.12.0"));
        assert_eq!(found(&[bin("3.9.1"), shims.clone()]).directory, bin("3.9.1"));
        std::fs::write(home.path().join(".pyenv/version"), "3.9.1\n").unwrap();
        assert_eq!(found(&[shims, system]).directory, bin("3.9.1"));
    }

    #[test]
    fn directory_without_installer_is_not_trusted() {
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
    }
}

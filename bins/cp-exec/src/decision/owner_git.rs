//! The owner's git configuration for a run: the settings of system and global scope that start no program, aliases, and
//! the files that list ignored names and attributes. Git lists the settings outside, in the working directory, because
//! conditional includes depend on it. The repository's own configuration has precedence, as outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cp_common::coprocess::Child;
use cp_common::{Result, words};

use crate::git_dir::{GIT, key_parts, output_of, passes_from_owner, start};
use crate::policy::{Policy, Verdict};
use crate::refusal::refuse;
use crate::rules::{Arguments, Scope, judge};
use crate::sandbox::plan::OWN_FILES;

/// The configuration that `GIT_CONFIG_GLOBAL` names, in [`OWN_FILES`].
pub(super) const CONFIG: &str = "gitconfig";

/// The longest file that is copied.
const LONGEST: u64 = 256 << 10;

/// The settings of the system's git.
const SYSTEM: &str = "/etc/gitconfig";

/// Variables of this program that choose the configuration which git lists.
const PASSED: [&str; 5] = ["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// Commands of git that make commits.
const COMMITS: [&str; 7] = ["am", "cherry-pick", "commit", "merge", "pull", "rebase", "revert"];

const UNSIGNED: &str = "commits of this run are not signed, because your keys are outside; sign them there, as with \
                        `git commit --amend --no-edit -S`";
const NO_HOOKS: &str = "the hooks of core.hooksPath in your git configuration run only outside; run one there, as with \
                        `git hook run pre-commit`";

/// The owner's git configuration in one run; empty where none is needed.
#[derive(Default)]
pub(crate) struct OwnerGit {
    /// The running git that lists it while the run is prepared, the home of the owner, and the directory of git's own files
    /// in it.
    started: Option<(Child, PathBuf, PathBuf)>,
    /// The files of the run: names in [`OWN_FILES`], and contents.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    aliases: BTreeMap<String, Vec<String>>,
    /// True if the owner signs commits. A run cannot, because it has no keys.
    signs: bool,
    /// True if the owner has hooks for all repositories. A run has none of them.
    hooks: bool,
}

impl OwnerGit {
    /// Starts to list the settings that apply in a directory. Without git or its configuration there are none.
    pub(super) fn list(policy: &Policy, cwd: &Path) -> Self {
        let set = |name: &&str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = set(&"HOME").map_or_else(|| policy.loaded.home.clone(), PathBuf::from);
        let own = set(&"XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from).join("git");
        let Some(git) = policy.git() else { return Self::default() };
        // Packages write to the file of the system's git, which one that is installed beside it does not read.
        let beside = git.parent().and_then(Path::parent).map(|prefix| prefix.join("etc/gitconfig"));
        let system = beside.filter(|path| path.exists()).unwrap_or_else(|| SYSTEM.into());
        let is_needed = [&home.join(".gitconfig"), &own, &system].iter().any(|path| path.exists())
            || PASSED.iter().any(|name| name.starts_with("GIT_") && set(name).is_some())
            || cwd.ancestors().any(|above| above.join(".git").exists());
        let passed = PASSED.iter().filter_map(|name| Some((*name, set(name)?)));
        let variables = [("GIT_CONFIG_SYSTEM", system.into_os_string())].into_iter().chain(passed);
        let words = ["--no-pager", "config", "--list", "--includes", "--show-scope", "-z"];
        let git = is_needed.then(|| start(&git, cwd, words, variables)).flatten();
        Self { started: git.map(|git| (git, home, own)), ..Self::default() }
    }

    /// The settings. The first call waits for git.
    pub(crate) fn read(&mut self) -> &mut Self {
        if let Some((git, home, own)) = self.started.take() {
            *self = Self::from_list(&output_of(git).unwrap_or_default(), &home, &own);
        }
        self
    }

    /// Reads the output of `git config --list --show-scope -z`.
    fn from_list(listed: &[u8], home: &Path, own: &Path) -> Self {
        let mut git = Self::default();
        let mut config = Vec::new();
        let mut filters: BTreeMap<&str, BTreeMap<&str, &[u8]>> = BTreeMap::new();
        let defaults = ["ignore", "attributes"].map(|name| own.join(name).into_os_string().into_vec());
        let mut named: Vec<(String, Vec<u8>)> =
            ["core.excludesfile", "core.attributesfile"].map(str::to_owned).into_iter().zip(defaults).collect();
        let mut parts = listed.split(|byte| *byte == 0);
        while let (Some(scope), Some(entry)) = (parts.next(), parts.next()) {
            let at = entry.iter().position(|byte| *byte == b'\n');
            let Ok(key) = std::str::from_utf8(&entry[..at.unwrap_or(entry.len())]) else { continue };
            let value = at.map(|at| &entry[at + 1..]);
            if scope == b"command" {
                // A setting with which this program starts git.
                continue;
            }
            let is_owners = matches!(scope, b"system" | b"global");
            let off: [&[u8]; 6] = [b"", b"0", b"no", b"off", b"false", b"/dev/null"];
            let is_on = value.is_none_or(|value| !off.contains(&value.to_ascii_lowercase().as_slice()));
            match key {
                "commit.gpgsign" => git.signs = is_owners && is_on,
                "core.hookspath" => git.hooks = is_owners && is_on,
                _ => {}
            }
            if !is_owners {
                continue;
            }
            match (key_parts(key), value) {
                (("filter", name, last), value) => {
                    filters.entry(name).or_default().insert(last, value.unwrap_or(b"true"));
                }
                (_, Some(path)) if GIT.owner_files.iter().any(|named| named == key) => {
                    named.push((key.to_owned(), path.to_vec()));
                }
                (("core", "", "hookspath"), Some(value)) if !is_on => write_setting(&mut config, key, Some(value)),
                (("alias", "", name), Some(value)) => git.add_alias(name, value, &mut config),
                (("remote", "", "pushdefault"), Some(value)) if value.contains(&b'/') || value.contains(&b':') => {}
                (_, value) if passes_from_owner(key) => write_setting(&mut config, key, value),
                _ => {}
            }
        }
        for (name, settings) in &filters {
            write_filter(&mut config, name, settings);
        }
        for (key, path) in named {
            git.add_file(&key, &path, home, &mut config);
        }
        git.files.push((CONFIG.to_owned(), config));
        git
    }

    /// Adds an alias of git's own commands. The rules judge what it stands for, see [`OwnerGit::expanded`].
    fn add_alias(&mut self, name: &str, value: &[u8], config: &mut Vec<u8>) {
        let Some(argv) = std::str::from_utf8(value).ok().and_then(|text| words::split(text).ok()) else { return };
        let key = format!("alias.{name}");
        match argv.argv.first().and_then(|first| first.bytes().next()) {
            None => {}
            // One that begins with an option can set anything.
            Some(b'!' | b'-') => {
                let reason = failing("alias", name, "is no plain command of git");
                write_setting(config, &key, Some(format!("!{reason}").as_bytes()));
            }
            Some(_) => {
                write_setting(config, &key, Some(value));
                self.aliases.insert(name.to_owned(), argv.argv);
            }
        }
    }

    /// Copies a file that a setting names. A relative path is one of the repository.
    fn add_file(&mut self, key: &str, path: &[u8], home: &Path, config: &mut Vec<u8>) {
        let named = match path.strip_prefix(b"~/") {
            Some(below) => home.join(std::ffi::OsStr::from_bytes(below)),
            None => PathBuf::from(std::ffi::OsStr::from_bytes(path)),
        };
        if !named.is_absolute() {
            return write_setting(config, key, Some(path));
        }
        let is_small = |meta: &fs::Metadata| meta.is_file() && meta.len() <= LONGEST;
        let text = fs::metadata(&named).ok().filter(is_small).and_then(|_| fs::read(&named).ok());
        if let Some(text) = text {
            let name = format!("{key}.{}", self.files.len());
            write_setting(config, key, Some(format!("{OWN_FILES}/{name}").as_bytes()));
            self.files.push((name, text));
        }
    }

    /// The arguments that git executes for an alias of the owner; `None` if they name none.
    pub(crate) fn expanded(&self, argv: &[String]) -> Option<Vec<String>> {
        let command = Arguments::read(argv).operands().first()?.word;
        let at = argv.iter().position(|word| std::ptr::eq(word.as_str(), command))?;
        let mut argv = argv.to_vec();
        let mut known: Vec<String> = Vec::new();
        while let Some(name) = argv.get(at).map(|word| word.to_lowercase()).filter(|name| !known.contains(name)) {
            let Some(words) = self.aliases.get(&name) else { break };
            argv.splice(at..=at, words.iter().cloned());
            known.push(name);
        }
        (!known.is_empty()).then_some(argv)
    }

    /// Refuses a single command that is an alias of one that requires approval.
    pub(super) fn check_alias(&self, policy: &Policy, argv: &[String], cwd: &Path) -> Result<()> {
        let Some(expanded) = self.expanded(argv) else { return Ok(()) };
        let finding = judge(policy, &expanded, cwd, Scope::Single).or_refused()?;
        if finding.verdict != Verdict::Ask {
            return Ok(());
        }
        let reason = format!("the alias is short for `{}`: {}", expanded.join(" "), finding.reason);
        Err(refuse(&finding.rule, reason).hint("write the command itself, then it can be approved"))
    }

    /// What the owner's settings would do in a command and a run does not, each said once.
    pub(crate) fn lacking(&mut self, argv: &[String]) -> Vec<&'static str> {
        let expanded = self.expanded(argv);
        let arguments = Arguments::read(expanded.as_deref().unwrap_or(argv));
        let commits = arguments.name() == "git" && COMMITS.iter().any(|name| arguments.is_command(&[name]));
        let pushes = arguments.name() == "git" && arguments.is_command(&["push"]);
        let signs = commits && std::mem::take(&mut self.signs);
        let hooks = (commits || pushes) && std::mem::take(&mut self.hooks);
        [(signs, UNSIGNED), (hooks, NO_HOOKS)].into_iter().filter_map(|(lacks, text)| lacks.then_some(text)).collect()
    }
}

/// Writes a filter: that of git-lfs as it is, and for another one a command that fails with the reason, because git
/// would store the unfiltered file.
fn write_filter(config: &mut Vec<u8>, name: &str, settings: &BTreeMap<&str, &[u8]>) {
    let starts = ["clean", "smudge", "process"];
    if !starts.iter().any(|last| settings.get(last).is_some_and(|value| !value.is_empty())) {
        return;
    }
    let mut put = |last: &str, value: &[u8]| write_setting(config, &format!("filter.{name}.{last}"), Some(value));
    put("required", b"true");
    let is_lfs = |(last, value): (&&str, &&[u8])| {
        GIT.lfs.get(*last).is_some_and(|values| values.iter().any(|known| known.as_bytes() == *value))
    };
    if name == "lfs" && settings.iter().all(is_lfs) {
        for (last, value) in settings {
            put(last, value);
        }
        return;
    }
    let line = failing("filter", name, "starts a program");
    for last in ["clean", "smudge"] {
        put(last, line.as_bytes());
    }
}

/// A line for a shell that fails with the reason.
fn failing(kind: &str, name: &str, why: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let shown = if is_plain { name } else { "with another name" };
    format!(
        "echo 'cp-exec: the {kind} {shown} of your git configuration {why}, so it runs only outside' >&2; exit 1; :"
    )
}

/// Appends a setting in git's syntax.
fn write_setting(config: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    let (section, below, last) = key_parts(key);
    let below = below.replace('\\', "\\\\").replace('"', "\\\"");
    let head = if below.is_empty() { format!("[{section}]") } else { format!("[{section} \"{below}\"]") };
    config.extend_from_slice(format!("{head}\n\t{last}").as_bytes());
    if let Some(value) = value {
        config.extend_from_slice(b" = \"");
        for byte in value {
            match byte {
                b'\n' => config.extend_from_slice(b"\\n"),
                b'"' | b'\\' => config.extend([b'\\', *byte]),
                other => config.push(*other),
            }
        }
        config.push(b'"');
    }
    config.push(b'\n');
}

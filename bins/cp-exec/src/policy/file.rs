//! The policy file: programs that may run, paths that may be read and written, and rules about arguments. See
//! cp-policy(5). Also the users whose directories of programs it trusts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use cp_common::home::config::explain;
use cp_common::wire::Level;
use cp_common::{Error, Result};
use cp_egress::{Destination, Network};
use cp_policy::{home_of, others_write, read_policy};
use serde::{Deserialize, Serialize};

use super::expand;
use crate::data::parsed;
use crate::digest::sha256;
use crate::refusal::refuse;
use crate::sandbox::plan::{Layer, Profile};

/// The settings of a policy file. Missing settings have built-in values.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub exec: Exec,
    pub paths: Paths,
    /// Tools of a `--tools` directory.
    pub tools: Tools,
    /// Settings of cp-llm, which parses and checks them.
    pub llm: toml::Table,
    /// Tool servers, parsed and checked by cp-toolloop.
    pub mcp: toml::Table,
    /// Grants for projects, by their directories.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub project: BTreeMap<String, Project>,
}

impl Settings {
    /// Adds the grants for the project in which a base directory lies, and expands `~` in paths of programs.
    pub(crate) fn resolve_for(&mut self, base: &Path, home: &str) {
        for (directory, project) in self.project.clone() {
            let directory = PathBuf::from(expand(&directory, home));
            if base.starts_with(directory.canonicalize().unwrap_or(directory)) {
                self.grant(project);
            }
        }
        for path in self.exec.path.iter_mut().chain(self.exec.pin.values_mut()) {
            *path = expand(&path.to_string_lossy(), home).into();
        }
    }

    /// Adds the grants of a project to those of every project.
    pub(crate) fn grant(&mut self, project: Project) {
        let Self { exec, paths, .. } = self;
        exec.network = exec.network.with(&project.network);
        exec.allowed_commands.extend(project.allowed_commands);
        exec.env_allow.extend(project.env_allow);
        exec.env_set.extend(project.env_set);
        exec.pin.extend(project.pin);
        paths.read.extend(project.read);
        paths.write.extend(project.write);
        paths.execute.extend(project.execute);
    }
}

/// `[project."DIR"]`: what commands may use in one project, in addition to `[exec]` and `[paths]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Project {
    pub network: Vec<Destination>,
    pub allowed_commands: Vec<String>,
    pub pin: BTreeMap<String, PathBuf>,
    pub env_allow: Vec<String>,
    pub env_set: BTreeMap<String, String>,
    pub read: Vec<String>,
    pub write: Vec<String>,
    pub execute: Vec<String>,
}

/// The directories of the system's programs.
pub(crate) const SYSTEM_PATH: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// `[exec]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Exec {
    /// The names of programs that may run; `*` matches every program in `path`. Empty: none.
    pub allowed_commands: Vec<String>,
    /// The names of programs that may not run, even if another list allows them.
    pub restricted_commands: Vec<String>,
    /// The directories in which names are looked up.
    pub path: Vec<PathBuf>,
    /// The reaction to a read-only command that a tool call can replace.
    pub intent: Intent,
    /// The time limit of a command in seconds.
    pub timeout: f64,
    /// The network that commands see.
    pub network: Network,
    /// Layers that a run requires.
    pub require: Vec<Layer>,
    /// The reaction to a missing layer that no other layer replaces.
    pub degraded: Degraded,
    /// Variables a request may set.
    pub env_allow: Vec<String>,
    /// Variables every command gets.
    pub env_set: BTreeMap<String, String>,
    /// The executables that a run may start.
    pub profile: Profile,
    /// Names that are pinned to one file.
    pub pin: BTreeMap<String, PathBuf>,
    /// Who confirms commands that need confirmation: the caller, with the token of a dry run, or a person, with `cp-exec
    /// approve`.
    pub confirm: Level,
    pub memory: u64,
    /// The most processes at once.
    pub processes: u64,
    /// The size of the private `/tmp` in bytes.
    pub scratch: u64,
    /// Rules of this policy. They are checked before the built-in ones.
    pub rule: Vec<Rule>,
}

impl Default for Exec {
    fn default() -> Self {
        Self {
            allowed_commands: Vec::new(),
            restricted_commands: Vec::new(),
            path: SYSTEM_PATH.map(PathBuf::from).to_vec(),
            intent: Intent::Enforce,
            timeout: 30.0,
            network: Network::default(),
            require: vec![Layer::Seccomp],
            degraded: Degraded::Refuse,
            env_allow: Vec::new(),
            env_set: BTreeMap::new(),
            profile: Profile::Build,
            pin: BTreeMap::new(),
            confirm: Level::Agent,
            memory: 4 << 30,
            processes: 4096,
            scratch: 1 << 30,
            rule: Vec::new(),
        }
    }
}

impl Exec {
    /// True if every program in `path` may run, unless it is restricted.
    pub(crate) fn allows_all(&self) -> bool {
        self.allowed_commands.iter().any(|allowed| allowed == "*")
    }
}

/// The reaction to a read-only command that a tool call can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Intent {
    /// It is refused, and the error names the tool call.
    Enforce,
    Off,
}

/// The reaction if a layer is missing that confines reads, hides a path, or kills all processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Degraded {
    Refuse,
    /// The command runs, and its record lists the missing layer.
    Allow,
}

/// `[paths]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Paths {
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// Paths that may be executed, in addition to programs of the system.
    pub execute: Vec<String>,
    /// Paths that are never written, even inside a writable tree.
    pub pristine: Vec<String>,
    /// Paths that are neither read nor written.
    pub forbidden: Vec<String>,
    /// The most entries that are searched before a run for names that are hidden.
    pub walk: u64,
}

impl Default for Paths {
    fn default() -> Self {
        let here = || vec![".".to_owned()];
        let none = Vec::new;
        Self { read: here(), write: here(), execute: none(), pristine: none(), forbidden: none(), walk: 500_000 }
    }
}

/// `[tools]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tools {
    /// Tools that may run; `*` matches any run of characters, and `@default` the tools that may run without this key:
    /// the executables of a `--tools` directory, and the tools of other agents that run nothing.
    pub allow: Option<Vec<String>>,
    /// Tools that a person must approve.
    pub approve: Vec<String>,
}

/// A policy and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub settings: Settings,
    /// Its file; `None` for the built-in policy.
    pub file: Option<PathBuf>,
    /// The hash of its text.
    pub sha256: String,
    /// The uid of the file's owner. `~` is this user's home, and directories of programs may belong to this user.
    pub owner: u32,
    pub home: PathBuf,
}

/// Reads the policy of a home. Without a file the built-in policy applies, which allows no command.
pub(crate) fn load(file: &Path) -> Result<Loaded> {
    let read = read_policy(file)?;
    let found = read.as_ref().map(|_| file.to_owned());
    let (text, owner) = read.unwrap_or_else(|| (String::new(), rustix::process::getuid().as_raw()));
    let settings = parse(&text).map_err(|e| e.in_file(file).fatal())?;
    Ok(Loaded { file: found, sha256: sha256(text.as_bytes()), ..Loaded::of(settings, owner) })
}

impl Loaded {
    /// Settings without a file.
    pub(crate) fn of(settings: Settings, owner: u32) -> Self {
        Self { settings, file: None, sha256: String::new(), owner, home: home_of(owner) }
    }

    /// The home of the owner, and that of the environment, which programs use.
    pub(crate) fn homes(&self) -> impl Iterator<Item = PathBuf> {
        let of_environment = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        [self.home.clone()].into_iter().chain(of_environment)
    }
}

/// Parses the text of a policy, and checks constraints that the types do not express.
pub(crate) fn parse(text: &str) -> Result<Settings> {
    let settings: Settings = toml::from_str(text).map_err(|e| explain(text, &e))?;
    let fault = |key: &str, message: String| {
        let name = key.rsplit('.').next().unwrap_or(key);
        let line = text.lines().position(|line| line.trim_start().starts_with(name));
        Err(Error::config(message).at_line(line.map_or(1, |at| at as u64 + 1)).with("key", key))
    };
    let exec = &settings.exec;
    if !exec.timeout.is_finite() || exec.timeout <= 0.0 || exec.timeout > LONGEST {
        return fault("exec.timeout", format!("timeout must be more than 0 and at most {LONGEST} seconds"));
    }
    let paths = exec.path.iter().map(|path| ("exec.path", path.to_string_lossy()));
    let projects = settings.project.keys().map(|directory| ("project", directory.into()));
    let mut paths = paths.chain(projects);
    // A leading `~` is expanded later.
    if let Some((key, path)) = paths.find(|(_, path)| !expand(path, "/").starts_with('/')) {
        return fault(key, format!("`{path}` is not an absolute path"));
    }
    if exec.allows_all() && exec.profile == Profile::Strict {
        let why =
            "allowed_commands = [\"*\"] requires profile = \"build\", because strict executes listed programs only";
        return fault("exec.allowed_commands", why.to_owned());
    }
    Ok(settings)
}

/// The highest time limit of a command, in seconds.
pub(crate) const LONGEST: f64 = 600.0;

/// A rule about arguments.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The command to which the rule applies.
    pub command: String,
    /// The rule applies only if one of these is the first operand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subcommands: Vec<String>,
    /// The rule applies only if one of these options is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    pub decision: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The command may run.
    Allow,
    /// The command may run after confirmation.
    #[serde(alias = "confirm")]
    Ask,
    /// The command may not run.
    #[default]
    Deny,
}

/// The names that every policy hides, allows, refuses or sets, as `built_in.toml` lists and explains them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuiltIn {
    pub secrets: Vec<String>,
    pub system_secrets: Vec<String>,
    pub toolchains: Vec<String>,
    pub allowed_variables: Vec<String>,
    pub denied_variables: Vec<String>,
    pub certificates: Vec<String>,
    pub passed_variables: Vec<String>,
    pub variables: BTreeMap<String, String>,
    pub git: BTreeMap<String, String>,
}

pub(crate) fn built_in() -> &'static BuiltIn {
    static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| parsed(include_str!("built_in.toml")));
    &BUILT_IN
}

/// Refuses a directory of programs that users other than root and `owner` can write to, because they could replace
/// programs.
pub(crate) fn check_directory(directory: &Path, owner: u32) -> Result<()> {
    const STICKY: u32 = 0o1000;
    for above in directory.ancestors() {
        let meta = fs::metadata(above).map_err(|e| Error::io("cannot read the attributes", e).in_file(above))?;
        let trusted = is_root(meta.uid()) || meta.uid() == owner;
        // A sticky directory above it is safe, because other users can add entries but not replace them.
        let shared = above != directory && meta.mode() & STICKY != 0;
        if !trusted || (others_write(&meta) && !shared) {
            return Err(refuse("path_unsafe", format!("other users can write to {}", above.display())).hint(
                "the owner of the directory can take the permission away (chmod go-w), and the owner of the policy the directory from exec.path",
            ));
        }
    }
    Ok(())
}

/// True if files with this uid are those of root in this user namespace, which is read once.
fn is_root(uid: u32) -> bool {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    let unmapped = UNMAPPED.get_or_init(|| {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let nobody = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        nobody.trim().parse().ok().filter(|_| leaves_out_root(&map))
    });
    uid == 0 || *unmapped == Some(uid)
}

/// True for a user namespace that maps only one other user, as `unshare -Ur` makes it, or no root: files of root have
/// the overflow uid there.
fn leaves_out_root(map: &str) -> bool {
    let lines = || map.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let maps_root = lines().any(|line| line.first() == Some(&"0"));
    !map.is_empty() && (!maps_root || lines().all(|line| line[1..] != ["0", "1"] && line.last() == Some(&"1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (String, Option<String>) {
        let e = parse(text).unwrap_err();
        assert_eq!(e.code(), cp_common::Code::Config);
        (e.message().to_owned(), e.hint_text().map(str::to_owned))
    }

    #[test]
    fn parse_unknown_key_names_line_and_nearest_key() {
        let (message, hint) = fault("[exec]\nallowed_comands = []\n");
        assert_eq!(message, "line 2: unknown key `allowed_comands`");
        assert_eq!(hint.unwrap(), "did you mean `allowed_commands`?");
        let (message, hint) = fault("[exec]\nprofile = \"bild\"\n");
        assert_eq!(message, "line 2: unknown value `bild`");
        assert_eq!(hint.unwrap(), "did you mean `build`?");
    }

    #[test]
    fn parse_empty_file_or_list_allows_nothing() {
        let policy = parse("").unwrap();
        assert!(policy.exec.allowed_commands.is_empty());
        assert_eq!(policy.exec.require, [Layer::Seccomp]);
        assert!(parse("[tools]\nallow = []\n").unwrap().tools.allow == Some(Vec::new()));
    }

    #[test]
    fn parse_values_out_of_range_fail() {
        assert!(fault("[exec]\ntimeout = 0\n").0.contains("timeout"));
        assert!(fault("[exec]\n\npath = [\"bin\"]\n").0.starts_with("line 3"));
        assert!(fault("[exec]\nrequire = [\"mount\"]\n").0.contains("mount"));
        let everything = "[exec]\nallowed_commands = [\"*\"]\n";
        assert!(fault(&format!("{everything}profile = \"strict\"\n")).0.contains("listed programs only"));
        assert!(parse(everything).unwrap().exec.allows_all());
    }

    #[test]
    fn root_is_unmapped_where_only_other_users_are_mapped() {
        for (map, expected) in [
            ("0 1000 1\n", true),
            ("1000 1000 1\n", true),
            ("1000 0 1\n", true),
            ("0 0 1\n", false),
            ("0 0 4294967295\n", false),
            ("0 100000 65536\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("", false),
        ] {
            assert_eq!(leaves_out_root(map), expected, "{map}");
        }
    }
}

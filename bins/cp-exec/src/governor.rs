//! What holds for every request of this process: the policy, the places it names, and where the record goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::context::options::Origin;
use cp_common::home::resolved;
use cp_common::{Context, Error, Result};
use cp_ledger::{Ledger, Sync};

use crate::capabilities::{Module, applying, modules};
use crate::engine::Helper;
use crate::hashes::Hashes;
use crate::keyed::Keyed;
use crate::names::{Names, refuse};
use crate::patterns::{Pattern, Places, name_matches};
use crate::policy::{self, Confirm, Loaded};

/// Secrets of a user, below the home directory.
const SECRETS: [&str; 16] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".kube",
    ".docker",
    ".pypirc",
    ".npmrc",
    ".config/gcloud",
    ".config/gh",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".password-store",
    ".local/share/keyrings",
];

/// Secrets of the machine, and sockets that are as good as root.
const SYSTEM_SECRETS: [&str; 9] = [
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/run/docker.sock",
    "/run/containerd",
    "/run/podman",
];

/// What of the cp home no command sees.
const HOME_PARTS: [&str; 8] = ["config", "keys", "ledger", "state", "planes", "memory", "agents", "tmp"];

/// Files in a writable directory that run something later, for somebody else.
const DORMANT: [&str; 11] = [
    ".git/config",
    ".git/hooks",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".gitconfig",
    ".config/git",
];

/// What a command line of cp-exec decides with.
pub(crate) struct Governor {
    /// The policy.
    pub loaded: Loaded,
    /// What its words stand for.
    pub places: Places,
    /// What may be read.
    pub read: Vec<Pattern>,
    /// What may be written.
    pub write: Vec<Pattern>,
    /// What may be executed.
    pub execute: Vec<Pattern>,
    /// What is never written.
    pub pristine: Vec<Pattern>,
    /// What is neither read nor written.
    pub forbidden: Vec<Pattern>,
    /// What modules of the root declare about themselves.
    pub modules: Vec<Module>,
    /// Directories of executable tools.
    pub tools: Vec<PathBuf>,
    /// Who asks.
    pub origin: Origin,
    /// The home of the cp programs.
    pub cp_home: PathBuf,
    /// Names with one fixed file.
    pub pins: Vec<(String, PathBuf)>,
    /// Hashes of programs already seen.
    pub hashes: Hashes,
    /// Hashes of values that stay out of the ledger.
    pub keyed: Keyed,
    /// Where effects are recorded.
    ledger_path: PathBuf,
    ledger: Option<Ledger>,
    helper: Option<Arc<Helper>>,
    /// The agent, session and run that entries name.
    pub who: (String, Option<String>, Option<String>),
}

impl Governor {
    /// Reads what this command line stands under.
    pub(crate) fn new(context: &Context, tools: &[PathBuf], root: Option<&Path>) -> Result<Self> {
        let loaded = policy::load(&context.home.policy_file())?;
        let session = context.session();
        let places =
            Places { base: context.base()?.canonicalize()?, home: loaded.home.clone(), session: session.clone() };
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text, &places)).collect::<Vec<_>>();
        let paths = &loaded.policy.paths;
        let tools = tools
            .iter()
            .map(|tools| tools.canonicalize().map_err(|e| Error::io("the tools directory", e).in_file(tools).fatal()))
            .collect::<Result<Vec<_>>>()?;
        let cp_home = resolved(context.home.root());
        let modules = match root {
            None => modules(&cp_home, &places),
            Some(root) => {
                let root = root.canonicalize().map_err(|e| Error::io("the root", e).in_file(root).fatal())?;
                modules(&root, &places)
            }
        };
        let home = places.home.to_string_lossy().into_owned();
        let pins = &loaded.policy.exec.pin;
        Ok(Self {
            read: patterns(&paths.read),
            write: patterns(&paths.write),
            execute: patterns(&paths.execute),
            pristine: patterns(&paths.pristine),
            forbidden: patterns(&paths.forbidden),
            pins: pins.iter().map(|(name, path)| (name.clone(), expand(path, &home).into())).collect(),
            tools,
            origin: context.origin(),
            hashes: Hashes::of_home(&cp_home),
            keyed: Keyed::of_home(&cp_home),
            cp_home,
            modules,
            ledger_path: resolved(&std::path::absolute(cp_ledger::effect_path(context, "cp-exec.jsonl")?)?),
            ledger: None,
            helper: None,
            who: (context.agent(None), session, context.options.run.clone()),
            places,
            loaded,
        })
    }

    /// The ledger of effects. Without it nothing runs.
    pub(crate) fn ledger(&mut self) -> Result<&mut Ledger> {
        match &mut self.ledger {
            Some(ledger) => Ok(ledger),
            empty => {
                let ledger = Ledger::open(&self.ledger_path, Sync::Batch)
                    .map_err(|e| if e.is_fatal() { e } else { e.fatal() })?;
                Ok(empty.insert(ledger))
            }
        }
    }

    /// What starts runs. To be called on the main thread.
    pub(crate) fn helper(&mut self) -> Result<Arc<Helper>> {
        match &self.helper {
            Some(helper) if helper.lives() => Ok(Arc::clone(helper)),
            _ => Ok(Arc::clone(self.helper.insert(Arc::new(Helper::start()?)))),
        }
    }

    /// Where effects are recorded.
    pub(crate) fn ledger_path(&self) -> &Path {
        &self.ledger_path
    }

    /// Whether a person's approval could be given by whoever asks: the key of approvals is theirs to read.
    pub(crate) fn approvals_are_advice(&self) -> bool {
        let owner = self.loaded.policy.exec.confirm == Confirm::Owner || !self.loaded.policy.tools.approve.is_empty();
        owner && rustix::fs::access(self.cp_home.join("keys"), rustix::fs::Access::READ_OK).is_ok()
    }

    /// The modules whose bounds hold for what is done in, or with, these places.
    pub(crate) fn modules_at(&self, places: &[&Path]) -> Vec<&Module> {
        applying(&self.modules, places)
    }

    /// How names are looked up.
    pub(crate) fn names(&self) -> Names<'_> {
        Names { path: &self.loaded.policy.exec.path, pins: &self.pins, owner: self.loaded.owner }
    }

    /// The home that `~` means, as text.
    pub(crate) fn tilde(&self) -> String {
        self.places.home.to_string_lossy().into_owned()
    }

    /// Refuses `.` where it would mean too much, unless the policy lists that directory by name.
    pub(crate) fn check_base(&self) -> Result<()> {
        let base = &self.places.base;
        let paths = &self.loaded.policy.paths;
        let uses_base = paths.read.iter().chain(&paths.write).any(|text| text == "." || text == "./");
        let (why, all) = if base == Path::new("/") {
            ("the root of the file system", true)
        } else if *base == self.places.home {
            ("a home directory", true)
        } else {
            ("a directory that contains the cp home", self.cp_home.starts_with(base))
        };
        let by_name = || {
            let listed =
                |pattern: &Pattern| pattern.text() != "." && pattern.text() != "./" && pattern.tree() == Some(base);
            self.read.iter().any(listed)
        };
        if !uses_base || !all || by_name() {
            return Ok(());
        }
        Err(refuse("base", format!("`.` is {}, {why}", base.display()))
            .hint("start in a project directory, give --base DIR, or list the directory by name in paths.read and paths.write"))
    }

    /// Whether a command could write a path, and nobody declared it executable.
    pub(crate) fn writable_only(&self, path: &Path) -> bool {
        let tool = self.tools.iter().any(|tools| path.starts_with(tools));
        self.write.iter().any(|pattern| pattern.matches(path))
            && !self.execute.iter().any(|pattern| pattern.matches(path))
            && !tool
    }

    /// Everything to hide from a command in `cwd`.
    pub(crate) fn masks(&self, cwd: &Path) -> Vec<PathBuf> {
        let mut masks: Vec<PathBuf> = SYSTEM_SECRETS.iter().map(PathBuf::from).collect();
        masks.extend(SECRETS.iter().map(|name| self.places.home.join(name)));
        masks.extend(HOME_PARTS.iter().map(|name| self.cp_home.join(name)));
        masks.push(self.ledger_path.clone());
        masks.extend(self.forbidden.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)));
        let anywhere: Vec<&str> = self.forbidden.iter().filter_map(Pattern::anywhere).collect();
        let mut places: Vec<&Path> = self.read.iter().filter_map(Pattern::tree).collect();
        places.push(cwd);
        for place in places {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            masks.extend(entries.filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let hidden = is_environment_file(&name) || anywhere.iter().any(|pattern| name_matches(pattern, &name));
                hidden.then(|| entry.path())
            }));
        }
        // What a tool needs of its own directory stays visible; the rest of the list is hidden wherever it lies.
        masks.retain(|mask| mask.exists() && !self.tools.iter().any(|tools| tools.starts_with(mask)));
        masks.sort();
        masks.dedup();
        masks
    }

    /// Everything to keep read-only inside what a command may write.
    pub(crate) fn protected(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            self.pristine.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect();
        for root in trees(&self.write) {
            // A directory of hooks that is not there yet could be made, and then be full of them.
            if root.join(".git/config").is_file() {
                drop(fs::create_dir(root.join(".git/hooks")));
            }
            let listed = |path: &Path| self.write.iter().any(|pattern| pattern.tree() == Some(path));
            paths.extend(DORMANT.iter().map(|name| root.join(name)).filter(|path| !listed(path)));
        }
        paths.extend(self.tools.iter().cloned());
        paths.retain(|path| path.exists());
        paths
    }

    /// Patterns that only we look at.
    pub(crate) fn not_kernel_enforced(&self) -> Vec<String> {
        let all = self.read.iter().chain(&self.write).chain(&self.execute).chain(&self.pristine).chain(&self.forbidden);
        all.filter(|pattern| pattern.tree().is_none())
            .map(|pattern| format!("not_kernel_enforced: {}", pattern.text()))
            .collect()
    }
}

/// The trees of some patterns that exist.
pub(crate) fn trees(patterns: &[Pattern]) -> Vec<PathBuf> {
    patterns.iter().filter_map(Pattern::tree).filter(|path| path.exists()).map(Path::to_owned).collect()
}

/// A value with a leading `~` replaced.
pub(crate) fn expand(text: &str, home: &str) -> String {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        _ => text.to_owned(),
    }
}

fn is_environment_file(name: &str) -> bool {
    let example = [".example", ".sample", ".template", ".dist"].iter().any(|end| name.ends_with(end));
    (name == ".env" || name.starts_with(".env.")) && !example
}

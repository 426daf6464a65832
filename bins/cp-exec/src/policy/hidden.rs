//! What a policy hides from every command, and what it keeps read-only inside what may be written.

use std::fs;
use std::path::{Path, PathBuf};

use super::governed::Governed;
use super::guarded::is_guarded;
use super::patterns::Pattern;
use super::resolved::Policy;
use crate::glob::name_matches;

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

impl Policy {
    /// Everything to hide from a command in `cwd`.
    pub(crate) fn masks(&self, cwd: &Path) -> Vec<PathBuf> {
        let mut masks: Vec<PathBuf> = SYSTEM_SECRETS.iter().map(PathBuf::from).collect();
        masks.extend(SECRETS.iter().map(|name| self.loaded.home.join(name)));
        masks.extend(HOME_PARTS.iter().map(|name| self.cp_home.join(name)));
        masks.push(self.ledger.clone());
        masks.extend(self.bounds.forbidden.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)));
        let anywhere: Vec<&str> = self.bounds.forbidden.iter().filter_map(Pattern::anywhere).collect();
        let mut directories: Vec<&Path> = self.bounds.read.iter().filter_map(Pattern::tree).collect();
        directories.push(cwd);
        for directory in directories {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
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

    /// What the policy lets commands write by its name, guarded or not.
    pub(crate) fn written_by_name(&self) -> Vec<PathBuf> {
        self.bounds.write.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect()
    }

    /// Whether other programs run something from a path later, so that it is not written.
    pub(crate) fn is_guarded(&self, path: &Path) -> bool {
        let below = self
            .written_by_name()
            .into_iter()
            .filter(|root| path.starts_with(root))
            .max_by_key(|root| root.as_os_str().len());
        below.is_some_and(|root| path != root && is_guarded(path.strip_prefix(&root).unwrap_or(path)))
    }

    /// Everything to keep read-only inside what a command may write, beside what is guarded there.
    pub(crate) fn protected(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            self.pristine.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect();
        paths.extend(self.governed.iter().flat_map(Governed::protected));
        paths.extend(self.tools.iter().cloned());
        paths.retain(|path| path.exists());
        paths
    }
}

fn is_environment_file(name: &str) -> bool {
    let example = [".example", ".sample", ".template", ".dist"].iter().any(|end| name.ends_with(end));
    (name == ".env" || name.starts_with(".env.")) && !example
}

//! The repositories that earlier runs made. One is a run's own as long as it is the same directory and nothing in it
//! has changed since a run ended. The list is in the home, which no run can write.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cp_common::home::{Home, make_directory};
use serde::{Deserialize, Serialize};

use crate::sandbox::plan::Identity;

/// Parts of a repository of which one changes when somebody works in it. The first is the repository.
const PARTS: [&str; 9] =
    ["", "HEAD", "config", "hooks", "info", "logs/HEAD", "objects/info", "packed-refs", "refs/heads"];
/// The size at which the list begins anew. A repository that is then forgotten is its owner's.
const FULL: u64 = 1 << 20;

#[derive(Deserialize, PartialEq, Eq, Serialize)]
struct Made {
    repository: Identity,
    /// The newest change time of its parts.
    changed: (i64, i64),
}

impl Made {
    fn now(path: &Path) -> Option<Self> {
        let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
        let parts = PARTS.iter().filter_map(|part| fs::symlink_metadata(path.join(part)).ok());
        let changed = parts.map(|meta| (meta.ctime(), meta.ctime_nsec())).max()?;
        Some(Self { repository: Identity::of(path, &meta), changed })
    }
}

fn list(home: &Home) -> PathBuf {
    home.state("repositories-made")
}

/// The repositories that runs made and that nobody else has changed.
pub(crate) fn made_by_runs(home: &Home) -> Vec<PathBuf> {
    let text = fs::read_to_string(list(home)).unwrap_or_default();
    let known = text.lines().filter_map(|line| serde_json::from_str::<Made>(line).ok());
    let is_same = |known: &Made| Made::now(&known.repository.path).as_ref() == Some(known);
    known.filter(is_same).map(|known| known.repository.path).collect()
}

/// Adds the repositories that a run has left. Errors are ignored, because an unknown repository is its owner's.
pub(crate) fn remember(home: &Home, left: &[String]) {
    let known = if left.is_empty() { Vec::new() } else { made_by_runs(home) };
    let new = left.iter().map(Path::new).filter(|path| !known.iter().any(|known| known == path));
    let lines: Vec<String> = new.filter_map(|path| serde_json::to_string(&Made::now(path)?).ok()).collect();
    let file = list(home);
    let is_full = fs::metadata(&file).is_ok_and(|meta| meta.len() > FULL);
    let mut options = OpenOptions::new();
    options.append(!is_full).write(true).truncate(is_full).create(true).mode(0o600);
    if !lines.is_empty()
        && make_directory(file.parent().unwrap_or(&file)).is_ok()
        && let Ok(mut file) = options.open(file)
    {
        let _ = file.write_all((lines.join("\n") + "\n").as_bytes());
    }
}

//! The skill that agents read, where a person has installed it: it belongs to the programs, and follows them.

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;
use cp_common::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::tree::files;

/// Where agents look for skills, below the home of a person.
const PLACES: [&str; 2] = [".claude/skills/cp-tools", ".agents/skills/cp-tools"];

/// The skill of a release, and the places where it is installed.
pub(super) struct Skill {
    source: PathBuf,
    places: Vec<PathBuf>,
}

impl Skill {
    /// The skill that lies at `source`, and where else it is. A place that is a link to the releases follows them by itself.
    pub(super) fn of(source: PathBuf, is_release: impl Fn(&Path) -> bool) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let found = PLACES.iter().filter_map(|place| home.join(place).canonicalize().ok());
        let mut places: Vec<PathBuf> = found.filter(|place| is_ours(place) && !is_release(place)).collect();
        places.dedup();
        Self { source, places }
    }

    /// What does the same as [`Self::sync`] by hand; `None` where these programs came without their skill.
    pub(super) fn command(&self) -> Option<String> {
        let word = |path: &Path| quoted(&path.display().to_string());
        let copy = |place: &PathBuf| format!("cp -RT {} {}", word(&self.source), word(place));
        let copies: Vec<String> = self.places.iter().map(copy).collect();
        self.source.is_dir().then(|| copies.join(" && "))
    }

    /// Puts this skill, the whole directory, in each place where it is not yet: `synced`, `current`, or `not_installed`.
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
                // What an update left that was killed.
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

/// Whether the skill in a directory is that of these programs.
fn is_ours(place: &Path) -> bool {
    let file = place.join("SKILL.md");
    file.is_file() && std::fs::read_to_string(file).is_ok_and(|text| text.starts_with("---\nname: cp-tools\n"))
}

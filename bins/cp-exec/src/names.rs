//! Guarded names: files that other programs execute, or read commands from, without being asked to by name. The names
//! are listed in `names.toml`. Also the paths with such names that a search through trees found.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::FileType;
use serde::Deserialize;

use crate::glob::name_matches;
use crate::nofollow::follow;

#[derive(Deserialize)]
struct Table {
    packages: Vec<String>,
    reader: Vec<Reader>,
}

/// Names that one program reads.
#[derive(Deserialize)]
struct Reader {
    names: Vec<String>,
    #[serde(default = "in_packages")]
    in_packages: bool,
}

const fn in_packages() -> bool {
    true
}

/// The name of the directory of a repository.
pub(crate) const REPOSITORY: &str = ".git";

/// The table, with its names by their components.
struct Names {
    packages: Vec<String>,
    /// The components of each name, and if it counts in packages.
    all: Vec<(Vec<String>, bool)>,
    /// The names that begin with a component, and with a pattern, which is under the empty text.
    beginning: HashMap<String, Vec<usize>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let Table { packages, reader } = crate::data::parsed(include_str!("names.toml"));
    let mut names = Names { packages, all: Vec::new(), beginning: HashMap::new() };
    for (name, in_packages) in reader.iter().flat_map(|one| one.names.iter().map(|name| (name, one.in_packages))) {
        let components: Vec<String> = name.split('/').map(str::to_owned).collect();
        let first = if components[0].contains('*') { String::new() } else { components[0].clone() };
        names.beginning.entry(first).or_default().push(names.all.len());
        names.all.push((components, in_packages));
    }
    names
});

/// The state of the search in one directory: the beginnings of guarded names that match the path so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchState {
    /// Names, and the number of their components that matched.
    partial: Vec<(usize, usize)>,
    pub(crate) in_packages: bool,
    /// True if only partially matched names count, because the directory is searched separately under its own path.
    only_partial: bool,
}

impl MatchState {
    /// The directory at which a search starts. Its own name does not count.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The state for a directory that is reached through a link: only partially matched names are searched for.
    pub(crate) fn linked(self) -> Self {
        Self { only_partial: true, in_packages: false, ..self }
    }

    /// True if the beginning of any name matched.
    pub(crate) fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// True if a search in this directory can find anything.
    pub(crate) fn can_match(&self) -> bool {
        !self.only_partial || self.has_partial()
    }

    /// The state of the search in an entry of this directory; `None` if its name is guarded.
    pub(crate) fn below(&self, name: &[u8]) -> Option<Self> {
        let begun = std::str::from_utf8(name).into_iter().chain([""]).filter_map(|name| NAMES.beginning.get(name));
        let begun = begun.flatten().filter(|_| !self.only_partial).map(|at| (*at, 0));
        let mut partial = Vec::new();
        for (at, matched) in begun.chain(self.partial.iter().copied()) {
            let (components, in_packages) = &NAMES.all[at];
            if !name_matches(&components[matched], name) {
                continue;
            }
            if matched + 1 < components.len() {
                partial.push((at, matched + 1));
            } else if *in_packages || !self.in_packages {
                return None;
            }
        }
        let in_packages = self.in_packages || NAMES.packages.iter().any(|known| known.as_bytes() == name);
        Some(Self { partial, in_packages, only_partial: self.only_partial })
    }
}

/// True if a path has a guarded name, or lies in a guarded directory or a repository.
pub(crate) fn is_guarded(path: &Path) -> bool {
    is_guarded_in(MatchState::root(), path)
}

fn is_guarded_in(mut within: MatchState, path: &Path) -> bool {
    path.iter().map(OsStr::as_encoded_bytes).any(|name| match within.below(name) {
        Some(below) if name != REPOSITORY.as_bytes() => {
            within = below;
            false
        }
        _ => true,
    })
}

/// True if a link with a guarded name makes a path guarded. The link lies in a directory around the path, below
/// `root`, and points to the path, to a directory around it, or to a directory in which the path has a guarded name.
pub(crate) fn is_guarded_by_link(root: &Path, path: &Path) -> bool {
    let around = path.ancestors().skip(1).take_while(|directory| directory.starts_with(root));
    around.into_iter().any(|directory| (0..NAMES.all.len()).any(|at| has_link_to(directory, at, path)))
}

/// True if a link in a directory gives a name of the table to a path.
fn has_link_to(directory: &Path, at: usize, path: &Path) -> bool {
    let components = &NAMES.all[at].0;
    let mut entry = directory.to_owned();
    let link = components.iter().position(|component| {
        entry.push(component);
        entry.is_symlink()
    });
    let Some(matched) = link.map(|last| last + 1) else { return false };
    let Ok(rest) = path.strip_prefix(follow(&entry).0) else { return false };
    let within = MatchState { partial: vec![(at, matched)], in_packages: false, only_partial: true };
    matched == components.len() || is_guarded_in(within, rest)
}

/// Guarded paths in some trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Symbolic links with a guarded name, or with the name of a directory that contains guarded names.
    pub links: Vec<PathBuf>,
    /// Directories named `.git`.
    pub repositories: Vec<PathBuf>,
    /// Directories that git takes for repositories because of their entries.
    pub bare: Vec<PathBuf>,
}

/// Collects guarded paths during a walk.
pub(crate) struct Guards<'a> {
    pub found: Guarded,
    /// Repositories that are not searched.
    known: &'a [PathBuf],
    /// The links that are followed; `None` means all. A link of the run does not give a guarded name to another path.
    followed: Option<&'a [PathBuf]>,
    /// The writable trees. Commands cannot change other paths.
    pub trees: Vec<PathBuf>,
    /// Targets of links, with the partial names that continue there.
    pub linked: Vec<(PathBuf, MatchState)>,
}

impl<'a> Guards<'a> {
    pub(crate) fn new(known: &'a [PathBuf], followed: Option<&'a [PathBuf]>, trees: Vec<PathBuf>) -> Self {
        Self { found: Guarded::default(), known, followed, trees, linked: Vec::new() }
    }

    /// Records an entry if it is guarded. Otherwise returns the names to search for in it, if it is a directory. `below` is
    /// the state of the search in it, `None` if its name is guarded.
    pub(crate) fn record(
        &mut self,
        below: Option<MatchState>,
        name: &[u8],
        kind: FileType,
        path: &Path,
    ) -> Option<MatchState> {
        let below = below.filter(|_| name != REPOSITORY.as_bytes());
        if name == REPOSITORY.as_bytes() && kind == FileType::Directory {
            if !self.known.iter().any(|known| known == path) {
                self.found.repositories.push(path.to_owned());
            }
        } else if kind == FileType::Symlink {
            self.record_link(below, path);
        } else if below.is_none() || is_device(kind) {
            self.found.paths.push(path.to_owned());
        } else {
            return below.filter(MatchState::can_match);
        }
        None
    }

    fn record_link(&mut self, below: Option<MatchState>, path: &Path) {
        if below.as_ref().is_some_and(|below| !below.has_partial() || below.in_packages) {
            return;
        }
        self.found.links.push(path.to_owned());
        if self.followed.is_some_and(|followed| !followed.iter().any(|known| known == path)) {
            return;
        }
        let target = follow(path).0;
        // A tree as a whole stays writable, even if a link points to it.
        if !self.trees.iter().any(|tree| target != *tree && target.starts_with(tree)) {
            return;
        }
        match below {
            Some(below) => self.linked.push((target, below.linked())),
            None if fs::symlink_metadata(&target).is_ok() && !path.ends_with(REPOSITORY) => {
                self.found.paths.push(target);
            }
            None => {}
        }
    }

    pub(crate) fn finish(mut self) -> Guarded {
        let Guarded { paths, links, repositories, bare } = &mut self.found;
        for found in [paths, links, repositories, bare] {
            found.sort();
            found.dedup();
        }
        self.found
    }
}

/// True if an entry that is not a directory may be guarded. Other entries need no path, which saves time.
pub(crate) fn may_matter(below: Option<&MatchState>, name: &[u8], kind: FileType) -> bool {
    below.is_none_or(MatchState::has_partial) || name == REPOSITORY.as_bytes() || is_device(kind)
}

fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        toml::from_str(include_str!("names.toml")).unwrap()
    }

    #[test]
    fn guarded_names_match_at_any_depth_but_not_similar_names() {
        for reader in table().reader {
            for name in reader.names {
                let plain = name.replace('*', "x");
                for path in [plain.clone(), format!("a/b/{plain}"), format!("{plain}/below")] {
                    assert!(is_guarded(Path::new(&path)), "{path}");
                }
                let neighbour = format!("{}/unguarded-name.txt", Path::new(&plain).parent().unwrap().display());
                let is_whole_directory = name.ends_with("/*");
                assert_eq!(is_guarded(Path::new(&neighbour)), is_whole_directory, "{neighbour}");
                assert_eq!(is_guarded(&Path::new("node_modules/p").join(&plain)), reader.in_packages, "{name}");
            }
        }
    }

    #[test]
    fn manual_page_lists_every_name() {
        #[derive(Deserialize)]
        struct Table {
            reader: Vec<Row>,
        }
        #[derive(Deserialize)]
        struct Row {
            program: String,
            event: String,
            names: Vec<String>,
        }
        let page = include_str!("../../../man/cp-policy.5");
        let table: Table = toml::from_str(include_str!("names.toml")).unwrap();
        for Row { program, event, names } in table.reader {
            let row = format!(".It {program}: {event}\n.Pa {}\n", names.join(" , "));
            assert!(page.contains(&row), "{row}");
        }
    }
}

//! Guarded names: files that other programs execute, or read commands from, without being asked to by name. The names
//! are listed in `names.toml`. Also the paths with such names that a search through trees found.

mod find;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

pub(crate) use self::find::{Guarded, Guards, may_matter};
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

/// A node of the tree of name components.
#[derive(Default)]
struct Node {
    plain: HashMap<String, usize>,
    /// Components with wildcards.
    patterns: Vec<(String, usize)>,
    /// Set if a name ends at this node: the name is guarded everywhere, or everywhere except in packages.
    guards: Option<Scope>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    OutsidePackages,
    Everywhere,
}

/// All names; the first node is the root.
struct Names {
    nodes: Vec<Node>,
    packages: Vec<String>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names::of(crate::data::parsed(include_str!("names.toml"))));

impl Names {
    fn of(table: Table) -> Self {
        let mut all = Self { nodes: vec![Node::default()], packages: table.packages };
        for Reader { names, in_packages } in &table.reader {
            let scope = if *in_packages { Scope::Everywhere } else { Scope::OutsidePackages };
            for name in names {
                let end = name.split('/').fold(0, |at, component| all.below(at, component));
                all.nodes[end].guards = all.nodes[end].guards.max(Some(scope));
            }
        }
        all
    }

    fn below(&mut self, at: usize, component: &str) -> usize {
        let Node { plain, patterns, .. } = &self.nodes[at];
        let known =
            plain.get(component).or_else(|| patterns.iter().find(|(known, _)| known == component).map(|(_, at)| at));
        if let Some(known) = known {
            return *known;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        let node = &mut self.nodes[at];
        if component.contains('*') {
            node.patterns.push((component.to_owned(), new));
        } else {
            node.plain.insert(component.to_owned(), new);
        }
        new
    }

    /// The nodes that an entry with this name reaches from a node.
    fn reached<'a>(&'a self, at: usize, name: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let Node { plain, patterns, .. } = &self.nodes[at];
        let exact = std::str::from_utf8(name).ok().and_then(|name| plain.get(name)).copied();
        exact.into_iter().chain(patterns.iter().filter(move |(word, _)| name_matches(word, name)).map(|(_, at)| *at))
    }

    fn is_inner(&self, at: usize) -> bool {
        !self.nodes[at].plain.is_empty() || !self.nodes[at].patterns.is_empty()
    }
}

/// The state of the search in one directory: the beginnings of guarded names that match the path so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchState {
    /// Nodes that were reached and have children.
    partial: Vec<usize>,
    pub(crate) in_packages: bool,
    /// True if only partially matched names count, because the directory is searched separately under its own path.
    only_partial: bool,
}

/// The classification of an entry by its name.
pub(crate) enum NameMatch {
    Guarded,
    /// Not guarded. If the entry is a directory, this is the state of the search in it.
    Inside(MatchState),
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

    /// Classifies an entry of this directory.
    pub(crate) fn classify(&self, name: &[u8]) -> NameMatch {
        let root = (!self.only_partial).then_some(0);
        let reached = root.into_iter().chain(self.partial.iter().copied()).flat_map(|at| NAMES.reached(at, name));
        let mut partial = Vec::new();
        for at in reached {
            match NAMES.nodes[at].guards {
                Some(Scope::Everywhere) => return NameMatch::Guarded,
                Some(Scope::OutsidePackages) if !self.in_packages => return NameMatch::Guarded,
                _ => partial.extend(NAMES.is_inner(at).then_some(at)),
            }
        }
        let in_packages = self.in_packages || NAMES.packages.iter().any(|known| known.as_bytes() == name);
        NameMatch::Inside(Self { partial, in_packages, only_partial: self.only_partial })
    }
}

/// True if a path has a guarded name, or lies in a guarded directory or a repository.
pub(crate) fn is_guarded(path: &Path) -> bool {
    is_guarded_in(MatchState::root(), path)
}

fn is_guarded_in(mut within: MatchState, path: &Path) -> bool {
    path.iter().map(OsStr::as_encoded_bytes).any(|name| match within.classify(name) {
        _ if name == REPOSITORY.as_bytes() => true,
        NameMatch::Guarded => true,
        NameMatch::Inside(below) => {
            within = below;
            false
        }
    })
}

/// True if a link with a guarded name makes a path guarded. The link lies in a directory around the path, below
/// `root`, and points to the path, to a directory around it, or to a directory in which the path has a guarded name.
pub(crate) fn is_guarded_by_link(root: &Path, path: &Path) -> bool {
    let around = path.ancestors().skip(1).take_while(|directory| directory.starts_with(root));
    around.into_iter().any(|directory| has_link_to(directory, 0, path))
}

fn has_link_to(directory: &Path, at: usize, path: &Path) -> bool {
    NAMES.nodes[at].plain.iter().any(|(name, below)| {
        let entry = directory.join(name);
        let Ok(meta) = fs::symlink_metadata(&entry) else { return false };
        if !meta.is_symlink() {
            return meta.is_dir() && NAMES.is_inner(*below) && has_link_to(&entry, *below, path);
        }
        let Ok(rest) = path.strip_prefix(follow(&entry).0) else { return false };
        let within = MatchState { partial: vec![*below], in_packages: false, only_partial: true };
        NAMES.nodes[*below].guards.is_some() || is_guarded_in(within, rest)
    })
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
        let page = include_str!("../../../../man/cp-policy.5");
        let table: Table = toml::from_str(include_str!("names.toml")).unwrap();
        for Row { program, event, names } in table.reader {
            let row = format!(".It {program}: {event}\n.Pa {}\n", names.join(" , "));
            assert!(page.contains(&row), "{row}");
        }
    }
}

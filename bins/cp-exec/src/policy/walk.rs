//! The walk through trees. Before a run it searches for names that the policy hides or keeps read-only and for
//! guarded names; after a run, for guarded names. Each tree is read once without following links, one level after the
//! other, and paths are built only for entries that can match.

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::hidden::is_environment_file;
use super::patterns::Pattern;
use super::{Policy, built_in};
use crate::listings;
use crate::names::{Guarded, Guards, may_matter};
use crate::nofollow::{self, each};
use crate::refusal::refuse;
use crate::sandbox::plan::{Operation, Place};
use cp_common::glob::name_matches;

/// The longest path of a directory that is searched. The kernel accepts no path over 4096 bytes, so deeper paths
/// could not be covered.
const LONGEST: usize = 4096 - 256;

/// File systems of the kernel. They hold no files of a user, and the view has a `/proc` of its own.
const KERNEL: [&str; 2] = ["/proc", "/sys"];

impl Policy {
    /// Searches all trees for names that are hidden or kept read-only, and the writable ones also for guarded names.
    /// Modules hide names too.
    pub(crate) fn scan_trees(
        &self,
        roots: &[&Path],
        writable: &[PathBuf],
        of_modules: &[&Pattern],
    ) -> Result<(Vec<Place>, Guarded)> {
        let guarded = outermost(writable.iter().map(PathBuf::as_path));
        let trees = guarded.iter().map(|tree| tree.to_path_buf()).collect();
        let names = self.names(of_modules);
        let toolchains = unsearched_toolchains(&self.loaded.home, &names, &guarded);
        let mut walk = Walk::new(names, Guards::new(&[], None, trees), self.loaded.settings.paths.walk);
        let unsearched: Vec<PathBuf> = toolchains.into_iter().chain(KERNEL.map(PathBuf::from)).collect();
        let is_unsearched = |root: &Path| unsearched.iter().any(|tree| root.starts_with(tree));
        walk.skipped = self.masks().into_iter().chain(unsearched.iter().cloned()).collect();
        let roots = roots.iter().copied().filter(|root| !is_of_the_system(root) && !is_unsearched(root));
        for root in outermost(roots.chain(guarded.iter().copied())) {
            let within = guarded.iter().any(|guarded| root.starts_with(guarded)).then(PathBuf::new);
            walk.inner = guarded.iter().copied().filter(|inner| *inner != root && inner.starts_with(root)).collect();
            walk.tree(root, !is_of_the_system(root), within)?;
        }
        Ok((walk.found, walk.guards.finish()))
    }

    /// The patterns by which this policy and its modules hide names or keep them read-only.
    fn names(&self, of_modules: &[&Pattern]) -> Vec<(Operation, Pattern)> {
        let hidden =
            self.bounds.forbidden.iter().chain(of_modules.iter().copied()).map(|pattern| (Operation::Hidden, pattern));
        let all = hidden.chain(self.pristine.iter().map(|pattern| (Operation::ReadOnly, pattern)));
        all.filter(|(_, pattern)| pattern.tree().is_none()).map(|(kind, pattern)| (kind, pattern.clone())).collect()
    }
}

/// The toolchains below a home in which no name is searched for: no command can write there, and no pattern but a
/// built-in one could match in them.
fn unsearched_toolchains(home: &Path, names: &[(Operation, Pattern)], writable: &[&Path]) -> Vec<PathBuf> {
    let is_built_in = |pattern: &&Pattern| pattern.anywhere().is_some_and(|name| is_environment_file(name.as_bytes()));
    let own = || names.iter().map(|(_, pattern)| pattern).filter(|pattern| !is_built_in(pattern));
    let is_unsearched = |toolchain: &PathBuf| {
        !writable.iter().any(|tree| tree.starts_with(toolchain) || toolchain.starts_with(tree))
            && !own().any(|pattern| pattern.covers(toolchain) || pattern.may_match_below(toolchain))
    };
    built_in().toolchains.iter().map(|name| home.join(name)).filter(is_unsearched).collect()
}

impl Guarded {
    /// Searches trees for guarded names, up to a number of entries. Known repositories are not searched, and only the
    /// given links are followed. An error comes with the findings so far.
    pub(crate) fn in_trees(
        trees: &[PathBuf],
        known: &[PathBuf],
        links: &[PathBuf],
        most: u64,
    ) -> (Self, Option<Error>) {
        let roots = outermost(trees.iter().map(PathBuf::as_path));
        let guards = Guards::new(known, Some(links), roots.iter().map(|tree| tree.to_path_buf()).collect());
        let mut walk = Walk::new(Vec::new(), guards, most);
        let walked = roots.into_iter().try_for_each(|root| walk.tree(root, false, Some(PathBuf::new())));
        (walk.guards.finish(), walked.err())
    }
}

/// True for a tree of system programs, which no command can write.
fn is_of_the_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store"].iter().any(|tree| path.starts_with(tree))
}

/// Removes paths that lie in other paths of the list.
fn outermost<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<&'a Path> {
    let mut paths: Vec<&Path> = paths.collect();
    paths.sort_unstable();
    paths.dedup_by(|below, above| below.starts_with(above));
    paths
}

/// A directory that is still to be read.
struct PendingDirectory {
    path: PathBuf,
    /// True if names that the policy hides or keeps read-only are searched for.
    names: bool,
    /// Its path below the tree that is searched for guarded names, if it lies in one.
    guarded: Option<PathBuf>,
}

/// What was read of a directory.
struct Listing {
    /// The entries that can matter.
    entries: Vec<(OsString, FileType)>,
    /// The number of all entries.
    count: u64,
    /// True if git recognizes a bare repository by the entries, even if some of them are links to other directories.
    is_bare: bool,
}

struct Walk<'a> {
    /// The patterns that hide an entry or keep it read-only, and the places that match. A place is pinned if its pattern
    /// would no longer match after a directory on the path was renamed.
    patterns: Vec<(Operation, Pattern)>,
    found: Vec<Place>,
    guards: Guards<'a>,
    /// Directories that are hidden by their paths, with everything in them.
    skipped: Vec<PathBuf>,
    /// Writable trees inside the tree of the current walk.
    inner: Vec<&'a Path>,
    /// The number of entries that may still be read, and the limit.
    left: u64,
    most: u64,
}

impl<'a> Walk<'a> {
    fn new(patterns: Vec<(Operation, Pattern)>, guards: Guards<'a>, most: u64) -> Self {
        let (found, skipped, inner) = Default::default();
        Self { patterns, found, guards, skipped, inner, left: most, most }
    }

    fn tree(&mut self, root: &Path, names: bool, guarded: Option<PathBuf>) -> Result<()> {
        let mut level = vec![PendingDirectory { path: root.to_owned(), names, guarded }];
        let mut is_root = true;
        while !level.is_empty() {
            let read = each(level, |directory| (self.read(&directory), directory));
            level = Vec::new();
            for (read, directory) in read {
                match read {
                    Ok(listing) => self.record(&directory, listing, &mut level)?,
                    // A root may be a file.
                    Err(Errno::NOTDIR) if is_root && directory.names && root.exists() => _ = self.find(root),
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    // The directory was replaced by a link in the meantime.
                    Err(Errno::LOOP) if !is_root => {}
                    Err(e) if e != Errno::ACCESS && directory.names => {
                        return Err(unsearchable(&directory.path, &e.into()));
                    }
                    Err(_) => self.hide(directory),
                }
            }
            is_root = false;
        }
        Ok(())
    }

    /// Hides a directory that cannot be searched, because its owner could change its mode, and git could find a
    /// repository in it.
    fn hide(&mut self, PendingDirectory { path, names, guarded }: PendingDirectory) {
        self.guards.found.paths.extend(guarded.map(|_| path.clone()));
        self.found.extend(names.then(|| Place::new(&path, Operation::Hidden, false)));
    }

    fn read(&self, directory: &PendingDirectory) -> rustix::io::Result<Listing> {
        let file = nofollow::open_with(&directory.path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        let (mut parts, mut entries, mut count) = ([false; 4], Vec::new(), 0);
        let mut read = |name: &OsStr, kind| {
            count += 1;
            for (part, known) in parts.iter_mut().zip(["HEAD", "objects", "refs", "commondir"]) {
                *part |= name == known;
            }
            if kind == FileType::Directory
                || directory.names && self.may_match(name.as_bytes(), kind)
                || directory.guarded.is_some() && may_matter(name, kind)
            {
                entries.push((name.to_owned(), kind));
            }
        };
        if directory.guarded.is_some() {
            listings::of(&file)?.iter().for_each(|(name, kind)| read(name, kind));
        } else {
            nofollow::entries(&file, |name, kind| read(OsStr::from_bytes(name.to_bytes()), kind))?;
        }
        Ok(Listing { entries, count, is_bare: matches!(parts, [true, true, true, _] | [true, _, _, true]) })
    }

    /// True if the policy may hide an entry or keep it read-only. Other entries need no path, which saves time.
    fn may_match(&self, name: &[u8], kind: FileType) -> bool {
        let may_match = |pattern: &Pattern| pattern.last().is_none_or(|word| name_matches(word, name));
        // A link is not an alternative name of its target here; the target is checked at its own path.
        kind != FileType::Symlink
            && (is_environment_file(name) || self.patterns.iter().any(|(_, pattern)| may_match(pattern)))
    }

    /// Records the findings in a directory, and adds the directories in it to the next level.
    fn record(
        &mut self,
        directory: &PendingDirectory,
        Listing { entries, count, is_bare }: Listing,
        level: &mut Vec<PendingDirectory>,
    ) -> Result<()> {
        self.left = self.left.checked_sub(count).ok_or_else(|| too_many(self.most, &directory.path))?;
        if is_bare && directory.guarded.is_some() {
            self.guards.found.bare.push(directory.path.clone());
        }
        for (name, kind) in entries {
            let path = directory.path.join(&name);
            let is_hidden = directory.names && self.may_match(name.as_bytes(), kind) && self.find(&path);
            let is_path = |other: &Path| other.as_os_str() == path.as_os_str();
            let names = directory.names && !is_hidden && !self.skipped.iter().any(|skipped| is_path(skipped));
            let guarded = match &directory.guarded {
                Some(within) => Some(within.join(&name)).filter(|below| self.guards.record(below, kind, &path)),
                None => self.inner.iter().any(|inner| is_path(inner)).then(PathBuf::new),
            };
            if kind != FileType::Directory || !names && guarded.is_none() {
                continue;
            }
            let below = PendingDirectory { path, names, guarded };
            if below.path.as_os_str().len() > LONGEST { self.hide(below) } else { level.push(below) }
        }
        Ok(())
    }

    /// Adds an entry if the policy hides it or keeps it read-only. True if it is hidden with everything in it.
    fn find(&mut self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let is_match = |pattern: &Pattern| {
            pattern.anywhere().map_or_else(|| pattern.matches(path), |word| name_matches(word, name))
        };
        // A path whose name alone decides matches again wherever it is moved.
        let matched = self.patterns.iter().filter(|(_, pattern)| is_match(pattern));
        let matched = matched.map(|(operation, pattern)| (*operation, pattern.anywhere().is_none()));
        let by_name = is_environment_file(name).then_some((Operation::Hidden, false));
        let found = by_name.or_else(|| matched.min_by_key(|(operation, is_pinned)| (Reverse(*operation), *is_pinned)));
        let place = found.map(|(operation, is_pinned)| Place::new(path, operation, is_pinned));
        self.found.extend(place);
        found.is_some_and(|(operation, _)| operation == Operation::Hidden)
    }
}

/// The error for a directory that cannot be searched. It may contain hidden names, so the command does not run.
fn unsearchable(directory: &Path, error: &std::io::Error) -> Error {
    let shown: String = directory.display().to_string().chars().take(200).collect();
    refuse("paths.walk", format!("{shown} cannot be searched for what the policy hides by its name: {error}"))
        .with("path", shown)
        .hint("move or remove that directory, then try again")
}

fn too_many(most: u64, directory: &Path) -> Error {
    refuse("paths.walk", format!("more than {most} entries to look through for names that the policy hides or guards"))
        .with("setting", "paths.walk")
        .with("path", directory.display().to_string())
        .hint("make fewer files visible: start in a smaller directory; the owner of the policy can raise paths.walk or list narrower directories")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::policy::patterns::Anchors;

    struct Trees {
        root: PathBuf,
        _place: tempfile::TempDir,
    }

    impl Trees {
        fn with(files: &[&str]) -> Self {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().canonicalize().unwrap();
            for file in files {
                fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
                fs::write(root.join(file), "").unwrap();
            }
            Self { root, _place: place }
        }

        fn below(&self, paths: &[PathBuf]) -> Vec<String> {
            let mut paths: Vec<String> =
                paths.iter().map(|path| path.strip_prefix(&self.root).unwrap().display().to_string()).collect();
            paths.sort();
            paths
        }
    }

    #[test]
    fn walk_finds_hidden_names_everywhere_and_guarded_names_in_writable_trees() {
        let deep = format!("{}.env", "d/".repeat(20));
        let trees = Trees::with(&[&deep, "a/.env", "a/.bashrc", "w/x/.bashrc", "w/x/.env", "w/.git/.env", ".gdbinit"]);
        let mut walk = Walk::new(Vec::new(), Guards::new(&[], None, Vec::new()), 100);
        let writable = trees.root.join("w");
        walk.inner = vec![&writable];
        walk.tree(&trees.root, true, None).unwrap();
        let hidden: Vec<PathBuf> = walk.found.into_iter().map(|place| place.path).collect();
        assert_eq!(trees.below(&hidden), ["a/.env", &deep, "w/.git/.env", "w/x/.env"]);
        let guarded = walk.guards.finish();
        assert_eq!(trees.below(&guarded.paths), ["w/x/.bashrc"]);
        assert_eq!(trees.below(&guarded.repositories), ["w/.git"]);
    }

    #[test]
    fn secrets_are_found_everywhere_but_in_toolchains_that_no_command_writes() {
        let lib = ".rustup/toolchains/stable/lib";
        let toolchain = format!("{lib}/.env");
        let trees = Trees::with(&["p/.env", "d/deep/.env.local", ".rustup/.env", "toolchains/.env", &toolchain]);
        let anchors = Anchors { base: trees.root.join("p"), home: trees.root.clone(), session: None, top: "/".into() };
        let found = |writable: &str, hidden: &str| {
            let (writable, hidden) = (trees.root.join(writable), [(Operation::Hidden, Pattern::new(hidden, &anchors))]);
            let mut walk = Walk::new(Vec::new(), Guards::new(&[], None, Vec::new()), 100);
            walk.skipped = unsearched_toolchains(&trees.root, &hidden, &[&writable]);
            walk.tree(&trees.root, true, None).unwrap();
            trees.below(&walk.found.into_iter().map(|place| place.path).collect::<Vec<_>>())
        };
        let user = [".rustup/.env", "d/deep/.env.local", "p/.env", "toolchains/.env"];
        assert_eq!(found("p", "**/.env"), user);
        let all = [&[".rustup/.env", &toolchain], &user[1..]].concat();
        // A command could have written the file, or a pattern of the owner could name it.
        for writable in [".rustup", lib, "."] {
            assert_eq!(found(writable, "**/.env"), all, "{writable}");
        }
        for hidden in ["**/*.key", "~/**/x.key", "~/.rustup/toolchains/*/lib/x"] {
            assert_eq!(found("p", hidden), all, "{hidden}");
        }
    }

    #[test]
    fn walk_counts_entries_once_and_fails_above_limit() {
        let trees = Trees::with(&["a/b", "a/c"]);
        let inner = [trees.root.clone(), trees.root.join("a")];
        assert!(Guarded::in_trees(&inner, &[], &[], 3).1.is_none());
        assert!(Guarded::in_trees(&inner, &[], &[], 2).1.is_some());
    }

    #[test]
    fn walk_does_not_follow_links() {
        let (outside, trees) = (Trees::with(&["x/.bashrc"]), Trees::with(&["a/b"]));
        std::os::unix::fs::symlink(&outside.root, trees.root.join("a/link")).unwrap();
        let found = |root: &Path| Guarded::in_trees(&[root.to_owned()], &[], &[], 100).0.paths;
        assert_eq!(found(&trees.root), Vec::<PathBuf>::new());
        assert_eq!(found(&outside.root), [outside.root.join("x/.bashrc")]);
    }

    #[test]
    fn walk_finds_deep_names_links_and_bare_repositories() {
        let trees = Trees::with(&[
            "a/b/.envrc",
            "a/.git/config",
            "bare/HEAD",
            "bare/objects/x",
            "bare/refs/x",
            "bare/config",
            "Makefile",
            "cfg/tasks.json",
            "parted/HEAD",
            "parted/commondir",
            "parted/config.worktree",
            "other/commondir",
            "cfg/x.json",
            "env.sh",
        ]);
        for (link, target) in [("a/.vscode", "../cfg"), (".profile", "env.sh"), (".husky", "/nowhere"), ("l", "cfg")] {
            std::os::unix::fs::symlink(target, trees.root.join(link)).unwrap();
        }
        let roots = [trees.root.clone(), trees.root.join("a")];
        let links = [trees.root.join("a/.vscode"), trees.root.join(".profile")];
        let (found, error) = Guarded::in_trees(&roots, &[], &links, 100);
        assert!(error.is_none());
        assert_eq!(trees.below(&found.paths), ["a/b/.envrc", "cfg", "env.sh"]);
        assert_eq!(trees.below(&found.bare), ["bare", "parted"]);
        assert_eq!(trees.below(&found.links), [".husky", ".profile", "a/.vscode"]);
        assert_eq!(trees.below(&found.repositories), ["a/.git"]);
        // A link that is not followed does not give a guarded name to other paths.
        let (found, _) = Guarded::in_trees(&roots, &found.repositories, &[], 100);
        assert!(found.repositories.is_empty() && !found.paths.contains(&trees.root.join("cfg")));
    }
}

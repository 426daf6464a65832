//! The bounds of a policy or a module, which are paths that may be read, written and executed, and forbidden paths.
//! Also the governed paths of a tree, which commands do not write.
//!
//! A module declares its capabilities in `modules/<m>/capabilities.json` of a control plane root. They narrow
//! the policy for requests from inside the module or for its programs, and never widen it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Error, Result};
use cp_policy::{PathClass, classify, governed_roots};
use serde::Deserialize;

use super::patterns::{Anchors, Pattern, covering, escaped, hostile};
use crate::glob::name_matches;
use crate::nofollow::{self, Link};
use crate::refusal::{denied, denied_by, refuse_link};

/// The kind of access to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Execute,
}

impl Access {
    /// The verb of a refusal.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
        }
    }
}

#[derive(Clone)]
pub(crate) struct Bounds {
    pub read: Vec<Pattern>,
    pub write: Vec<Pattern>,
    pub execute: Vec<Pattern>,
    /// Paths that may be neither read nor written, even if another list contains them.
    pub forbidden: Vec<Pattern>,
    /// True if nothing may be written now. The write list still tells which paths other commands may have written.
    pub read_only: bool,
}

impl Bounds {
    fn of(&self, access: Access) -> &[Pattern] {
        match access {
            Access::Read => &self.read,
            Access::Write if self.read_only => &[],
            Access::Write => &self.write,
            Access::Execute => &self.execute,
        }
    }

    /// True if a path is listed for this access. Forbidden paths are checked separately.
    pub(crate) fn lists(&self, access: Access, path: &Path) -> bool {
        self.of(access).iter().any(|pattern| pattern.matches(path))
    }

    /// The pattern that forbids a path.
    pub(crate) fn forbidding(&self, path: &Path) -> Option<&Pattern> {
        covering(&self.forbidden, path)
    }

    /// Every pattern, and true if it grants access.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Pattern, bool)> {
        let granting = self.read.iter().chain(&self.write).chain(&self.execute).map(|pattern| (pattern, true));
        granting.chain(self.forbidden.iter().map(|pattern| (pattern, false)))
    }

    /// The links on the granted paths. Programs use these paths by their names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.all().filter(|(_, grants)| *grants).flat_map(|(pattern, _)| pattern.links())
    }

    /// The listed trees that exist. The kernel can enforce these. The root stands for the directories in it, because
    /// nothing can be mounted over the root of a view.
    pub(crate) fn trees(&self, access: Access) -> Vec<PathBuf> {
        let all = self.of(access).iter().filter_map(Pattern::tree).flat_map(|path| match path.parent() {
            Some(_) => vec![path.to_owned()],
            None => directories_of_root(),
        });
        all.filter(|path| is_there(path)).collect()
    }

    /// The trees that may be executed. Kernel rules need an existing path, so a missing tree below a writable one is
    /// represented by its nearest existing ancestor.
    pub(crate) fn executable(&self, writable: &[PathBuf]) -> Vec<PathBuf> {
        let is_writable = |path: &Path| writable.iter().any(|root| path.starts_with(root));
        let declared = self.execute.iter().filter_map(Pattern::tree);
        let absent =
            declared.filter(|path| !is_there(path) && is_writable(path) && nofollow::first_link(path).is_none());
        let above = absent.filter_map(|path| path.ancestors().find(|above| is_there(above)).map(Path::to_owned));
        self.trees(Access::Execute).into_iter().chain(above).collect()
    }

    /// Removes patterns that grant access through a hostile link, and returns one message for each. A link is hostile
    /// if commands can write to its directory, or if it leaves the directory under which the pattern was declared.
    pub(super) fn remove_linked(&mut self) -> Vec<String> {
        let roots = self.written();
        let mut removed = Vec::new();
        for patterns in [&mut self.read, &mut self.write, &mut self.execute] {
            patterns.retain(|pattern| {
                let leaves = || match (pattern.escaped_root(), pattern.links().last()) {
                    (Some(root), Some(link)) => {
                        Err(refuse_link(pattern.text(), &link.at, &format!("which points out of {}", root.display())))
                    }
                    _ => Ok(()),
                };
                let refused = check_links(pattern.text(), pattern.links(), &roots).and_then(|()| leaves()).err();
                removed.extend(refused.as_ref().map(|error| error.message().to_owned()));
                refused.is_none()
            });
        }
        removed
    }

    /// The trees that are writable by name, even if they are guarded.
    pub(crate) fn written(&self) -> Vec<PathBuf> {
        self.write.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect()
    }
}

/// Refuses a path through a link that a command could have created.
pub(super) fn check_links(text: &str, links: &[Link], writable: &[PathBuf]) -> Result<()> {
    match hostile(links, writable) {
        Some(link) => Err(refuse_link(text, &link.at, "which lies in a directory that commands can write")),
        None => Ok(()),
    }
}

/// True if a path exists and has no link on it.
fn is_there(path: &Path) -> bool {
    nofollow::open(path).is_ok_and(|file| file.is_some())
}

/// Parses patterns.
pub(super) fn patterns(texts: &[String], anchors: &Anchors) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text, anchors)).collect()
}

/// Directories that each view makes itself.
const OF_VIEW: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/tmp"];

fn directories_of_root() -> Vec<PathBuf> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten();
    let is_shown = |path: &PathBuf| path.is_dir() && !OF_VIEW.iter().any(|other| path == Path::new(other));
    entries.map(|entry| entry.path()).filter(is_shown).collect()
}

/// A control plane root and its governed roots.
#[derive(Clone)]
pub(crate) struct Governed {
    pub(super) root: PathBuf,
    roots: Vec<String>,
}

impl Governed {
    /// Reads the declarations of a root.
    pub(super) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), roots: governed_roots(root) }
    }

    /// Its governed roots and ledgers, including those that do not exist.
    pub(super) fn protected(&self) -> Vec<PathBuf> {
        self.pristine().into_iter().chain(self.ledgers()).collect()
    }

    /// Its governed roots. A prefix that points out of the tree is ignored.
    fn pristine(&self) -> Vec<PathBuf> {
        let roots = self.roots.iter().map(|prefix| self.root.join(prefix));
        roots.filter(|path| path.starts_with(&self.root) && *path != self.root).collect()
    }

    /// The directories of its ledgers.
    fn ledgers(&self) -> Vec<PathBuf> {
        let planes = fs::read_dir(self.root.join("planes")).into_iter().flatten().flatten();
        let below = planes.flat_map(|plane| ["ledger", "sessions"].map(|name| plane.path().join(name)));
        std::iter::once(self.root.join("ledger")).chain(below).collect()
    }

    /// Refuses to write a pristine path or a ledger.
    pub(crate) fn check_writable(&self, path: &Path) -> Result<()> {
        let (class, _) = classify(&resolved(&self.root), path, &self.roots);
        let (rule, hint) = match class {
            PathClass::Pristine => {
                ("pristine", "governed parts of a tree are changed by its own programs, never by a command")
            }
            PathClass::AppendOnly => {
                ("append_only", "ledgers are written by the programs that keep them, never by a command")
            }
            PathClass::Derived | PathClass::Unknown | PathClass::External => return Ok(()),
        };
        Err(denied("write", path).with("rule", rule).with("class", class.name()).hint(hint))
    }
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    capabilities: Lists,
}

/// A list that is empty or missing allows nothing in the module. Only a list that is there restricts the whole tree.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lists {
    read: Option<Vec<String>>,
    write: Option<Vec<String>>,
    execute: Option<Vec<String>>,
    forbidden: Vec<String>,
}

/// A module and its bounds.
pub(crate) struct Module {
    /// Its canonical directory.
    directory: PathBuf,
    file: PathBuf,
    /// What its manifest declares, or why that cannot be read.
    declared: Result<Declared>,
}

struct Declared {
    bounds: Bounds,
    /// The declared arguments of executables, for patterns with arguments: `scripts/a.sh --*`.
    arguments: Vec<(Pattern, String)>,
    /// The accesses for which the manifest has a list.
    lists: Vec<Access>,
}

/// The modules of a root that declare capabilities. Most roots have none.
pub(super) fn modules(root: &Path, anchors: &Anchors) -> Vec<Module> {
    let anchors = Anchors { base: root.to_owned(), ..anchors.clone() };
    let entries = fs::read_dir(root.join("modules")).into_iter().flatten().flatten();
    let mut modules: Vec<Module> = entries
        .filter_map(|entry| {
            let directory = entry.path().canonicalize().ok()?;
            let file = directory.join("capabilities.json");
            let declared = match fs::read(&file) {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
                Err(e) => Err(Error::config(format!("cannot be read: {e}"))),
                Ok(text) => declared(&text, &directory, &anchors),
            };
            Some(Module { declared: declared.map_err(|e| e.in_file(&file)), directory, file })
        })
        .collect();
    modules.sort_by(|a, b| a.directory.cmp(&b.directory));
    modules
}

/// Parses the patterns of a manifest, which match below the root only: `**` is any depth there.
fn below_root(texts: &[String], anchors: &Anchors) -> Vec<Pattern> {
    let below = |text: &String| {
        let root = text.starts_with("**").then(|| escaped(&anchors.base.to_string_lossy()) + "/");
        Pattern::new(&(root.unwrap_or_default() + text), anchors)
    };
    texts.iter().map(below).collect()
}

fn declared(text: &[u8], directory: &Path, anchors: &Anchors) -> Result<Declared> {
    let manifest: Manifest = serde_json::from_slice(text).map_err(|e| Error::config(e.to_string()))?;
    let given = manifest.capabilities;
    let lists = [(Access::Read, &given.read), (Access::Write, &given.write), (Access::Execute, &given.execute)];
    let lists = lists.into_iter().filter(|(_, list)| list.is_some()).map(|(access, _)| access).collect();
    let mut read = below_root(&given.read.unwrap_or_default(), anchors);
    // A module can read its own directory.
    read.push(Pattern::new(&escaped(&directory.to_string_lossy()), anchors));
    let (mut execute, mut arguments) = (Vec::new(), Vec::new());
    for text in &given.execute.unwrap_or_default() {
        let (path, words) = text.split_once(' ').map_or((text.as_str(), None), |(path, words)| (path, Some(words)));
        match words {
            None => execute.push(path.to_owned()),
            Some(words) => arguments.push((Pattern::new(path, anchors), words.trim().to_owned())),
        }
    }
    let bounds = Bounds {
        read,
        write: below_root(&given.write.unwrap_or_default(), anchors),
        execute: below_root(&execute, anchors),
        forbidden: below_root(&given.forbidden, anchors),
        read_only: false,
    };
    Ok(Declared { bounds, arguments, lists })
}

impl Module {
    /// True if the bounds of the module apply to one of these paths.
    pub(super) fn contains_any(&self, paths: &[&Path]) -> bool {
        paths.iter().any(|path| path.starts_with(&self.directory))
    }

    /// What is declared. If the manifest cannot be read, everything is refused.
    fn declared(&self) -> Result<&Declared> {
        self.declared.as_ref().map_err(|error| {
            let hint = format!("correct {}: {}", self.file.display(), error.message());
            denied("execute", &self.directory).with("rule", "capabilities").hint(hint)
        })
    }

    /// True if the manifest lists paths for an access, so that it restricts the whole tree.
    pub(super) fn restricts(&self, access: Access) -> bool {
        self.declared.as_ref().is_ok_and(|declared| declared.lists.contains(&access))
    }

    /// The patterns of an access. A path that may be written or executed may be read.
    pub(super) fn patterns(&self, access: Access) -> impl Iterator<Item = &Pattern> {
        self.declared.iter().flat_map(move |Declared { bounds, arguments, .. }| {
            let others = if access == Access::Read { [&bounds.write[..], &bounds.execute] } else { [&[][..], &[]] };
            let scripts = arguments.iter().filter(move |_| access != Access::Write).map(|(pattern, _)| pattern);
            bounds.of(access).iter().chain(others.into_iter().flatten()).chain(scripts)
        })
    }

    /// Refuses access that the module does not declare, or forbids.
    pub(crate) fn check(&self, access: Access, path: &Path) -> Result<()> {
        let bounds = &self.declared()?.bounds;
        let (error, why) = match bounds.forbidding(path) {
            Some(pattern) => {
                let error = denied_by(access.name(), path, "capabilities", pattern.text());
                (error, format!("it is forbidden in {}", self.file.display()))
            }
            None if bounds.lists(access, path) => return Ok(()),
            None => {
                let why = format!("capabilities.{} in {} does not list it", access.name(), self.file.display());
                (denied(access.name(), path).with("rule", "capabilities"), why)
            }
        };
        Err(error.hint(why))
    }

    /// Refuses to execute a file with arguments that the module does not declare.
    pub(crate) fn check_execute(&self, path: &Path, arguments: &[String]) -> Result<()> {
        let words = arguments.join(" ");
        let declared = |(pattern, with): &(Pattern, String)| pattern.matches(path) && name_matches(with, &words);
        let Declared { bounds, arguments, .. } = self.declared()?;
        if bounds.forbidding(path).is_none() && arguments.iter().any(declared) {
            return Ok(());
        }
        self.check(Access::Execute, path)
    }

    /// Refuses a path that the module forbids.
    pub(crate) fn check_not_forbidden(&self, path: &Path) -> Result<()> {
        match self.declared()?.bounds.forbidding(path) {
            Some(_) => self.check(Access::Read, path),
            None => Ok(()),
        }
    }

    /// The parts of some paths inside the bounds. Only whole trees, because the kernel supports no other patterns.
    pub(crate) fn narrow(&self, access: Access, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let declared = self.declared()?;
        let mut bounds = declared.bounds.trees(access);
        if access == Access::Execute {
            bounds.extend(declared.arguments.iter().flat_map(|(pattern, _)| pattern.present()));
        }
        let mut left = Vec::new();
        for path in paths {
            if bounds.iter().any(|bound| path.starts_with(bound)) {
                left.push(path.clone());
            } else {
                left.extend(bounds.iter().filter(|bound| bound.starts_with(path)).cloned());
            }
        }
        Ok(left)
    }

    /// The forbidden paths, which are hidden.
    pub(crate) fn hidden(&self) -> Result<Vec<PathBuf>> {
        let mut hidden: Vec<PathBuf> = self.declared()?.bounds.forbidden.iter().flat_map(Pattern::present).collect();
        // A link is not another name of its target, which is hidden at its own path.
        hidden.retain(|path| !path.is_symlink());
        Ok(hidden)
    }
}

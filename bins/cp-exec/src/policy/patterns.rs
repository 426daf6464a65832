//! Path patterns, and the bounds of a policy or a module that they make: paths that may be read, written and executed,
//! and forbidden paths.

use std::fs;
use std::path::{Component, Path, PathBuf};

use cp_common::Result;

use crate::nofollow::{self, Link, follow};
use crate::refusal::refuse_link;
use cp_common::glob::{is_pattern, name_matches, unescaped};

/// The values of the variable parts of patterns.
#[derive(Clone, Debug)]
pub(crate) struct Anchors {
    /// The value of `.`: the directory in which the outermost program was started.
    pub base: PathBuf,
    /// The value of `~`: the home directory of the policy's owner.
    pub home: PathBuf,
    /// The value of `<session_id>`.
    pub session: Option<String>,
    /// The directory below which a pattern that starts with `**` matches.
    pub top: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The text of the pattern in the policy.
    pub(super) text: String,
    /// The path, if the pattern is a path and everything below it: the kernel can enforce this.
    tree: Option<PathBuf>,
    /// The components, with `*` and `?`. The kernel cannot enforce these.
    parts: Vec<String>,
    /// The links on the path of the pattern.
    links: Vec<Link>,
    /// The directory under which the pattern was declared, if a link leaves it.
    escaped_root: Option<PathBuf>,
}

impl Pattern {
    /// Parses a pattern. A relative pattern starts at `.`, and one that starts with `**` matches at any depth.
    pub(crate) fn new(text: &str, anchors: &Anchors) -> Self {
        let session = anchors.session.as_deref().map(escaped);
        let mut path = text.replace("<session_id>", session.as_deref().unwrap_or("<session_id>"));
        let mut root = (!path.starts_with('/') && !path.starts_with("**")).then(|| anchors.base.clone());
        if path == "~" || path.starts_with("~/") {
            path.replace_range(..1, &escaped(&anchors.home.to_string_lossy()));
            root = Some(anchors.home.clone());
        }
        // Links are resolved in the components before the first wildcard only.
        let is_literal = |part: &Component<'_>| !is_pattern(&part.as_os_str().to_string_lossy());
        let fixed: PathBuf = Path::new(&path).components().take_while(is_literal).collect();
        let fixed = PathBuf::from(unescaped(&fixed.to_string_lossy()));
        let rest: PathBuf = Path::new(&path).components().skip_while(is_literal).collect();
        let anywhere = path.starts_with("**");
        let fixed = if anywhere { anchors.top.clone() } else { anchors.base.join(fixed) };
        let (real, links) = follow(&fixed);
        let escaped_root = root
            .filter(|root| !links.is_empty() && normal(&fixed).starts_with(root) && !real.starts_with(follow(root).0));
        let is_tree = !anywhere && (rest.as_os_str().is_empty() || rest == Path::new("**"));
        let parts = components(&normal(&Path::new(&escaped(&real.to_string_lossy())).join(rest)));
        Self { text: text.to_owned(), tree: is_tree.then_some(real), parts, links, escaped_root }
    }

    /// The pattern of an absolute path.
    pub(super) fn of_path(path: &Path) -> Self {
        let [base, home, top] = ["/"; 3].map(PathBuf::from);
        Self::new(&escaped(&path.to_string_lossy()), &Anchors { base, home, session: None, top })
    }

    /// Refuses a link that a command could have created.
    pub(super) fn check_links(&self, writable: &[PathBuf]) -> Result<()> {
        check_links(&self.text, &self.links, writable)
    }

    /// Refuses a link that leaves the directory under which the pattern was declared.
    pub(super) fn check_root(&self) -> Result<()> {
        match (&self.escaped_root, self.links.last()) {
            (Some(root), Some(link)) => {
                Err(refuse_link(&self.text, &link.at, &format!("which points out of {}", root.display())))
            }
            _ => Ok(()),
        }
    }

    /// The path of the tree, if the pattern is a whole tree.
    pub(crate) fn tree(&self) -> Option<&Path> {
        self.tree.as_deref()
    }

    /// The last component of a pattern `**/name`, which alone decides.
    pub(super) fn anywhere(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [any, name] if any == "**" => Some(name),
            _ => None,
        }
    }

    /// The pattern for the last component of matching paths; `None` if any name matches.
    pub(super) fn last(&self) -> Option<&str> {
        self.parts.last().map(String::as_str).filter(|last| *last != "**")
    }

    /// True if the pattern matches a normalized path.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        self.tree.as_ref().map_or_else(|| glob(&self.parts, &components(path), false), |root| path.starts_with(root))
    }

    /// True if a new entry of a directory can match the pattern.
    pub(super) fn may_match_new_in(&self, directory: &Path) -> bool {
        match (&self.tree, self.parts.split_last()) {
            (Some(path), _) => path.parent() == Some(directory) && !path.exists(),
            (None, above) => above.is_some_and(|(_, above)| glob(above, &components(directory), false)),
        }
    }

    /// True if the pattern can match a path below a directory.
    pub(super) fn may_match_below(&self, directory: &Path) -> bool {
        let by_parts = || glob(&self.parts, &components(directory), true);
        self.tree.as_ref().map_or_else(by_parts, |root| root.starts_with(directory))
    }

    /// True if the pattern matches a path or one of its ancestors.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.matches(above))
    }
}

/// Parses patterns.
pub(super) fn patterns(texts: &[String], anchors: &Anchors) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text, anchors)).collect()
}

/// The first pattern that covers a path.
pub(crate) fn covering<'a>(patterns: &'a [Pattern], path: &Path) -> Option<&'a Pattern> {
    patterns.iter().find(|pattern| pattern.covers(path))
}

/// Quotes a path, so that it is a pattern that matches this path only.
pub(crate) fn escaped(path: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '\\' | '>');
    path.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Removes `.` and `..` from a path without reading the file system.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// The components of an absolute path. Bytes that are not UTF-8 are replaced, in patterns as in paths.
fn components(path: &Path) -> Vec<String> {
    path.iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect()
}

/// Refuses a path through a link that a command could have created in one of these trees.
pub(super) fn check_links(text: &str, links: &[Link], writable: &[PathBuf]) -> Result<()> {
    let is_hostile = |link: &&Link| writable.iter().any(|root| link.at != *root && link.at.starts_with(root));
    match links.iter().find(is_hostile) {
        Some(link) => Err(refuse_link(text, &link.at, "which lies in a directory that commands can write")),
        None => Ok(()),
    }
}

/// True if components match a path. `below`: if they can match a path below it.
fn glob(pattern: &[String], path: &[String], below: bool) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (part, None) if below => part.is_some(),
        (None, None) => true,
        (Some((any, rest)), name) if any == "**" => {
            below || glob(rest, path, false) || name.is_some_and(|(_, path)| glob(pattern, path, false))
        }
        (Some((first, rest)), Some((name, path))) => name_matches(first, name) && glob(rest, path, below),
        _ => false,
    }
}

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

#[derive(Clone, Default)]
pub(crate) struct Bounds {
    /// The lists of paths, by [`Access`].
    lists: [Vec<Pattern>; 3],
    /// Paths that may be neither read nor written, even if another list contains them.
    pub forbidden: Vec<Pattern>,
    /// True if nothing may be written now. The write list still tells which paths other commands may have written.
    pub read_only: bool,
}

impl Bounds {
    /// Parses the lists of a policy or a module: read, write and execute.
    pub(super) fn of(lists: [&[String]; 3], forbidden: &[String], at: &Anchors) -> Self {
        let lists = lists.map(|texts| patterns(texts, at));
        Self { lists, forbidden: patterns(forbidden, at), read_only: false }
    }

    /// Adds a path that may be read, and executed if it is a program or a directory of programs.
    pub(super) fn allow(&mut self, pattern: Pattern, is_program: bool) {
        self.lists[Access::Execute as usize].extend(is_program.then(|| pattern.clone()));
        self.lists[Access::Read as usize].push(pattern);
    }

    pub(super) fn list(&self, access: Access) -> &[Pattern] {
        if access == Access::Write && self.read_only { &[] } else { &self.lists[access as usize] }
    }

    /// True if a path is listed for this access. Forbidden paths are checked separately.
    pub(crate) fn lists(&self, access: Access, path: &Path) -> bool {
        self.list(access).iter().any(|pattern| pattern.matches(path))
    }

    /// True if commands may have written a path.
    pub(crate) fn is_written(&self, path: &Path) -> bool {
        self.lists[Access::Write as usize].iter().any(|pattern| pattern.matches(path))
    }

    /// The pattern that forbids a path.
    pub(crate) fn forbidding(&self, path: &Path) -> Option<&Pattern> {
        covering(&self.forbidden, path)
    }

    /// Every pattern that grants access.
    pub(super) fn granting(&self) -> impl Iterator<Item = &Pattern> {
        self.lists.iter().flatten()
    }

    /// The links on the granted paths. Programs use these paths by their names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.granting().flat_map(|pattern| &pattern.links)
    }

    /// The listed trees that exist. The kernel can enforce these. The root stands for the directories in it, because
    /// nothing can be mounted over the root of a view.
    pub(crate) fn trees(&self, access: Access) -> Vec<PathBuf> {
        let all = self.list(access).iter().filter_map(Pattern::tree).flat_map(|path| match path.parent() {
            Some(_) => vec![path.to_owned()],
            None => directories_of_root(),
        });
        all.filter(|path| is_there(path)).collect()
    }

    /// The trees that may be executed. Kernel rules need an existing path, so a missing tree below a writable one is
    /// represented by its nearest existing ancestor.
    pub(crate) fn executable(&self, writable: &[PathBuf]) -> Vec<PathBuf> {
        let is_writable = |path: &Path| writable.iter().any(|root| path.starts_with(root));
        let declared = self.list(Access::Execute).iter().filter_map(Pattern::tree);
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
        for patterns in &mut self.lists {
            patterns.retain(|pattern| {
                let refused = pattern.check_links(&roots).and_then(|()| pattern.check_root()).err();
                removed.extend(refused.as_ref().map(|error| error.message().to_owned()));
                refused.is_none()
            });
        }
        removed
    }

    /// The trees that are writable by name, even if they are guarded.
    pub(crate) fn written(&self) -> Vec<PathBuf> {
        self.lists[Access::Write as usize].iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect()
    }
}

/// True if a path exists and has no link on it.
fn is_there(path: &Path) -> bool {
    nofollow::open(path).is_ok_and(|file| file.is_some())
}

/// Directories that each view makes itself.
const OF_VIEW: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/tmp"];

fn directories_of_root() -> Vec<PathBuf> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten();
    let is_shown = |path: &PathBuf| path.is_dir() && !OF_VIEW.iter().any(|other| path == Path::new(other));
    entries.map(|entry| entry.path()).filter(is_shown).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        let anchors = Anchors {
            base: "/nowhere/b".into(),
            home: "/nowhere/h".into(),
            session: Some("SES-1".into()),
            top: "/".into(),
        };
        Pattern::new(text, &anchors)
    }

    fn matches(text: &str, path: &str) -> bool {
        pattern(text).matches(Path::new(path))
    }

    #[test]
    fn star_matches_one_component_and_double_star_many() {
        assert!(matches("src/*.rs", "/nowhere/b/src/a.rs"));
        assert!(!matches("src/*.rs", "/nowhere/b/src/x/a.rs"));
        assert!(matches("src/**/a.rs", "/nowhere/b/src/a.rs"));
        assert!(matches("src/**/a.rs", "/nowhere/b/src/x/y/a.rs"));
        assert!(matches("**/.env", "/elsewhere/.env"));
        assert!(!matches("**/.env", "/elsewhere/.envrc"));
        assert!(matches("**/.env*", "/elsewhere/.envrc"));
    }

    #[test]
    fn pattern_matches_only_below_directories_that_it_can_reach() {
        for text in ["**/*.pem", "~/**/key", "~/.rustup/*/k", "~/*/toolchains/**/k", "/**/x"] {
            assert!(pattern(text).may_match_below(Path::new("/nowhere/h/.rustup/toolchains")), "{text}");
        }
        for text in ["./**/key", "~/.cargo/**/k", "~/.rustup/tmp/*.k", "~/.ssh/**"] {
            assert!(!pattern(text).may_match_below(Path::new("/nowhere/h/.rustup/toolchains")), "{text}");
        }
    }

    #[test]
    fn plain_path_and_trailing_double_star_are_trees() {
        for text in ["lib", "lib/**", "./lib/", "x/../lib"] {
            assert_eq!(pattern(text).tree(), Some(Path::new("/nowhere/b/lib")), "{text}");
        }
        assert!(matches("~/.ssh/**", "/nowhere/h/.ssh/id"));
        assert!(matches("out/<session_id>", "/nowhere/b/out/SES-1/x"));
        assert!(!matches("lib", "/nowhere/b/library"));
    }

    #[test]
    fn pattern_below_a_directory_that_is_not_utf8_matches() {
        let base = PathBuf::from(std::ffi::OsStr::from_bytes(b"/nowhere/\xff"));
        let anchors = Anchors { base: base.clone(), home: "/h".into(), session: None, top: "/".into() };
        let pattern = Pattern::new("*.pem", &anchors);
        assert!(pattern.matches(&base.join("a.pem")) && !pattern.matches(&base.join("a.txt")));
    }

    #[test]
    fn escaped_path_matches_only_itself() {
        for name in ["a*b", "?", "\\", "a\\*", "<session_id>", "[x]{y}", "(~)", "%,#'\"\n", "-", "**", "é"] {
            let base = PathBuf::from("/nowhere").join(name);
            let anchors =
                Anchors { base: base.clone(), home: base.clone(), session: Some("*".into()), top: "/".into() };
            let tree = base.join("below");
            for text in [escaped(tree.to_str().unwrap()) + "/**", "below".into(), "~/below".into()] {
                assert_eq!(Pattern::new(&text, &anchors).tree(), Some(tree.as_path()), "{name}: {text}");
            }
            for text in [escaped(base.to_str().unwrap()) + "/*.rs", "*.rs".into(), "~/*.rs".into()] {
                let pattern = Pattern::new(&text, &anchors);
                assert!(pattern.matches(&base.join("a.rs")), "{name}: {text}");
                assert!(!pattern.matches(Path::new("/nowhere/aXb/a.rs")), "{name}: {text}");
            }
        }
        let session = Anchors { base: "/b".into(), home: "/h".into(), session: Some("*".into()), top: "/".into() };
        assert_eq!(Pattern::new("<session_id>", &session).tree(), Some(Path::new("/b/*")));
    }
}

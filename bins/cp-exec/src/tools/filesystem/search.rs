//! `filesystem.search` and `find`: search lines of files, and files by name, as far as ignore rules and the policy
//! allow.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::{Error, Result, signals};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, Walk, WalkBuilder};
use rustix::fs::OFlags;
use serde::Serialize;
use serde_json::json;

use super::{open, path_of, readable, shown, visible};
use crate::nofollow;
use crate::policy::{Access, Hidden, Policy, covering};
use crate::request::{EntryKind, Find, Search};
use crate::run::Engine;
use crate::tools::Item;

/// The most lines, or files, of one answer.
const MOST: usize = 1000;
/// The default limit.
const USUAL: usize = 100;
/// The most context lines around a match.
const CONTEXT: usize = 20;
/// Longer lines are truncated.
const LINE: usize = 400;
/// The most unsearchable files that are listed. All of them are counted.
const SKIPPED: usize = 20;

/// A file that could not be searched.
#[derive(Serialize)]
struct Skipped {
    path: String,
    reason: String,
}

/// A line of an answer.
#[derive(Serialize)]
struct ResultLine {
    path: String,
    line: u64,
    text: String,
    /// True for a context line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    context: bool,
}

/// Collects the lines of an answer.
struct ResultLines {
    found: Vec<ResultLine>,
    /// The number of matching lines.
    count: usize,
    limit: usize,
    /// The file that is being searched.
    path: String,
    has_more: bool,
}

/// Walks the files below a path, with a time limit.
pub(super) struct FileWalk<'a> {
    policy: &'a Policy,
    hidden: Arc<Hidden>,
    walk: Walk,
    glob: Option<Override>,
    until: Instant,
    is_late: bool,
}

pub(super) fn search(engine: &mut Engine, search: &Search) -> Result<Item> {
    let matcher = matcher(search)?;
    let root = path_of(&engine.policy, &search.path)?;
    let mut places = FileWalk::below(&engine.policy, &root, search.glob.as_deref(), search.hidden)?;
    let context = search.context.min(CONTEXT);
    let mut searcher = SearcherBuilder::new()
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        .build();
    let limit = search.limit.unwrap_or(USUAL).clamp(1, MOST);
    let mut lines = ResultLines { found: Vec::new(), count: 0, limit, path: String::new(), has_more: false };
    let (mut files, mut skipped, mut skipped_files) = (0_u64, Vec::new(), 0_u64);
    while !lines.has_more
        && let Some(entry) = places.next()?
    {
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        lines.path = shown(&engine.policy, entry.path());
        let result = open(entry.path(), "file", OFlags::empty()).and_then(|file| {
            searcher.search_file(&matcher, &file, &mut lines).map_err(|e| Error::io("cannot be read", e))
        });
        match result {
            Ok(()) => files += 1,
            Err(error) => {
                skipped_files += 1;
                if skipped.len() < SKIPPED {
                    skipped.push(Skipped { path: lines.path.clone(), reason: error.message().to_owned() });
                }
            }
        }
    }
    let has_more = lines.has_more || places.is_late;
    let mut text = lines.text(context > 0, places.is_late);
    for Skipped { path, reason } in &skipped {
        let _ = writeln!(text, "[{path} was not searched: {reason}]");
    }
    let ResultLines { found, count, .. } = lines;
    let what = json!({ "reads": [{ "path": root.display().to_string() }], "pattern": search.pattern, "count": count });
    let value = json!({ "path": root.display().to_string(), "matches": found, "count": count, "files": files,
        "skipped": skipped, "skipped_files": skipped_files, "has_more": has_more });
    let receipt = super::record(engine, "filesystem.search", what)?;
    Ok(Item::new("filesystem.search", value, receipt, "/value/matches").shown_as(text))
}

pub(super) fn find(engine: &mut Engine, find: &Find) -> Result<Item> {
    let root = path_of(&engine.policy, &find.path)?;
    let mut places = FileWalk::below(&engine.policy, &root, find.glob.as_deref(), find.hidden)?;
    let limit = find.limit.unwrap_or(USUAL).clamp(1, MOST);
    let (mut paths, mut has_more) = (Vec::new(), false);
    while let Some(entry) = places.next()? {
        let kind = entry.file_type();
        let is_meant = match find.kind {
            None => true,
            Some(EntryKind::File) => kind.is_some_and(|kind| kind.is_file()),
            Some(EntryKind::Directory) => kind.is_some_and(|kind| kind.is_dir()),
            Some(EntryKind::Symlink) => kind.is_some_and(|kind| kind.is_symlink()),
        };
        // A directory on the path may have been replaced by a link in the meantime.
        let is_there = || entry.path().parent().is_some_and(|parent| nofollow::open_with(parent, OFlags::PATH).is_ok());
        if entry.depth() == 0 || !is_meant || !is_there() {
            continue;
        }
        if paths.len() == limit {
            has_more = true;
            break;
        }
        paths.push(shown(&engine.policy, entry.path()));
    }
    has_more |= places.is_late;
    let note = note(paths.len(), has_more, places.is_late, "files");
    let text = paths.iter().flat_map(|path| [path, "\n"]).collect::<String>() + &note;
    let what = json!({ "reads": [{ "path": root.display().to_string() }], "glob": find.glob, "count": paths.len() });
    let value =
        json!({ "path": root.display().to_string(), "paths": paths, "count": paths.len(), "has_more": has_more });
    let receipt = super::record(engine, "filesystem.find", what)?;
    Ok(Item::new("filesystem.find", value, receipt, "/value/paths").shown_as(text))
}

/// A remark for a model about an empty or incomplete answer.
fn note(count: usize, has_more: bool, is_late: bool, what: &str) -> String {
    match (count, has_more, is_late) {
        (_, _, true) => format!("[{count} {what}, and there may be more: the time was up. Look in a directory below]"),
        (_, true, false) => format!("[the first {count} {what}; there are more: raise limit, or be more exact]"),
        (0, false, false) => format!("[no {what}]"),
        (_, false, false) => String::new(),
    }
}

fn matcher(search: &Search) -> Result<RegexMatcher> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).line_terminator(Some(b'\n')).ban_byte(Some(0)).fixed_strings(search.literal);
    builder.build(&search.pattern).map_err(|e| {
        Error::validation(format!("the pattern is not a regular expression: {e}"))
            .with("rule", "pattern")
            .hint("literal=true looks for the text itself, line by line")
    })
}

impl<'a> FileWalk<'a> {
    pub(super) fn below(policy: &'a Policy, root: &Path, glob: Option<&str>, with_hidden: bool) -> Result<Self> {
        readable(policy, root)?;
        open(root, "file or directory", OFlags::empty())?;
        let invalid = |e: ignore::Error| Error::validation(format!("the glob is not valid: {e}")).with("rule", "glob");
        let glob = glob.map(|glob| OverrideBuilder::new(root).add(glob).and_then(|builder| builder.build()));
        let hidden = Arc::new(policy.hidden());
        let (secret, forbidden) = (Arc::clone(&hidden), policy.bounds.forbidden.clone());
        let walk = WalkBuilder::new(root)
            .hidden(!with_hidden)
            .add_custom_ignore_filename(".rgignore")
            .sort_by_file_name(std::ffi::OsStr::cmp)
            .filter_entry(move |entry| {
                let path = entry.path();
                entry.file_name() != ".git" && !secret.hides(path) && covering(&forbidden, path).is_none()
            })
            .build();
        let until = Instant::now() + Duration::from_secs_f64(policy.exec().timeout);
        Ok(Self { policy, hidden, walk, glob: glob.transpose().map_err(invalid)?, until, is_late: false })
    }

    /// The next visible entry that the glob matches. Unreadable entries are skipped.
    pub(super) fn next(&mut self) -> Result<Option<DirEntry>> {
        for entry in self.walk.by_ref() {
            signals::check()?;
            if Instant::now() > self.until {
                self.is_late = true;
                return Ok(None);
            }
            let Ok(entry) = entry else { continue };
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            // A glob with exclusions only keeps the paths that it does not match.
            let fits = self.glob.as_ref().is_none_or(|glob| {
                let matched = glob.matched(entry.path(), is_directory);
                if glob.num_whitelists() > 0 { matched.is_whitelist() } else { !matched.is_ignore() }
            });
            if fits && visible(self.policy, &self.hidden, entry.path(), Access::Read).is_ok() {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

impl ResultLines {
    fn push(&mut self, line: Option<u64>, bytes: &[u8], context: bool) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let text = match text.char_indices().nth(LINE) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        self.found.push(ResultLine { path: self.path.clone(), line: line.unwrap_or(0), text, context });
    }

    /// Formats lines as `grep` does: a colon in matching lines, a dash in context lines.
    fn text(&self, with_context: bool, is_late: bool) -> String {
        let mut text = String::new();
        let mut last: Option<&ResultLine> = None;
        for found in &self.found {
            let follows = |last: &ResultLine| last.path == found.path && last.line + 1 == found.line;
            if with_context && last.is_some_and(|last| !follows(last)) {
                text.push_str("--\n");
            }
            let mark = if found.context { '-' } else { ':' };
            let ResultLine { path, line, text: words, .. } = found;
            let _ = writeln!(text, "{path}{mark}{line}{mark}{words}");
            last = Some(found);
        }
        text + &note(self.count, self.has_more || is_late, is_late, "lines")
    }
}

impl Sink for ResultLines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.count == self.limit {
            self.has_more = true;
            return Ok(false);
        }
        self.count += 1;
        self.push(found.line_number(), found.bytes(), false);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> io::Result<bool> {
        self.push(found.line_number(), found.bytes(), true);
        Ok(true)
    }
}

//! Files that do not exist: the error, with the files of similar names that exist.

use std::path::{Path, PathBuf};

use cp_common::Error;
use cp_common::spelling::nearest;

use super::search::FileWalk;
use super::{readable, shown};
use crate::policy::Policy;

/// The most names that a hint has.
const NAMES: usize = 3;
/// The most entries that are searched for the name.
const ENTRIES: usize = 5000;

/// The error for a file that does not exist.
pub(super) fn file_not_found(policy: &Policy, path: &Path) -> Error {
    let found = similar(policy, path);
    let error = Error::not_found(format!("file not found: {}", path.display()));
    if found.is_empty() {
        return error.hint("use find to look for it, or write_file to create it");
    }
    let names: Vec<String> = found.iter().map(|path| shown(policy, path)).collect();
    let hint = format!("did you mean `{}`? write_file creates a file", names.join("` or `"));
    error.with("nearest", names).hint(hint)
}

/// The readable files in the same directory with a similar name, otherwise the files of this name below the working
/// directory.
fn similar(policy: &Policy, path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(parent)) = (path.file_name().and_then(|name| name.to_str()), path.parent()) else {
        return Vec::new();
    };
    let listing = readable(policy, parent).ok().and_then(|()| std::fs::read_dir(parent).ok()).into_iter().flatten();
    let names: Vec<String> = listing.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let is_readable = |path: &PathBuf| readable(policy, path).is_ok();
    let same_case = names.iter().find(|other| other.eq_ignore_ascii_case(name)).map(String::as_str);
    let near = same_case.or_else(|| nearest(name, names.iter().map(String::as_str)));
    if let Some(near) = near.map(|near| parent.join(near)).filter(is_readable) {
        return vec![near];
    }
    let Ok(mut walk) = FileWalk::below(policy, &policy.base, None, false) else { return Vec::new() };
    let mut found = Vec::new();
    for _ in 0..ENTRIES {
        let Ok(Some(entry)) = walk.next() else { break };
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str() == Some(name) {
            found.push(entry.into_path());
        }
        if found.len() == NAMES {
            break;
        }
    }
    found
}

//! Files that do not exist: the error, with the file of a similar name that exists.

use std::path::{Path, PathBuf};

use cp_common::Error;
use cp_common::spelling::nearest;

use super::{readable, shown};
use crate::policy::Policy;

/// The error for a file that does not exist.
pub(super) fn file_not_found(policy: &Policy, path: &Path) -> Error {
    let error = Error::not_found(format!("file not found: {}", path.display()));
    let Some(near) = similar(policy, path) else { return error.hint("write_file creates it") };
    let name = shown(policy, &near);
    let hint = format!("did you mean `{name}`? write_file creates a file");
    error.with("nearest", vec![name]).hint(hint)
}

/// The readable file in the same directory with a similar name.
fn similar(policy: &Policy, path: &Path) -> Option<PathBuf> {
    let (name, parent) = (path.file_name()?.to_str()?, path.parent()?);
    let listing = readable(policy, parent).ok().and_then(|()| std::fs::read_dir(parent).ok()).into_iter().flatten();
    let names: Vec<String> = listing.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let same_case = names.iter().find(|other| other.eq_ignore_ascii_case(name)).map(String::as_str);
    let near = same_case.or_else(|| nearest(name, names.iter().map(String::as_str)));
    near.map(|near| parent.join(near)).filter(|path| readable(policy, path).is_ok())
}

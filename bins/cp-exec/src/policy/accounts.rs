//! The password file: a user's name and home directory.

use std::path::PathBuf;

/// The name of a user, or the uid if the user is not listed.
pub(crate) fn name_of(uid: u32) -> String {
    field(uid, 0).unwrap_or_else(|| uid.to_string())
}

/// The home directory of a user, or `$HOME` if the user is not listed.
pub(super) fn home_of(uid: u32) -> PathBuf {
    field(uid, 5)
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(PathBuf::from))
        .unwrap_or_else(|| "/".into())
}

fn field(uid: u32, index: usize) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = uid.to_string();
    let entry = users.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    entry.split(':').nth(index).map(str::to_owned)
}

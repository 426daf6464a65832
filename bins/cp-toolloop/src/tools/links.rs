//! Tools that are links to a file of another name, such as a program that does what it is called by. cp-exec starts a file under its
//! own name; so a small script stands for each such link, under the link's name.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::home::{make_directory, write_whole};
use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Hash;

/// The directory with the script that stands for a link. It is the same for every run, so that a run can go on with it.
pub(crate) fn stand_in(link: &Path, context: &Context) -> Result<PathBuf> {
    let word = link.to_str().ok_or_else(|| Error::validation("the link's path is not UTF-8").in_file(link))?;
    let name = link.file_name().ok_or_else(|| Error::validation("the link has no name").in_file(link))?;
    let hash = Hash::of(word.as_bytes());
    let directory = context.home.path("links").join(&hash.hex()[..16]);
    let script = directory.join(name);
    let text = format!("#!/bin/sh\nexec '{}' \"$@\"\n", word.replace('\'', r"'\''"));
    if std::fs::read(&script).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(directory);
    }
    make_directory(&directory)?;
    write_whole(&script, text.as_bytes())?;
    let executable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&script, executable)
        .map_err(|e| Error::io("making the script for a link", e).in_file(&script))?;
    Ok(directory)
}

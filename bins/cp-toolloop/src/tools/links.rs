//! Tools that are links to a file of another name, such as a program that does what it is called by. cp-exec starts a file under its
//! own name; so a small script stands for each such link, under the link's name.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::home::{make_directory, write_whole};
use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Hash;

use crate::tools::tool::{Origin, Tool};

/// What stands before the link in its script.
const HEAD: &str = "#!/bin/sh\nexec '";
/// What stands after it.
const TAIL: &str = "' \"$@\"\n";

/// The directory with the script that stands for a link. It is the same for every run, so that a run can go on with it.
pub(crate) fn stand_in(link: &Path, context: &Context) -> Result<PathBuf> {
    let script = script_of(link, context)?;
    let word = link.to_str().ok_or_else(|| Error::validation("the link's path is not UTF-8").in_file(link))?;
    let directory = script.parent().unwrap_or(&script).to_owned();
    let text = format!("{HEAD}{}{TAIL}", word.replace('\'', r"'\''"));
    if std::fs::read(&script).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(directory);
    }
    sweep(context);
    make_directory(&directory)?;
    write_whole(&script, text.as_bytes())?;
    let executable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&script, executable)
        .map_err(|e| Error::io("making the script for a link", e).in_file(&script))?;
    Ok(directory)
}

/// What a tool answered, with the name of the link in place of our script's.
pub(crate) fn unveiled(answer: String, tool: &Tool, context: &Context) -> String {
    let Origin::Executable { link: Some(link), .. } = &tool.origin else { return answer };
    let Ok(script) = script_of(link, context) else { return answer };
    answer.replace(&*script.to_string_lossy(), &link.to_string_lossy())
}

fn script_of(link: &Path, context: &Context) -> Result<PathBuf> {
    let name = link.file_name().ok_or_else(|| Error::validation("the link has no name").in_file(link))?;
    let hash = Hash::of(link.as_os_str().as_encoded_bytes());
    Ok(context.home.path("links").join(&hash.hex()[..16]).join(name))
}

/// Removes the scripts of links that are gone.
fn sweep(context: &Context) {
    let listing = std::fs::read_dir(context.home.path("links")).into_iter().flatten().flatten();
    for directory in listing.map(|entry| entry.path()) {
        let scripts = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut texts = scripts.filter_map(|script| std::fs::read_to_string(script.path()).ok());
        let leads_nowhere = |text: String| {
            let link = text.strip_prefix(HEAD).and_then(|rest| rest.strip_suffix(TAIL));
            link.is_some_and(|link| !Path::new(&link.replace(r"'\''", "'")).exists())
        };
        if texts.next().is_some_and(leads_nowhere) {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

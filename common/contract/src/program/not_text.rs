//! The error for an argument that must be text and is not UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::wire::{Error, Result};

/// Rejects a path that is not UTF-8 if another process receives it as text, because it would name a different file
/// there.
pub fn require_text<'a>(option: &str, paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    if paths.into_iter().all(|path| path.to_str().is_some()) {
        return Ok(());
    }
    Err(Error::usage(format!("the value of {option} is not UTF-8"))
        .with("option", option)
        .hint("this path is handed on as text; give the file another name, or a link to it"))
}

/// Makes the error for the first argument that is not UTF-8 and does not name a file. `is_path` is true for options
/// that name files.
pub(super) fn not_text(arguments: &[OsString], is_path: impl Fn(&str) -> bool) -> Error {
    let mut before: Option<&OsStr> = None;
    let mut is_data = false;
    for word in arguments {
        is_data |= word == "--";
        if word.to_str().is_none() {
            let attached = word.as_bytes().split(|byte| *byte == b'=').next().filter(|name| name.starts_with(b"--"));
            let attached = attached.filter(|_| !is_data).and_then(|name| std::str::from_utf8(name).ok());
            let separate = before.and_then(OsStr::to_str).filter(|name| !is_data && name.starts_with('-'));
            match attached.or(separate) {
                Some(option) if is_path(option) => {}
                Some(option) => return error(&format!("the value of {option}")).with("option", option),
                None => return error(&format!("`{}`", word.to_string_lossy())),
            }
        }
        before = Some(word);
    }
    Error::usage("an argument is not UTF-8")
}

fn error(what: &str) -> Error {
    Error::usage(format!("{what} is not UTF-8")).hint("write it as UTF-8; only the paths of files may be any bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_text_names_option_and_skips_paths() {
        let bad = |prefix: &str| OsStr::from_bytes(&[prefix.as_bytes(), b"\xe9"].concat()).to_owned();
        let of = |words: &[OsString]| not_text(words, |option| option == "--ledger").message().to_owned();
        assert_eq!(of(&["--ledger".into(), bad(""), "-m".into(), bad("x")]), "the value of -m is not UTF-8");
        assert_eq!(of(&[bad("--ledger="), bad("--model=")]), "the value of --model is not UTF-8");
        assert_eq!(of(&["--model".into(), "--".into(), bad("t")]), "`t\u{fffd}` is not UTF-8");
    }
}

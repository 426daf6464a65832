//! The command line that goes on after a budget was used up: runnable as it is printed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cp_common::wire;

/// The command line again with these limits in the place of its own, and with the file that standard input came from. Another standard
/// input, such as a pipe, has to be given again.
pub(super) fn with_limits(usd: Option<f64>, tokens: Option<u64>) -> String {
    let mut words = Vec::new();
    let mut arguments = std::env::args_os();
    let mut is_data = false;
    // Where no option limits it, the file does.
    let (mut is_the_files, mut has_option) = (false, false);
    let limits =
        [usd.map(|usd| format!("--budget-usd={usd}")), tokens.map(|tokens| format!("--budget-tokens={tokens}"))];
    while let Some(word) = arguments.next() {
        is_data |= word == "--";
        let text = word.to_str().filter(|_| !is_data).unwrap_or_default();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let limit = match name {
            "--budget-usd" => &limits[0],
            "--budget-tokens" => &limits[1],
            _ => {
                is_the_files |= name == "--budget-file";
                words.push(quoted(&word));
                continue;
            }
        };
        if value.is_none() {
            arguments.next();
        }
        words.extend(limit.clone());
        has_option = true;
    }
    if is_the_files && !has_option {
        let after_the_name = words.len().min(1);
        words.splice(after_the_name..after_the_name, limits.into_iter().flatten());
    }
    words.extend(input_file().map(|file| format!("<{}", quoted(&file))));
    words.join(" ")
}

/// The file that standard input is, where it is one.
fn input_file() -> Option<OsString> {
    let file = Path::new("/proc/self/fd/0").read_link().ok()?;
    let is_there = file.is_absolute() && file.metadata().is_ok_and(|found| found.is_file());
    is_there.then(|| file.into_os_string())
}

/// A word as a shell takes it. What is not text is spelt as only some shells read it: there is no other way.
fn quoted(word: &OsStr) -> String {
    if let Some(text) = word.to_str() {
        return wire::quoted(text);
    }
    let mut spelt = "$'".to_owned();
    for byte in word.as_bytes() {
        match byte {
            b' '..=b'~' if !matches!(byte, b'\'' | b'\\') => spelt.push(char::from(*byte)),
            _ => drop(write!(spelt, "\\x{byte:02x}")),
        }
    }
    spelt + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were() {
        assert_eq!(quoted(OsStr::new("--jobs=4")), "--jobs=4");
        assert_eq!(quoted(OsStr::new("it's")), r"'it'\''s'");
        assert_eq!(quoted(OsStr::from_bytes(b"\xe9'x")), r"$'\xe9\x27x'");
    }
}

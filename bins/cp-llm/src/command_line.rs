//! The command line as text: for the audit, and to continue after a budget was used up.
//!
//! The audit has only hashes of prompts, because their text is content.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

use cp_common::program::{Audit, Finished};
use cp_common::{Context, Result, keys, wire};

/// The audit of a home, if it has one.
pub(crate) fn audit(context: &Context) -> Result<Option<Box<dyn Audit>>> {
    Ok(cp_ledger::audit(context)?.map(|sink| Box::new(AuditWithHashes(sink)) as Box<dyn Audit>))
}

struct AuditWithHashes(Box<dyn Audit>);

impl Audit for AuditWithHashes {
    fn finished(&mut self, what: &Finished<'_>) -> Result<()> {
        let argv = with_texts_hashed(what.argv);
        // The bytes of a hashed word are removed too.
        let kept = what.argv.iter().zip(&argv).zip(what.argv_bytes);
        let bytes: Vec<_> = kept.map(|((before, after), bytes)| bytes.clone().filter(|_| before == after)).collect();
        self.0.finished(&Finished { argv: &argv, argv_bytes: &bytes, ..what.clone() })
    }
}

/// Options of every program that take no value.
const COMMON_FLAGS: [&str; 3] = ["--json", "--compact", "--quiet"];

/// The options of this program that take no value from the next word.
fn flags(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter(|arg| !arg.get_action().takes_values() || arg.is_require_equals_set());
    let names = own.flat_map(|flag| {
        [flag.get_long().map(|name| format!("--{name}")), flag.get_short().map(|letter| format!("-{letter}"))]
    });
    names.flatten().chain(command.get_subcommands().flat_map(flags)).collect()
}

/// Options whose value is a text or a secret, with their short forms.
const TEXTS: [(&str, &str); 4] =
    [("--system", "-s"), ("--option", "-o"), ("--header", "--header"), ("--schema", "--schema")];

/// Replaces each text by its hash.
fn with_texts_hashed(argv: &[String]) -> Vec<String> {
    let hashed = |text: &str| format!("[{}]", keys::hash(text.as_bytes()));
    let mut kept: Vec<String> = argv.iter().take(1).cloned().collect();
    let mut words = argv.iter().skip(1).peekable();
    let flags = flags(&<crate::Cli as clap::CommandFactory>::command());
    let takes_none = |word: &str| flags.contains(word) || COMMON_FLAGS.contains(&word);
    let mut are_ids = false;
    while let Some(word) = words.next() {
        // Short options without a value may be combined with another option.
        let others = word.strip_prefix("-x").map(|others| format!("-{}", others.trim_start_matches('x')));
        let option = others.filter(|others| others != "-").unwrap_or_else(|| word.clone());
        if word == "--" {
            kept.push(word.clone());
            kept.extend(words.by_ref().map(|text| hashed(text)));
        } else if let Some((name, text)) = text_of_option(&option) {
            let spelt = |text: &str| format!("{}{}", &word[..word.len() - text.len()], hashed(text));
            kept.push(text.map_or_else(|| word.clone(), spelt));
            let next = words.next_if(|_| text.is_none());
            let is_plain = |text: &str| match name {
                "-s" => names_file(text),
                "--schema" => is_one_word(text),
                _ => false,
            };
            kept.extend(next.map(|text| if is_plain(text) { text.clone() } else { hashed(text) }));
        } else if word.starts_with('-') {
            kept.push(word.clone());
            if !takes_none(word) && !word.contains('=') && word != "-" {
                kept.extend(words.next().cloned());
            }
        } else if word == "models" || word == "batch" {
            kept.push(word.clone());
            // The verbs of a batch take ids, except `submit`.
            let verb = words.next_if(|_| word == "batch").cloned();
            are_ids = verb.as_ref().is_some_and(|verb| verb != "submit");
            kept.extend(verb);
        } else if are_ids {
            kept.push(word.clone());
        } else {
            kept.push(hashed(word));
        }
    }
    kept
}

/// The option whose value is a text, and the text if it is in the same word.
fn text_of_option(word: &str) -> Option<(&str, Option<&str>)> {
    TEXTS.iter().find_map(|(long, short)| {
        if word == *long || word == *short {
            return Some((*short, None));
        }
        let text = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let text = text.or_else(|| word.strip_prefix(short).filter(|_| !short.starts_with("--")))?;
        Some((&word[..word.len() - text.len()], Some(text)))
    })
}

/// True for a file name or a field without a description.
fn is_one_word(value: &str) -> bool {
    !value.contains(|c: char| c.is_whitespace() || matches!(c, ',' | ':' | '{'))
}

/// True if the value names a file. A text that begins with `@` is written with `@@`.
fn names_file(value: &str) -> bool {
    value.starts_with('@') && !value.starts_with("@@")
}

/// The command line with other limits, and with the file of standard input as a redirection. Other standard input, such as a pipe, must be
/// provided again.
pub(super) fn command_with_limits(usd: Option<f64>, tokens: Option<u64>) -> String {
    let mut words = Vec::new();
    let mut arguments = std::env::args_os();
    let mut is_data = false;
    // The budget file can have limits that no option names.
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
    words.extend(input_file().map(|file| format!("<{}", quoted(file))));
    words.join(" ")
}

/// The file of standard input, if it was a file at the first call. A table replaces standard input by its rows.
pub(super) fn input_file() -> Option<&'static OsStr> {
    static INPUT: OnceLock<Option<OsString>> = OnceLock::new();
    let find = || {
        let file = Path::new("/proc/self/fd/0").read_link().ok()?;
        let is_there = file.is_absolute() && file.metadata().is_ok_and(|found| found.is_file());
        is_there.then(|| file.into_os_string())
    };
    INPUT.get_or_init(find).as_deref()
}

/// Quotes a word for a shell. Words that are not UTF-8 need `$'…'`, which not all shells support.
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
    fn audit_hashes_texts() {
        let argv = ["cp-llm", "--stream", "-m", "x", "-s", "be brief", "-s", "@soul.md", "hi there", "--", "-m"]
            .map(str::to_owned);
        let kept = with_texts_hashed(&argv);
        assert_eq!(&kept[..5], ["cp-llm", "--stream", "-m", "x", "-s"]);
        assert_eq!((&kept[6], &kept[7], &kept[9]), (&"-s".to_owned(), &"@soul.md".to_owned(), &"--".to_owned()));
        assert!(kept.iter().all(|word| !word.contains("brief") && !word.contains("there")), "{kept:?}");
        assert!(kept[10].starts_with("[sha256:"));
        for secret in [
            &["-s", "@@secret"][..],
            &["-ssecret"],
            &["--system=secret"],
            &["-o", "a=secret"],
            &["-oa=secret"],
            &["-o=a=secret"],
            &["--option=a=secret"],
            &["--header", "a: secret"],
            &["--header=a=secret"],
            &["-o", "@secret"],
            &["-xs", "secret"],
            &["-xxssecret"],
            &["-x", "secret"],
            &["--extract", "secret"],
            &["--stream", "secret"],
            &["--rows", "secret"],
            &["--closed", "secret"],
            &["--strict-exit", "secret"],
            &["--cache", "secret"],
            &["--json", "secret"],
            &["--schema", "secret: x"],
            &["--schema={secret}"],
            &["--system=secret"],
            &["secret"],
            &["--", "secret"],
        ] {
            let argv: Vec<String> = ["cp-llm"].iter().chain(secret).map(|&word| word.to_owned()).collect();
            let kept = with_texts_hashed(&argv).concat();
            assert!(kept.contains("[sha256:") && !kept.contains("secret"), "{secret:?}: {kept}");
        }
    }

    #[test]
    fn quoted_words_round_trip() {
        assert_eq!(quoted(OsStr::new("--jobs=4")), "--jobs=4");
        assert_eq!(quoted(OsStr::new("it's")), r"'it'\''s'");
        assert_eq!(quoted(OsStr::from_bytes(b"\xe9'x")), r"$'\xe9\x27x'");
    }
}

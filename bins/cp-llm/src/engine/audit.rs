//! The audit of command lines. The text of a prompt is content: of it only the hash is kept.

use cp_common::program::{Audit, Finished};
use cp_common::{Context, Result};

use crate::digest;

/// The audit of a home, where it keeps one.
pub(crate) fn audit(context: &Context) -> Result<Option<Box<dyn Audit>>> {
    Ok(cp_ledger::audit(context)?.map(|sink| Box::new(WithoutText(sink)) as Box<dyn Audit>))
}

struct WithoutText(Box<dyn Audit>);

impl Audit for WithoutText {
    fn finished(&mut self, what: &Finished<'_>) -> Result<()> {
        let argv = without_text(what.argv);
        // The bytes of a text are the text.
        let kept = what.argv.iter().zip(&argv).zip(what.argv_bytes);
        let bytes: Vec<_> = kept.map(|((before, after), bytes)| bytes.clone().filter(|_| before == after)).collect();
        self.0.finished(&Finished { argv: &argv, argv_bytes: &bytes, ..what.clone() })
    }
}

/// Options that stand alone: what follows one of them is not its value.
pub(crate) const FLAGS: [&str; 11] = [
    "--stream",
    "--dry-run",
    "--json",
    "--compact",
    "--quiet",
    "--rows",
    "--closed",
    "--strict-exit",
    "--unordered",
    "--cache",
    "--wait",
];

/// The command line with each text replaced by its hash.
fn without_text(argv: &[String]) -> Vec<String> {
    let hashed = |text: &String| format!("[{}]", digest::of(text.as_bytes()));
    let mut kept: Vec<String> = argv.iter().take(1).cloned().collect();
    let mut words = argv.iter().skip(1).peekable();
    let mut are_ids = false;
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word.clone());
            kept.extend(words.by_ref().map(hashed));
        } else if word == "-s" || word == "--system" {
            kept.push(word.clone());
            kept.extend(words.next().map(|text| if names_file(text) { text.clone() } else { hashed(text) }));
        } else if let Some(text) = word.strip_prefix("--system=") {
            kept.push(format!("--system=[{}]", digest::of(text.as_bytes())));
        } else if let Some(text) = word.strip_prefix("-s").filter(|text| !text.is_empty()) {
            kept.push(format!("-s[{}]", digest::of(text.as_bytes())));
        } else if word.starts_with('-') {
            kept.push(word.clone());
            if !FLAGS.contains(&word.as_str()) && !word.contains('=') && word != "-" {
                kept.extend(words.next().cloned());
            }
        } else if word == "models" || word == "batch" {
            kept.push(word.clone());
            // The verb of a batch; and all but the first take ids.
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

/// Whether the value of an option names a file: a text that begins with an `@` doubles it.
fn names_file(value: &str) -> bool {
    value.starts_with('@') && !value.starts_with("@@")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_kept_without_its_texts() {
        let argv = ["cp-llm", "--stream", "-m", "x", "-s", "be brief", "-s", "@soul.md", "hi there", "--", "-m"]
            .map(str::to_owned);
        let kept = without_text(&argv);
        assert_eq!(&kept[..5], ["cp-llm", "--stream", "-m", "x", "-s"]);
        assert_eq!((&kept[6], &kept[7], &kept[9]), (&"-s".to_owned(), &"@soul.md".to_owned(), &"--".to_owned()));
        assert!(kept.iter().all(|word| !word.contains("brief") && !word.contains("there")), "{kept:?}");
        assert!(kept[10].starts_with("[sha256:"));
        for secret in [&["-s", "@@secret"][..], &["-ssecret"], &["--system=secret"], &["secret"], &["--", "secret"]] {
            let argv: Vec<String> = ["cp-llm"].iter().chain(secret).map(|&word| word.to_owned()).collect();
            let kept = without_text(&argv).concat();
            assert!(kept.contains("[sha256:") && !kept.contains("secret"), "{secret:?}: {kept}");
        }
    }
}

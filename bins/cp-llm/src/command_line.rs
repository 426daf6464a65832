//! The command line as text: for the audit, and to continue after a budget was used up.
//!
//! The audit has only hashes of prompts, because their text is content.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::OnceLock;

use cp_common::program::Finished;
use cp_common::{Context, Result, keys, wire};

/// Records a command line with the texts hashed.
pub(crate) fn audit(context: &Context, what: &Finished<'_>) -> Result<()> {
    let texts: Vec<String> = what.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let kept = what.argv.iter().zip(&texts).zip(with_texts_hashed(&texts));
    let argv = kept.map(|((word, before), after)| if *before == after { word.clone() } else { after.into() }).collect();
    cp_ledger::audit(context, &Finished { argv, ..*what })
}

/// The options whose values say nothing about a prompt.
const PLAIN: &str = "-m --model --backend --max-tokens --temperature --timeout --idle-timeout --retries \
    --retry-max-wait --fail-on --tool-schemas --stub-script --record --replay --budget-usd --budget-tokens \
    --budget-file --skip-done --jobs --request-id --input --row-failures --continue-on-error --format --fields \
    --home --ledger --session --run --agent --confirm --limit --cursor";
/// The verbs.
const VERBS: [&str; 6] = ["batch", "submit", "status", "result", "cancel", "models"];

/// Replaces each word by its hash, except verbs, ids of batches, and options whose values are plain.
fn with_texts_hashed(argv: &[String]) -> Vec<String> {
    let hashed = |text: &str| format!("[{}]", keys::hash(text.as_bytes()));
    let is_plain = |option: &str| PLAIN.split_whitespace().any(|plain| plain == option.trim_end_matches('='));
    let is_id =
        |word: &str| word.strip_prefix("BAT-").is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let (mut option, mut are_texts) = (String::new(), false);
    let kept = argv.iter().skip(1).map(|word| {
        let before = std::mem::take(&mut option);
        if are_texts || !word.starts_with('-') {
            let is_kept = !are_texts && (is_plain(&before) || VERBS.contains(&word.as_str()) || is_id(word));
            return if is_kept { word.clone() } else { hashed(word) };
        }
        are_texts = word == "--";
        let end = if word.starts_with("--") {
            word.find('=').map(|end| end + 1)
        } else {
            word.char_indices().nth(2).map(|(end, _)| end)
        };
        let (name, value) = word.split_at(end.unwrap_or(word.len()));
        name.clone_into(&mut option);
        if value.is_empty() || is_plain(name) { word.clone() } else { format!("{name}{}", hashed(value)) }
    });
    argv.iter().take(1).cloned().chain(kept).collect()
}

/// The command line with other limits, and with the file of standard input as a redirection. Other standard input, such
/// as a pipe, must be provided again.
pub(super) fn command_with_limits(usd: Option<f64>, tokens: Option<u64>) -> String {
    let mut words: Vec<String> = std::env::args_os().map(|word| quoted(&word)).collect();
    let limits =
        [usd.map(|usd| format!("--budget-usd={usd}")), tokens.map(|tokens| format!("--budget-tokens={tokens}"))];
    // The last of several limits counts.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, limits.into_iter().flatten());
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

/// Quotes a word for a shell.
fn quoted(word: &OsStr) -> String {
    wire::quoted(&word.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_hashes_texts() {
        let argv = ["cp-llm", "--stream", "-m", "x", "--jobs=2", "-s", "be brief", "batch", "BAT-0af", "hi there"];
        let kept = with_texts_hashed(&argv.map(str::to_owned));
        assert_eq!(&kept[..6], &argv[..6]);
        assert_eq!(&kept[7..9], &argv[7..9]);
        assert!(kept[6].starts_with("[sha256:") && kept[9].starts_with("[sha256:"), "{kept:?}");
        for secret in [
            &["-s", "@@secret"][..],
            &["-ssecret"],
            &["--system=secret"],
            &["-o", "a=secret"],
            &["-oa=secret"],
            &["-o=a=secret"],
            &["--option=a=secret"],
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
            &["BAT-secret"],
            &["secret"],
            &["--", "secret"],
        ] {
            let argv: Vec<String> = ["cp-llm"].iter().chain(secret).map(|&word| word.to_owned()).collect();
            let kept = with_texts_hashed(&argv).concat();
            assert!(kept.contains("[sha256:") && !kept.contains("secret"), "{secret:?}: {kept}");
        }
    }
}

//! The command line in the audit.
//!
//! The audit has only hashes of prompts, because their text is content.

use cp_common::program::Finished;
use cp_common::{Context, Result, keys};

/// Records a command line with the texts hashed.
pub(crate) fn audit(context: &Context, what: &Finished<'_>) -> Result<()> {
    let texts: Vec<String> = what.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let kept = what.argv.iter().zip(&texts).zip(with_texts_hashed(&texts));
    let argv = kept.map(|((word, before), after)| if *before == after { word.clone() } else { after.into() }).collect();
    cp_ledger::audit(context, &Finished { argv, ..*what })
}

/// The options whose values say nothing about a prompt.
const PLAIN: &str = "-m --model --backend --max-tokens --temperature --timeout --idle-timeout --retries \
    --retry-max-wait --fail-on --tool-schemas --stub-script --record --replay --cache --budget-usd --budget-tokens \
    --budget-file --delimiter --skip-done --jobs --request-id --input --row-failures --continue-on-error --format --fields \
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

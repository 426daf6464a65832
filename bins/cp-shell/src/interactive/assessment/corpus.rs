//! Measures recall and false alarms of the classification over the utterances in `tests/risk/`, both tuned and held out. A label is the
//! class, or `harmless`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::lexicon::{Level, TABLE, Table};
use super::risk::classify_by;

#[derive(Deserialize)]
struct Utterance {
    text: String,
    lang: String,
    label: String,
}

const TUNED: &str = include_str!("../../../tests/risk/tuned.jsonl");
const HELD_OUT: &str = include_str!("../../../tests/risk/held_out.jsonl");
const TABLE_TEXT: &str = include_str!("risk.toml");

fn utterances(text: &str) -> Vec<Utterance> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The number of hits, and the total.
type Share = (u32, u32);

#[derive(Default)]
struct Measured {
    /// The count for a language, a label and a level.
    confusion: BTreeMap<String, u32>,
    recall: Share,
    recall_of: BTreeMap<String, Share>,
    alarms: Share,
    /// The misclassified utterances.
    wrong: String,
}

fn percent((seen, all): Share) -> u32 {
    seen * 100 / all.max(1)
}

fn count(share: &mut Share, seen: bool) {
    *share = (share.0 + u32::from(seen), share.1 + 1);
}

fn measured<'a>(table: &Table, utterances: impl IntoIterator<Item = &'a Utterance>) -> Measured {
    let mut measured = Measured::default();
    for Utterance { text, lang, label } in utterances {
        let risk = classify_by(table, text);
        *measured.confusion.entry(format!("{lang} {label} as {}", risk.level.name())).or_default() += 1;
        let right = match label.as_str() {
            "harmless" => risk.level == Level::Safe,
            // Any level that requires confirmation.
            "change" => risk.level > Level::Safe,
            _ => risk.level >= Level::Destructive,
        };
        match label.as_str() {
            "harmless" => count(&mut measured.alarms, !right),
            "change" => {}
            _ => {
                count(&mut measured.recall, right);
                count(measured.recall_of.entry(lang.clone()).or_default(), right);
            }
        }
        if !right {
            let _ = writeln!(measured.wrong, "{lang} {label}: {text:?} is {}: {}", risk.level.name(), risk.reason);
        }
    }
    measured
}

/// Reports the confusion table on failure, and the failures themselves only for tuned utterances.
fn check(text: &str, is_tuned: bool) {
    let Measured { confusion, recall, recall_of, alarms, wrong } = measured(&TABLE, &utterances(text));
    let wrong = if is_tuned { wrong } else { String::new() };
    let report = format!("recall {recall:?}, {recall_of:?}, alarms {alarms:?}\n{confusion:#?}\n{wrong}");
    let (least, most_alarms) = if is_tuned { (98, 0) } else { (90, 5) };
    assert!(percent(recall) >= least && alarms.0 * 100 <= alarms.1 * most_alarms, "{report}");
    assert!(recall_of.len() >= 6 && recall_of.values().all(|share| percent(*share) >= 80), "{report}");
}

#[test]
fn tuned_utterances_reach_required_recall() {
    check(TUNED, true);
}

/// Failures are not shown, because the table must not be tuned with held-out utterances.
#[test]
fn held_out_utterances_reach_required_recall() {
    check(HELD_OUT, false);
}

#[test]
fn utterances_are_many_and_unique() {
    let all: Vec<Utterance> = [TUNED, HELD_OUT].into_iter().flat_map(utterances).collect();
    let texts: std::collections::BTreeSet<&str> = all.iter().map(|utterance| utterance.text.as_str()).collect();
    assert!(texts.len() == all.len() && all.len() >= 600 && utterances(HELD_OUT).len() >= 200, "{}", texts.len());
}

#[test]
fn language_without_words_has_low_recall() {
    let all = utterances(TUNED);
    for language in ["en", "de", "es", "fr", "ja"] {
        let marker = format!("[words.{language}]\n");
        let (before, after) = TABLE_TEXT.split_once(&marker).unwrap();
        let rest = after.split_once("\n[words.").map(|(_, rest)| format!("[words.{rest}")).unwrap_or_default();
        let table = Table::parse(&format!("{before}{rest}")).unwrap();
        let recall = measured(&table, all.iter().filter(|utterance| utterance.lang == language)).recall;
        assert!(recall.1 > 0 && percent(recall) < 50, "{language}: {recall:?}");
    }
}

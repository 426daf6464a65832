//! How often the risk is seen, and how often it is seen where none is: over the utterances in `tests/risk/`, those that the table was made
//! with and those that were held out. A label is the class, or `harmless`.

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

/// Of those that count, how many there are and how many are seen.
#[derive(Default)]
struct Share {
    seen: u32,
    all: u32,
}

impl Share {
    fn percent(&self) -> u32 {
        self.seen * 100 / self.all.max(1)
    }
}

#[derive(Default)]
struct Measured {
    /// Of a language and label: how many of each level.
    levels: BTreeMap<(String, String, &'static str), u32>,
    recall: Share,
    recall_of: BTreeMap<String, Share>,
    alarms: Share,
    /// What was not as it is labelled.
    wrong: String,
}

fn measured<'a>(table: &Table, utterances: impl IntoIterator<Item = &'a Utterance>) -> Measured {
    let mut measured = Measured::default();
    for Utterance { text, lang, label } in utterances {
        let risk = classify_by(table, text);
        *measured.levels.entry((lang.clone(), label.clone(), risk.level.name())).or_default() += 1;
        let right = match label.as_str() {
            "harmless" => {
                let alarm = risk.level > Level::Safe;
                measured.alarms.all += 1;
                measured.alarms.seen += u32::from(alarm);
                !alarm
            }
            // It is asked about, at one level or another.
            "change" => risk.level > Level::Safe,
            _ => {
                let seen = risk.level >= Level::Destructive;
                for share in [&mut measured.recall, measured.recall_of.entry(lang.clone()).or_default()] {
                    share.all += 1;
                    share.seen += u32::from(seen);
                }
                seen
            }
        };
        if !right {
            let _ = writeln!(measured.wrong, "{lang} {label}: {text:?} is {}: {}", risk.level.name(), risk.reason);
        }
    }
    measured
}

fn check(name: &str, text: &str, shows_failures: bool) {
    let Measured { levels, recall, recall_of, alarms, wrong } = measured(&TABLE, &utterances(text));
    let mut report = format!("{name}: recall {}/{}, alarms {}/{}\n", recall.seen, recall.all, alarms.seen, alarms.all);
    for (lang, share) in &recall_of {
        let _ = writeln!(report, "{lang}: recall {}/{}", share.seen, share.all);
    }
    for ((lang, label, level), number) in &levels {
        let _ = writeln!(report, "{lang} {label} as {level}: {number}");
    }
    if shows_failures {
        report.push_str(&wrong);
    }
    println!("{report}");
    assert!(recall.percent() >= 90 && alarms.seen * 100 <= alarms.all * 5, "{report}");
    assert!(recall_of.len() >= 6 && recall_of.values().all(|share| share.percent() >= 80), "{report}");
}

#[test]
fn of_the_utterances_that_the_table_was_made_with_it_sees_nine_in_ten() {
    check("tuned", TUNED, true);
}

/// Its failures are not shown: whoever tunes the table by them has no held-out utterances any more.
#[test]
fn of_the_utterances_that_were_held_out_it_sees_nine_in_ten() {
    check("held out", HELD_OUT, false);
}

#[test]
fn the_utterances_are_many_and_none_stands_twice() {
    let all: Vec<Utterance> = [TUNED, HELD_OUT].into_iter().flat_map(utterances).collect();
    let texts: std::collections::BTreeSet<&str> = all.iter().map(|utterance| utterance.text.as_str()).collect();
    assert!(texts.len() == all.len() && all.len() >= 600 && utterances(HELD_OUT).len() >= 200, "{}", texts.len());
}

#[test]
fn without_its_words_a_language_is_not_understood() {
    let all = utterances(TUNED);
    for language in ["en", "de", "es", "fr", "ja"] {
        let marker = format!("[words.{language}]\n");
        let (before, after) = TABLE_TEXT.split_once(&marker).unwrap();
        let rest = after.split_once("\n[words.").map(|(_, rest)| format!("[words.{rest}")).unwrap_or_default();
        let table = Table::parse(&format!("{before}{rest}")).unwrap();
        let recall = &measured(&table, all.iter().filter(|utterance| utterance.lang == language)).recall_of[language];
        assert!(recall.percent() < 50, "{language}: {}/{}", recall.seen, recall.all);
    }
}

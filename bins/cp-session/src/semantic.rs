//! Similarity of texts to a query: the words they share, and the cosine of vectors that `cp-llm embed` makes.
//!
//! Each text is embedded once; its vector is cached in the home.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cp_common::home::make_directory;
use cp_common::wire::record::Record;
use cp_common::{Code, Context, Error, Result, coprocess, keys};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The number of characters of a text that are embedded: models accept a limited number of tokens.
const MOST: usize = 8000;

/// A line of the file with vectors.
#[derive(Deserialize, Serialize)]
struct Kept {
    key: String,
    vector: Vec<f32>,
}

#[derive(Deserialize)]
struct Embedded {
    index: usize,
    embedding: Vec<f32>,
}

/// The file with the vectors of a home.
fn file(context: &Context) -> PathBuf {
    context.home.state("embeddings.jsonl")
}

/// Removes all vectors, because they disclose parts of their texts and do not name the session that a text belongs to.
pub(crate) fn forget(context: &Context) -> Result<()> {
    match std::fs::remove_file(file(context)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("removing vectors", e).in_file(&file(context))),
        _ => Ok(()),
    }
}

/// The share of the wanted words that a text has, from 0 to 1.
pub(crate) fn share(wanted: &HashSet<String>, text: &str) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "words are far fewer than 2^52")]
    let share = words(text).intersection(wanted).count() as f64 / wanted.len().max(1) as f64;
    share
}

/// How near each text is to the query, from -1 to 1.
pub(crate) fn nearness(query: &str, texts: &[String], context: &Context) -> Result<Vec<f64>> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let setting = |name| context.config.text(name, None).unwrap_or_default();
    let scope = format!("{}\n{}\n", setting("backend"), setting("embedding_model"));
    let texts: Vec<String> = texts.iter().map(|text| text.chars().take(MOST).collect()).collect();
    let keys: Vec<String> = texts.iter().map(|text| keys::hash(format!("{scope}{text}").as_bytes())).collect();
    let file = file(context);
    let mut known = kept(&file, &keys.iter().map(String::as_str).collect());
    let mut asked: Vec<(&str, &str)> = Vec::new();
    let mut seen: HashSet<&str> = known.keys().map(String::as_str).collect();
    asked.extend(
        keys.iter().zip(&texts).filter(|(key, _)| seen.insert(key)).map(|(key, text)| (key.as_str(), text.as_str())),
    );
    // Stored texts are redacted already; the query is not.
    let query = Redactor::from_environment().redact_text(query).0;
    let sent = std::iter::once(query.as_str()).chain(asked.iter().map(|(_, text)| *text));
    let mut made = vectors(sent, context)?;
    let query = made.remove(&0).ok_or_else(|| Error::new(Code::Server, "the query has no vector"))?;
    let fresh: Vec<Kept> = asked
        .iter()
        .enumerate()
        .filter_map(|(at, (key, _))| Some(Kept { key: (*key).to_owned(), vector: made.remove(&(at + 1))? }))
        .collect();
    keep(&file, &fresh)?;
    known.extend(fresh.into_iter().map(|kept| (kept.key, kept.vector)));
    Ok(keys.iter().map(|key| known.get(key).map_or(0.0, |vector| cosine(&query, vector))).collect())
}

/// The vectors of texts, by the position of the text.
fn vectors<'a>(texts: impl Iterator<Item = &'a str>, context: &Context) -> Result<HashMap<usize, Vec<f32>>> {
    let input = texts.fold(String::new(), |rows, text| rows + &json!({"text": text}).to_string() + "\n");
    // Outside the session, because its ledger would record each text once more.
    let flags = ["--home".into(), context.home.root().into()];
    let mut found = HashMap::new();
    coprocess::ask_each("cp-llm", &["embed", "--rows"], input.as_bytes(), flags, &mut |line| {
        let Some(line) = line else { return Ok(()) };
        let record = Record::parse(line)?;
        if let Some(data) = record.data.filter(|_| record.ok) {
            let broken = |e| Error::new(Code::Io, format!("cp-llm gave no vector: {e}"));
            let Embedded { index, embedding } = serde_json::from_str(data.get()).map_err(broken)?;
            found.insert(index, embedding);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The vectors that are kept under these keys. A line that a crash cut is passed over.
fn kept(file: &Path, keys: &HashSet<&str>) -> HashMap<String, Vec<f32>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Kept>(line).ok());
    lines.filter(|kept| keys.contains(kept.key.as_str())).map(|kept| (kept.key, kept.vector)).collect()
}

/// Adds vectors to the file.
fn keep(file: &Path, fresh: &[Kept]) -> Result<()> {
    let mut lines = Vec::new();
    for kept in fresh {
        // The line before may have been cut.
        lines.push(b'\n');
        serde_json::to_writer(&mut lines, kept).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    }
    if lines.is_empty() {
        return Ok(());
    }
    lines.push(b'\n');
    make_directory(file.parent().unwrap_or(Path::new(".")))?;
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    opened.and_then(|mut file| file.write_all(&lines)).map_err(|e| Error::io("keeping vectors", e).in_file(file))
}

/// The cosine of the angle between two vectors; 0 of two that another model made.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return 0.0;
    }
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let length = (product(a, a) * product(b, b)).sqrt();
    if length > 0.0 { product(a, b) / length } else { 0.0 }
}

/// Words that are in nearly every text, in English, German, Spanish, French and Japanese.
static STOP_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "\
    a about all also am an and any are as at be been but by can could did do does for from get had has have he her hi him his how i if \
    in into is it its just let like me more my no not now of ok on or our out please she so some than thanks that the their them then \
    there these they this those to up us was we were what when where which who why will with would yes you your hello hey \
    aber als am an auch auf aus bei bin bis bitte da danke das dass dem den der des die doch du ein eine einem einen einer er es für \
    hallo hat ich ihr im in ist ja kann kein mein mich mir mit nach nein nicht noch nun nur ob oder sein sich sie sind so und uns vom \
    von vor war was wenn wer wie wir wird wo zu zum zur \
    al como con cuando de del donde el ella en era es esta este esto gracias hola la las lo los más me mi muy no nos o para pero por \
    porque que qué quien se si sin sobre son su sus también te tu un una y ya yo \
    à alors au aux avec bonjour ce ces cette comment dans de des donc du elle en est et être il ils j je la le les leur ma mais me merci \
    mes mon ne nous on ou où par pas plus pour quand que qui sa sans se ses si son sur ta tes toi ton tu un une vous \
    です ます した して いる ある こと する から まで これ それ あれ この その ない なに"
        .split_whitespace()
        .collect()
});

/// The words of a text in lower case, without [`STOP_WORDS`]. Of a script without spaces, each pair of letters is a word.
pub(crate) fn words(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let lower = text.to_lowercase();
    for run in lower.split(|letter: char| !letter.is_alphanumeric()).filter(|run| !run.is_empty()) {
        let letters: Vec<char> = run.chars().collect();
        for part in letters.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b)) {
            if part.first().is_some_and(|letter| is_unspaced(*letter)) && part.len() > 1 {
                found.extend(part.windows(2).map(String::from_iter));
            } else {
                found.insert(String::from_iter(part));
            }
        }
    }
    found.retain(|word| {
        !STOP_WORDS.contains(word.as_str()) && (word.chars().count() > 1 || word.chars().all(is_unspaced))
    });
    found
}

/// True for scripts without spaces between words: Han, Hiragana, Katakana and Thai.
fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' | '\u{e00}'..='\u{e7f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut found: Vec<String> = words(text).into_iter().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn stop_words_are_left_out() {
        assert!(of("Hi, how are you? Und wie ist das, y qué es?").is_empty());
        assert_eq!(of("the Build of CI is on Go"), ["build", "ci", "go"]);
        assert_eq!(of("東京の天気"), ["の天", "京の", "天気", "東京"]);
        assert_eq!(of("Größe"), ["größe"]);
    }
}

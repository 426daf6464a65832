//! The words of a text that say what it is about.

use std::collections::HashSet;

/// Words that are in nearly every text, in English, German, Spanish, French and Japanese.
const EMPTY: &str = "\
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
    です ます した して いる ある こと する から まで これ それ あれ この その ない なに";

/// The words, lower-case; of a script without blanks each pair of letters. None of them is in nearly every text.
pub(crate) fn words(text: &str) -> HashSet<String> {
    let empty: HashSet<&str> = EMPTY.split_whitespace().collect();
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
    found.retain(|word| !empty.contains(word.as_str()) && (word.chars().count() > 1 || word.chars().all(is_unspaced)));
    found
}

/// Whether a script does not part its words: Han, Hiragana, Katakana, and Thai.
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
    fn words_that_say_nothing_are_left_out() {
        assert!(of("Hi, how are you? Und wie ist das, y qué es?").is_empty());
        assert_eq!(of("the Build of CI is on Go"), ["build", "ci", "go"]);
        assert_eq!(of("東京の天気"), ["の天", "京の", "天気", "東京"]);
        assert_eq!(of("Größe"), ["größe"]);
    }
}

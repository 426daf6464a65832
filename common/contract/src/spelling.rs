//! Suggestions for mistyped words.

use strsim::osa_distance;

/// Returns the verb that a word of four letters or more misspells by one edit.
pub fn misspelt_verb<'a>(word: &str, verbs: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_word = word.chars().count() >= 4;
    verbs.into_iter().find(|verb| is_word && osa_distance(word, verb) == 1)
}

/// Returns the known word nearest to `word`, at most two edits away (insert, delete, replace, swap neighbours).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|known| (osa_distance(word, known), known))
        .filter(|(distance, known)| *distance <= 2 && *distance < known.chars().count())
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_words_within_two_edits() {
        let verbs = ["append", "query", "verify", "tip"];
        assert_eq!(nearest("apend", verbs), Some("append"));
        assert_eq!(nearest("qurey", verbs), Some("query"));
        assert_eq!(nearest("vrfy", verbs), Some("verify"));
        assert_eq!(nearest("hello", verbs), None);
        assert_eq!(nearest("hi", ["tip"]), Some("tip"));
        assert_eq!(nearest("ab", ["xy"]), None);
    }

    #[test]
    fn misspelt_verb_is_one_edit_from_a_longer_word() {
        let verbs = ["run", "help", "check", "doctor", "tip", "end"];
        for word in ["rm", "head", "docker", "new", "tail", "du", "ru", "check"] {
            assert_eq!(misspelt_verb(word, verbs), None, "{word}");
        }
        assert_eq!(
            ["chek", "helpp", "dotcor"].map(|word| misspelt_verb(word, verbs)),
            [Some("check"), Some("help"), Some("doctor")]
        );
    }
}

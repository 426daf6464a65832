//! Suggestions for mistyped words.

use strsim::osa_distance;

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
}

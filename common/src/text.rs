//! Words that people mistype: the nearest known one.

/// The known word within two edits of `word`, the nearest first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (distance(word, k), k))
        .filter(|(d, k)| *d <= 2 && *d < k.chars().count())
        .min()
        .map(|(_, k)| k)
}

/// How many characters to insert, delete, replace or swap with their neighbour to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let one_less = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let best = replaced.min(one_less);
                if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slips_are_found_and_three_are_not() {
        let verbs = ["append", "query", "verify", "tip"];
        assert_eq!(nearest("apend", verbs), Some("append"));
        assert_eq!(nearest("qurey", verbs), Some("query"));
        assert_eq!(nearest("vrfy", verbs), Some("verify"));
        assert_eq!(nearest("hello", verbs), None);
        assert_eq!(nearest("hi", ["tip"]), Some("tip"));
        assert_eq!(nearest("ab", ["xy"]), None);
    }
}

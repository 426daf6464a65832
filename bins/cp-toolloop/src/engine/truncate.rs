//! How much of an answer goes into the conversation: the beginning and the end, with a note between them of what is missing.

/// The most bytes of an answer that the model is given.
const LIMIT: usize = 64 << 10;
/// How many of them are the end.
const TAIL: usize = 16 << 10;

/// The head and the tail of a text that is too long, and how many bytes are between them.
pub(crate) fn cut(text: &str) -> Option<(&str, &str, usize)> {
    if text.len() <= LIMIT {
        return None;
    }
    let mut head = LIMIT - TAIL;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - TAIL;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    Some((&text[..head], &text[tail..], tail - head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_cut_between_characters() {
        assert!(cut(&"x".repeat(LIMIT)).is_none());
        let text = "ä".repeat(LIMIT);
        let (head, tail, missing) = cut(&text).unwrap();
        assert_eq!(head.len() + tail.len() + missing, text.len());
        assert!(head.len() <= LIMIT - TAIL && tail.len() <= TAIL && head.ends_with('ä'));
    }
}

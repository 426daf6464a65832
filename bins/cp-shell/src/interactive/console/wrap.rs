//! Wraps text to the width of the terminal.

use unicode_width::UnicodeWidthStr as _;

use super::render::escaped;

/// Wraps a text to a width, at blanks if possible. Control characters are escaped.
pub(crate) fn lines_of(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![(String::new(), 0)];
    let mut word: (String, usize) = (String::new(), 0);
    let end_word = |lines: &mut Vec<(String, usize)>, word: &mut (String, usize)| {
        let (text, columns) = std::mem::take(word);
        match lines.last_mut() {
            Some((line, used)) if *used == 0 || *used + columns <= width => {
                line.push_str(&text);
                *used += columns;
            }
            _ => lines.push((text, columns)),
        }
    };
    for part in escaped(text).split_inclusive([' ', '\n']) {
        let bare = part.trim_end_matches([' ', '\n']);
        for chunk in chunks(bare, width) {
            if word.1 + chunk.width() > width {
                end_word(&mut lines, &mut word);
            }
            word.0.push_str(chunk);
            word.1 += chunk.width();
        }
        end_word(&mut lines, &mut word);
        if part.ends_with('\n') {
            lines.push((String::new(), 0));
        } else if part.ends_with(' ')
            && let Some((line, used)) = lines.last_mut().filter(|(_, used)| (1..width).contains(used))
        {
            line.push(' ');
            *used += 1;
        }
    }
    lines.into_iter().map(|(line, _)| line).collect()
}

/// Splits a word that does not fit on a line, such as a long URL or a text in a script without blanks.
fn chunks(word: &str, width: usize) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), word);
    // A script without blanks may be wrapped after each wide letter.
    let is_wide = |text: &str| text.chars().any(|letter| unicode_width::UnicodeWidthChar::width(letter) == Some(2));
    let most = if is_wide(word) { 2 } else { width };
    while rest.width() > most {
        let mut columns = 0;
        let cut = rest.char_indices().find(|(_, letter)| {
            columns += unicode_width::UnicodeWidthChar::width(*letter).unwrap_or(0);
            columns > most
        });
        let at = cut.map_or(rest.len(), |(at, _)| at).max(rest.chars().next().map_or(1, char::len_utf8));
        let (piece, others) = rest.split_at(at);
        found.push(piece);
        rest = others;
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_without_loss() {
        let text = "one two three four five six https://example.com/a/very/long/address?that=goes&on=and \
            日本語のとても長い文章がここにある end";
        for width in [12, 20, 40, 80, 200] {
            let lines = lines_of(text, width);
            assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
            let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
            assert_eq!(letters(&lines.concat()), letters(text), "{width}");
        }
        assert_eq!(lines_of("aaa bbb ccc", 8), ["aaa bbb ", "ccc"]);
        assert_eq!(lines_of("a \x1b[2J\nb", 80), ["a ^[[2J", "b"]);
    }
}

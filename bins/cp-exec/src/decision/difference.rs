//! The difference between two texts, as whoever is asked about it reads it.

use std::fmt::Write as _;

/// Lines around a change that did not change.
const AROUND: usize = 3;
/// The most bytes that are shown.
const LONGEST: usize = 256 << 10;

/// A unified difference of one part: from the first line that differs to the last.
pub(super) fn difference(name: &str, before: &[u8], after: &[u8]) -> String {
    let (Ok(before), Ok(after)) = (std::str::from_utf8(before), std::str::from_utf8(after)) else {
        return format!("{} bytes become {} bytes, which are not text\n", before.len(), after.len());
    };
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (left, right) = (&old[same..], &new[same..]);
    let tail = left.iter().rev().zip(right.iter().rev()).take_while(|(a, b)| a == b).count();
    if left.len() == tail && right.len() == tail {
        return "nothing changes\n".to_owned();
    }
    let head = &old[same.saturating_sub(AROUND)..same];
    let foot = &left[left.len() - tail..][..tail.min(AROUND)];
    let (gone, come) = (&left[..left.len() - tail], &right[..right.len() - tail]);
    let count = |changed: &[&str]| head.len() + changed.len() + foot.len();
    let place = |changed: &[&str]| if count(changed) == 0 { 0 } else { same - head.len() + 1 };
    let mut text = format!("--- {name}\n+++ {name}\n");
    let _ = writeln!(text, "@@ -{},{} +{},{} @@", place(gone), count(gone), place(come), count(come));
    for (mark, lines) in [(' ', head), ('-', gone), ('+', come), (' ', foot)] {
        for line in lines {
            let _ = write!(text, "{mark}{line}");
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    if text.len() > LONGEST {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(LONGEST));
        let _ = write!(text, "\n[… {} bytes are not shown …]\n", whole - text.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_has_the_lines_that_change_and_some_around_them() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let shown = difference("f", before.as_bytes(), before.replace("5\n", "five\n").as_bytes());
        assert_eq!(shown, "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
        assert_eq!(difference("f", b"", b"a"), "--- f\n+++ f\n@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file\n");
        assert_eq!(difference("f", b"a\na\n", b"a\n"), "--- f\n+++ f\n@@ -1,2 +1,1 @@\n a\n-a\n");
        assert_eq!(difference("f", b"a\n", b"a\n"), "nothing changes\n");
        assert!(difference("f", b"\xff", b"abc").contains("1 bytes become 3 bytes"));
        let long = "x\n".repeat(200_000);
        assert!(difference("f", b"", long.as_bytes()).ends_with("bytes are not shown …]\n"));
    }
}

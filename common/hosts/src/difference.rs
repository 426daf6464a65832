//! The difference between two texts, as a person reads it.

use std::fmt::Write as _;
use std::time::Duration;

use similar::{Algorithm, TextDiff};

/// Maximum length of the output, in bytes.
const LONGEST: usize = 256 << 10;
/// Time after which the difference consists of larger pieces.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the unified diff of a file's content.
pub fn difference(name: &str, before: &[u8], after: &[u8]) -> String {
    let (Ok(before), Ok(after)) = (std::str::from_utf8(before), std::str::from_utf8(after)) else {
        return format!("{} bytes become {} bytes, which are not text\n", before.len(), after.len());
    };
    if before == after {
        return "nothing changes\n".to_owned();
    }
    let mut differ = TextDiff::configure();
    let lines = differ.algorithm(Algorithm::Myers).timeout(PATIENCE).diff_lines(before, after);
    let mut text = lines.unified_diff().header(name, name).to_string();
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
    fn difference_has_changed_lines_and_context() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let shown = difference("f", before.as_bytes(), before.replace("5\n", "five\n").as_bytes());
        assert_eq!(shown, "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
        assert_eq!(difference("f", b"", b"a"), "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n");
        assert_eq!(difference("f", b"a\na\n", b"a\n"), "--- f\n+++ f\n@@ -1,2 +1 @@\n a\n-a\n");
        assert_eq!(difference("f", b"a\n", b"a\n"), "nothing changes\n");
        assert!(difference("f", b"\xff", b"abc").contains("1 bytes become 3 bytes"));
        let long = "x\n".repeat(200_000);
        assert!(difference("f", b"", long.as_bytes()).ends_with("bytes are not shown …]\n"));
    }
}

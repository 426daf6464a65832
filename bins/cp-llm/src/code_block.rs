//! Fenced code blocks, found by lines: of Markdown around them only the indentation counts, which a list item has too.

use cp_common::wire::Extracted;

/// The first fenced code block of a text. The end of the text closes a block too.
pub(crate) fn first_block(text: &str) -> Option<Extracted> {
    let mut lines = text.split_inclusive('\n');
    let (indentation, fence, info) = lines.by_ref().find_map(opening)?;
    let mut block = String::new();
    for line in lines.take_while(|line| !closes(line, fence)) {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        block.push_str(&line[spaces.min(indentation)..]);
    }
    if block.ends_with('\n') {
        block.pop();
    }
    Some(Extracted { language: info.split_whitespace().next().map(str::to_owned), text: block })
}

/// The indentation, the fence and the information of a line that opens a block: three backticks or tildes, or more.
fn opening(line: &str) -> Option<(usize, &str, &str)> {
    let inside = line.trim_start_matches(' ');
    let mark = inside.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let info = inside.trim_start_matches(mark);
    let fence = &inside[..inside.len() - info.len()];
    // A line with further backticks is inline code.
    let opens = fence.len() > 2 && !(mark == '`' && info.contains('`'));
    opens.then_some((line.len() - inside.len(), fence, info))
}

/// True for a line that is a fence of at least this length and nothing else.
fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim();
    line.starts_with(fence) && line.trim_start_matches(&fence[..1]).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Option<(String, String)> {
        first_block(text).map(|found| (found.language.unwrap_or_default(), found.text))
    }

    #[test]
    fn first_block_is_found_by_its_fences() {
        for (text, language, code) in [
            ("Here:\n```py\nprint(1)\n\nx\n```\nand\n```\nno\n```\n", "py", "print(1)\n\nx"),
            ("~~~ ruby startline=3\na ``` b\n```\n~~~", "ruby", "a ``` b\n```"),
            // A longer fence may contain shorter ones. A fence of at least its length, with nothing after it, closes
            // it.
            ("````md\n```\nin\n```\n````` \nout", "md", "```\nin\n```"),
            ("```\na\n``` no\n   ```  \nb", "", "a\n``` no"),
            // Only the indentation of the fence is removed.
            ("  ```c\n  a\n    b\n c\n  ```", "c", "a\n  b\nc"),
            ("```sh\nopen to the end", "sh", "open to the end"),
            ("```\n```\n", "", ""),
            ("```make\r\nall:\r\n\ttrue\r\n```\r\n", "make", "all:\r\n\ttrue\r"),
            // Inline code opens no block.
            ("``` a `b` ```\n\n```yes\n1\n```", "yes", "1"),
            // List items and nested list items.
            ("1. Do:\n\n   ```sh\n   a\n     b\n   ```\n2. Done", "sh", "a\n  b"),
            ("- a\n  - b\n\n    ```js\n    x\n    ```\n", "js", "x"),
        ] {
            assert_eq!(block(text), Some((language.to_owned(), code.to_owned())), "{text:?}");
        }
        for text in ["", "``\nx\n``", "a ``` b\n```c```\n"] {
            assert_eq!(block(text), None, "{text:?}");
        }
    }
}

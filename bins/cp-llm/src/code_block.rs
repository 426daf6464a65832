//! Fenced code blocks of `CommonMark`: three or more backticks or tildes, indented by up to three columns, also inside list items, and
//! closed by a fence or the end of the text.

use cp_common::wire::Extracted;

/// An opening fence.
struct Fence {
    mark: u8,
    length: usize,
    /// Its column, which is removed from the lines of the block.
    column: usize,
    /// The column of the enclosing list item. A line to the left of it ends the block.
    base: usize,
}

/// The first fenced code block of a text.
pub(crate) fn first_block(text: &str) -> Option<Extracted> {
    let mut items: Vec<usize> = Vec::new();
    let mut lines = text.split_inclusive('\n');
    let (fence, language) = lines.by_ref().find_map(|line| opening(line, &mut items))?;
    let inside = lines.take_while(|line| !fence.ends(line));
    let mut text: String = inside.map(|line| without(line, fence.column)).collect();
    if text.ends_with('\n') {
        text.pop();
    }
    Some(Extracted { language, text })
}

/// The text of an answer without the fence that models like to put around JSON.
pub(crate) fn unfenced(answer: &str) -> &str {
    let answer = answer.trim();
    let Some(inside) = answer.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return answer };
    inside.split_once('\n').map_or(inside, |(_, body)| body).trim()
}

/// The fence that a line opens, and the first word after it. `items` has the columns of the enclosing list items.
fn opening(line: &str, items: &mut Vec<usize>) -> Option<(Fence, Option<String>)> {
    if line.trim().is_empty() {
        return None;
    }
    let (mut column, mut at) = indent(line);
    items.retain(|item| *item <= column);
    loop {
        let (base, rest) = (items.last().copied().unwrap_or(0), &line[at..]);
        // More than three columns are indented code or a paragraph.
        if column.saturating_sub(base) > 3 {
            return None;
        }
        if let Some((mark, length)) = run(rest) {
            let info = rest[length..].trim();
            // Further backticks in the line make it inline code.
            let opens = mark == b'~' || !info.contains('`');
            let language = info.split_whitespace().next().map(str::to_owned);
            return opens.then_some((Fence { mark, length, column, base }, language));
        }
        let marker = list_marker(rest)?;
        let (spaces, bytes) = indent(&rest[marker..]);
        let begins = column + marker + if (1..=4).contains(&spaces) { spaces } else { 1 };
        items.push(begins);
        (column, at) = (column + marker + spaces, at + marker + bytes);
    }
}

impl Fence {
    /// True if a line closes the block or is outside of it.
    fn ends(&self, line: &str) -> bool {
        let (column, bytes) = indent(line);
        if line.trim().is_empty() {
            return false;
        }
        let is_closing = |(mark, length): (u8, usize)| {
            mark == self.mark && length >= self.length && line[bytes + length..].trim().is_empty()
        };
        column < self.base || (column - self.base <= 3 && run(&line[bytes..]).is_some_and(is_closing))
    }
}

/// The character and the length of a run of three or more backticks or tildes.
fn run(text: &str) -> Option<(u8, usize)> {
    let mark = text.bytes().next().filter(|byte| matches!(byte, b'`' | b'~'))?;
    let length = text.bytes().take_while(|byte| *byte == mark).count();
    (length >= 3).then_some((mark, length))
}

/// The length of a list marker at the beginning.
fn list_marker(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let marks: &[u8] = if digits == 0 { b"-+*" } else { b".)" };
    let is_marker = digits <= 9 && text.as_bytes().get(digits).is_some_and(|byte| marks.contains(byte));
    (is_marker && text[digits + 1..].starts_with([' ', '\t', '\n', '\r'])).then_some(digits + 1)
}

/// The columns and the bytes of the leading white space.
fn indent(line: &str) -> (usize, usize) {
    let white = line.bytes().take_while(|byte| matches!(byte, b' ' | b'\t'));
    white.fold((0, 0), |(column, bytes), byte| (if byte == b' ' { column + 1 } else { column / 4 * 4 + 4 }, bytes + 1))
}

/// Removes up to this many columns of leading white space.
fn without(line: &str, columns: usize) -> &str {
    let bytes = (0..=indent(line).1).take_while(|bytes| indent(&line[..*bytes]).0 <= columns).last().unwrap_or(0);
    &line[bytes..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Option<(String, String)> {
        first_block(text).map(|found| (found.language.unwrap_or_default(), found.text))
    }

    #[test]
    fn first_block_follows_commonmark() {
        for (text, language, code) in [
            ("Here:\n```py\nprint(1)\n\nx\n```\nand\n```\nno\n```\n", "py", "print(1)\n\nx"),
            ("~~~ ruby startline=3\na ``` b\n```\n~~~", "ruby", "a ``` b\n```"),
            // A longer fence may contain shorter ones. A fence of at least its length, with nothing after it, closes it.
            ("````md\n```\nin\n```\n````` \nout", "md", "```\nin\n```"),
            ("```\na\n``` no\n    ```\n   ```  \nb", "", "a\n``` no\n    ```"),
            // Only the indentation of the fence is removed.
            ("  ```c\n  a\n    b\n c\n  ```", "c", "a\n  b\nc"),
            ("```sh\nopen to the end", "sh", "open to the end"),
            ("```\n```\n", "", ""),
            ("```make\r\nall:\r\n\ttrue\r\n```\r\n", "make", "all:\r\n\ttrue\r"),
            // Inline code and indented code open no block.
            ("``` a `b` ```\n\n    ```no\n    x\n\n```yes\n1\n```", "yes", "1"),
            // List items and nested list items.
            ("1. Do:\n\n   ```sh\n   a\n     b\n   ```\n2. Done", "sh", "a\n  b"),
            ("- a\n  - b\n\n    ```js\n    x\n    ```\n", "js", "x"),
            ("- ```js\n  x\nnot in it", "js", "x"),
        ] {
            assert_eq!(block(text), Some((language.to_owned(), code.to_owned())), "{text:?}");
        }
        for text in ["", "``\nx\n``", "    ```\n    x\n    ```", "a\n- b\n\nc\n\n    ```\n    x\n"] {
            assert_eq!(block(text), None, "{text:?}");
        }
    }
}

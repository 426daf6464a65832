//! Fenced code blocks of `CommonMark`.

use cp_common::wire::Extracted;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// The first fenced code block of a text. The end of the text closes a block too.
pub(crate) fn first_block(text: &str) -> Option<Extracted> {
    let mut events = Parser::new(text).into_offset_iter();
    let language = events.by_ref().find_map(|(event, _)| match event {
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
            Some(info.split_whitespace().next().map(str::to_owned))
        }
        _ => None,
    })?;
    let mut block = String::new();
    for (event, place) in events.take_while(|(event, _)| !matches!(event, Event::End(TagEnd::CodeBlock))) {
        if let Event::Text(lines) = event {
            // The parser leaves out the carriage return of a line ending.
            if lines.starts_with('\n') && text[..place.start].ends_with('\r') {
                block.push('\r');
            }
            block.push_str(&lines);
        }
    }
    if block.ends_with('\n') {
        block.pop();
    }
    Some(Extracted { language, text: block })
}

/// The text of an answer without the fence that models like to put around JSON.
pub(crate) fn unfenced(answer: &str) -> &str {
    let answer = answer.trim();
    let Some(inside) = answer.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return answer };
    inside.split_once('\n').map_or(inside, |(_, body)| body).trim()
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

//! The values in a stream of JSON, one after the other, on a line each or over many.
//!
//! Broken input is reported once, and reading goes on at the next line: after the brackets that were open have closed, or where a line
//! begins with `{`.

/// The longest request, in bytes.
pub(super) const LONGEST: usize = 1 << 20;
/// How deep a request may nest.
const DEPTH: usize = cp_common::json::MAX_DEPTH;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A value; what is in its strings and how its names repeat was not looked at.
    Value(Vec<u8>),
    /// Bytes that are not a value.
    Broken(Broken),
}

/// Bytes that are not a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// As many of them as were looked at.
    pub(super) text: Vec<u8>,
    /// The line of the input where it was noticed, from 1.
    pub(super) line: u64,
    /// What is wrong.
    pub(super) reason: &'static str,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Between the parts.
    Nothing,
    /// A string; whether it is a member's name, and whether a backslash came last.
    Text { is_name: bool, escaped: bool },
    /// A number, or a word: from here in the value.
    Word { from: usize },
    /// What was broken: so many brackets are open.
    Skipped { open: usize },
}

/// Cuts the stream up. Its memory is bounded by [`LONGEST`].
#[derive(Debug)]
pub(super) struct Splitter {
    value: Vec<u8>,
    /// The brackets that are open.
    open: Vec<u8>,
    expect: Expect,
    within: Within,
    line: u64,
    /// The line that the value began on.
    began: u64,
    /// Where in the value the line begins.
    line_from: usize,
    /// Whether the byte before was the end of a line.
    at_start: bool,
    /// How many bytes of a byte order mark were seen at the start.
    mark: usize,
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

impl Splitter {
    pub(super) fn new() -> Self {
        Self {
            value: Vec::new(),
            open: Vec::new(),
            expect: Expect::Value,
            within: Within::Nothing,
            line: 1,
            began: 1,
            line_from: 0,
            at_start: true,
            mark: 0,
        }
    }

    /// Takes more of the stream.
    pub(super) fn feed(&mut self, bytes: &[u8], found: &mut Vec<Piece>) {
        for byte in bytes {
            if self.mark < MARK.len() && MARK[self.mark] == *byte {
                self.mark += 1;
                continue;
            }
            self.mark = MARK.len();
            self.step(*byte, found);
        }
    }

    /// The end of the stream.
    pub(super) fn finish(&mut self, found: &mut Vec<Piece>) {
        self.end_word(found);
        if !self.value.is_empty() && !matches!(self.within, Within::Skipped { .. }) {
            self.broken("ends inside a value", found);
        }
    }

    fn step(&mut self, byte: u8, found: &mut Vec<Piece>) {
        let at_start = std::mem::replace(&mut self.at_start, byte == b'\n');
        if let Within::Skipped { open } = self.within {
            self.skip(byte, open, at_start, found);
        } else {
            self.take(byte, found);
        }
        if byte == b'\n' {
            self.line += 1;
            self.line_from = self.value.len();
        }
    }

    /// Passes over what is broken.
    fn skip(&mut self, byte: u8, open: usize, at_start: bool, found: &mut Vec<Piece>) {
        let open = match byte {
            b'{' if at_start => {
                self.reset();
                return self.take(byte, found);
            }
            b'{' | b'[' => open + 1,
            b'}' | b']' => open.saturating_sub(1),
            b'\n' if open == 0 => return self.reset(),
            _ => open,
        };
        self.within = Within::Skipped { open };
    }

    fn take(&mut self, byte: u8, found: &mut Vec<Piece>) {
        if let Within::Text { is_name, escaped } = self.within {
            return self.text(byte, is_name, escaped, found);
        }
        let ends_word = matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']');
        if matches!(self.within, Within::Word { .. }) {
            if !ends_word {
                return self.push(byte, found);
            }
            self.end_word(found);
            if matches!(self.within, Within::Skipped { .. }) {
                self.at_start = byte == b'\n';
                let open = self.open.len();
                return self.skip(byte, open, false, found);
            }
        }
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            if !self.value.is_empty() {
                self.push(byte, found);
            }
            return;
        }
        if self.value.is_empty() {
            self.began = self.line;
        }
        let expects_value = matches!(self.expect, Expect::Value | Expect::ValueOrEnd);
        let expects_name = matches!(self.expect, Expect::Name | Expect::NameOrEnd);
        match byte {
            b'"' if expects_value || expects_name => {
                self.within = Within::Text { is_name: expects_name, escaped: false };
                self.push(byte, found);
            }
            b'{' | b'[' if expects_value && self.open.len() < DEPTH => {
                self.open.push(byte);
                self.expect = if byte == b'{' { Expect::NameOrEnd } else { Expect::ValueOrEnd };
                self.push(byte, found);
            }
            b'{' | b'[' if expects_value => self.fail(byte, "nested too deep", found),
            b'}' | b']' if self.closes(byte) => {
                self.open.pop();
                self.push(byte, found);
                self.after_value(found);
            }
            b',' if self.expect == Expect::CommaOrEnd => {
                self.expect = if self.open.last() == Some(&b'{') { Expect::Name } else { Expect::Value };
                self.push(byte, found);
            }
            b':' if self.expect == Expect::Colon => {
                self.expect = Expect::Value;
                self.push(byte, found);
            }
            b'"' | b'{' | b'[' | b'}' | b']' | b',' | b':' => self.fail(byte, self.expected(), found),
            _ if expects_value => {
                self.within = Within::Word { from: self.value.len() };
                self.push(byte, found);
            }
            _ => self.fail(byte, self.expected(), found),
        }
    }

    fn closes(&self, byte: u8) -> bool {
        match byte {
            b'}' => self.open.last() == Some(&b'{') && matches!(self.expect, Expect::NameOrEnd | Expect::CommaOrEnd),
            _ => self.open.last() == Some(&b'[') && matches!(self.expect, Expect::ValueOrEnd | Expect::CommaOrEnd),
        }
    }

    fn expected(&self) -> &'static str {
        match self.expect {
            Expect::Value | Expect::ValueOrEnd => "expected a value",
            Expect::Name | Expect::NameOrEnd => "expected a member name in quotes",
            Expect::Colon => "expected a colon after the member name",
            Expect::CommaOrEnd => "expected a comma, or the end of the object or list",
        }
    }

    fn text(&mut self, byte: u8, is_name: bool, escaped: bool, found: &mut Vec<Piece>) {
        match byte {
            0..0x20 => self.fail(byte, "control character in a string", found),
            b'"' if !escaped => {
                self.within = Within::Nothing;
                self.push(byte, found);
                if is_name {
                    self.expect = Expect::Colon;
                } else {
                    self.after_value(found);
                }
            }
            _ => {
                self.within = Within::Text { is_name, escaped: byte == b'\\' && !escaped };
                self.push(byte, found);
            }
        }
    }

    /// A number or a word is over: it must be valid JSON.
    fn end_word(&mut self, found: &mut Vec<Piece>) {
        let Within::Word { from } = self.within else { return };
        self.within = Within::Nothing;
        if serde_json::from_slice::<&serde_json::value::RawValue>(&self.value[from..]).is_ok() {
            self.after_value(found);
        } else {
            self.broken("expected a value", found);
        }
    }

    fn after_value(&mut self, found: &mut Vec<Piece>) {
        if matches!(self.within, Within::Skipped { .. }) {
            return;
        }
        if self.open.is_empty() {
            found.push(Piece::Value(std::mem::take(&mut self.value)));
            self.reset();
        } else {
            self.expect = Expect::CommaOrEnd;
        }
    }

    fn push(&mut self, byte: u8, found: &mut Vec<Piece>) {
        self.value.push(byte);
        if self.value.len() > LONGEST {
            self.broken("longer than 1 MiB", found);
        }
    }

    /// This byte does not belong here. If its line begins with `{` and the value began before, the line is a value of its own.
    fn fail(&mut self, byte: u8, reason: &'static str, found: &mut Vec<Piece>) {
        let mut line = self.value.split_off(self.line_from.min(self.value.len()));
        line.push(byte);
        if self.began < self.line && line.first() == Some(&b'{') {
            self.broken(reason, found);
            self.reset();
            for byte in line {
                self.take(byte, found);
            }
            return;
        }
        line.pop();
        self.value.append(&mut line);
        self.broken(reason, found);
        if byte == b'\n' && self.open.is_empty() {
            self.reset();
        } else {
            let open = self.open.len();
            self.skip(byte, open, false, found);
        }
    }

    /// Reports what is broken, and passes over the rest of it.
    fn broken(&mut self, reason: &'static str, found: &mut Vec<Piece>) {
        let text = std::mem::take(&mut self.value);
        found.push(Piece::Broken(Broken { text, line: self.line, reason }));
        self.within = Within::Skipped { open: self.open.len() };
    }

    fn reset(&mut self) {
        self.value.clear();
        self.open.clear();
        self.expect = Expect::Value;
        self.within = Within::Nothing;
        self.line_from = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split_in(text: &str, chunk: usize) -> Vec<String> {
        let (mut splitter, mut found) = (Splitter::new(), Vec::new());
        for bytes in text.as_bytes().chunks(chunk) {
            splitter.feed(bytes, &mut found);
        }
        splitter.finish(&mut found);
        let shown = |piece: &Piece| match piece {
            Piece::Value(value) => String::from_utf8_lossy(value).into_owned(),
            Piece::Broken(broken) => format!("! {} {}", broken.line, broken.reason),
        };
        found.iter().map(shown).collect()
    }

    fn split(text: &str) -> Vec<String> {
        let whole = split_in(text, usize::MAX);
        assert_eq!(split_in(text, 1), whole, "{text}");
        assert_eq!(split_in(text, 3), whole, "{text}");
        whole
    }

    #[test]
    fn values_follow_each_other_in_any_layout() {
        assert_eq!(
            split("{\"a\":1}{\"b\":[2,{\"c\":\"}\\\"{\"}]}\n\n{\n  \"d\": null\n}"),
            ["{\"a\":1}", "{\"b\":[2,{\"c\":\"}\\\"{\"}]}", "{\n  \"d\": null\n}"]
        );
        assert_eq!(split("\u{feff}{}\r\n[]"), ["{}", "[]"]);
        assert_eq!(split("1 \"x\"true{}"), ["1", "\"x\"", "true", "{}"]);
        assert_eq!(split(" \n\t\r\n"), Vec::<String>::new());
    }

    #[test]
    fn a_value_is_there_with_its_last_byte() {
        let (mut splitter, mut found) = (Splitter::new(), Vec::new());
        splitter.feed(b"{\"a\":1}", &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn what_is_broken_is_reported_once_and_the_next_line_is_read() {
        let broken = "! 1 expected a value";
        assert_eq!(split("nope\n{}\n"), [broken, "{}"]);
        assert_eq!(split("nope and more nope\n  {}\n"), [broken, "{}"]);
        assert_eq!(split("{} nope {}\n[]\n"), ["{}", broken, "[]"]);
        assert_eq!(split("{'a': 'b'}\n {}\n"), ["! 1 expected a member name in quotes", "{}"]);
        assert_eq!(split("{\"a\": b}\n{}\n"), [broken, "{}"]);
        assert_eq!(split("{\"a\": 01}\n{}\n"), [broken, "{}"]);
        assert_eq!(split("}\n{}\n"), [broken, "{}"]);
        assert_eq!(split("{\"a\n{}\n"), ["! 1 control character in a string", "{}"]);
    }

    #[test]
    fn what_is_not_closed_does_not_swallow_the_next_line() {
        assert_eq!(
            split("{\"a\": 1\n{\"b\":2}\n{\"c\":3}\n"),
            ["! 2 expected a comma, or the end of the object or list", "{\"b\":2}", "{\"c\":3}"]
        );
        assert_eq!(split("{\"a\": [\n{\"b\":2}\n]}\n{}"), ["{\"a\": [\n{\"b\":2}\n]}", "{}"]);
        assert_eq!(split("{\n"), ["! 2 ends inside a value"]);
        assert_eq!(split("{\"a\":\"b"), ["! 1 ends inside a value"]);
    }

    #[test]
    fn a_broken_value_over_many_lines_is_one_error() {
        assert_eq!(split("{\n  \"a\": 1,\n  \"b\": oops,\n  \"c\": {\n  }\n}\n[]\n"), ["! 3 expected a value", "[]"]);
        assert_eq!(split("{\n\"a\": oops,\n\"b\": 2\n}\n{}\n"), ["! 2 expected a value", "{}"]);
    }

    #[test]
    fn a_request_has_a_limit_and_what_comes_after_is_read() {
        let text = format!("[\"{}\"]\n{{}}\n", "x".repeat(2 * LONGEST));
        assert_eq!(split_in(&text, 4096), ["! 1 longer than 1 MiB", "{}"]);
        let deep = format!("{}\n{{}}\n", "[".repeat(DEPTH + 1));
        assert_eq!(split(&deep), ["! 1 nested too deep", "{}"]);
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<i32>().prop_map(|n| n.to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        ];
        let nested = leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(" ,\n"))),
                prop::collection::vec((any::<u8>(), inner), 0..4).prop_map(|members| {
                    let members: Vec<String> = members.iter().map(|(name, it)| format!("\"{name}\" : {it}")).collect();
                    format!("{{\r\n{}}}", members.join(",  "))
                }),
            ]
        });
        nested.prop_map(|value| format!("[{value}]"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_was_put_together_comes_apart(
            values in prop::collection::vec(values(), 0..5),
            between in prop_oneof![Just(""), Just(" "), Just("\n"), Just("\r\n\n")],
            chunk in 1_usize..9,
        ) {
            let text: String = values.iter().map(|value| value.clone() + between).collect();
            prop_assert_eq!(split_in(&text, chunk), values);
        }

        #[test]
        fn however_it_arrives_garbage_is_reported_alike_and_what_follows_is_read(
            garbage in "[\\[\\]{}\",:\\\\ a0\n-]{0,60}",
            chunk in 1_usize..9,
        ) {
            let text = format!("{garbage}\n{{\"last\":1}}\n{{\"last\":2}}\n");
            let whole = split_in(&text, usize::MAX);
            prop_assert_eq!(&split_in(&text, chunk), &whole);
            prop_assert!(text.trim().is_empty() || whole.last().is_some());
        }
    }
}

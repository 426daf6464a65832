//! A parser of server-sent events. It takes bytes as they arrive and returns complete events. A line is decoded only
//! when it is complete, so characters and events may be split anywhere.

use cp_common::{Code, Error, Result};

/// The largest line or event.
const LIMIT: usize = 64 << 20;

/// An event: its name, which may be empty, and its joined data lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field.
    pub name: String,
    /// The `data:` fields.
    pub data: Vec<u8>,
}

/// Takes bytes as they arrive, and returns the events that they complete.
#[derive(Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The event so far. Each line of its data ends with a line feed.
    event: Event,
    after_cr: bool,
    /// A line was read, which may begin with a byte order mark.
    started: bool,
}

impl Parser {
    /// A parser at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes, and passes on each event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Event) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.line.extend_from_slice(bytes);
                return self.bounded();
            };
            self.line.extend_from_slice(&bytes[..end]);
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if let Some(event) = self.end_line() {
                each(event)?;
            }
            self.bounded()?;
        }
        Ok(())
    }

    /// The event at the end of a stream without a last blank line. It may be incomplete.
    pub fn finish(mut self) -> Option<Event> {
        let last = (!self.line.is_empty()).then(|| self.end_line()).flatten();
        last.or_else(|| self.end_line())
    }

    fn bounded(&self) -> Result<()> {
        if self.line.len() + self.event.data.len() <= LIMIT {
            return Ok(());
        }
        Err(Error::new(Code::Server, format!("the server sent an event of more than {} MiB", LIMIT >> 20)))
    }

    /// Handles a complete line. A blank line completes the event.
    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.started, true);
        let line = line.strip_prefix(b"\xEF\xBB\xBF").filter(|_| is_first).unwrap_or(&line);
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            return event.data.pop().map(|_| event);
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &b""[..]),
        };
        match name {
            b"data" => {
                self.event.data.extend_from_slice(value);
                self.event.data.push(b'\n');
            }
            // llama.cpp reports a failure in a field of its own.
            b"error" => self.event = Event { name: "error".to_owned(), data: [value, b"\n"].concat() },
            b"event" => String::from_utf8_lossy(value).trim_end().clone_into(&mut self.event.name),
            // Comments have an empty name. Other fields are ignored.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::new();
        let mut found = Vec::new();
        for piece in pieces {
            parser
                .push(piece, |event| {
                    found.push(event);
                    Ok(())
                })
                .unwrap();
        }
        found.extend(parser.finish());
        found
    }

    fn data(bytes: &[u8]) -> Vec<String> {
        events(&[bytes]).into_iter().map(|e| String::from_utf8(e.data).unwrap()).collect()
    }

    #[test]
    fn line_ends_are_cr_lf_or_both() {
        assert_eq!(data(b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n"), ["a", "b", "c", "d"]);
    }

    #[test]
    fn byte_order_mark_is_skipped_only_at_start() {
        assert_eq!(data("\u{feff}data: a\n\ndata: \u{feff}b\n\n".as_bytes()), ["a", "\u{feff}b"]);
        assert_eq!(data(b"\xEF\xBBdata: a\n\ndata: b\n\n"), ["b"]);
    }

    #[test]
    fn data_lines_are_joined() {
        assert_eq!(data(b"data:a\ndata:  b\ndata\ndata: c\n\n"), ["a\n b\n\nc"]);
    }

    #[test]
    fn comments_ids_and_unknown_fields_make_no_event() {
        assert_eq!(data(b": ping\n\nid: 7\nretry: 10\nnew: x\n\ndata: a\n\n"), ["a"]);
    }

    #[test]
    fn event_name_is_reset_and_trimmed() {
        let found = events(&[b"event: ping \ndata: {}\n\ndata: 1\n\nevent: lost\n\ndata: 2\n\n"]);
        assert_eq!(found.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["ping", "", ""]);
    }

    #[test]
    fn finish_returns_incomplete_event() {
        assert_eq!(data(b"data: a\n\ndata: [DONE]"), ["a", "[DONE]"]);
        assert_eq!(data(b"data: [DONE]\n"), ["[DONE]"]);
        assert_eq!(data(b"event: x\n"), [""; 0]);
    }

    #[test]
    fn endless_line_is_error() {
        let mut parser = Parser::new();
        let chunk = vec![b'x'; 16 << 20];
        let refused = (0..5).find_map(|_| parser.push(&chunk, |_| Ok(())).err());
        assert_eq!(refused.unwrap().code(), Code::Server);
    }

    proptest! {
        #[test]
        fn events_are_equal_at_any_split(
            lines in prop::collection::vec(
                prop_oneof![
                    Just("data: {\"t\":\"\u{1F600}é\"}".to_owned()), Just("data:".to_owned()), Just(String::new()), Just(String::new()),
                    Just("event: ping ".to_owned()), Just(": c".to_owned()), Just("\u{feff}".to_owned()), "[ -~]{0,8}",
                ], 0..24),
            ends in prop::collection::vec(prop_oneof![Just("\n"), Just("\r"), Just("\r\n")], 24),
            last in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut bytes = Vec::new();
            for (n, (line, end)) in lines.iter().zip(&ends).enumerate() {
                bytes.extend_from_slice(line.as_bytes());
                if last || n + 1 < lines.len() {
                    bytes.extend_from_slice(end.as_bytes());
                }
            }
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in at {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(events(&pieces), events(&[&bytes]));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(events(&single), events(&[&bytes]));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            events(&[&bytes]);
        }
    }
}

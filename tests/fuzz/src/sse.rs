//! Any bytes as server-sent events: the same events, however they are split.
#![no_main]

#[path = "../../../common/http/src/sse.rs"]
mod parser;

use parser::{Event, Parser};

fn events(pieces: &[&[u8]]) -> Option<Vec<Event>> {
    let mut parser = Parser::new();
    let mut events = Vec::new();
    for piece in pieces {
        parser
            .push(piece, |event| {
                events.push(event);
                Ok(())
            })
            .ok()?;
    }
    events.extend(parser.finish());
    Some(events)
}

libfuzzer_sys::fuzz_target!(|input: (usize, Vec<u8>)| {
    let (at, bytes) = input;
    let (head, tail) = bytes.split_at(at.checked_rem(bytes.len()).unwrap_or(0));
    assert_eq!(events(&[&bytes]), events(&[head, tail]));
});

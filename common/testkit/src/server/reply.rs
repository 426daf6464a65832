//! Replies in steps: whole, in chunks, slow, or truncated.

use serde_json::Value;

/// A step of a reply.
#[derive(Clone, Debug)]
pub enum Step {
    /// Bytes, in one write.
    Bytes(Vec<u8>),
    /// A pause in milliseconds.
    Wait(u64),
    /// Closes the connection.
    Close,
    /// A pause without end.
    Stall,
}

/// The reply to a request.
pub type Reply = Vec<Step>;

/// Makes a whole reply; each header ends with CRLF.
pub fn reply(status: u16, content_type: &str, headers: &str, body: &[u8]) -> Reply {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{headers}content-length: {length}\r\n\r\n");
    vec![Step::Bytes([head.as_bytes(), body].concat())]
}

/// Makes a whole JSON reply.
pub fn json(status: u16, body: &Value) -> Reply {
    reply(status, "application/json", "", body.to_string().as_bytes())
}

/// Makes a stream of events in chunks, one write for each piece.
pub fn events(pieces: &[&[u8]]) -> Reply {
    let pieces = pieces.iter().map(|piece| chunk(piece));
    std::iter::once(stream_head()).chain(pieces).chain([Step::Bytes(b"0\r\n\r\n".to_vec())]).collect()
}

/// Makes the head of a chunked stream of events.
pub fn stream_head() -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: req_7\r\ntransfer-encoding: chunked\r\n\r\n";
    Step::Bytes(head.as_bytes().to_vec())
}

/// Makes a chunk of a stream.
pub fn chunk(piece: &[u8]) -> Step {
    let length = format!("{:x}\r\n", piece.len());
    Step::Bytes([length.as_bytes(), piece, b"\r\n"].concat())
}

//! An HTTP server on loopback that sends exactly the bytes that a test chooses, and records its requests.

mod reply;

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

pub use reply::{Reply, Step, chunk, events, json, reply, stream_head};

/// A request.
#[derive(Clone)]
pub struct Request {
    /// The request line and the headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns its method and target: `GET /tasks/?status=open`.
    pub fn line(&self) -> &str {
        let line = self.head.lines().next().unwrap_or_default();
        line.rsplit_once(' ').map_or(line, |(line, _version)| line)
    }

    /// Returns a header; the case of its name is ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("the body is not JSON ({e}): {self:?}"))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

/// A server, which runs until the test process ends.
#[derive(Debug)]
pub struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

type Choose = dyn Fn(usize, &Request) -> Reply + Send + Sync;

impl Server {
    /// Starts a server that sends the replies in order, and repeats the last one.
    pub fn playing(script: Vec<Reply>) -> Self {
        assert!(!script.is_empty(), "a script has a reply");
        Self::start(Box::new(move |number, _| script[number.min(script.len() - 1)].clone()))
    }

    /// Starts a server that computes the reply to each request.
    pub fn replying(choose: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(Box::new(move |_, request| choose(request)))
    }

    fn start(choose: Box<Choose>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("the port").port();
        let server = Self { port, requests: Arc::default(), connections: Arc::default() };
        let (requests, connections) = (Arc::clone(&server.requests), Arc::clone(&server.connections));
        let choose: Arc<Choose> = choose.into();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, choose) = (Arc::clone(&requests), Arc::clone(&choose));
                std::thread::spawn(move || serve(stream, &*choose, &requests));
            }
        });
        server
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, choose: &Choose, requests: &Mutex<Vec<Request>>) {
    while let Some(request) = read_request(&mut stream) {
        let number = {
            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push(request.clone());
            requests.len() - 1
        };
        for step in choose(number, &request) {
            match step {
                Step::Bytes(bytes) => {
                    if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
                        return;
                    }
                }
                Step::Wait(ms) => std::thread::sleep(Duration::from_millis(ms)),
                Step::Close => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                // Longer than any test, with the connection open.
                Step::Stall => std::thread::sleep(Duration::from_hours(1)),
            }
        }
    }
}

/// Reads the next request of a connection; `None` at its end.
fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let request = Request { head: String::from_utf8(bytes).ok()?, body: Vec::new() };
    let length = request.header("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(Request { body, ..request })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(server: &Server, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let head = format!("POST /a?b=c HTTP/1.1\r\nX-Word: hi\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn server_sends_replies_in_order_and_records_requests() {
        let server = Server::playing(vec![json(500, &json!({"n": 1})), events(&[b"data: x\n\n"])]);
        assert!(
            ask(&server, "{}").starts_with("HTTP/1.1 500 ") && ask(&server, "{}").contains("9\r\ndata: x\n\n\r\n0")
        );
        assert!(ask(&server, "{\"q\":1}").contains("chunked"));
        let last = server.requests().pop().unwrap();
        assert_eq!(
            (last.line(), last.header("x-word"), last.json()["q"].as_u64()),
            ("POST /a?b=c", Some("hi"), Some(1))
        );
        assert_eq!((server.requests().len(), server.connections()), (3, 3));
    }

    #[test]
    fn reply_can_depend_on_request_and_close_early() {
        let server = Server::replying(|request| match request.body.as_slice() {
            b"cut" => vec![Step::Bytes(b"HTTP/1.1 200 OK\r\n".to_vec()), Step::Close],
            body => reply(200, "text/plain", "", body),
        });
        assert!(ask(&server, "echo").ends_with("\r\n\r\necho"));
        assert_eq!(ask(&server, "cut"), "HTTP/1.1 200 OK\r\n");
    }
}

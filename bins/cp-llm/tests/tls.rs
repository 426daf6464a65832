//! TLS: trusted and untrusted certificates. A key is never sent to an untrusted server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cp_testkit::Outcome;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::llm::Llm;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// A server on loopback with a certificate for `localhost`, and its requests.
fn server(certificate: &str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let chain = CertificateDer::pem_file_iter(file(certificate)).unwrap().map(Result::unwrap).collect();
    let key = if certificate == "localhost.pem" { "localhost.key.pem" } else { "self.key.pem" };
    let key = PrivateKeyDer::from_pem_file(file(key)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, socket);
            let mut request = Vec::new();
            let mut byte = [0];
            // The request ends with the closing brace of its body.
            while !(request.ends_with(b":false}") || request.ends_with(b"\r\n\r\n") && request.starts_with(b"GET")) {
                match stream.read(&mut byte) {
                    Ok(1) => request.push(byte[0]),
                    _ => break,
                }
            }
            if request.is_empty() {
                continue;
            }
            seen.lock().unwrap().push(String::from_utf8(request).unwrap());
            let answer = json!({"id":"c","choices":[{"message":{"content":"in private"},"finish_reason":"stop"}]});
            let answer = answer.to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", answer.len());
            let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (port, asked)
}

fn ask(host: &str, port: u16, authority: Option<&str>) -> Outcome {
    let llm = Llm::new()
        .set("OPENAI_BASE_URL", &format!("https://{host}:{port}/v1"))
        .set("OPENAI_API_KEY", "key-of-the-test-0123456789")
        .set("SSL_CERT_FILE", authority.map(|name| file(name).display().to_string()).unwrap_or_default().as_str());
    llm.run(&["-m", "m", "--retry-max-wait", "0", "hi"])
}

#[test]
fn tls_trusts_only_named_authority() {
    let (port, asked) = server("localhost.pem");
    let ran = ask("localhost", port, Some("authority.pem"));
    assert_eq!(ran.only()["data"]["content"], "in private", "{} {}", ran.stdout, ran.stderr);
    assert!(asked.lock().unwrap()[0].contains("Bearer key-of-the-test"));
    let (own_port, own_asked) = server("self.pem");
    let (authority_port, authority_asked) = server("self-authority.pem");
    let (old_port, old_asked) = server("expired.pem");
    for (host, port, authority, what, hint) in [
        // It is not signed by a built-in authority or by the named one.
        ("localhost", port, None, "an authority that is not trusted", "SSL_CERT_FILE"),
        ("localhost", port, Some("self.pem"), "an authority that is not trusted", "SSL_CERT_FILE"),
        ("localhost", own_port, None, "self-signed", "SSL_CERT_FILE"),
        ("localhost", own_port, Some("authority.pem"), "self-signed", "SSL_CERT_FILE"),
        ("localhost", authority_port, None, "of an authority", "CA:FALSE"),
        ("localhost", authority_port, Some("self-authority.pem"), "of an authority", "CA:FALSE"),
        ("127.0.0.1", port, Some("authority.pem"), "another name: localhost", "base URL"),
        ("127.0.0.1", own_port, Some("self.pem"), "another name: localhost", "base URL"),
        ("localhost", old_port, Some("expired.pem"), "has expired", "renew it"),
    ] {
        let ran = ask(host, port, authority);
        let error = ran.only()["error"].clone();
        assert_eq!((ran.status, error["code"].as_str().unwrap()), (4, "E_CONFIG"), "{host}: {error}");
        assert!(error["message"].as_str().unwrap().contains(what), "{error}");
        assert!(error["details"]["hint"].as_str().unwrap().contains(hint), "{error}");
        assert_eq!(error["details"]["attempts"], 1, "a certificate does not get better");
    }
    for asked in [own_asked, authority_asked, old_asked] {
        assert!(asked.lock().unwrap().is_empty());
    }
    // The same server with its certificate in the file.
    assert_eq!(ask("localhost", own_port, Some("self.pem")).only()["data"]["content"], "in private");
    assert_eq!(asked.lock().unwrap().len(), 1, "a key was sent to a server that is not trusted");
}

#[test]
fn tls_authority_file_without_certificates_is_error() {
    let (port, asked) = server("localhost.pem");
    let llm = Llm::new();
    let empty = llm.work.write("empty.pem", "nothing here\n");
    for name in [empty.to_str().unwrap(), "/nowhere.pem"] {
        let ran = ask("localhost", port, Some(name));
        let error = ran.only()["error"].clone();
        assert_eq!((ran.status, error["code"].as_str().unwrap()), (4, "E_CONFIG"));
        assert!(error["message"].as_str().unwrap().contains("SSL_CERT_FILE"), "{error}");
    }
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn tls_distinguishes_plain_server_from_refused_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let ran = ask("127.0.0.1", port, Some("authority.pem"));
    let error = ran.only()["error"].clone();
    assert_eq!((ran.status, error["code"].as_str().unwrap()), (4, "E_CONFIG"), "{error}");
    assert!(error["details"]["hint"].as_str().unwrap().contains("http://"), "{error}");
}

#[test]
fn proxy_error_has_no_password() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = format!("http://user:password-of-the-proxy@{closed}");
    for (scheme, variable) in [("https", "HTTPS_PROXY"), ("http", "http_proxy")] {
        let llm = Llm::new().set("OPENAI_BASE_URL", &format!("{scheme}://server.invalid:1/v1")).set(variable, &proxy);
        let ran = llm.run(&["--backend", "openai", "-m", "m", "--retries", "0", "hi"]);
        let error = ran.failed(7, "E_NETWORK");
        assert!(
            error["message"].as_str().unwrap().contains(&format!("server.invalid:1 through the proxy {closed}")),
            "{error}"
        );
        assert!(error["details"]["hint"].as_str().unwrap().contains("NO_PROXY"), "{error}");
        assert!(!ran.stdout.contains("password-of-the-proxy"));
    }
}

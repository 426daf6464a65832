//! `--read-only`: commands neither write nor use the network, even if the policy allows it.

use std::io::Read as _;
use std::net::TcpListener;

use crate::exec::{Exec, POLICY, everyone};

#[test]
fn read_only_command_has_no_writes_and_no_network() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &POLICY.replace("intent =", "network = \"host\"\nintent ="));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        exec.write("kept", "kept");
        let script = format!(
            "import os, socket\nfor f in (lambda: open('new', 'w'), lambda: open('kept', 'w'), lambda: os.mkdir('d'), lambda: os.rename('kept', 'x'), lambda: os.chmod('kept', 0o600), lambda: socket.create_connection(('127.0.0.1', {}), 2).send(b'x')):\n    try:\n        f()\n        print('did', end=' ')\n    except OSError:\n        print('not', end=' ')\nopen('/tmp/x', 'w').write(open('kept').read())\n",
            address.port()
        );
        let asked = ["--read-only", "--", "python3", "-c", &script];
        let (answer, status) = exec.ask(&asked);
        assert_eq!(
            (status, answer["data"]["stdout"].as_str()),
            (0, Some("not not not not not not ")),
            "{who:?}: {answer}"
        );
        assert_eq!((exec.work.read("kept"), exec.work.names()), ("kept".to_owned(), vec!["kept".to_owned()]));

        let control = script.replace("os.rename('kept', 'x')", "os.rename('kept', 'x') or os.rename('x', 'kept')");
        let (answer, _) = exec.ask(&["--", "python3", "-c", &control]);
        assert_eq!(answer["data"]["stdout"], "did did did did did did ", "the control, {who:?}: {answer}");
        let mut sent = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"x");
    }
}

#[test]
fn read_only_file_operations_only_read() {
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("a", "text");
        let requests = "{\"tool\":\"filesystem\",\"operation\":\"write_file\",\"arguments\":{\"path\":\"b\",\"content\":\"x\"}}\n\
                        {\"tool\":\"filesystem\",\"operation\":\"read_file\",\"arguments\":{\"path\":\"a\"}}\n";
        let (answers, _) = exec.answers(&["--read-only"], requests);
        assert_eq!(answers[0]["error"]["code"], "E_FORBIDDEN", "{who:?}: {answers:?}");
        assert!(answers[1]["data"].to_string().contains("text") && !exec.work.join("b").exists());
        let (answers, _) = exec.answers(&[], requests);
        assert!(answers[0]["ok"] == true && exec.work.join("b").exists(), "the control, {who:?}: {answers:?}");
    }
}

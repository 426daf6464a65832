//! A network of names against hostile programs, peers and resolutions. Each refusal has a control that passes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::egress::{python, with_network};
use crate::exec::{Exec, POLICY, SCRIPT, Who, alive, everyone};

/// Serves each connection in a thread, and returns the port.
fn serve(handle: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let handle = handle.clone();
            thread::spawn(move || handle(stream.unwrap()));
        }
    });
    port
}

/// A web server that answers a path with a status line, headers and a body.
fn web(answer: impl Fn(&str) -> (String, Vec<u8>) + Send + Sync + Clone + 'static) -> u16 {
    serve(move |mut stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        lines.find(String::is_empty);
        let (head, body) = answer(first.split(' ').nth(1).unwrap_or_default());
        let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = stream.write_all(&body);
    })
}

fn echo() -> u16 {
    serve(|stream| _ = std::io::copy(&mut &stream, &mut &stream))
}

fn allowing(who: Who, port: u16) -> Exec {
    with_network(who, &format!("[\"registry.test=127.0.0.1:{port}\"]"))
}

#[test]
fn redirect_outside_of_list_is_refused() {
    cp_testkit::needs!("python3");
    let secret = web(|_| ("200 OK".to_owned(), b"ESCAPED".to_vec()));
    let port = web(move |path| match path {
        "/address" => (format!("302 Found\r\nLocation: http://127.0.0.1:{secret}/"), Vec::new()),
        "/metadata" => ("302 Found\r\nLocation: http://169.254.169.254/".to_owned(), Vec::new()),
        "/name" => ("302 Found\r\nLocation: http://other.test/".to_owned(), Vec::new()),
        "/own" => ("302 Found\r\nLocation: http://registry.test/page".to_owned(), Vec::new()),
        _ => ("200 OK".to_owned(), b"page".to_vec()),
    });
    for who in everyone() {
        let result = python(
            &allowing(who, port),
            "import urllib.request\n\
             for path in ['own', 'address', 'metadata', 'name']:\n    \
                 attempt(path, lambda: urllib.request.urlopen('http://registry.test/' + path, timeout=5).read())\n",
        );
        assert_eq!(result["stdout"], "own b'page'\naddress denied\nmetadata denied\nname denied\n", "{result}");
        assert_eq!(result["connections"]["first_refused"][0]["name"], "other.test", "{result}");
    }
}

#[test]
fn question_to_outside_resolver_is_refused_and_own_resolver_answers_over_both_transports() {
    cp_testkit::needs!("python3");
    // No resolver of the C library: the messages are made and read here.
    let script = "import struct\n\
        def question(name, kind=1):\n    \
            labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.'))\n    \
            return b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0' + labels + b'\\0' + struct.pack('>HH', kind, 1)\n\
        def udp(server, name, family=socket.AF_INET):\n    \
            with socket.socket(family, socket.SOCK_DGRAM) as s:\n        \
                s.settimeout(5); s.sendto(question(name), (server, 53)); return s.recv(512)\n\
        def tcp(server, name):\n    \
            with socket.create_connection((server, 53), 5) as s:\n        \
                m = question(name); s.sendall(struct.pack('>H', len(m)) + m)\n        \
                f = s.makefile('rb'); return f.read(struct.unpack('>H', f.read(2))[0])\n\
        code = lambda reply: reply[3] & 15\n\
        address = lambda reply: socket.inet_ntoa(reply[-4:])\n\
        own = '127.0.0.53'\n\
        attempt('udp', lambda: (code(udp(own, 'registry.test')), code(udp(own, 'other.test'))))\n\
        attempt('tcp', lambda: (code(tcp(own, 'registry.test')), code(tcp(own, 'other.test'))))\n\
        attempt('same', lambda: address(udp(own, 'registry.test')) == address(tcp(own, 'REGISTRY.test')))\n\
        attempt('connect', lambda: ask(address(tcp(own, 'registry.test')), 80))\n\
        for server in ['8.8.8.8', '10.0.0.1', '192.0.2.1']:\n    \
            attempt('udp', lambda: udp(server, 'registry.test'))\n    \
            attempt('tcp', lambda: tcp(server, 'registry.test'))\n\
        attempt('ipv6', lambda: udp('2001:4860:4860::8888', 'registry.test', socket.AF_INET6))\n";
    for who in everyone() {
        let result = python(&allowing(who, echo()), script);
        let own = "udp (0, 3)\ntcp (0, 3)\nsame True\nconnect b'x'\n";
        let outside = "udp denied\ntcp denied\n".repeat(3) + "ipv6 denied\n";
        assert_eq!(result["stdout"], own.to_owned() + &outside, "{result}");
    }
}

#[test]
fn flood_of_names_leaves_allowed_names_reachable_and_ledger_bounded() {
    cp_testkit::needs!("python3");
    let exec = with_network(Who::Me, &format!("[\"*.test=127.0.0.1:{}\"]", echo()));
    let result = python(
        &exec,
        "def works(name):\n    \
            try: return ask(name, 80) == b'x'\n    \
            except OSError: return False\n\
         print(sum(works(f'n{i}.test') for i in range(140)))\n\
         u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         for i in range(5000):\n    \
             n = b'f%06d' % i\n    \
             u.sendto(b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x07' + n + b'\\x03org\\0\\0\\x01\\0\\x01', ('127.0.0.53', 53))\n\
         for i in range(300): works(f'm{i}.org')\n\
         print(works('n0.test'))\n",
    );
    assert_eq!(result["stdout"], "128\nTrue\n", "{result}");
    let refused = exec.entries("exec.connection").into_iter().filter(|entry| entry["data"]["decision"] == "deny");
    let refused: Vec<Value> = refused.collect();
    assert!((100..1000).contains(&refused.len()), "{}", refused.len());
    let counted: u64 = refused.iter().map(|entry| entry["data"]["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, result["connections"]["refused"].as_u64().unwrap());
    assert!(counted >= 312, "{counted}");
}

#[test]
fn connection_to_peer_that_never_answers_ends_with_run() {
    cp_testkit::needs!("python3");
    let port = serve(|stream| {
        thread::sleep(Duration::from_mins(10));
        drop(stream);
    });
    let exec = allowing(Who::Me, port);
    let script = "import socket\nwith socket.create_connection(('registry.test', 80)) as s:\n    \
                      s.sendall(b'x' * 200_000_000)\n";
    exec.write("stalled.py", script);
    let (answer, status) = exec.ask(&["--timeout", "2", "--", "python3", "-c", SCRIPT, "stalled.py"]);
    assert_ne!(status, 0, "{answer}");
    assert_eq!(answer["error"]["code"], "E_TIMEOUT", "{answer}");
    let entries = exec.entries("exec.connection");
    assert_eq!((entries.len(), &entries[0]["data"]["decision"]), (1, &"allow".into()), "{entries:?}");
    assert!(entries[0]["data"]["error"].is_string(), "{entries:?}");
}

#[test]
fn killed_supervisor_leaves_no_process_and_no_connection() {
    cp_testkit::needs!("python3");
    let (sender, ended) = std::sync::mpsc::channel();
    let port = serve(move |mut stream| {
        let mut byte = [0];
        sender.send(stream.read(&mut byte).unwrap_or_default()).unwrap();
        sender.send(stream.read(&mut byte).unwrap_or_default()).unwrap();
    });
    for who in everyone() {
        let exec = allowing(who, port);
        exec.write(
            "held.py",
            "import socket\ns = socket.create_connection(('registry.test', 80))\ns.sendall(b'x')\ns.recv(1)\n",
        );
        let word = format!("held-{}-{port}-{who:?}", std::process::id());
        let run = exec.command(&["--timeout", "60", "--", "python3", "-c", SCRIPT, "held.py", &word]).start();
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(1), "the connection was made");
        run.kill();
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(0), "the connection ended");
        cp_testkit::until("the processes have ended", || !alive(&word));
        assert_eq!(python(&exec, "print(len('after'))\n")["stdout"], "5\n");
    }
}

#[test]
fn two_runs_in_one_project_have_own_networks() {
    cp_testkit::needs!("python3");
    let exec = allowing(Who::Me, echo());
    exec.write("probe.py", "import socket, time\nfor _ in range(20):\n    \
        with socket.create_connection(('registry.test', 80), 5) as s:\n        s.sendall(b'x'); assert s.recv(1) == b'x'\n    time.sleep(.02)\n");
    thread::scope(|scope| {
        let runs: Vec<_> =
            (0..2).map(|_| scope.spawn(|| exec.ask(&["--", "python3", "-c", SCRIPT, "probe.py"]))).collect();
        for run in runs {
            let (answer, status) = run.join().unwrap();
            assert_eq!((status, &answer["data"]["connections"]["allowed"]), (0, &20.into()), "{answer}");
        }
    });
}

#[test]
fn connection_of_100_megabytes_passes_whole_in_both_directions() {
    cp_testkit::needs!("python3");
    let exec = allowing(Who::Me, echo());
    let result = python(
        &exec,
        "import hashlib, random, threading\n\
         s = socket.create_connection(('registry.test', 80))\n\
         sent, got, n = hashlib.sha256(), hashlib.sha256(), 0\n\
         def send():\n    \
             r = random.Random(7)\n    \
             for _ in range(100):\n        \
                 b = r.randbytes(1 << 20); sent.update(b); s.sendall(b)\n    \
             s.shutdown(socket.SHUT_WR)\n\
         t = threading.Thread(target=send); t.start()\n\
         while b := s.recv(1 << 18):\n    got.update(b); n += len(b)\n\
         t.join(); print(n == 100 << 20, sent.digest() == got.digest())\n",
    );
    assert_eq!(result["stdout"], "True True\n", "{result}");
    assert_eq!(result["connections"]["bytes_in"], 100 << 20, "{result}");
}

#[test]
fn node_with_its_own_resolver_reaches_allowed_names_only() {
    let Some(node) = cp_testkit::counterpart("node") else { return };
    let policy = POLICY.replace("\"make\"]", "\"make\", \"node\"]");
    let directory = node.parent().unwrap().display();
    let network = format!(
        "network = [\"registry.test=127.0.0.1:{}\"]\npath = [\"{directory}\", \"/usr/bin\", \"/bin\"]\nintent =",
        echo()
    );
    let exec = Exec::with_policy(Who::Me, &policy.replace("intent =", &network));
    exec.write(
        "probe.js",
        "const dns = require('dns').promises, net = require('net');\n\
         const talk = host => new Promise((yes, no) => { const s = net.connect(80, host, () => s.write('x'));\n  \
             s.on('data', d => { yes(String(d)); s.end(); }); s.on('error', no); });\n\
         (async () => {\n  \
             console.log(await talk((await dns.resolve4('registry.test'))[0]), await talk('registry.test'));\n  \
             for (const f of [() => dns.resolve4('other.test'), () => talk('other.test'), () => talk('1.1.1.1')])\n    \
                 console.log(await f().then(() => 'ESCAPED', () => 'denied'));\n\
         })();\n",
    );
    let (answer, _) = exec.ask(&["--timeout", "30", "--", "node", "-e", "require('./probe.js')"]);
    assert_eq!(answer["data"]["stdout"], "x x\ndenied\ndenied\ndenied\n", "{answer}");
}

#[test]
fn name_with_private_address_in_hosts_file_is_refused_unless_policy_gives_its_address() {
    cp_testkit::needs!("python3");
    let is_possible = || std::process::Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success());
    if !cp_testkit::required("a mount namespace for another hosts file", is_possible()) {
        return;
    }
    let port = echo();
    let exec = with_network(
        Who::Me,
        &format!(
            "[\"loop.test:{port}\", \"six.test:{port}\", \"meta.test\", \"ten.test\", \"listed.test:{port}=127.0.0.1\"]"
        ),
    );
    let hosts = exec.root.join("hosts");
    let lines = "127.0.0.1 loop.test listed.test\n::1 six.test\n169.254.169.254 meta.test\n10.0.0.1 ten.test\n";
    std::fs::write(&hosts, lines).unwrap();
    let script = format!(
        "import socket\n\
         for host, port in [('loop', {port}), ('six', {port}), ('meta', 80), ('ten', 443), ('listed', {port})]:\n    \
             try:\n        \
                 with socket.create_connection((host + '.test', port), 5) as s:\n            \
                     s.sendall(b'x'); print(host, s.recv(1))\n    \
             except OSError: print(host, 'denied')\n"
    );
    exec.write("probe.py", &script);
    let mount = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let command = exec.command(&["--", "python3", "-c", SCRIPT, "probe.py"]);
    let ran = command.under("unshare", ["-m", "sh", "-c", &mount, "sh"]).run();
    let answer = ran.records().pop().unwrap();
    let is_refused = |line: &str| line.ends_with(" denied") || line.ends_with(" b''");
    let stdout: Vec<&str> = answer["data"]["stdout"].as_str().unwrap().lines().collect();
    assert_eq!((stdout.len(), stdout[4]), (5, "listed b'x'"), "{answer}");
    assert!(stdout[..4].iter().all(|line| is_refused(line)), "{answer}");
    let refused = answer["data"]["connections"]["first_refused"].as_array().unwrap();
    let addresses: Vec<(&str, &str)> =
        refused.iter().map(|one| (one["rule"].as_str().unwrap(), one["address"].as_str().unwrap())).collect();
    let (loopback, six) = (format!("127.0.0.1:{port}"), format!("[::1]:{port}"));
    for address in [loopback.as_str(), &six, "169.254.169.254:80", "10.0.0.1:443"] {
        assert!(addresses.contains(&("private_address", address)), "{address}: {answer}");
    }
    assert!(
        refused.iter().any(|one| one["allow"] == format!("cp-exec allow network loop.test:{port}=127.0.0.1:{port}")),
        "{answer}"
    );
}

/// Makes a wheel with one module outside of the sandbox.
const WHEEL: &str = "import sys, zipfile\n\
    with zipfile.ZipFile(sys.argv[1], 'w') as z:\n    \
        z.writestr('demo.py', 'print(\"installed\")\\n')\n    \
        z.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')\n    \
        z.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n    \
        z.writestr('demo-1.0.dist-info/RECORD', 'demo.py,,\\ndemo-1.0.dist-info/METADATA,,\\ndemo-1.0.dist-info/WHEEL,,\\ndemo-1.0.dist-info/RECORD,,\\n')\n";

#[test]
fn pip_installs_from_listed_registry_and_from_no_other() {
    let Some(environment) = cp_testkit::pytest_environment() else { return };
    let packages = std::fs::read_dir(environment.join("lib")).unwrap().flatten();
    let pip =
        packages.map(|entry| entry.path().join("site-packages/pip")).find(|pip| pip.join("__main__.py").is_file());
    if !cp_testkit::required("pip beside pytest", pip.is_some()) {
        return;
    }
    let pip = pip.unwrap();
    let place = cp_testkit::Place::new();
    let file = place.root.join("demo-1.0-py3-none-any.whl");
    let made = std::process::Command::new("python3").args(["-c", WHEEL]).arg(&file).status().unwrap();
    assert!(made.success());
    let wheel = std::fs::read(&file).unwrap();
    let port = web(move |path| match path {
        "/simple/demo/" => {
            let page = "<a href=\"/demo-1.0-py3-none-any.whl\">demo-1.0-py3-none-any.whl</a>";
            ("200 OK\r\nContent-Type: text/html".to_owned(), page.into())
        }
        "/demo-1.0-py3-none-any.whl" => ("200 OK\r\nContent-Type: application/zip".to_owned(), wheel.clone()),
        _ => ("404 Not Found".to_owned(), Vec::new()),
    });
    let network = format!("network = [\"registry.test=127.0.0.1:{port}\"]\nintent =");
    let paths = format!(
        "\n[paths]\nread = [\".\", \"{0}/**\"]\nwrite = [\".\"]\nexecute = [\"{0}/**\"]\n",
        pip.parent().unwrap().display()
    );
    let exec = Exec::with_policy(Who::Me, &(POLICY.replace("intent =", &network) + &paths));
    let pip = pip.display().to_string();
    for (host, succeeds) in [("other.test", false), ("registry.test", true)] {
        let index = format!("http://{host}/simple/");
        let (answer, status) = exec.ask(&[
            "--timeout",
            "120",
            "--",
            "python3",
            &pip,
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--retries",
            "0",
            "--no-deps",
            "--index-url",
            &index,
            "--trusted-host",
            host,
            "--target",
            "site",
            "demo",
        ]);
        assert_eq!(status == 0, succeeds, "{answer}");
        assert_eq!(exec.work.join("site/demo.py").exists(), succeeds, "{answer}");
    }
    let entries = exec.entries("exec.connection");
    for (name, decision) in [("registry.test", "allow"), ("other.test", "deny")] {
        let is_it = |entry: &&Value| entry["data"]["name"] == name && entry["data"]["decision"] == decision;
        assert!(entries.iter().any(|entry| is_it(&entry)), "{name}: {entries:?}");
    }
}

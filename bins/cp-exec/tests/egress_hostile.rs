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
        let result = python(&allowing(who, port), include_str!("data/egress/redirects.py"));
        assert_eq!(result["stdout"], "own b'page'\naddress denied\nmetadata denied\nname denied\n", "{result}");
        assert_eq!(result["connections"]["first_refused"][0]["name"], "other.test", "{result}");
    }
}

#[test]
fn question_to_outside_resolver_is_refused_and_own_resolver_answers_over_both_transports() {
    cp_testkit::needs!("python3");
    // No resolver of the C library: the messages are made and read here.
    let script = include_str!("data/egress/resolver.py");
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
    let result = python(&exec, include_str!("data/egress/flood.py"));
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
    exec.write("probe.py", include_str!("data/egress/twice.py"));
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
    let result = python(&exec, include_str!("data/egress/large.py"));
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
    exec.write("probe.js", include_str!("data/egress/probe.js"));
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
    let script = include_str!("data/egress/private.py").replace("PORT", &port.to_string());
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
const WHEEL: &str = include_str!("data/egress/wheel.py");

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
        let words =
            "install --no-input --disable-pip-version-check --retries 0 --no-deps --target site demo --trusted-host";
        let before = ["--timeout", "120", "--", "python3", &pip];
        let after = [host, "--index-url", &index];
        let words: Vec<&str> = before.into_iter().chain(words.split(' ')).chain(after).collect();
        let (answer, status) = exec.ask(&words);
        assert_eq!(status == 0, succeeds, "{answer}");
        assert_eq!(exec.work.join("site/demo.py").exists(), succeeds, "{answer}");
    }
    let entries = exec.entries("exec.connection");
    for (name, decision) in [("registry.test", "allow"), ("other.test", "deny")] {
        let is_it = |entry: &&Value| entry["data"]["name"] == name && entry["data"]["decision"] == decision;
        assert!(entries.iter().any(|entry| is_it(&entry)), "{name}: {entries:?}");
    }
}

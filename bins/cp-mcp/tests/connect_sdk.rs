//! `cp-mcp connect`, over the servers of the official SDKs, and the bridge for those that want a login.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use cp_testkit::{Background, Place, counterpart, packages, required, until};
use serde_json::{Value, json};

use crate::session::{Era, Session};

/// A server of an SDK, on a port of its own.
struct Sdk {
    port: u16,
    process: Background,
}

impl Sdk {
    fn start(place: &Place, interpreter: &str, script: &str, arguments: &[&str]) -> Option<Self> {
        let program = counterpart(interpreter)?;
        let modules = packages().join("node_modules");
        let python = packages().join("python/lib");
        let is_there =
            if script.ends_with("py") { python.is_dir() } else { modules.join("@modelcontextprotocol/sdk").is_dir() };
        if !required("the SDKs of MCP (.ci/run installs them)", is_there) {
            return None;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(script);
        let command = place.program(program).arg(file).arg(port.to_string()).args(arguments).env("NODE_PATH", modules);
        let process = command.limit(Duration::from_mins(3)).start();
        let server = Self { port, process };
        until("the server listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Some(server)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

fn python(place: &Place, mode: &str) -> Option<Sdk> {
    Sdk::start(place, "python3", "sdk.py", &[mode, place.work.at("cancelled").to_str().unwrap()])
}

fn typescript(place: &Place, mode: &str) -> Option<Sdk> {
    Sdk::start(place, "node", "sdk.cjs", &[mode])
}

fn connect(place: &Place, url: &str) -> Session {
    let program = place.subject().args(["connect", "--server", "s", url]).limit(Duration::from_mins(3));
    Session::of(program, Era::Handshake, json!({"elicitation": {}}))
}

/// The text of what a tool answers, where questions are answered with yes.
fn call(client: &mut Session, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 7}});
    let id = client.send("tools/call", params);
    loop {
        let message = client.read();
        if message["id"] == id && message.get("method").is_none() {
            return message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{message}")).to_owned();
        }
        if message["method"] == "elicitation/create" {
            let result = json!({"action": "accept", "content": {"word": "yes"}});
            client.write(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        }
        client.others.push(message);
    }
}

fn heard(client: &Session, method: &str) -> usize {
    client.others.iter().filter(|message| message["method"] == method).count()
}

#[test]
fn the_python_sdk_is_listed_and_called() {
    for mode in ["stream", "json", "stateless"] {
        let place = Place::of("cp-mcp");
        let Some(server) = python(&place, mode) else { return };
        let mut client = connect(&place, &server.url());
        assert_eq!(client.tools(), ["add", "slow", "ask"]);
        assert_eq!(call(&mut client, "add", &json!({"a": 2, "b": 3})), "5");
        assert_eq!(call(&mut client, "slow", &json!({"steps": 3})), "done");
        assert_eq!(heard(&client, "notifications/progress"), if mode == "json" { 0 } else { 3 }, "{mode}");
        if mode == "stream" {
            assert!(call(&mut client, "ask", &json!({})).starts_with("accept: "));
            assert_eq!(heard(&client, "elicitation/create"), 1);
        }
        client.leave().success();
        server.process.kill();
    }
}

#[test]
fn the_typescript_sdk_is_listed_and_called() {
    for mode in ["stream", "json"] {
        let place = Place::of("cp-mcp");
        let Some(server) = typescript(&place, mode) else { return };
        let mut client = connect(&place, &server.url());
        assert_eq!(client.tools(), ["echo"]);
        assert_eq!(call(&mut client, "echo", &json!({"message": "a\u{2028}ä\n\"b\""})), "a\u{2028}ä\n\"b\"");
        client.leave().success();
        server.process.kill();
    }
}

/// The recipe of the manual, as it is typed.
#[test]
fn a_server_that_wants_a_login_is_reached_over_the_bridge() {
    let place = Place::of("cp-mcp");
    let (Some(server), Some(bridge)) = (typescript(&place, "login"), counterpart("mcp-remote")) else { return };
    let (url, kept) = (server.url(), place.work.directory("login"));
    let mut refused = Session::silent(&place, &["connect", &url]);
    let answer = refused.ask("tools/list", json!({}));
    assert_eq!(answer["error"]["data"]["code"], "E_AUTH", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("cp-mcp proxy --server 127-0-0-1"), "{answer}");
    refused.leave().success();
    // Nothing is logged in yet, and no browser can be opened.
    let login =
        place.program("sh").args(["-c", "exec \"$0\" \"$1\" 2>log"]).arg(bridge.with_file_name("mcp-remote-client"));
    let login = login.arg(&url).env("MCP_REMOTE_CONFIG_DIR", kept.to_str().unwrap());
    let login = login.limit(Duration::from_mins(3)).start();
    let mut page = None;
    until("it says where to log in", || {
        let said = place.work.read_if_there("log");
        page = said
            .split_whitespace()
            .find(|word| word.contains("/authorize?") && said.contains(&format!("{word}\n")))
            .map(ToOwned::to_owned);
        page.is_some()
    });
    let open = format!("import urllib.request as r; r.urlopen('{}')", page.unwrap());
    place.program("python3").args(["-c", &open]).run().success();
    login.wait().success();
    let modules = packages().join("node_modules").canonicalize().unwrap();
    place.policy(&format!(
        "[mcp.s]\nnetwork = \"host\"\nenv = [\"MCP_REMOTE_CONFIG_DIR\"]\nwrite = [\"{}\"]\nread = [\"{}\"]\n",
        kept.to_str().unwrap(),
        modules.display()
    ));
    let proxy = place.subject().args(["proxy", "--server", "s", "--"]).arg(bridge.canonicalize().unwrap()).arg(&url);
    let proxy = proxy.env("MCP_REMOTE_CONFIG_DIR", kept.to_str().unwrap()).limit(Duration::from_mins(3));
    let mut client = Session::of(proxy, Era::Handshake, json!({}));
    assert_eq!(client.tools(), ["echo"]);
    assert_eq!(call(&mut client, "echo", &json!({"message": "hi"})), "hi");
    client.process.kill();
    server.process.kill();
}

#[test]
fn run_reaches_remote_server_through_cp_mcp() {
    for program in ["cp-llm", "cp-exec", "cp-toolloop"] {
        cp_testkit::program(program);
    }
    let place = Place::of("cp-mcp");
    let Some(server) = python(&place, "stream") else { return };
    let call = json!({"tool_calls": [{"name": "add", "input": {"a": 20, "b": 3}}]});
    let script = place.root.write("script", format!("{call}\n{{\"content\":\"Done.\"}}\n"));
    let run = |url: &str| {
        let given = format!("r={} connect {url}", cp_testkit::program("cp-mcp").display());
        let run = place.program("cp-toolloop").args(["--mcp", &given, "x"]).with_programs();
        run.env("CP_BACKEND", "stub").env("CP_STUB_SCRIPT", &script).limit(Duration::from_mins(3)).run()
    };
    let ran = run(&server.url()).success();
    assert_eq!(ran.of("tool_result")[0]["content"], "23", "{ran:?}");
    let lines = place.sh("find \"$CP_HOME\" -name '*.jsonl' -exec cat {} +").stdout;
    assert!(lines.contains("\"mcp.call\"") && lines.contains(&server.url()), "{lines}");
    assert!(run("https://mcp.invalid/mcp").stdout.contains("mcp.invalid"), "another is refused, and says so");
    server.process.kill();
}

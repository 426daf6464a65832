//! `install`, `remove` and `doctor`: the configuration of other agents as files of a person, and servers as hosts start them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use cp_testkit::{Place, Program};
use serde_json::{Value, json};

/// Each host, with its file of the person and of a project.
const HOSTS: [(&str, &str, &str); 5] = [
    ("claude", ".claude.json", ".mcp.json"),
    ("codex", ".codex/config.toml", ".codex/config.toml"),
    ("gemini", ".gemini/settings.json", ".gemini/settings.json"),
    ("copilot", ".copilot/mcp-config.json", ".github/mcp.json"),
    ("opencode", ".config/opencode/opencode.json", ".opencode/opencode.json"),
];

fn place() -> Place {
    Place::of("cp-mcp")
}

fn asking(place: &Place, words: &[&str]) -> Program {
    place.subject().args(words)
}

/// Does a write as it was shown.
#[track_caller]
fn confirmed(place: &Place, words: &[&str]) -> Value {
    let shown = asking(place, words).arg("--dry-run").run().success().data();
    let token = shown["confirm_token"].as_str().unwrap_or_else(|| panic!("no token: {shown}"));
    asking(place, words).args(["--confirm", token]).run().success().data()
}

fn entries(place: &Place, event: &str) -> Vec<Value> {
    let text = place.home.read_if_there("ledger/cp-mcp.jsonl");
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["event"] == event).collect()
}

#[test]
fn the_server_is_shown_confirmed_and_taken_out_and_the_file_is_as_it_was() {
    for (host, own, of_project) in HOSTS {
        let place = place();
        for (file, project) in [(place.user.join(own), &[][..]), (place.work.join(of_project), &["--project", "."])] {
            let (install, remove) = ([&["install", host], project].concat(), [&["remove", host], project].concat());
            let shown = asking(&place, &install).arg("--dry-run").run().success().data();
            let difference = shown["preview"]["changes"][0]["after"]["difference"].as_str().unwrap();
            assert!(difference.contains('+') && difference.contains("serve"), "{difference}");
            asking(&place, &install).run().failed(5, "E_CONFIRMATION_REQUIRED");
            assert!(!file.exists(), "a dry run writes nothing");

            assert_eq!(confirmed(&place, &install)["changed"], true);
            let made = fs::read_to_string(&file).unwrap();
            let home = place.home.to_str().unwrap();
            assert!(made.contains("/cp-mcp\"") && made.contains(home), "{made}");
            let again = asking(&place, &install).arg("--dry-run").run().success().data();
            assert_eq!(again["changed"], false, "{again}");
            assert_eq!(fs::read_to_string(&file).unwrap(), made);

            assert_eq!(confirmed(&place, &remove)["sha256"], Value::Null);
            assert!(!file.exists());
            assert_eq!(asking(&place, &remove).run().success().data()["changed"], false);
        }
        let installed = entries(&place, "mcp.install");
        assert_eq!((installed.len(), &installed[0]["data"]["host"]), (2, &json!(host)), "{installed:?}");
        assert_eq!(entries(&place, "mcp.remove").len(), 2);
    }
}

#[test]
fn a_linked_file_keeps_its_link_its_mode_and_the_servers_of_others() {
    let place = place();
    for (file, text) in [
        ("codex.toml", "model = \"m\"\r\n\r\n[mcp_servers.other]\r\nurl = \"http://x\" # theirs\r\n"),
        ("gemini.json", "{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\"other\": {\"command\": \"x\"}}\n}"),
    ] {
        let (host, kind) = file.split_once('.').unwrap();
        let real = place.user.write(format!("dotfiles/{file}"), text);
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        let name = if kind == "toml" { "config.toml" } else { "settings.json" };
        let link = place.user.directory(format!(".{host}")).join(name);
        symlink(format!("../dotfiles/{file}"), &link).unwrap();
        confirmed(&place, &["install", host]);
        assert!(link.is_symlink());
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let with = fs::read_to_string(&real).unwrap();
        assert!(with.contains("other") && with.contains("cp-mcp") && with.contains("\r\n") == text.contains("\r\n"));
        confirmed(&place, &["remove", host]);
        assert_eq!(fs::read_to_string(&real).unwrap(), text);
    }
    assert_eq!(place.user.at("dotfiles").names(), ["codex.toml", "gemini.json"], "no copy stays");
}

#[test]
fn what_cannot_be_edited_stays_as_it_is_and_says_what_to_paste() {
    let place = place();
    for (host, file, text, why) in [
        ("opencode", ".config/opencode/opencode.json", "{\n  // mine\n  \"theme\": \"x\"\n}\n", "not strict JSON"),
        ("claude", ".claude.json", "[]", "`mcpServers` is not an object of an object"),
        (
            "copilot",
            ".copilot/mcp-config.json",
            "{\"mcpServers\": {\"cp\": {\"command\": \"x\"}}}",
            "is another server",
        ),
        ("codex", ".codex/config.toml", "mcp_servers = {}\n", "cannot be added at the end"),
    ] {
        place.user.write(file, text);
        let error = asking(&place, &["install", host, "--dry-run"]).run().failed(6, "E_CONFLICT");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        assert!(error["details"]["paste"].to_string().contains("cp-mcp"), "{error}");
        assert_eq!(place.user.read(file), text);
    }
    let file = place.user.write(".gemini/settings.json", b"{\"a\": \"\xff\"}");
    asking(&place, &["install", "gemini", "--dry-run"]).run().failed(6, "E_CONFLICT");
    fs::write(&file, "{}").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let error = asking(&place, &["install", "gemini", "--dry-run"]).run().failed(4, "E_FORBIDDEN");
    assert!(error["message"].as_str().unwrap().ends_with("the file is read-only"), "{error}");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(confirmed(&place, &["install", "gemini"])["changed"], true, "the control");

    asking(&place, &["install", "claude", "--project", "nowhere", "--dry-run"]).run().failed(3, "E_NOT_FOUND");
    asking(&place, &["install", "emacs"]).run().failed(2, "E_USAGE");
    asking(&place, &["install", "gemini"]).without_env("HOME").run().failed(4, "E_CONFIG");
}

#[test]
fn a_host_looks_where_its_variable_says() {
    let place = place();
    for (variable, host, file) in [
        ("CLAUDE_CONFIG_DIR", "claude", ".claude.json"),
        ("CODEX_HOME", "codex", "config.toml"),
        ("GEMINI_CLI_HOME", "gemini", ".gemini/settings.json"),
        ("COPILOT_HOME", "copilot", "mcp-config.json"),
        ("XDG_CONFIG_HOME", "opencode", "opencode/opencode.json"),
    ] {
        let other = place.root.directory(format!("other-{host}"));
        let install = || asking(&place, &["install", host]).env(variable, &other);
        let token = install().arg("--dry-run").run().success().data()["confirm_token"].as_str().unwrap().to_owned();
        install().args(["--confirm", &token]).run().success();
        assert!(other.join(file).is_file(), "{host}: {:?}", other.names());
        assert_eq!(place.user.names(), Vec::<String>::new(), "{host}");
    }
}

#[test]
fn a_token_is_for_the_file_as_it_was_shown() {
    let place = place();
    place.work.write(".mcp.json", "{\"a\": 1}");
    let words = ["install", "claude", "--project", "."];
    let old = asking(&place, &words).arg("--dry-run").run().data()["confirm_token"].as_str().unwrap().to_owned();
    place.work.write(".mcp.json", "{\"a\": 2}");
    assert_ne!(asking(&place, &words).args(["--confirm", &old]).run().status, 0);
    assert_eq!(place.work.read(".mcp.json"), "{\"a\": 2}");
    let next = confirmed(&place, &words)["next"].to_string();
    assert!(next.contains("start claude there"), "{next}");
    assert!(place.work.read(".mcp.json").starts_with("{\"a\": 2,"));
    assert!(entries(&place, "mcp.install").len() == 1 && !place.user.join(".claude.json").exists());
}

/// A stand-in for a server: it does what its mode tells, in both versions of the protocol, and notes how it was started.
const SERVER: &str = r#"#!/usr/bin/env python3
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
mode = open(here + "/mode").read()
open(here + "/started", "w").write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}))
asked = []
if mode == "broken": sys.exit("it does not start")
print("a banner", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    asked.append(request)
    open(here + "/asked", "w").write(json.dumps(asked))
    def answer(**what): print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **what}), flush=True)
    method = request["method"]
    if method in ("initialize", "server/discover"): answer(result={"capabilities": {}, "serverInfo": {}})
    if method == "tools/list":
        if mode == "silent": sys.exit("gone")
        names = ["x"] if mode == "toolless" else ["cp_check", "cp_run"]
        answer(result={"tools": [{"name": name, "inputSchema": {}} for name in names]})
    if method == "tools/call":
        if mode == "refuses": answer(error={"code": -32602, "message": "not so"})
        else: answer(result={"content": [{"type": "text", "text": "said"}], "isError": mode == "fails"})
"#;

#[test]
fn doctor_starts_the_server_as_each_host_would_and_calls_a_tool() {
    cp_testkit::needs!("python3");
    let place = place();
    let bin = place.root.directory("server");
    let server = bin.executable("cp-mcp", SERVER);
    let checks = |mode: &str| {
        bin.write("mode", mode);
        let answer = place.subject().arg("doctor").env("SECRET_KEY", "x").run().closing();
        let result = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
        result["checks"].as_array().unwrap().clone()
    };
    let found = |checks: &[Value], name: &str| checks.iter().find(|check| check["check"] == name).cloned();
    let nothing = found(&checks(""), "hosts").unwrap();
    assert!(nothing["status"] == "warn" && nothing["fix"].as_str().unwrap().contains("cp-mcp install"), "{nothing}");

    for (host, own, of_project) in HOSTS {
        let entry = match host {
            "codex" => format!("[mcp_servers.cp]\ncommand = '{}'\nargs = ['a b', 'serve']\nenv.MINE = 'yes'\n", server.display()),
            "opencode" => json!({"mcp": {"cp": {"type": "local", "command": [server, "a b", "serve"], "environment": {"MINE": "yes"}}}}).to_string(),
            _ => json!({"mcpServers": {"cp": {"command": server, "args": ["a b", "serve"], "env": {"MINE": "yes"}}}}).to_string(),
        };
        for (file, whose) in [(place.user.join(own), "person"), (place.work.join(of_project), "project")] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &entry).unwrap();
            let _ = fs::remove_file(bin.join("started"));
            let check = found(&checks(""), &format!("{host}_{whose}")).unwrap();
            if whose == "project" {
                assert_eq!((&check["status"], bin.join("started").exists()), (&json!("warn"), false), "{check}");
                fs::remove_file(file).unwrap();
                continue;
            }
            let message = check["message"].as_str().unwrap();
            assert_eq!(check["status"], "pass", "{check}");
            assert!(message.starts_with(file.to_str().unwrap()) && message.contains("has 2 tools"), "{check}");
            let started: Value = serde_json::from_str(&bin.read("started")).unwrap();
            assert_eq!((&started["argv"], &started["env"]["MINE"]), (&json!(["a b", "serve"]), &json!("yes")));
            assert_eq!((&started["cwd"], &started["env"]["SECRET_KEY"]), (&json!(place.work.to_str()), &Value::Null));
            let asked: Vec<Value> = serde_json::from_str(&bin.read("asked")).unwrap();
            let methods: Vec<&str> = asked.iter().map(|request| request["method"].as_str().unwrap()).collect();
            let version = match host {
                "claude" | "copilot" => {
                    assert_eq!(methods, ["server/discover", "tools/list", "tools/call"], "{host}");
                    &asked[2]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
                }
                _ => {
                    assert_eq!(
                        methods,
                        ["initialize", "notifications/initialized", "tools/list", "tools/call"],
                        "{host}"
                    );
                    &asked[0]["params"]["protocolVersion"]
                }
            };
            let expected = match host {
                "claude" | "copilot" => "2026-07-28",
                "opencode" => "2025-11-25",
                _ => "2025-06-18",
            };
            assert_eq!(version, expected, "{host}");
            fs::remove_file(file).unwrap();
        }
    }

    let file = ".gemini/settings.json";
    let entry = json!({"mcpServers": {"cp": {"command": server}}}).to_string();
    place.user.write(file, &entry);
    for (mode, said) in [
        ("broken", "cp-mcp ended before it answered: it does not start"),
        ("silent", "cp-mcp ended before it answered: gone"),
        ("toolless", "it has 1 tools, and cp_check is none of them"),
        ("refuses", "tools/call is not answered: not so (-32602)"),
        ("fails", "cp_check fails: said"),
    ] {
        let check = found(&checks(mode), "gemini_person").unwrap();
        assert!(check["status"] == "fail" && check["message"].as_str().unwrap().ends_with(said), "{check}");
        assert!(check["fix"].as_str().unwrap().contains("</dev/null"), "{check}");
    }
    place.user.write(file, entry.replace("/server/", "/gone/"));
    let check = found(&checks(""), "gemini_person").unwrap();
    assert!(check["status"] == "fail" && check["fix"].as_str().unwrap().contains("cp-mcp install gemini"), "{check}");
    place.user.write(file, entry.replace('{', "{,"));
    let check = found(&checks(""), "gemini_person").unwrap();
    assert!(check["message"].as_str().unwrap().contains("not strict JSON"), "{check}");
    place.user.write(file, "{, not ours");
    assert!(found(&checks(""), "hosts").is_some(), "the file of somebody else");
}

//! Configuration files of users, with our server added and removed.

use std::path::Path;

use clap::ValueEnum as _;
use cp_hosts::Host;
use serde_json::{Value, json};

use super::configured::{Server, file_of, server, with_ours, without_ours};

fn argv(program: &str) -> Vec<String> {
    [program, "--home", "/the/home", "serve"].map(str::to_owned).to_vec()
}

fn own() -> Vec<String> {
    argv("/opt/my \"own\"/cp-mcp")
}

const JSON: [&str; 8] = [
    "{}",
    "{\n}\n",
    "{\"a\": 1e2, \"mcpServers\": {}, \"mcp\": { }}",
    "{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"x\", \"args\": []}\n  },\n  \"mcp\": {\n    \"other\": {\"type\": \"remote\"}\n  }\n}\n",
    "{\r\n\t\"theme\": \"dark\",\r\n\t\"mcpServers\": {\"b\": {\"url\": \"http:\\/\\/x\"}}\r\n}",
    "{\"mcpServers\":{\"a\":{\"command\":\"/bin/cp-mcp\",\"args\":[\"serve\"]}},\"mcp\":{}}",
    " {\"é\": \"\\u00e9\",   \"n\": 12345678901234567890123}\n\n",
    "{\"cp\": {\"command\": \"cp-mcp\"}}",
];

const TOML: [&str; 10] = [
    "",
    "\n",
    "model = \"gpt-5\" # mine\n",
    "model = \"gpt-5\"",
    "model = \"gpt-5\"\r\n\r\n[tui]\r\nnotifications = true\r\n",
    "a = 1\r\nb = 2",
    "# only a comment",
    "[mcp_servers.other]\ncommand = \"x\"\nargs = [\n  \"[mcp_servers.cp]\",\n]\n\n\n",
    "[mcp_servers]\nother = { command = 'x' }\n[profiles.a]\nwhen = 2026-11-22T10:00:00Z\n# the end\n",
    "text = \"\"\"\n[mcp_servers.cp]\ncommand = \"no\"\n\"\"\"\n[[rows]]\nn = 1\n",
];

fn cases() -> impl Iterator<Item = (Host, &'static str)> {
    let texts = |host| if host == Host::Codex { &TOML[..] } else { &JSON[..] };
    Host::value_variants().iter().flat_map(move |&host| texts(host).iter().map(move |&text| (host, text)))
}

#[test]
fn install_is_idempotent_and_remove_restores_file() {
    for (host, text) in cases() {
        let with = with_ours(host, &own(), Some(text)).unwrap_or_else(|e| panic!("{host:?} {text:?}: {e}"));
        assert_eq!(server(host, &with).unwrap(), Some(Server { argv: own(), env: Vec::new() }), "{host:?}: {with}");
        assert_eq!(with_ours(host, &own(), Some(&with)).unwrap(), with, "twice is once");
        let same = |one: &mut dyn Iterator<Item = (u8, u8)>| one.take_while(|(a, b)| a == b).count();
        let before = same(&mut with.bytes().zip(text.bytes()));
        let after = same(&mut with.bytes().rev().zip(text.bytes().rev()));
        assert!(before + after >= text.len(), "one piece is put in, and every byte of others stays: {with}");
        assert_eq!(without_ours(host, &with).unwrap().as_deref(), Some(text), "{host:?}: {with:?}");
        assert_eq!(without_ours(host, text).unwrap().as_deref(), Some(text), "nothing of ours, nothing changes");
        let moved = with_ours(host, &argv("/usr/bin/cp-mcp"), Some(&with)).unwrap();
        assert!(!moved.contains("/opt/my"), "{moved}");
        assert_eq!(without_ours(host, &moved).unwrap().as_deref(), Some(text), "{host:?}: {moved:?}");
    }
}

#[test]
fn remove_deletes_file_with_only_our_server() {
    for &host in Host::value_variants() {
        let made = with_ours(host, &own(), None).unwrap();
        assert!(made.ends_with('\n'), "{made}");
        assert_eq!(without_ours(host, &made).unwrap(), None, "{made}");
    }
}

#[test]
fn added_members_are_kept_and_removed_with_entry() {
    let made = with_ours(Host::Codex, &own(), Some("model = \"m\"\n")).unwrap();
    let more = format!(
        "{made}startup_timeout_sec = 20 # slow disk\n\n[mcp_servers.cp.tools.cp_run]\napproval_mode = \"prompt\"\n\n# theirs\n[tui]\nx = 1\n"
    );
    assert_eq!(with_ours(Host::Codex, &own(), Some(&more)).unwrap(), more);
    assert_eq!(without_ours(Host::Codex, &more).unwrap().unwrap(), "model = \"m\"\n\n# theirs\n[tui]\nx = 1\n");
    let made = with_ours(Host::Gemini, &own(), None).unwrap();
    let more = made.replace("\"command\"", "\"env\": {\"TZ\": \"UTC\", \"N\": 1}, \"command\"");
    assert_eq!(with_ours(Host::Gemini, &own(), Some(&more)).unwrap(), more);
    let env = server(Host::Gemini, &more).unwrap().unwrap().env;
    assert_eq!(env, [("TZ".to_owned(), "UTC".to_owned())]);
}

#[test]
fn uneditable_file_is_refused_with_text_to_paste() {
    let json = [
        ("{\n  // mine\n  \"a\": 1\n}", "expected a member name"),
        ("", "ends inside"),
        ("[]", "` is not an object of an object"),
        ("{\"mcpServers\": [], \"mcp\": []}", "` is not an object of an object"),
    ];
    for &host in Host::value_variants().iter().filter(|&&host| host != Host::Codex) {
        for (text, why) in json {
            let error = with_ours(host, &own(), Some(text)).unwrap_err();
            assert!(error.message().contains(why), "{host:?} {text}: {error}");
            let paste = &error.details()["paste"];
            let pasted = with_ours(host, &own(), None).unwrap();
            assert_eq!(paste, &serde_json::from_str::<Value>(&pasted).unwrap());
            assert!(without_ours(host, text).is_err(), "{host:?} {text}");
        }
    }
    for (text, why) in [
        ("a = ", "not TOML"),
        ("mcp_servers = {}\n", "cannot be added at the end"),
        ("mcp_servers = 1\n", "cannot be added at the end"),
        ("[[mcp_servers]]\n", "cannot be added at the end"),
        ("mcp_servers.other.command = 'x'\n", ""),
        ("nan = nan\n", ""),
    ] {
        let outcome = with_ours(Host::Codex, &own(), Some(text));
        if why.is_empty() {
            assert_eq!(without_ours(Host::Codex, &outcome.unwrap()).unwrap().as_deref(), Some(text));
            continue;
        }
        let error = outcome.unwrap_err();
        assert!(error.message().contains(why), "{text}: {error}");
        let pasted = error.details()["paste"].as_str().unwrap().to_owned() + "\n";
        assert_eq!(pasted, with_ours(Host::Codex, &own(), None).unwrap());
    }
    let inline = "[mcp_servers]\ncp = { command = \"/bin/cp-mcp\", args = [\"serve\"] }\n";
    let error = without_ours(Host::Codex, inline).unwrap_err();
    assert!(error.message().contains("not a table of its own"), "{error}");
}

#[test]
fn other_server_of_same_name_is_kept() {
    let others =
        json!({"mcpServers": {"cp": {"command": "/bin/other"}}, "mcp": {"cp": {"command": ["other", "cp-mcp"]}}});
    for &host in Host::value_variants() {
        let text = match host {
            Host::Codex => "[mcp_servers.cp]\nurl = \"http://x\"\n".to_owned(),
            Host::Claude | Host::Gemini | Host::Copilot | Host::Opencode => others.to_string(),
        };
        let error = with_ours(host, &own(), Some(&text)).unwrap_err();
        assert!(error.message().contains("is another server"), "{error}");
        assert_eq!(without_ours(host, &text).unwrap(), Some(text.clone()));
        assert_eq!(server(host, &text).unwrap(), None);
    }
}

#[test]
fn host_has_project_file() {
    let file = |host: &Host| file_of(*host, Some(Path::new("/p")), Path::new("/h")).display().to_string();
    let files: Vec<_> = Host::value_variants().iter().map(file).collect();
    let expected = [
        "/p/.mcp.json",
        "/p/.codex/config.toml",
        "/p/.gemini/settings.json",
        "/p/.github/mcp.json",
        "/p/.opencode/opencode.json",
    ];
    assert_eq!(files, expected);
}

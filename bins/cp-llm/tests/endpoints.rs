//! Endpoints of `config/cp.toml`: names of models and keys.

use cp_testkit::Server;
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::whole;

fn answering(text: &str) -> Server {
    Server::playing(vec![whole("openai", text)])
}

fn configured(text: &str) -> Llm {
    let llm = Llm::new();
    llm.home.write("config/cp.toml", text);
    llm
}

/// The table of an endpoint for the server.
fn table(name: &str, server: &Server) -> String {
    format!("[endpoints.{name}]\ndialect = \"openai\"\nbase_url = \"{}/v1\"\n", server.url())
}

/// The data of the message. Fails if there is none.
#[track_caller]
fn answer(llm: &Llm, arguments: &[&str]) -> Value {
    let ran = llm.run(arguments);
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    ran.records()[0]["data"].clone()
}

fn model_of(server: &Server, at: usize) -> Value {
    server.requests()[at].json()["model"].clone()
}

#[test]
fn model_name_selects_endpoint() {
    let (near, far) = (answering("near"), answering("far"));
    let text = "model = \"set\"\nbackend = \"far\"\n".to_owned()
        + &table("near", &near)
        + "model = \"own\"\n"
        + &table("far", &far)
        + "[aliases]\nfast = \"near/quick\"\nbig = \"huge\"\n";
    let llm = configured(&text);
    for (arguments, server, model) in [
        (&["-m", "near/x", "hi"][..], &near, "x"),
        (&["-m", "near/", "hi"], &near, "own"),
        (&["--backend", "near", "hi"], &near, "own"),
        (&["--backend", "near", "-m", "y", "hi"], &near, "y"),
        (&["-m", "fast", "hi"], &near, "quick"),
        (&["-m", "near/org/z", "hi"], &near, "org/z"),
        (&["-m", "big", "hi"], &far, "huge"),
        (&["-m", "meta-llama/X", "hi"], &far, "meta-llama/X"),
        (&["hi"], &far, "set"),
    ] {
        let before = server.requests().len();
        let data = answer(&llm, arguments);
        assert_eq!(model_of(server, before), model, "{arguments:?}");
        let name = if server.url() == near.url() { "near" } else { "far" };
        assert_eq!((&data["backend"], &data["endpoint"]), (&json!("openai"), &json!(name)), "{arguments:?}");
    }
    assert_eq!(llm.entries("llm.request")[0]["data"]["endpoint"], "near");
    assert_eq!(answer(&llm, &["--dry-run", "-m", "fast", "hi"])["endpoint"], "near");
    // Each row selects its own endpoint.
    let rows = [("near/r", "hi"), ("fast", "hi"), ("plain", "hi")].map(|(model, text)| {
        json!({"model": model, "messages": [{"role": "user", "content": text}]}).to_string() + "\n"
    });
    let (first, other) = (near.requests().len(), far.requests().len());
    assert_eq!(llm.feed(&["--rows", "--jobs", "3"], &rows.concat()).status, 0);
    let mut asked = vec![model_of(&near, first), model_of(&near, first + 1)];
    asked.sort_by_key(Value::to_string);
    assert_eq!((asked, model_of(&far, other)), (vec![json!("quick"), json!("r")], json!("plain")));
}

#[test]
fn stub_option_overrides_all_endpoints() {
    let server = answering("no");
    let llm = configured(&("model = \"near/x\"\n".to_owned() + &table("near", &server))).set("CP_MODEL", "near/y");
    for arguments in [&["--backend", "stub", "hi"][..], &["--backend", "stub", "-m", "near/z", "hi"]] {
        assert_eq!(answer(&llm, arguments)["endpoint"], "stub");
    }
    let row = "{\"model\":\"near/r\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n";
    assert_eq!(llm.feed(&["--backend", "stub", "--rows"], row).status, 0);
    assert_eq!(server.requests().len(), 0);
    answer(&llm, &["hi"]);
    assert_eq!(model_of(&server, 0), "y");
    assert_eq!(configured("[endpoints.stub]\ndialect = \"openai\"\n").run(&["hi"]).first_error()["code"], "E_CONFIG");
}

#[test]
fn network_token_is_required_for_endpoints_of_rows() {
    let server = answering("x");
    let llm = configured(&table("near", &server));
    llm.policy("[llm]\nnetwork = \"token\"\n");
    let row = "{\"model\":\"near/r\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n";
    let with_stub = llm.set("CP_BACKEND", "stub");
    let refused = with_stub.feed(&["--rows"], row);
    assert_eq!((refused.status, &refused.first_error()["details"]["rule"]), (4, &json!("llm.network")));
    assert_eq!(with_stub.run(&["-m", "near/x", "hi"]).status, 4);
    assert_eq!(server.connections(), 0);
    let permitted = with_stub.set("CAPABILITY_NETWORK", "t");
    assert_eq!(permitted.feed(&["--rows"], row).status, 0);
    assert_eq!(permitted.entries("llm.request")[0]["data"]["network"], "token");
}

#[test]
fn endpoint_keys_are_sent_only_to_their_server() {
    let server = answering("x");
    let llm = configured("").set("OPENAI_API_KEY", "key-of-openai-0123456789").set("WORK", "key-of-work-0123456789");
    llm.home.write("config/key", "key-in-a-file-0123456789\n");
    let script = llm.work.executable("printer", "#!/bin/sh\necho key-printed-0123456789\n").display().to_string();
    let own = |member: &str| table("work", &server) + member;
    for (text, key) in [
        (own("key_env = \"WORK\"\n"), Some("key-of-work-0123456789")),
        (own("key_file = \"key\"\n"), Some("key-in-a-file-0123456789")),
        (own(&format!("key_command = \"{script}\"\n")), Some("key-printed-0123456789")),
        (own(""), None),
        // The key of a provider is sent only to its own server.
        (table("openai", &server), None),
        (table("openai", &server) + "key_env = \"OPENAI_API_KEY\"\n", Some("key-of-openai-0123456789")),
    ] {
        llm.home.write("config/cp.toml", &text);
        let name = if text.contains("endpoints.openai") { "openai" } else { "work" };
        let before = server.requests().len();
        answer(&llm, &["-m", &format!("{name}/m"), "hi"]);
        let sent = server.requests()[before].header("authorization").map(str::to_owned);
        assert_eq!(sent, key.map(|key| format!("Bearer {key}")), "{text}");
    }
    let text = llm.home.read("ledger/cp-llm.jsonl");
    assert!(!text.contains("0123456789"), "{text}");
    let keys = configured("[endpoints.a]\ndialect = \"openai\"\nkey_env = \"NOT_SET\"\n").run(&["-m", "a/m", "hi"]);
    assert_eq!((keys.status, &keys.first_error()["details"]["missing"]), (4, &json!("NOT_SET")));
    let none = configured("[endpoints.a]\ndialect = \"openai\"\n").run(&["-m", "a/m", "hi"]);
    assert!(none.first_error()["details"]["hint"].as_str().unwrap().contains("[endpoints.a]"), "{}", none.stdout);
}

#[test]
fn endpoint_headers_params_and_prices_are_applied() {
    let server = answering("x");
    let text = table("work", &server)
        + "headers = { X-Team = \"a\", x-api-token = \"hidden-0123\", Authorization = \"mine\" }\n"
        + "params = { temperature = 0.5, top_p = 0.25 }\nprice = { input = 1000, output = 0 }\nkey_env = \"K\"\n";
    let llm = configured(&text).set("K", "key-0123456789");
    let data = answer(&llm, &["-m", "work/m", "--temperature", "1", "--budget-usd", "1", "hi"]);
    assert_eq!(data["usage"]["cost_usd"], json!(0.007));
    let sent = &server.requests()[0];
    assert_eq!((sent.header("x-team"), sent.header("authorization")), (Some("a"), Some("Bearer key-0123456789")));
    assert_eq!((&sent.json()["temperature"], &sent.json()["top_p"]), (&json!(1.0), &json!(0.25)));
    let shown = answer(&llm, &["-m", "work/m", "--dry-run", "hi"]);
    assert_eq!((&shown["headers"]["x-team"], &shown["headers"]["x-api-token"]), (&json!("a"), &json!("[REDACTED]")));
    assert!(!llm.home.read("ledger/cp-llm.jsonl").contains("hidden"));
}

#[test]
fn config_errors_have_line() {
    for (text, line, words, hint) in [
        ("[endpoints.a]\ndialect = \"openai\"\nmodle = \"x\"\n", 3, "modle", "`model`"),
        ("[endpoints.a]\ndialect = \"opnai\"\n", 2, "opnai", "`openai`"),
        ("[endpoints.a]\nbase_url = \"http://x\"\n", 1, "`a`: no dialect", "dialect ="),
        (
            "\n[endpoints.a]\ndialect = \"openai\"\nkey_env = \"A\"\nkey_file = \"b\"\n",
            2,
            "more than one key",
            "keep one",
        ),
        ("[endpoints.\"a b\"]\ndialect = \"openai\"\n", 1, "`a b` is not a valid name", "letters"),
        ("[aliases]\n\"x/y\" = \"z\"\n", 2, "`x/y` is not a valid name", "letters"),
        ("[endpoints.a]\ndialect = \"program\"\n", 1, "no command", "command ="),
        ("[endpoints.a]\ndialect = \"stub\"\nbase_url = \"http://x\"\n", 1, "base_url", ""),
        ("[endpoints.a]\ndialect = \"openai\"\nprice = { input = -1, output = 0 }\n", 1, "price", ""),
        ("[endpoints.a]\ndialect = \"openai\"\nheaders = { \"a b\" = \"c\" }\n", 1, "`a b` is not the name", ""),
        ("[endpoints.a]\ndialect = \"openai\"\nheaders = { a = \"c\\nd\" }\n", 1, "HTTP does not allow", ""),
        ("[endpoints.a]\ndialect = \"openai\"\nheaders = { Host = \"c\" }\n", 1, "belongs to the connection", ""),
        ("\n[endpoints.a]\ndialect = \"openai\"\nbase_url = \"no url\"\n", 2, "no url is not a valid", ""),
        ("[endpoints.a]\ndialect = \"openai\"\nheaders = { a = \"ß\" }\n", 1, "HTTP does not allow", ""),
        ("endpoints = \"x\"\n", 1, "`endpoints` must be a table", "[endpoints]"),
        ("[alises]\n", 1, "alises", "`aliases`"),
        ("[model]\n", 1, "`model` must be a string", "model ="),
    ] {
        let ran = configured(text).run(&["-m", "a/x", "hi"]);
        let error = ran.first_error();
        let message = error["message"].as_str().unwrap();
        assert_eq!((ran.status, error["code"].as_str().unwrap()), (4, "E_CONFIG"), "{text}");
        assert!(message.contains("cp.toml") && message.contains(words), "{text}: {message}");
        if !text.starts_with("endpoints") && text != "[model]\n" {
            assert!(message.contains(&format!("line {line}:")), "{text}: {message}");
        }
        assert!(error["details"]["hint"].as_str().unwrap_or_default().contains(hint), "{text}: {error}");
    }
}

#[test]
fn cache_key_has_server_and_recording_key_does_not() {
    let (one, two) = (answering("one"), answering("two"));
    let llm = configured(&(table("one", &one) + &table("two", &two) + &table("three", &one)));
    let said = |arguments: &[&str]| answer(&llm, arguments)["content"].clone();
    for (model, text) in [("one/m", "one"), ("two/m", "two"), ("one/m", "one"), ("three/m", "one")] {
        assert_eq!(said(&["--cache=c", "-m", model, "hi"]), text, "{model}");
    }
    assert_eq!((one.requests().len(), two.requests().len()), (1, 1));
    let tape = llm.work.join("tape").display().to_string();
    said(&["--record", &tape, "-m", "one/m", "hi"]);
    let replayed = answer(&llm, &["--replay", &tape, "-m", "two/m", "hi"]);
    assert_eq!((&replayed["content"], &replayed["endpoint"]), (&json!("one"), &json!("two")));
    let last = llm.entries("llm.request").pop().unwrap();
    assert_eq!(last["data"]["request_hash"], llm.work.records("tape")[0]["key"]);
}

#[test]
fn program_and_stub_endpoints_are_configured() {
    let llm = configured("");
    let message = json!({"ok": true, "schema_version": "1.0", "type": "message", "data": {"id": "1", "role": "assistant", "content": "own",
        "model": "m", "backend": "b", "stop_reason": "end_turn", "usage": {}}});
    llm.home.executable("config/own", format!("#!/bin/sh\nread line\necho '{message}'\n"));
    llm.home.write("config/script", "{\"content\":\"scripted\"}\n");
    llm.home.write(
        "config/cp.toml",
        "[endpoints.own]\ndialect = \"program\"\ncommand = \"own\"\n[endpoints.play]\ndialect = \"stub\"\nscript = \"script\"\n",
    );
    assert_eq!(answer(&llm, &["-m", "own/", "hi"])["content"], "own");
    assert_eq!(answer(&llm, &["-m", "play/", "hi"])["content"], "scripted");
}

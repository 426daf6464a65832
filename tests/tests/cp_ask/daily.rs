//! `cp-ask` for the daily habits: attachments, files, templates, keys, models, logs, and the table of `docs/HABITS.md`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use cp_testkit::server::{Step, chunk, json, reply, stream_head};
use cp_testkit::{Outcome, Place, Server, repository};
use serde_json::Value;

/// Answers with the prompt, as JSON.
const ECHO: &str = r#"#!/bin/sh
exec jq -c --unbuffered '{ok: true, schema_version: "1.0", type: "message", data: {id: "e", role: "assistant", model: "echo", backend: "echo",
    content: (.data | tojson), tool_calls: [], stop_reason: "end_turn", usage: {input_tokens: 1, output_tokens: 1}}}'
"#;

const PIXEL: &str =
    "\\211PNG\\r\\n\\032\\n\\000\\000\\000\\rIHDR\\000\\000\\000\\001\\000\\000\\000\\001\\010\\006\\000\\000\\000";

fn run(place: &Place, script: &str) -> Outcome {
    place.shell("bash", script).env("CP_BACKEND", "stub").stdin_from(Stdio::null()).run()
}

/// The prompt that a command line sends.
fn prompt(place: &Place, script: &str) -> Value {
    place.work.executable("echo", ECHO);
    let ran = run(place, &script.replace("cp-ask", "cp-ask --backend ./echo"));
    assert_eq!(ran.status, 0, "{script}: {}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn last_text(prompt: &Value) -> String {
    let content = &prompt["messages"].as_array().unwrap().last().unwrap()["content"];
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    content.as_str().map_or_else(|| blocks.collect(), str::to_owned)
}

#[test]
fn image_is_attached_from_file_or_standard_input_and_url_is_passed_on() {
    let place = Place::new();
    run(&place, &format!("printf '{PIXEL}' >pic.png"));
    for script in ["cp-ask -a pic.png what", "cp-ask what -a - <pic.png", "cat pic.png | cp-ask -a - what"] {
        let asked = prompt(&place, script);
        let blocks = asked["messages"][0]["content"].as_array().unwrap_or_else(|| panic!("{script}: {asked}")).clone();
        assert_eq!((&blocks[0]["type"], &blocks[0]["source"]["media_type"]), (&"image".into(), &"image/png".into()));
        assert_eq!(last_text(&asked), "what", "{script}");
    }
    // The provider fetches a URL.
    let asked = prompt(&place, "cp-ask -a https://host.example/a.png what");
    let source = serde_json::json!({"type": "url", "url": "https://host.example/a.png"});
    assert_eq!(asked["messages"][0]["content"][0]["source"], source, "{asked}");
}

#[test]
fn files_directories_globs_and_urls_are_context_with_their_names() {
    cp_testkit::needs!("curl");
    let place = Place::new();
    for (file, text) in
        [("a.rs", "one"), ("s/b.rs", "two"), ("s/c.txt", "three"), ("s/t/d.rs", "four"), ("s/.env", "five")]
    {
        place.work.write(file, format!("{text}\n"));
    }
    place.work.write("s/bin", b"six\0");
    place.work.write("s/log", "seven\n");
    place.work.write("s/.gitignore", "log\n");
    place.work.write("[x].rs", "eight\n");
    let server = Server::replying(|_| reply(200, "text/plain", "", b"nine\n"));
    let url = server.url();
    let words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    for (files, sent) in [
        ("-f a.rs --file=s/b.rs", "one two"),
        ("-f s", "two three four"),
        ("-f 's/*.rs' -f a.rs", "two one"),
        ("-f 's/**/*.rs'", "two four"),
        ("-f '*.rs'", "eight one"),
        ("-f '[x].rs'", "eight"),
        (&format!("-f {url}/x/notes.txt -f a.rs"), "nine one"),
        (&format!("-f {url}/{}", "x".repeat(300)), "nine"),
    ] {
        let text = last_text(&prompt(&place, &format!("cp-ask {files} compare")));
        let mut found: Vec<(usize, &str)> =
            words.iter().filter_map(|word| Some((text.find(&format!("\n{word}\n"))?, *word))).collect();
        found.sort_unstable();
        let found: Vec<&str> = found.into_iter().map(|(_, word)| word).collect();
        assert_eq!((found.join(" ").as_str(), text.ends_with("compare")), (sent, true), "{files}: {text}");
        // A URL names its text, and the file that it was fetched into does not.
        let named = files.split(' ').nth(1).filter(|name| name.starts_with("http"));
        assert!(named.is_none_or(|url| text.contains(&format!("source=\"{url}\""))), "{text}");
        assert!(!text.contains("cp-ask-"), "{text}");
    }
    // The kind of a file is looked at before its size, and a character that ends there is not a reason to refuse it.
    let longest = 4 << 20;
    for (large, is_text) in [(vec![0; longest + 1], false), ([b"a", "é".repeat(longest / 2).as_bytes()].concat(), true)]
    {
        place.work.write("l/large", large);
        place.work.write("l/short", "two\n");
        let ran = run(&place, "cp-ask -f l x");
        let said =
            if is_text { "l/large: too large" } else { "l: files that are not readable text and are not sent: 1" };
        assert!(ran.stderr.contains(said) && (ran.status == 0) != is_text, "{said}: {}", ran.stderr);
    }
    // Names are any bytes, and what cannot be read is counted. Root reads everything.
    run(&place, "mkdir 'o dd'; cd 'o dd'; echo two >$'\\xff.txt'; echo one >a.txt; echo three >shut; chmod 0 shut");
    for (files, sent, is_whole) in
        [("'o dd'", "one two", false), ("$'o dd/\\xff.txt'", "two", true), ("'o dd/*.txt'", "one two", true)]
    {
        let text = last_text(&prompt(&place, &format!("cp-ask -f {files} x")));
        assert!(sent.split(' ').all(|word| text.contains(&format!("\n{word}\n"))), "{files}: {text}");
        let counted = run(&place, &format!("cp-ask -f {files} x")).stderr.contains("not sent: 1");
        assert_eq!(counted, !is_whole && !rustix::process::geteuid().is_root(), "{files}");
    }
    assert!(run(&place, "cp-ask -f s x").stderr.contains("s: files that are not readable text and are not sent: 1"));
    for (files, status, complaint) in [
        ("'*.none'", 3, "*.none: no text files, apart from those that git ignores"),
        ("'s/[.rs'", 2, "not a glob"),
        ("http://127.0.0.1:9/x", 7, "http://127.0.0.1:9/x: curl: (7)"),
        ("many", 2, "many: 501 files, the limit is 500"),
    ] {
        let ran = run(&place, &format!("mkdir -p many; touch many/{{1..501}}; cp-ask -f {files} x"));
        assert_eq!((ran.status, ran.stdout.as_str()), (status, ""), "{files}: {}", ran.stderr);
        assert!(ran.stderr.contains(complaint), "{files}: {}", ran.stderr);
    }
}

/// A server that counts no tokens has not used none.
#[test]
fn usage_that_no_server_reported_is_no_zero() {
    let place = Place::new();
    let usage = ", usage: {input_tokens: 1, output_tokens: 1}";
    place.work.executable("echo", ECHO);
    place.work.executable("silent", ECHO.replace(usage, ""));
    for (backend, said) in [("silent", "the server reported no usage"), ("echo", "1 tokens of input, 1 of output, ")] {
        let ran = run(&place, &format!("cp-ask --backend ./{backend} -u hi")).success();
        assert!(ran.stderr.starts_with(&format!("cp-ask: {said}")), "{ran:?}");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_place() {
    let place = Place::new();
    place.home.write("config/templates/plain.md", b"Erkl\xe4re das.");
    place.home.write("config/templates/tagged.md", b"Erkl\xe4re {{ text }}");
    place.work.write("latin", b"caf\xe9\n");
    for (script, place_of, offset) in [
        ("cp-ask -t plain hi", "plain.md", 4),
        ("cp-ask -t tagged hi", "tagged.md", 4),
        ("cp-ask templates plain", "plain.md", 4),
        ("cp-ask <latin", "standard input", 3),
        ("cat latin | cp-ask 'what is this'", "standard input", 3),
        ("cat latin | cp-ask -C 'what is this' -", "standard input", 3),
        ("cp-ask -f latin what", "latin", 3),
        ("cp-ask -s latin what", "latin", 3),
        ("cp-ask -a latin what", "latin", 3),
        ("cp-compose - <latin", "", 3),
        ("cp-llm --backend stub - <latin", "", 3),
    ] {
        let ran = run(&place, script);
        assert_eq!(ran.status, 2, "{script}: {}{}", ran.stdout, ran.stderr);
        let complaint = format!("not UTF-8: byte {offset}");
        assert!(ran.stderr.contains(place_of) && ran.stderr.contains(&complaint), "{script}: {}", ran.stderr);
        assert!(!ran.stdout.contains('\u{fffd}'), "{script}: {}", ran.stdout);
    }
    let ran = run(&place, "cp-ask templates; printf 'caf\\303\\251' | cp-ask");
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "stub response 1\n"), "the control: {}", ran.stderr);
}

#[test]
fn hint_names_a_line_that_helps() {
    let keys = "unset CP_BACKEND; export OPENAI_API_KEY=sk-a ANTHROPIC_API_KEY=sk-b;";
    for (script, status, said, unsaid) in [
        (&format!("{keys} cp-ask hi"), 4, "`cp-ask models default NAME/MODEL`", "\u{0}"),
        (&"cp-ask models default ''".to_owned(), 2, "a value is required", "\u{0}"),
        (&"CP_MODEL=old cp-ask models default new".to_owned(), 0, "CP_MODEL has precedence: old", "\u{0}"),
        (&"cp-ask models default new".to_owned(), 0, "", "CP_MODEL"),
        (&"cp-ask what -f".to_owned(), 2, "a value is required", "did you mean"),
        (&"cp-ask chta".to_owned(), 2, "did you mean `chat`?", "\u{0}"),
        (&"cp-ask --timeout 5x hi".to_owned(), 2, "`cp-ask help`", "--help"),
        (&"cp-llm --timeout 5x hi --format text".to_owned(), 2, "`cp-llm --help`", "\u{0}"),
        (&"cp-llm --budget-usd -1 hi --format text".to_owned(), 2, "must be a number of dollars", "write --"),
        (&"cp-llm --max-tokens -1 hi --format text".to_owned(), 2, "--max-tokens", "write --"),
        (&"cp-llm -1 --format text".to_owned(), 2, "write --", "\u{0}"),
        (&"cp-llm --model m content --fields x --format text".to_owned(), 2, "`cp-llm --help`", "did you mean"),
    ] {
        let ran = run(&Place::new(), script);
        assert_eq!(ran.status, status, "{script}: {ran:?}");
        assert!(ran.stderr.contains(said) && !ran.stderr.contains(unsaid), "{script}: {}", ran.stderr);
    }
}

/// The options of a question, each with a value, as at a terminal.
const DAILY: &str = "--system s.md|-s brief|--continue|-c|--session named|--name n$$|--attach a.txt|-a a.txt|\
    --file a.txt|-f a.txt|--template hi.md|-t hi.md|--template hi.md --param who=Ada|\
    -t hi.md -p who=Ada|--extract|-x|--schema name|--option temperature=0|-o temperature=0|\
    --retries 0|--timeout 9|--no-log|-n|--no-redact|--stream|--usage|-u|--model m|-m m|--agent default|--prompt PRM-DEFAULT-SOUL-001|\
    --tools tools|--tools tools --tool-backend native|--tools tools --schema name|--backend stub";

#[test]
fn each_option_works_at_a_terminal_as_in_a_pipe() {
    let place = Place::new();
    place.work.write("a.txt", "a line\n");
    place.work.write("s.md", "be brief\n");
    std::fs::create_dir(place.work.join("tools")).unwrap();
    place.work.write("answers", "{\"content\":\"{\\\"name\\\":\\\"Ada\\\"}\"}\n".repeat(40));
    let ran = run(&place, "cp-ask init >/dev/null; cp-ask --name named first");
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    place.home.write("config/templates/hi.md", "Hello {{ who | default('you') }}: {{ text }}");
    let help = run(&place, "cp-ask help").stdout;
    for option in help.split([' ', ',', '\n']).filter(|word| word.starts_with("--") && word.len() > 2) {
        let is_known = DAILY.split(['|', ' ']).any(|word| word == option);
        assert!(
            is_known || ["--command", "--dry-run", "--save", "--help", "--version"].contains(&option),
            "{option} is not tried"
        );
    }
    for words in DAILY.split('|') {
        let script = format!("CP_STUB_SCRIPT=answers cp-ask {words} question </dev/null");
        let piped = run(&place, &script);
        assert_eq!(piped.status, 0, "{script}: {}", piped.stderr);
        let mut terminal = place.shell("sh", &script).env("CP_BACKEND", "stub").terminal(200);
        assert_eq!(terminal.end(), Some(0), "{script}: {}", terminal.text());
        let (text, shown) = (piped.stdout.trim(), terminal.text());
        assert!(text.contains("Ada") && shown.contains(text), "{script}: {text}: {shown}");
    }
}

#[test]
fn error_at_a_terminal_begins_a_line() {
    let piece = |text: &str| {
        format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    // The connection ends with the text or later, or an error follows the text at once.
    let error = "data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    let endings =
        [("Hello", "", 0), ("Hello", "", 1000), ("Hello", error, 0), ("Hello\\n", "", 0), ("Hello\\n", error, 0)];
    for (text, end, wait) in endings.repeat(3) {
        let (shown, body) = ("Hello\ncp-llm: ", piece(text) + end);
        let server = Server::playing(vec![vec![stream_head(), chunk(body.as_bytes()), Step::Wait(wait), Step::Close]]);
        let place = Place::new();
        let script = "cp-ask -m m --retries 0 hi </dev/null";
        let shell = place.shell("sh", script).env("CP_BACKEND", "openai").env("OPENAI_API_KEY", "sk-of-the-test-01");
        let mut terminal = shell.env("OPENAI_BASE_URL", format!("{}/v1", server.url())).terminal(200);
        assert_ne!(terminal.end(), Some(0), "{}", terminal.text());
        let text = terminal.text().replace('\r', "");
        assert!(text.contains(shown) && !text.contains("\n\n"), "{text:?}");
    }
}

#[test]
fn key_is_stored_privately_and_sent_to_its_endpoint_only() {
    let key = format!("sk-test-{}", "0".repeat(30));
    let place = Place::new();
    let ran = run(&place, &format!("echo {key} | cp-ask keys set openai; cp-ask keys list; cp-ask keys"));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("\nopenai          key_file\n") && !ran.stdout.contains(&key) && !ran.stderr.contains(&key)
    );
    let file = place.home.join("keys/api/openai");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{key}\n"));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.parent().unwrap().metadata().unwrap().permissions().mode() & 0o77, 0);
    // What a server receives: the key of its own endpoint, and no key of a provider.
    let answer = serde_json::json!({"id": "1", "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}]});
    let server = Server::replying(move |_| json(200, &answer));
    place
        .home
        .write("config/cp.toml", format!("[endpoints.mine]\ndialect = \"openai\"\nbase_url = \"{}\"\n", server.url()));
    place.home.write("config/policy.toml", "");
    let script = format!(
        "unset CP_BACKEND; echo {key}x | cp-ask keys set mine >/dev/null; cp-ask -m mine/m hi </dev/null; OPENAI_BASE_URL={} cp-ask -m openai/m hi",
        server.url()
    );
    let ran = run(&place, &script);
    assert_eq!(ran.stdout, "hello\nhello\n", "{}", ran.stderr);
    let sent: Vec<Option<String>> =
        server.requests().iter().map(|request| request.header("authorization").map(str::to_owned)).collect();
    assert_eq!(sent, [Some(format!("Bearer {key}x")), None]);
    for (script, status, complaint) in [
        ("echo x | cp-ask keys set opanai", 3, "choose anthropic, openai or gemini"),
        ("echo a b | cp-ask keys set openai", 2, "one key"),
        ("cp-ask keys set openai", 2, "one key"),
        ("echo x | cp-ask keys set ../x", 3, "no provider or endpoint"),
    ] {
        let ran = run(&place, script);
        assert_eq!((ran.status, ran.stdout.as_str()), (status, ""), "{script}: {}", ran.stderr);
        assert!(ran.stderr.contains(complaint), "{script}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{key}\n"), "a refused key changes nothing");
}

#[test]
fn key_is_read_from_a_terminal_without_echo() {
    let place = Place::new();
    let mut terminal = place.shell("sh", "cp-ask keys set gemini; stty -a | grep -o ' echo '").terminal(80);
    terminal.wait_for("Key of gemini: ");
    terminal.send("AIza-secret-1234567890\r");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
    assert!(!terminal.text().contains("secret") && terminal.text().contains("echo"), "{}", terminal.text());
    assert_eq!(place.home.read("keys/api/gemini"), "AIza-secret-1234567890\n");
}

/// The rows of the table of habits: the lines of code in its last column.
fn habits() -> Vec<String> {
    let page = std::fs::read_to_string(repository().join("docs/HABITS.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let line = |row: &str| {
        row.replace("\\|", "\u{1}").split('|').nth(4).unwrap().trim().trim_matches('`').replace('\u{1}', "|")
    };
    rows.map(line).collect()
}

#[test]
fn every_line_of_the_table_of_habits_runs() {
    let lines = habits();
    assert_eq!(lines.len(), 30, "{lines:?}");
    let server = Server::replying(|_| reply(200, "text/plain", "", b"notes\n"));
    for (line, at_terminal) in lines.iter().flat_map(|line| [(line, false), (line, true)]) {
        let place = Place::new();
        place.sh("cp-ask init >/dev/null && git init -q . && cp-ask --backend stub before </dev/null").success();
        place.policy("[exec]\nallowed_commands = [\"ls\", \"find\"]\n[paths]\nread = [\".\"]\n");
        run(&place, &format!("printf '{PIXEL}' >pic.png; printf '%%PDF-1.4\\n' >paper.pdf; mkdir tools"));
        for file in ["notes.txt", "main.rs", "error.log", "letter.txt", "src/a/b.rs"] {
            place.work.write(file, format!("the text of {file}\n"));
        }
        place.work.write("key", "sk-0123456789abcdef\n");
        place.work.write("answers", "{\"content\":\"```\\nls -l\\n```\"}\n".repeat(2) + "{\"content\":\"ok\"}\n");
        if line.contains("--schema") || line.contains("shape") {
            place.work.write("answers", "{\"content\":\"{\\\"name\\\":\\\"Ann\\\",\\\"age\\\":3}\"}\n");
        }
        let script = format!("export CP_STUB_SCRIPT=answers URL={}; {line}", server.url());
        let ran = if line.ends_with("chat") {
            let mut terminal = place.shell("bash", &script).env("CP_BACKEND", "stub").env("TERM", "xterm").terminal(80);
            terminal.wait_for("cp> ");
            terminal.send("hello\r");
            terminal.wait_for("ls -l");
            terminal.send(":quit\r");
            assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
            continue;
        } else if at_terminal && !line.contains(" -C ") {
            let mut terminal = place.shell("bash", &script).env("CP_BACKEND", "stub").terminal(200);
            assert_eq!(terminal.end(), Some(0), "{line}: {}", terminal.text());
            assert!(!terminal.text().is_empty() && !terminal.text().contains("Usage:"), "{line}: {}", terminal.text());
            continue;
        } else {
            run(&place, &script)
        };
        assert!(ran.status == 0 && !ran.stdout.is_empty(), "{line}: {} {}{}", ran.status, ran.stdout, ran.stderr);
    }
}

//! Keys that are pressed while a turn is answered.

use std::time::Duration;

use cp_testkit::Server;
use cp_testkit::server::events;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::person::{Person, Session};

/// Answers each turn after the file `go` exists, and sends the shell the signal that the file `signal` names.
const WAITS: &str = include_str!("data/agents/waits.sh");

/// A terminal at which a turn is being answered.
fn answering(place: &Person) -> Session {
    let agent = place.root.executable("agent", WAITS).display().to_string();
    let mut terminal = place.terminal(&["--agent", &agent, "--no-hub"], 100);
    terminal.prompted();
    terminal.send("go\r");
    terminal.wait_for("It begins.");
    terminal
}

fn turns(place: &Person) -> Vec<bool> {
    place.data("session_turn").iter().map(|turn| turn["cancelled"] == true).collect()
}

#[test]
fn ctrl_c_stops_turn_keeps_partial_answer_and_discards_typed_lines() {
    let place = Person::new();
    let mut terminal = answering(&place);
    terminal.send("one\rtwo");
    terminal.wait_for("two");
    terminal.send("\x03");
    terminal.wait_for("✗ interrupted: the turn was stopped, the session continues");
    terminal.prompted();
    place.root.write("go", "");
    terminal.send("and then?\r");
    terminal.wait_for("It ends.");
    terminal.prompted();
    assert_eq!(turns(&place), [true, false]);
    let said: Vec<Value> = place.entries().iter().map(|entry| entry["content"].clone()).collect();
    assert!(said.iter().any(|content| content.to_string().contains("It begins.\\n [interrupted]")), "{said:?}");
    assert!(said.contains(&json!("and then?")) && !terminal.text().contains("cp> one"), "{}", terminal.text());
}

#[test]
fn typed_lines_become_next_inputs() {
    let place = Person::new();
    let mut terminal = answering(&place);
    terminal.send("one\r:ctx\rtw");
    terminal.wait_for("tw");
    terminal.send("o");
    place.root.write("go", "");
    terminal.wait_for("It ends.");
    terminal.wait_for("cp> one\n");
    terminal.wait_for("It ends.");
    terminal.wait_for("cp> :ctx\n");
    terminal.wait_for("cp> two");
    terminal.send(" three\r");
    terminal.wait_for("It ends.");
    terminal.prompted();
    assert_eq!(turns(&place), [false; 3]);
    let said = place.entries().iter().map(|entry| entry["content"].to_string()).collect::<String>();
    assert!(["\"one\"", "\"two three\""].iter().all(|line| said.contains(line)), "{said}");
}

#[test]
fn question_in_turn_receives_following_keys() {
    for level in ["agent", "owner"] {
        let place = Person::new();
        let mut terminal = crate::terminal::sent(&place, level);
        for name in ["a", "b"] {
            terminal.wait_for(&format!("tee {name}\n"));
            terminal.wait_for("n = no");
            terminal.wait_for(": ");
            terminal.send("q\r");
            terminal.wait_for("Type ");
            terminal.wait_for(": ");
            terminal.send("y\r");
        }
        terminal.wait_for("It is done.");
        terminal.prompted();
        assert_eq!(terminal.text().matches("→ shell").count(), 2, "{}", terminal.text());
        assert!(["a", "b"].iter().all(|name| place.work.join(name).exists()), "{}", terminal.text());
        assert_eq!(terminal.text().contains("The policy leaves this to its owner."), level == "owner");
        // The same applies to the person's own commands.
        for (answer, is_made) in [("n", false), ("y", true)].into_iter().filter(|_| level == "owner") {
            terminal.send(":! tee c\r");
            terminal.wait_for("y = yes, n = no: ");
            terminal.send(&format!("{answer}\r"));
            terminal.prompted();
            assert_eq!(place.work.join("c").exists(), is_made, "{}", terminal.text());
        }
    }
}

#[test]
fn secret_prompt_in_turn_receives_all_keys() {
    let place = Person::new();
    let said = json!({"choices": [{"index": 0, "delta": {"content": "Open."}, "finish_reason": "stop"}]});
    let server = Server::playing(vec![events(&[format!("data: {said}\n\ndata: [DONE]\n\n").as_bytes()])]);
    let ask = "#!/bin/sh\nexec 3<>/dev/tty\nstty -echo <&3\nprintf 'Passphrase: ' >&3\nread -r first <&3\nprintf 'Again: ' >&3\nread -r second <&3\nstty echo <&3\n[ \"$first\" = \"$second\" ] && printf '%s\\n' \"$first\"\n";
    let command = place.root.executable("ask", ask).display().to_string();
    place.home.write(
        "config/cp.toml",
        format!(
            "[endpoints.own]\ndialect = \"openai\"\nbase_url = \"{}/v1\"\nkey_command = \"{command}\"\n",
            server.url()
        ),
    );
    let mut terminal = place.terminal(&["-m", "own/m", "--no-hub"], 100);
    terminal.prompted();
    terminal.send("hello\r");
    for question in ["Passphrase: ", "Again: "] {
        terminal.wait_for(question);
        terminal.send("key-typed-0123456789\r");
    }
    terminal.wait_for("Open.");
    terminal.prompted();
    let key = server.requests()[0].header("authorization").map(str::to_owned);
    assert_eq!(key.as_deref(), Some("Bearer key-typed-0123456789"));
    assert!(!terminal.text().contains("key-typed"), "{}", terminal.text());
}

#[test]
fn terminal_is_restored_at_every_end() {
    for end in ["\x03", "TERM", "HUP", "QUIT"] {
        let place = Person::new();
        let agent = place.root.executable("agent", WAITS).display().to_string();
        let script =
            format!("trap : INT; stty -g > before; cp-shell --agent {agent} --no-hub; stty -g > after; echo left");
        let mut terminal = Session(place.shell("sh", &script).env("TERM", "xterm").terminal(100));
        terminal.prompted();
        terminal.send("go\r");
        terminal.wait_for("It begins.");
        if end.len() == 1 {
            terminal.send(end);
            terminal.wait_for("✗ interrupted");
            terminal.prompted();
            terminal.send(":quit\r");
        } else {
            place.root.write("signal", end);
        }
        terminal.wait_for("left\n");
        assert_eq!(place.work.read("before"), place.work.read("after"), "{end:?}");
        assert_eq!(turns(&place), [true], "{end:?}");
    }
}

/// The questions of a session, in order.
fn questions(place: &Person) -> Vec<String> {
    let entries = place.entries();
    let asked = entries.iter().filter(|entry| entry["event"] == "message" && entry["role"] == "user");
    asked.filter_map(|entry| entry["content"].as_str().map(str::to_owned)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cp_testkit::times(6, 100)))]

    /// The same keys are the same turns, however the terminal delivers them: at once, in parts, at the prompt or during
    /// an answer.
    #[test]
    fn chunks_of_keys_become_the_same_turns(
        // Without consonants no line has a word of risk, such as `dd`, about which the shell asks.
        lines in prop::collection::vec("[aeiou]{1,8}( [aeiouäß日]{1,8}){0,2}", 2..6),
        chunks in prop::collection::vec((1_usize..24, 0_u64..120), 1..12),
    ) {
        let place = Person::new();
        let mut terminal = place.terminal(&["--backend", "stub", "--no-hub"], 100);
        terminal.prompted();
        let typed = lines.join("\r") + "\r";
        let mut rest = typed.as_str();
        for (length, pause_ms) in chunks.iter().cycle() {
            let (chunk, later) = rest.split_at(rest.ceil_char_boundary(*length));
            terminal.send(chunk);
            std::thread::sleep(Duration::from_millis(*pause_ms));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        terminal.wait_for(&format!("stub response {}\n", lines.len()));
        terminal.prompted();
        prop_assert_eq!(questions(&place), lines);
    }
}

//! The model's reasoning: shown on request, and never part of the text.

use cp_testkit::Server;
use cp_testkit::server::{Step, chunk, stream_head};
use serde_json::json;

use crate::llm::Llm;
use crate::messages::{frame, played, stream, whole};

const BACKENDS: [&str; 4] = ["anthropic", "openai", "openai-responses", "gemini"];

fn thinker(backend: &str, thoughts: &[&str]) -> (Llm, Server) {
    Llm::playing(backend, vec![played(&stream(backend, thoughts, &["yes"]))])
}

#[test]
fn reasoning_goes_to_stderr_and_delta_members() {
    for backend in BACKENDS {
        let (llm, _server) = thinker(backend, &["we", "", "ll", " ", "now", ""]);
        let text = |more: &[&str]| {
            let ran = llm.run(&[&["-m", "m", "--format", "text", "--stream", "hi"], more].concat());
            (ran.stdout, ran.stderr)
        };
        let said = |thoughts: &str| ("yes\n".to_owned(), thoughts.to_owned());
        assert_eq!(text(&["--reasoning"]), said("well now\n"), "{backend}");
        assert_eq!(text(&[]), said(""), "{backend}");
        let ran = llm.run(&["-m", "m", "--stream", "--reasoning", "hi"]);
        let deltas = ran.of("delta");
        let joined = |name: &str| deltas.iter().filter_map(|delta| delta[name].as_str()).collect::<String>();
        assert_eq!(
            (joined("thinking").as_str(), joined("text").as_str()),
            ("well now", "yes"),
            "{backend}: {}",
            ran.stdout
        );
        assert_eq!(deltas[0]["_untrusted"], json!(["/thinking"]));
        assert_eq!(ran.of("message")[0]["content"], "yes");
        assert!(!llm.run(&["-m", "m", "--stream", "hi"]).stdout.contains("\"thinking\":\"well\""), "{backend}");
    }
}

#[test]
fn reasoning_of_whole_and_recorded_answers_is_shown() {
    let (llm, _server) = thinker("anthropic", &["well"]);
    let tape = llm.work.join("tape").display().to_string();
    llm.run(&["-m", "m", "--stream", "--reasoning", "--record", &tape, "hi"]).success();
    for stream in [&[][..], &["--stream"]] {
        let ran = llm.run(&[&["-m", "m", "--reasoning", "--replay", &tape, "--format", "text", "hi"], stream].concat());
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("yes\n", "well\n"), "{stream:?}");
    }
}

#[test]
fn reasoning_has_no_key() {
    let key = "sk-planted-0123456789abcdefghij";
    let said = format!("the key {key} and sk-p");
    let pieces: Vec<&str> = said.as_bytes().chunks(2).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    for (backend, variable) in [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")] {
        let (llm, _server) = thinker(backend, &pieces);
        let llm = llm.set(variable, key);
        let ran = llm.run(&["-m", "m", "--format", "text", "--stream", "--reasoning", "hi"]);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("yes\n", "the key [REDACTED] and sk-p\n"), "{backend}");
    }
}

#[test]
fn terminal_shows_reasoning_only_if_asked() {
    let mut script = vec![stream_head()];
    for event in stream("anthropic", &["well", " now"], &["yes"]) {
        script.extend([Step::Wait(50), chunk(frame(&event).as_bytes())]);
    }
    let (llm, _server) = Llm::playing("anthropic", vec![script]);
    let shown = |more: &[&str]| {
        let mut terminal =
            llm.command(&[&["-m", "m", "--format", "text", "--stream", "hi"], more].concat()).terminal(80);
        assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
        terminal.raw().replace('\r', "")
    };
    assert_eq!(shown(&[]), "yes\n");
    assert_eq!(shown(&["--reasoning"]), "\u{1b}[2mwell\u{1b}[22m\u{1b}[2m now\u{1b}[22m\u{1b}[2m\n\u{1b}[22myes\n");
}

#[test]
fn reasoning_between_tags_is_not_part_of_answer() {
    let tick = "```";
    let code = format!("{tick}sh\nls -la\n{tick}");
    let thoughts = format!("\nRun <b>\n{tick}sh\nfind / -delete\n{tick}\n</thin> no\n");
    for (content, thought, answer) in [
        (format!("<think>{thoughts}</think>\n\n{code}"), thoughts.as_str(), code.as_str()),
        (format!(" \n<think>{thoughts}</think>{code}"), &thoughts, &code),
        ("<think></think>yes".to_owned(), "", "yes"),
        // Tags elsewhere, and parts of a tag, are text.
        ("a <think>b</think>".to_owned(), "", "a <think>b</think>"),
        ("<thin".to_owned(), "", "<thin"),
        (" <".to_owned(), "", " <"),
        ("</think>".to_owned(), "", "</think>"),
        ("<thinking>a</thinking>".to_owned(), "", "<thinking>a</thinking>"),
    ] {
        let mut scripts = vec![whole("openai", &content)];
        for size in [1, 3, 1000] {
            let letters: Vec<char> = content.chars().collect();
            let pieces: Vec<String> = letters.chunks(size).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            scripts.push(played(&stream("openai", &[], &pieces)));
        }
        for (script, words) in scripts.into_iter().zip([&[][..], &["--stream"], &["--stream"], &["--stream"]]) {
            let (llm, _server) = Llm::playing("openai", vec![script]);
            let words = [&["-m", "m", "--reasoning"], words, &["--", "hi"]].concat();
            let ran = llm.run(&words);
            assert_eq!(ran.status, 0, "{content}: {ran:?}");
            let message = &ran.of("message")[0];
            let blocks = message["blocks"].as_array().into_iter().flatten();
            let told: String = blocks.filter_map(|block| block["thinking"].as_str()).collect();
            assert_eq!((&message["content"], told.as_str()), (&json!(answer), thought), "{content}");
            let deltas = ran.of("delta");
            let joined = |name: &str| deltas.iter().filter_map(|delta| delta[name].as_str()).collect::<String>();
            if words.contains(&"--stream") {
                assert_eq!((joined("text").as_str(), joined("thinking").as_str()), (answer, thought), "{content}");
            }
        }
    }
}

#[test]
fn block_and_schema_are_taken_from_answer_after_tags() {
    let tick = "```";
    for (words, answer, expected) in [
        (&["-x"][..], format!("{tick}sh\nls\n{tick}"), "ls\n"),
        (&["--schema", "n int"], "{\"n\":1}".to_owned(), "{\"n\":1}\n"),
    ] {
        for thoughts in ["", "<think>\n```sh\nrm -r /\n```\n{\"n\":2}\n</think>\n\n"] {
            let (llm, _server) = Llm::playing("openai", vec![whole("openai", &format!("{thoughts}{answer}"))]);
            let words = [&["-m", "m", "--format", "text"], words, &["--", "hi"]].concat();
            let ran = llm.run(&words);
            assert_eq!((ran.status, ran.stdout.as_str()), (0, expected), "{thoughts}: {}", ran.stderr);
        }
    }
}

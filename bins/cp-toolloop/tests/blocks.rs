//! Models that think: what they gave goes back as it came, turn after turn, in every dialect.

use cp_testkit::thinker;

use crate::toolloop::{Results, ToolLoop};

const BACKENDS: [(&str, &str, &str, &str); 4] = [
    ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", ""),
    ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"),
    ("openai-responses", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"),
    ("gemini", "GEMINI_BASE_URL", "GEMINI_API_KEY", "/v1beta"),
];

#[test]
fn provider_signatures_are_returned_over_three_turns() {
    for (backend, base, key, path) in BACKENDS {
        let place = ToolLoop::new();
        place.tool("echo_it", "", "cat");
        let server = thinker(backend);
        let arguments = ["--tools", &place.tools(), "--backend", backend, "-m", "m", "--", "go"];
        let loop_ = place.command(&arguments).env(base, format!("{}{path}", server.url())).env(key, "k-0123456789");
        let ran = loop_.run();
        assert_eq!(ran.status, 0, "{backend}: {ran:?}");
        assert_eq!(ran.results(), [r#"{"n":1}"#, r#"{"n":2}"#], "{backend}");
        let messages = ran.of("message");
        assert_eq!((messages.len(), server.requests().len()), (3, 3), "{backend}");
        assert_eq!(messages[2]["content"], "step 3!", "{backend}");
        assert_eq!(messages[0]["blocks"][0]["thinking"], "hm 1", "{backend}");
        // The turns that a program gets to store have all of it too.
        assert!(messages.iter().all(|message| message["blocks"][0]["raw"].is_object()), "{backend}");
    }
}

//! Answers of models that think, through a session and back to their provider.

use cp_testkit::{Outcome, Place, thinker};

/// Three rounds of a session with a provider that refuses changed copies of its answers; `filter` precedes the model.
fn rounds(backend: &'static str, filter: &str) -> Outcome {
    let place = Place::new();
    let server = thinker(backend);
    let url = server.url();
    place.sh(&format!(
        r#"export ANTHROPIC_BASE_URL={url} OPENAI_BASE_URL={url}/v1 GEMINI_BASE_URL={url}/v1beta
        export ANTHROPIC_API_KEY=k-01234567 OPENAI_API_KEY=k-01234567 GEMINI_API_KEY=k-01234567
        S=$(cp-session start --format text)
        for n in 1 2 3; do
            cp-compose --session "$S" -- "question $n" | {filter} | cp-llm --backend {backend} -m m | cp-session tee "$S" |
                jq -r '.data.content // .error.code'
        done"#
    ))
}

#[test]
fn a_session_gives_a_provider_what_it_gave() {
    for backend in ["anthropic", "openai", "openai-responses", "gemini"] {
        let ran = rounds(backend, "cat");
        assert_eq!(ran.stdout, "step 1!\nstep 2!\nstep 3!\n", "{backend}: {ran:?}");
        let without = rounds(backend, "jq -c 'del(.data.messages[].blocks)'");
        assert_eq!(without.stdout, "step 1!\nE_VALIDATION\nE_VALIDATION\n", "{backend}: {without:?}");
    }
}

#[test]
fn what_another_provider_gave_goes_plain_and_is_counted() {
    let place = Place::new();
    let server = thinker("anthropic");
    let url = server.url();
    let ran = place.sh(&format!(
        r#"export ANTHROPIC_BASE_URL={url} OPENAI_BASE_URL={url}/v1 ANTHROPIC_API_KEY=k-01234567 OPENAI_API_KEY=k-01234567
        cp-llm --backend anthropic -m m -- hi |
            jq -c '{{messages: (.data.input + [{{role: "assistant", content: .data.content, blocks: .data.blocks}}, {{role: "user", content: "and?"}}])}}' >row
        cp-llm --backend openai -m m --rows --dry-run <row"#
    ));
    let dry = &ran.of("item")[0];
    assert_eq!(
        dry["request"]["messages"][1],
        serde_json::json!({"role": "assistant", "content": "step 1!"}),
        "{ran:?}"
    );
    let notice = &ran.closing()["meta"]["notices"][0];
    assert_eq!(notice["type"], "blocks_lowered");
    assert!(notice["message"].as_str().unwrap().ends_with(": 2 thinking"), "{notice}");
}

#[test]
fn a_block_that_held_a_secret_goes_back_as_plain_text() {
    let place = Place::new();
    let server = thinker("gemini");
    let url = server.url();
    let secret = ["gh", "p_a1B2c3D4e5a1B2c3D4e5a1B2c3D4e5a1B2c3D4"].concat();
    let ran = place.sh(&format!(
        r#"export GEMINI_BASE_URL={url}/v1beta GEMINI_API_KEY=k-01234567
        S=$(cp-session start --format text)
        cp-llm --backend gemini -m m -- 'hi' | jq -c '.data.blocks[1].text += " {secret}"' | jq -c '.data.blocks[2].raw.text += " {secret}"' | cp-session tee "$S" >/dev/null
        cp-session load "$S" | jq -c '.data.messages[1].blocks | map([.type, .redacted // false, has("raw")])'
        cp-compose --session "$S" -- more | cp-llm --backend gemini -m m --dry-run"#
    ));
    let (loaded, dry) = ran.stdout.split_once('\n').unwrap();
    assert_eq!(loaded, r#"[["thinking",false,true],["text",true,false],["text",true,false]]"#, "{ran:?}");
    let dry: serde_json::Value = serde_json::from_str(dry).unwrap();
    let parts = &dry["data"]["request"]["contents"][1]["parts"];
    assert_eq!(parts[0], serde_json::json!({"text": "hm 1", "thought": true}));
    assert_eq!(parts[1]["text"], "step 1 [REDACTED:github_token]");
    assert_eq!(parts[2], serde_json::json!({"text": "!"}));
    assert!(dry["meta"]["notices"][0]["message"].as_str().unwrap().ends_with(": 2 text"), "{dry}");
}

//! Attachments with URLs: the URL is sent to the provider, and nothing is fetched.

use cp_testkit::Server;
use serde_json::json;

use crate::llm::Llm;
use crate::messages::whole;

#[test]
fn url_of_attachment_is_sent_where_the_api_takes_it() {
    let server = Server::playing(vec![whole("openai", "seen")]);
    let url = format!("{}/it's?a=1", server.url());
    let row = |kind: &str| {
        let block = json!([{"type": kind, "source": {"type": "url", "url": url}}]);
        json!({"messages": [{"role": "user", "content": block}]}).to_string() + "\n"
    };
    for api in ["anthropic", "openai", "openai-responses", "gemini"] {
        let llm = Llm::asking(api, &server);
        for kind in ["image", "document"] {
            let ran = llm.feed(&["--rows", "-m", "m", "--dry-run"], &row(kind));
            if (api, kind) == ("openai", "document") {
                let hint = ran.first_error()["details"]["hint"].as_str().unwrap().to_owned();
                assert!(hint.contains("curl 'http://") && hint.contains("| cp-ask -a -"), "{hint}");
                continue;
            }
            let request = ran.success().of("item")[0]["request"].to_string();
            assert!(request.contains(&url), "{api} {kind}: {request}");
        }
    }
    assert!(server.requests().is_empty(), "something was fetched");
    let ran = Llm::asking("openai", &server).feed(&["--rows", "-m", "m"], &row("image")).success();
    assert_eq!((&ran.of("message")[0]["content"], server.requests().len()), (&json!("seen"), 1));
    assert!(server.requests()[0].json().to_string().contains(&url));
}

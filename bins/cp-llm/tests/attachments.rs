//! Attachments with URLs: the URL is sent to the provider, and nothing is fetched.

use cp_testkit::Server;
use serde_json::json;

use crate::llm::Llm;
use crate::messages::whole;

#[test]
fn url_of_attachment_is_sent_where_the_api_takes_it() {
    for api in ["anthropic", "openai", "openai-responses", "gemini"] {
        let server = Server::replying(move |_| whole(api, "seen"));
        let llm = Llm::asking(api, &server);
        for kind in ["image", "document"] {
            let url = format!("{}/it's?a=1", server.url());
            let block = json!([{"type": kind, "source": {"type": "url", "url": url}}]);
            let row = json!({"messages": [{"role": "user", "content": block}]}).to_string() + "\n";
            let before = server.requests().len();
            let ran = llm.feed(&["--rows", "-m", "m"], &row);
            if (api, kind) == ("openai", "document") {
                let hint = ran.first_error()["details"]["hint"].as_str().unwrap().to_owned();
                assert!(hint.contains("curl 'http://") && hint.contains("| cp-ask -a -"), "{hint}");
                assert_eq!((ran.status, server.requests().len()), (2, before), "{ran:?}");
                continue;
            }
            assert_eq!(ran.success().of("message")[0]["content"], "seen", "{api} {kind}");
            let sent = &server.requests()[before..];
            assert!(sent.len() == 1 && sent[0].json().to_string().contains("/it's?a=1"), "{api} {kind}: {sent:?}");
        }
    }
}

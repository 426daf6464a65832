//! An endpoint of `config/cp.toml`, through every program that asks a model.

use cp_testkit::{Place, thinker};

#[test]
fn every_program_that_asks_a_model_takes_an_endpoint_by_its_name() {
    let place = Place::new();
    // It refuses a conversation in which its own answers are not what it gave, so the origin of blocks is its.
    let server = thinker("openai");
    let table = format!("[endpoints.near]\ndialect = \"openai\"\nbase_url = \"{}/v1\"\n", server.url());
    place.home.write("config/cp.toml", table + "model = \"own\"\n[aliases]\nfast = \"near/quick\"\n");
    place.work.executable("tools/count", "#!/bin/sh\necho 3\n");
    place.work.write("tools/count.json", r#"{"name":"count","description":"Count"}"#);
    let ran = place.sh(
        r#"S=$(cp-session start --format text)
        for n in 1 2; do
            cp-compose --session "$S" -- "question $n" | cp-llm -m near/m | cp-session tee "$S" | jq -r '.data.content // .error'
        done
        cp-toolloop --backend near --tools tools --format text -- go
        cp-toolloop -m fast --format text -- go
        cp-ask -m near/ask hello
        cp-session compact "$S" --keep 2 --model near/short | jq -r .data.summary
        echo hello | cp-shell --interactive --quiet -m near/person | grep -o 'step .!'
        jq -r 'select(.event == "message" and .data.endpoint).data.endpoint' "$(find "$CP_HOME" -path "*$S*" -name '*.jsonl' | head -n 1)""#,
    );
    assert_eq!(ran.stdout, "step 1!\nstep 2!\nstep 3!\nstep 3!\nstep 1!\nstep 1!\nstep 1!\nnear\nnear\n", "{ran:?}");
    let models: Vec<String> =
        server.requests().iter().map(|request| request.json()["model"].as_str().unwrap().to_owned()).collect();
    assert_eq!(models, ["m", "m", "own", "own", "own", "quick", "quick", "quick", "ask", "short", "person"]);
}

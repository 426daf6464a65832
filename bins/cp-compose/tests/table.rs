//! `--lines`, `--csv`, `--tsv`: a prompt from each record of a table.

use cp_testkit::Place;
use serde_json::{Value, json};

/// The contents of the prompts, and their rows.
fn prompts(words: &[&str], input: &str) -> Vec<(Value, Value)> {
    let records = Place::of("cp-compose").feed(words, input).records();
    let prompts = records.iter().filter(|record| record["type"] == "prompt").map(|record| &record["data"]);
    prompts.map(|data| (data["messages"][0]["content"].clone(), data["row"].clone())).collect()
}

#[test]
fn record_becomes_prompt_and_is_kept() {
    for (option, table, name, text) in [
        ("--csv", "name,a b\n\"x,y\",\"two\nlines\"\n", "x,y", "two\nlines"),
        ("--tsv", "name\ta b\nx,y\t\"two\\n\n", "x,y", "\"two\\n"),
    ] {
        let found = prompts(&[option, "{{name}}: {{row[\"a b\"]}}"], table);
        assert_eq!(found, [(json!(format!("{name}: {text}")), json!({"name": name, "a b": text}))], "{option}");
    }
    let found = prompts(&["--lines", "-s", "s"], "one\n\ntwo\n");
    assert_eq!(found, [(json!("one"), json!({"text": "one"})), (json!("two"), json!({"text": "two"}))]);
}

//! `cp-log scan`, as a shell user meets it.

use serde_json::{Value, json};

use crate::ledgers::Ledgers;

fn key() -> String {
    format!("ghp_{}", "a1B2c3D4e5".repeat(4))
}

#[test]
fn each_secret_has_its_place_and_its_kind_and_never_its_value() {
    let place = Ledgers::new();
    let text = format!("PORT=80\n\u{fc}ber TOKEN={}\nDB_PASSWORD=hunter22\n", key());
    let ran = place.feed(&["scan", "-"], &text).code(1);
    let found: Vec<Value> =
        ran.of("item").iter().map(|item| json!([item["line"], item["column"], item["kind"]])).collect();
    assert_eq!(found, [json!([2, 12, "github_token"]), json!([3, 13, "assignment"])]);
    assert!(!ran.stdout.contains("a1B2") && !ran.stdout.contains("hunter"), "{}", ran.stdout);
    assert_eq!((ran.of("item")[0]["masked"].clone(), ran.of("item")[0]["length"].clone()), (json!("ghp_…"), json!(44)));
    let closing = ran.closing();
    assert_eq!((&closing["error"]["code"], &closing["error"]["details"]["count"]), (&json!("E_INTEGRITY"), &json!(2)));
    let text = place.feed(&["scan", "-", "--format", "text"], &text).code(1);
    assert_eq!(text.stdout, "-:2:12: github_token\n-:3:13: assignment\n");
}

#[test]
fn without_a_secret_it_succeeds() {
    let place = Ledgers::new();
    let closing = place.closing(&["scan", "-"], "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b\n", 0);
    assert_eq!((&closing["ok"], &closing["data"]["count"]), (&json!(true), &json!(0)));
    place.closing(&["scan", "-"], "", 0);
    place.closing(&["scan", "-"], &format!("\0{}", key()), 0);
    place.closing(&["scan"], "", 2);
    place.work.write("a.env", key());
    place.closing(&["scan", "a.env"], "", 2);
}

#[test]
fn a_large_input_is_read_in_pieces_and_each_secret_is_found_once() {
    let place = Ledgers::new();
    let mut text = String::new();
    let mut expected = Vec::new();
    let block = format!(
        "-----BEGIN RSA PRIVATE KEY-----\n{}-----END RSA PRIVATE KEY-----\n",
        "MIIEabcdEFGH1234567890+/\n".repeat(800)
    );
    for number in 0..40_000_u32 {
        if number % 4_000 == 7 {
            expected.push((text.matches('\n').count() as u64 + 1, "private_key"));
            text.push_str(&block);
        }
        if number % 1_000 == 13 {
            expected.push((text.matches('\n').count() as u64 + 1, "github_token"));
            text.push_str(&key());
        }
        text.push_str(" ordinary words of the day, \u{fc}ber alles, and nothing else\n");
    }
    let ran = place.feed(&["scan", "-"], &text).code(1);
    let found: Vec<(u64, String)> = ran
        .of("item")
        .iter()
        .map(|item| (item["line"].as_u64().unwrap(), item["kind"].as_str().unwrap().to_owned()))
        .collect();
    let expected: Vec<(u64, String)> = expected.into_iter().map(|(line, kind)| (line, kind.to_owned())).collect();
    assert_eq!(found, expected);
}

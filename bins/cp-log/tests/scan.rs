//! `cp-log scan`, as a shell user meets it.

use cp_testkit::Outcome;
use serde_json::{Value, json};

use crate::ledgers::Ledgers;

fn key() -> String {
    format!("ghp_{}", "a1B2c3D4e5".repeat(4))
}

fn findings(ran: &Outcome) -> Vec<Value> {
    ran.of("item").iter().map(|item| json!([item["file"], item["line"], item["column"], item["kind"]])).collect()
}

#[test]
fn each_secret_has_its_place_and_its_kind_and_never_its_value() {
    let place = Ledgers::new();
    place.work.write("a.env", format!("PORT=80\n\u{fc}ber TOKEN={}\nDB_PASSWORD=hunter22\n", key()).as_str());
    let ran = place.run(&["scan", "a.env"]);
    let found = findings(&ran);
    assert_eq!(found, [json!(["a.env", 2, 12, "github_token"]), json!(["a.env", 3, 13, "assignment"])]);
    assert!(!ran.stdout.contains("a1B2") && !ran.stdout.contains("hunter"), "{}", ran.stdout);
    assert_eq!((ran.of("item")[0]["masked"].clone(), ran.of("item")[0]["length"].clone()), (json!("ghp_…"), json!(44)));
    let closing = place.closing(&["scan", "a.env"], "", 1);
    assert_eq!((&closing["error"]["code"], &closing["error"]["details"]["count"]), (&json!("E_INTEGRITY"), &json!(2)));
    let text = place.run(&["scan", "a.env", "--format", "text"]).code(1);
    assert_eq!(text.stdout, "a.env:2:12: github_token\na.env:3:13: assignment\n");
}

#[test]
fn without_a_secret_it_succeeds() {
    let place = Ledgers::new();
    let closing = place.closing(&["scan", "-"], "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b\n", 0);
    assert_eq!(
        (&closing["ok"], &closing["data"]["files"], &closing["data"]["count"]),
        (&json!(true), &json!(1), &json!(0))
    );
    place.closing(&["scan", "-"], "", 0);
    place.closing(&["scan"], "", 2);
    place.closing(&["scan", "missing"], "", 3);
}

#[test]
fn directories_are_walked_but_for_version_control_links_and_what_is_not_text() {
    let place = Ledgers::new();
    for file in ["d/.git/config", "d/sub/b", "d/a", "d/.env"] {
        std::fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
        place.work.write(file, format!("x\n{}\n", key()).as_str());
    }
    std::fs::write(place.path("d/binary"), format!("\0{}", key())).unwrap();
    std::os::unix::fs::symlink(place.path("d"), place.path("d/sub/loop")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(place.path("d/pipe")).status().unwrap().success());
    let ran = place.run(&["scan", "d"]).code(1);
    let files: Vec<Value> = ran.of("item").iter().map(|item| item["file"].clone()).collect();
    assert_eq!(files, ["d/.env", "d/a", "d/sub/b"]);
    assert_eq!(ran.closing()["error"]["details"]["skipped_files"], json!(1));
    place.closing(&["scan", "d/pipe"], "", 2);
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

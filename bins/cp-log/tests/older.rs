//! A home that an earlier version left, with plans on its ledger, an approval that is open and a token that was never spent: it can
//! be verified, audited and read.
//!
//! `older/` was made below `/tmp/cp-older`; only the time at which its open approval expires was changed.

use std::path::Path;

use cp_testkit::Place;
use serde_json::{Value, json};

use crate::work::forge;

/// The token that its `--dry-run -c "echo token | wc -l"` gave.
const TOKEN: &str = "ct_006b0459f9fb769762dc6baf455bdcb4d6a1351cde08e7fc6c52a41e7adce8bfb83651291b";

/// Its files.
const FILES: [&str; 4] =
    ["config/policy.toml", "keys/confirm.key", "ledger/cp-exec.jsonl", "state/approvals/APR-6fa1cf3d0c6ef937.json"];

fn home() -> Place {
    let place = Place::of("cp-log");
    for file in FILES {
        let older = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/older").join(file);
        place.home.write(file, std::fs::read(older).unwrap());
    }
    // A key that others can read is refused.
    place.program("chmod").args(["-R", "go=", "."]).current_dir(&place.home).run().success();
    place
}

fn why(claims: &[Value], claim: &str) -> Vec<Value> {
    claims.iter().filter(|found| found["claim"] == claim).map(|found| found["why"].clone()).collect()
}

#[test]
fn ledger_with_plans_verifies_and_audit_names_the_older_form() {
    let place = home();
    place.run(&["verify"]).success();
    let claims = place.run(&["audit"]).success().of("item");
    assert!(claims.iter().all(|claim| claim["holds"] != false), "{claims:?}");
    // Two intents, five parts, and the words of one part after its pattern was expanded.
    assert_eq!(why(&claims, "command_hash"), vec![json!("older form: plan"); 8]);
    assert_eq!(why(&claims, "finished"), vec![Value::Null; 2]);
    assert!(place.run(&["audit", "--format", "text"]).stdout.contains("command_hash: older form: plan"));
}

#[test]
fn forged_plan_is_found_by_the_audit() {
    let place = home();
    let ledger = place.home.join("ledger/cp-exec.jsonl");
    let bytes = std::fs::read(&ledger).unwrap();
    for (seq, from, to, claim) in [
        (1, r#"{"argv":["echo","d"]"#, r#"{"argv":["echo","e"]"#, "command_hash"),
        (3, r#""two.txt""#, r#""six.txt""#, "command_hash"),
        (4, r#""return_code":0"#, r#""return_code":1"#, "result_hash"),
        (6, r#""return_code":0"#, r#""return_code":1"#, "result_hash"),
    ] {
        forge(&ledger, seq, |body| body.replacen(from, to, 1));
        let claims = place.run(&["audit"]).code(1).of("item");
        assert!(claims.iter().any(|found| found["claim"] == claim && found["seq"] == seq && found["holds"] == false));
        std::fs::write(&ledger, &bytes).unwrap();
    }
}

#[test]
fn open_approval_is_listed_and_an_older_token_is_refused() {
    let place = home();
    let listed = place.program("cp-exec").arg("approve").run().success().data();
    assert_eq!(listed["items"][0]["shown"]["line"], "echo open | wc -l", "{listed}");
    let refused = place.program("cp-exec").args(["--confirm", TOKEN, "-c", "echo token | wc -l"]).run();
    assert_eq!(refused.error()["code"], "E_CONFLICT", "{refused:?}");
}

//! `cp-log audit`: what real work claims holds, and each claim that is forged on a ledger with a right chain does not.

use cp_ledger::format::canonical::hash_value;
use cp_ledger::{Entry, Ledger, Sync};
use cp_testkit::Place;
use serde_json::{Value, json};

use crate::ledgers::Ledgers;
use crate::work::{Work, forge};

fn count(claims: &[Value], claim: &str, holds: &Value) -> usize {
    claims.iter().filter(|found| found["claim"] == claim && found["holds"] == *holds).count()
}

#[test]
fn audit_holds_on_real_work() {
    let work = Work::new();
    let (claims, closing) = work.audit(&[], 0);
    assert_eq!((&closing["data"]["broken"], &closing["data"]["total"]), (&json!(0), &json!(claims.len())));
    for claim in ["chain", "command_hash", "result_hash", "step", "finished", "receipt"] {
        assert!(count(&claims, claim, &json!(true)) > 0, "{claim}: {claims:?}");
    }
    // Both with a secret: one typed, one asked.
    assert_eq!(count(&claims, "command_hash", &Value::Null), 2);
    // A run and a session are found by their names.
    let [run, session] = work.names();
    assert_eq!(count(&work.audit(&[&run], 0).0, "receipt", &json!(true)), 1);
    assert!(count(&work.audit(&[&session], 0).0, "chain", &json!(true)) >= 2);
    assert_eq!(work.0.run(&["audit", "nothing"]).code(3).error()["code"], "E_NOT_FOUND");
}

#[test]
fn a_long_command_stands_whole_and_its_hash_is_computed_again() {
    let work = Work::new();
    let (exec, _) = work.find("exec.jsonl", "agent_turn");
    let lines = cp_testkit::records_of(&std::fs::read(&exec).unwrap());
    let long = lines.iter().find(|line| line["data"]["command"].as_str().is_some_and(|text| text.len() > 20 << 10));
    let (claims, _) = work.audit(&[exec.to_str().unwrap()], 0);
    let judged = claims.iter().find(|claim| claim["seq"] == long.unwrap()["seq"] && claim["claim"] == "command_hash");
    assert_eq!(judged.unwrap()["holds"], true);
    // The tier was read before the first turn, and is declared with it.
    let (evidence, _) = work.find("evidence.jsonl", "turn_evidence");
    let first = cp_testkit::records_of(&std::fs::read(evidence).unwrap()).swap_remove(1);
    let reads = first["data"]["declared_reads"].as_array().unwrap();
    assert!(reads.iter().any(|read| read["path"].as_str().unwrap().ends_with("/tier.json")), "{reads:?}");
}

/// A ledger, an event on it, what is changed in the first line that has it, and the claim that no longer holds.
type Forgery = (&'static str, &'static str, &'static str, &'static str, &'static str);

const FORGERIES: [Forgery; 11] = [
    ("cp-exec.jsonl", "exec.intent", r#""echo","hi""#, r#""echo","ho""#, "command_hash"),
    ("cp-exec.jsonl", "exec.intent", r#""env":{"#, r#""env":{"A":null,"#, "command_hash"),
    ("cp-exec.jsonl", "exec.intent", r#""command_hash""#, r#""other_hash""#, "command_hash"),
    ("cp-exec.jsonl", "exec.intent", r#""requires":null"#, r#""requires":"it destroys""#, "approval"),
    ("cp-exec.jsonl", "exec.result", r#""return_code":0"#, r#""return_code":1"#, "result_hash"),
    ("cp-exec.jsonl", "exec.result", r#""intent":1"#, r#""intent":0"#, "finished"),
    ("cp-exec.jsonl", "exec.step", r#""intent":"#, r#""intent":1"#, "step"),
    ("cp-exec.jsonl", "exec.step", r#""decision":"allow""#, r#""decision":"ask""#, "approval"),
    ("exec.jsonl", "agent_turn", "signal_status", "gate_status", "command_hash"),
    ("RUN-*.jsonl", "tool_result", r#""seq":7"#, r#""seq":5"#, "receipt"),
    ("RUN-*.jsonl", "run_end", r#""event":"run_end""#, r#""event":"approval.denied""#, "approval"),
];

#[test]
fn each_claim_that_is_forged_on_a_ledger_with_a_right_chain_is_found() {
    let work = Work::new();
    for (name, event, from, to, claim) in FORGERIES {
        let (path, seq) = work.find(name, event);
        let before = std::fs::read(&path).unwrap();
        forge(&path, seq, |body| body.replacen(from, to, 1));
        work.audit(&[path.to_str().unwrap()], 1);
        let (claims, closing) = work.audit(&[], 1);
        assert_eq!(closing["error"]["code"], "E_INTEGRITY");
        assert!(count(&claims, claim, &json!(false)) > 0, "{event} {to}: {claims:?}");
        assert_eq!(count(&claims, "chain", &json!(false)), 0);
        std::fs::write(&path, before).unwrap();
    }
    work.audit(&[], 0);
}

#[test]
fn audit_reports_unfinished_work_as_unknown_and_says_it_in_three_groups() {
    let work = Work::new();
    let (run, result) = work.find("RUN-*.jsonl", "exec.result");
    let text = std::fs::read_to_string(&run).unwrap();
    let cut: String = text.split_inclusive('\n').take(usize::try_from(result).unwrap()).collect();
    std::fs::write(&run, &cut).unwrap();
    let run = run.to_str().unwrap();
    let (claims, _) = work.audit(&[run], 0);
    assert_eq!(count(&claims, "finished", &Value::Null), 2, "the call and its command: {claims:?}");
    let told = work.0.run(&["audit", "--format", "text", run]).success().stdout;
    assert!(told.starts_with(&format!("Cannot be checked:\n  {run}\n    line ")), "{told}");
    assert!(told.contains("finished: the command is unfinished: it has no end\n"), "{told}");
    assert_eq!(
        (told.matches(run).count(), told.contains(" of 1 ledger: 0 contradicted, 2 cannot be checked, ")),
        (1, true),
        "{told}"
    );
    forge(std::path::Path::new(run), result - 1, |body| body.replacen("\"intent\":", "\"intent\":1", 1));
    let told = work.0.run(&["audit", "--format", "text", run]).code(1);
    assert!(told.stdout.starts_with(&format!("Contradicted:\n  {run}\n    line ")), "{told:?}");
    assert!(told.stdout.contains(" of 1 ledger: 1 contradicted, "), "{told:?}");
}

#[test]
fn payloads_tokens_and_blobs_are_judged() {
    let place = Ledgers::new();
    place.forged();
    let path = place.path("l.jsonl");
    let mut ledger = Ledger::open(&path, Sync::None).unwrap();
    let payload = json!({"b": 1, "a": [1.0, null]});
    let applied = || Entry::new("WO_APPLIED").with("payload", &payload);
    ledger.append(applied().with("payload_hash", &hash_value(&payload))).unwrap();
    let confirmed = |tag: &str| {
        Entry::new("exec.intent").with("command_hmac", &format!("hmac-sha256:{tag}")).with("confirmed", "hmac-sha256:t")
    };
    ledger.append(confirmed("a")).unwrap();
    ledger.append(confirmed("b")).unwrap();
    ledger.append(Entry::new("e").message("x".repeat(2 << 20))).unwrap();
    let fine = place.run(&["audit", "l.jsonl"]).success().of("item");
    assert_eq!(count(&fine, "approval", &json!(true)), 2, "one token may cover a set");
    assert_eq!((count(&fine, "payload_hash", &json!(true)), count(&fine, "blob", &json!(true))), (1, 1));

    ledger.append(applied().with("payload_hash", "sha256:0")).unwrap();
    ledger.append(confirmed("a")).unwrap();
    for entry in std::fs::read_dir(place.path("l.jsonl.blobs")).unwrap() {
        std::fs::write(entry.unwrap().path(), "other").unwrap();
    }
    let claims = place.run(&["audit", "l.jsonl"]).code(1).of("item");
    for claim in ["payload_hash", "approval", "blob"] {
        assert_eq!(count(&claims, claim, &json!(false)), 1, "{claim}");
    }
    // The damage of the chain is reported, and the rest is still judged.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("hmac-sha256:t", "hmac-sha256:u", 1)).unwrap();
    let claims = place.run(&["audit", "l.jsonl"]).code(1).of("item");
    assert_eq!(count(&claims, "chain", &json!(false)), 1);
    let text = place.run(&["audit", "--format", "text", "l.jsonl"]).code(1);
    assert!(text.stdout.lines().any(|line| line.contains(", payload_hash: the hash is ")), "{text:?}");
}

#[test]
fn each_request_has_one_response_in_either_order_and_rows_of_a_batch_are_pairs_of_their_own() {
    for (lines, held) in [
        (
            &[("request", "#0"), ("request", "#1"), ("response", "#0"), ("response", "#1"), ("response", "#2")][..],
            [2, 1],
        ),
        (&[("response", ""), ("request", ""), ("request", ""), ("response", ""), ("response", "")], [2, 1]),
    ] {
        let place = Ledgers::new();
        place.forged();
        let mut ledger = Ledger::open(&place.path("l.jsonl"), Sync::None).unwrap();
        for (event, row) in lines {
            let entry = Entry::new(format!("llm.{event}")).with("request_hash", "sha256:1").with("attempt", &1);
            let of_batch = !row.is_empty();
            ledger.append(if of_batch { entry.with("batch", &format!("BAT-1{row}")) } else { entry }).unwrap();
        }
        let claims = place.run(&["audit", "l.jsonl"]).code(1).of("item");
        assert_eq!([true, false].map(|holds| count(&claims, "finished", &json!(holds))), held, "{claims:?}");
    }
}

#[test]
fn interactive_session_has_no_false_claim() {
    let place = Place::of("cp-log");
    place.policy("[exec]\nallowed_commands = [\"echo\", \"false\"]\n");
    let lines =
        "hello there\n!echo hi\n!false\n!rm -r x\n:help\nmy password is Tr0ub4dor&33xy\n/compact\nand now?\n:quit\n";
    for arguments in [&["--interactive"][..], &["--interactive", "-c"]] {
        let ran = place.program("cp-shell").args(arguments).env("CP_BACKEND", "stub").stdin(lines).run();
        assert_eq!(ran.status, 1, "`false` is the first line that fails: {ran:?}");
    }
    let closing = place.run(&["audit"]).success().closing();
    assert!(closing["data"]["held"].as_u64().unwrap() > 30, "{closing}");
}

//! Keys, checkpoints and proofs, as a shell user meets them.

use crate::ledgers::Ledgers;
use serde_json::json;

fn line(place: &Ledgers, number: usize) -> String {
    place.work.read("l.jsonl").lines().nth(number).unwrap().to_owned() + "\n"
}

fn prove(place: &Ledgers, seq: &str) {
    let done = place.run(&["prove", seq, "-f", "l.jsonl", "--format", "raw"]).success();
    place.work.write("p", &done.stdout);
}

#[test]
fn a_key_is_made_once_and_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Ledgers::new();
    let made = place.closing(&["keygen", "K"], "", 0);
    assert_eq!(place.work.read("K.pub").trim(), made["data"]["verifier"]);
    assert!(made["data"]["verifier"].as_str().unwrap().starts_with("K+"));
    assert_eq!(std::fs::metadata(place.path("K")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(place.closing(&["keygen", "K"], "", 6)["error"]["code"], "E_CONFLICT");
    place.closing(&["keygen", "K2", "--signer", "a b"], "", 2);
}

#[test]
fn a_line_is_proved_without_the_ledger_and_an_edited_one_is_not() {
    let place = Ledgers::signed(20);
    for seq in [0, 5, 19] {
        prove(&place, &seq.to_string());
        let good = line(&place, seq);
        let told = place.lines(&["check-proof", "--trust", "K.pub", "p"], &good);
        assert_eq!(told[0]["data"]["proved"], true);
        place.closing(&["check-proof", "--trust", "K.pub", "--strict-exit", "p"], &good, 0);
        let edited = good.replace("tick", "tock").replace("open", "shut");
        let closing = place.closing(&["check-proof", "--trust", "K.pub", "p"], &edited, 1);
        let counts = |closing: &serde_json::Value| {
            ["total", "succeeded", "failed", "skipped"].map(|name| closing[name].as_u64().unwrap())
        };
        assert_eq!(
            (&closing["error"]["code"], counts(&closing["error"]["details"])),
            (&"E_INTEGRITY".into(), [1, 0, 0, 1])
        );
        // Among others it is found; alone, it is missed.
        let among = format!("{edited}{good}");
        let told = place.lines(&["check-proof", "--trust", "K.pub", "p"], &among);
        assert_eq!(counts(&told[2]["data"]), [2, 1, 0, 1]);
        assert_eq!((&told[0]["data"]["proved"], &told[1]["data"]["proved"]), (&false.into(), &true.into()));
        place.closing(&["check-proof", "--trust", "K.pub", "--strict-exit", "p"], &line(&place, 7), 1);
    }
    assert_eq!(place.closing(&["prove", "20", "-f", "l.jsonl"], "", 3)["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn a_proof_by_another_key_or_with_another_root_is_refused() {
    let place = Ledgers::signed(5);
    prove(&place, "3");
    place.lines(&["keygen", "other"], "");
    place.closing(&["check-proof", "--trust", "other.pub", "p"], &line(&place, 3), 1);
    let proof = place.work.read("p");
    place.work.write("p", proof.replace("\n5\n", "\n6\n"));
    place.closing(&["check-proof", "--trust", "K.pub", "p"], &line(&place, 3), 1);
    place.work.write("p", "nothing");
    place.closing(&["check-proof", "--trust", "K.pub", "p"], &line(&place, 3), 2);
}

#[test]
fn rolled_back_forked_and_unsigned_ledgers_are_distinguished() {
    let place = Ledgers::signed(100);
    let text = place.work.read("l.jsonl");
    let half: String = text.split_inclusive('\n').take(50).collect();
    place.work.write("l2.jsonl", &half);
    let kind = |arguments: &[&str]| {
        let closing = place.closing(&[&["verify"], arguments].concat(), "", 1);
        closing["error"]["details"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(&["--checkpoint", "l.checkpoint", "--trust", "K.pub", "l2.jsonl"]), "rollback");
    for lines in [String::new(), text.split_inclusive('\n').skip(1).collect()] {
        place.work.write("l2.jsonl", lines);
        place.closing(&["verify", "--checkpoint", "l.checkpoint", "l2.jsonl"], "", 1);
    }
    place.work.write("l2.jsonl", &half);
    place.lines(&["verify", "--trust", "K.pub", "l.jsonl"], "");
    place.lines(&["keygen", "other"], "");
    assert_eq!(kind(&["--trust", "other.pub", "l.jsonl"]), "unsigned");
    assert_eq!(kind(&["--trust", "K.pub", "l2.jsonl"]), "unsigned");
    place.ledger("l3.jsonl", 200);
    assert_eq!(kind(&["--checkpoint", "l.checkpoint", "l3.jsonl"]), "fork");
    let checkpoint = place.work.read("l.checkpoint");
    place.work.write("l.checkpoint", checkpoint.replace("\n100\n", "\n99\n"));
    assert_eq!(kind(&["--trust", "K.pub", "l.jsonl"]), "signature");
    // The same number of lines, but others from line 51 on: known by the root.
    place.work.write("l.checkpoint", &checkpoint);
    place.work.write("l2.jsonl", &half);
    place.work.write("in", "x\n".repeat(80));
    place.lines(&["append", "-f", "l2.jsonl", "--sync", "none"], &"x\n".repeat(80));
    assert_eq!(kind(&["--checkpoint", "l.checkpoint", "--trust", "K.pub", "l2.jsonl"]), "fork");
}

#[test]
fn nothing_is_signed_or_appended_after_a_rollback_until_it_is_accepted() {
    let place = Ledgers::signed(30);
    let text = place.work.read("l.jsonl");
    let half: String = text.split_inclusive('\n').take(10).collect();
    // With a torn line at its end, even.
    place.work.write("l.jsonl", half + "{\"seq\":10,");
    assert_eq!(place.closing(&["append", "-f", "l.jsonl", "m"], "", 1)["error"]["code"], "E_INTEGRITY");
    place.closing(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "", 1);
    let preview = place.closing(&["repair", "--accept-shorter", "--dry-run", "l.jsonl"], "", 0);
    let token = preview["data"]["confirm_token"].as_str().unwrap().to_owned();
    place.closing(&["repair", "--accept-shorter", "l.jsonl"], "", 5);
    place.lines(&["repair", "--accept-shorter", "--confirm", &token, "l.jsonl"], "");
    let stored = place.stored("l.jsonl");
    let events: Vec<_> = stored[10..].iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["ledger.recovered", "ledger.rollback"]);
    assert_eq!(stored[11]["data"]["lines"], 11);
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    place.lines(&["verify", "l.jsonl"], "");
}

#[test]
fn key_is_changed_by_a_checkpoint_with_both() {
    for first_line in [false, true] {
        let place = Ledgers::new();
        place.lines(&["keygen", "old"], "");
        place.lines(&["keygen", "new"], "");
        if first_line {
            place.lines(&["create", "--trust", "old.pub", "l.jsonl"], "");
        }
        place.lines(&["append", "-f", "l.jsonl", "m"], "");
        let sign = |keys: &[&str], exit: i32| {
            let options = keys.iter().flat_map(|key| ["--sign-with", key]);
            let line: Vec<_> = ["checkpoint", "-f", "l.jsonl"].into_iter().chain(options).collect();
            // Which `verify` takes like the file.
            place.work.write("answer", place.closing(&line, "", exit).to_string());
        };
        let verify = |key: &str, exit: i32| place.closing(&["verify", "--trust", key, "l.jsonl"], "", exit);
        sign(&["old"], 0);
        verify("old.pub", 0);
        verify("new.pub", 1);
        sign(&["new"], if first_line { 4 } else { 1 });
        sign(&["old", "new"], 0);
        place.lines(&["verify", "--trust", "new.pub", "--checkpoint", "answer", "l.jsonl"], "");
        verify("old.pub", 0);
        verify("new.pub", 0);
        // The key that line 0 names stays that of the ledger.
        sign(&["new"], if first_line { 4 } else { 0 });
        sign(&["old"], i32::from(!first_line));
        verify("new.pub", i32::from(first_line));
    }
}

#[test]
fn of_many_that_sign_at_once_the_one_with_most_lines_stays() {
    let place = Ledgers::signed(10);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                place.lines(&["append", "-f", "l.jsonl", "m"], "");
                place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
            });
        }
    });
    let entries = place.stored("l.jsonl");
    let sizes = entries.iter().filter(|line| line["event"] == "ledger.checkpoint").map(|line| &line["data"]["size"]);
    let most = sizes.filter_map(serde_json::Value::as_u64).max().unwrap();
    assert_eq!(place.work.read("l.checkpoint").lines().nth(1).unwrap(), most.to_string());
}

#[test]
fn check_proof_requires_the_origin_and_ignores_other_signers() {
    let place = Ledgers::signed(7);
    // The same checkpoint, signed by another key.
    let lines: String = place.work.read("l.jsonl").split_inclusive('\n').take(7).collect();
    place.work.write("copy.jsonl", lines);
    place.lines(&["keygen", "W"], "");
    place.lines(&["checkpoint", "-f", "copy.jsonl", "--sign-with", "W"], "");
    let other = place.work.read("copy.checkpoint").lines().last().unwrap().to_owned();
    place.work.write("l.checkpoint", place.work.read("l.checkpoint") + &other + "\n");
    prove(&place, "3");
    let good = line(&place, 3);
    let origin = place.stored("l.jsonl")[0]["data"]["origin"].as_str().unwrap().to_owned();
    let check = |options: &[&str], exit| {
        let arguments = [&["check-proof", "--trust", "K.pub", "--strict-exit", "p"], options].concat();
        place.feed(&arguments, &good).code(exit).records()[0]["data"].take()
    };
    assert_eq!(check(&["--ledger-name", &origin], 0)["proved"], true);
    check(&["--ledger-name", "another"], 1);
}

#[test]
fn only_the_key_that_line_0_names_signs_and_an_entry_by_another_is_a_fault() {
    let place = Ledgers::new();
    place.lines(&["keygen", "K"], "");
    place.lines(&["create", "--trust", "K.pub", "l.jsonl"], "");
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    place.lines(&["keygen", "other"], "");
    let refused = place.closing(&["checkpoint", "-f", "l.jsonl", "--sign-with", "other"], "", 4);
    assert_eq!((&refused["error"]["code"], place.path("l.checkpoint").exists()), (&json!("E_FORBIDDEN"), false));
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    let note = place.work.read("l.checkpoint");
    place.work.write("l.checkpoint", note.replace("— K ", "— L "));
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 1)["error"]["details"]["kind"], "unsigned");
    place.work.write("l.checkpoint", note);
    let signed = place.stored("l.jsonl")[2]["data"].clone();
    let good = place.work.read("l.jsonl");
    for (verifier, holds) in [(&signed["verifier"], true), (&json!("other+11111111+AA"), false)] {
        place.work.write("l.jsonl", good.split_inclusive('\n').take(2).collect::<String>());
        std::fs::remove_file(place.path("l.checkpoint")).unwrap_or_default();
        let data = json!({"size": 2, "root": signed["root"], "verifier": verifier}).to_string();
        place.lines(&["append", "-f", "l.jsonl", "--event", "ledger.checkpoint", "--data", &data], "");
        let bundle = format!("{holds}.bundle");
        place.run(&["bundle", "l.jsonl", "-o", &bundle]).success();
        let exit = i32::from(!holds);
        let verified = place.closing(&["verify", "l.jsonl"], "", exit);
        assert_eq!(verified["error"]["details"]["kind"] == "signature", !holds, "{verified}");
        place.closing(&["verify", &bundle], "", exit);
    }
}

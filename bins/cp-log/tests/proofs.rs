//! Keys, checkpoints, proofs and witnesses, as a shell user meets them.

use serde_json::json;

use crate::at::At;

fn signed(lines: usize) -> At {
    let at = At::new();
    at.ledger("l.jsonl", lines);
    at.lines(&["keygen", "K", "--name", "example.com/log"], "");
    at.lines(&["checkpoint", "-f", "l.jsonl", "--key", "K"], "");
    at
}

fn line(at: &At, number: usize) -> String {
    std::fs::read_to_string(at.path("l.jsonl")).unwrap().lines().nth(number).unwrap().to_owned() + "\n"
}

fn prove(at: &At, seq: &str) {
    let done = at.cp_log(&["prove", seq, "-f", "l.jsonl", "--format", "raw"]).assert().success();
    std::fs::write(at.path("p"), &done.get_output().stdout).unwrap();
}

#[test]
fn a_key_is_made_once_and_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let at = At::new();
    let made = at.closing(&["keygen", "K"], "", 0);
    assert_eq!(std::fs::read_to_string(at.path("K.pub")).unwrap().trim(), made["data"]["verifier"]);
    assert!(made["data"]["verifier"].as_str().unwrap().starts_with("K+"));
    assert_eq!(std::fs::metadata(at.path("K")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(at.closing(&["keygen", "K"], "", 6)["error"]["code"], "E_CONFLICT");
    at.closing(&["keygen", "K2", "--name", "a b"], "", 2);
}

#[test]
fn a_line_is_proved_without_the_ledger_and_an_edited_one_is_not() {
    let at = signed(20);
    for seq in [0, 5, 19] {
        prove(&at, &seq.to_string());
        let good = line(&at, seq);
        let told = at.lines(&["check-proof", "--key", "K.pub", "p"], &good);
        assert_eq!(told[0]["data"]["proved"], true);
        at.closing(&["check-proof", "--key", "K.pub", "--strict-exit", "p"], &good, 0);
        let told =
            at.lines(&["check-proof", "--key", "K.pub", "p"], &good.replace("tick", "tock").replace("open", "shut"));
        assert_eq!(told[0]["data"]["proved"], false);
        at.closing(&["check-proof", "--key", "K.pub", "--strict-exit", "p"], &line(&at, 7), 1);
    }
    assert_eq!(at.closing(&["prove", "20", "-f", "l.jsonl"], "", 3)["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn a_proof_by_another_key_or_with_another_root_is_refused() {
    let at = signed(5);
    prove(&at, "3");
    at.lines(&["keygen", "other"], "");
    at.closing(&["check-proof", "--key", "other.pub", "p"], &line(&at, 3), 1);
    let proof = std::fs::read_to_string(at.path("p")).unwrap();
    std::fs::write(at.path("p"), proof.replace("\n5\n", "\n6\n")).unwrap();
    at.closing(&["check-proof", "--key", "K.pub", "p"], &line(&at, 3), 1);
    std::fs::write(at.path("p"), "nothing").unwrap();
    at.closing(&["check-proof", "--key", "K.pub", "p"], &line(&at, 3), 2);
}

#[test]
fn a_rolled_back_a_forked_and_an_unsigned_ledger_are_told_apart() {
    let at = signed(100);
    let text = std::fs::read_to_string(at.path("l.jsonl")).unwrap();
    let half: String = text.split_inclusive('\n').take(50).collect();
    std::fs::write(at.path("l2.jsonl"), &half).unwrap();
    let kind = |arguments: &[&str]| {
        let closing = at.closing(&[&["verify"], arguments].concat(), "", 1);
        closing["error"]["details"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(&["--checkpoint", "l.checkpoint", "--key", "K.pub", "l2.jsonl"]), "rollback");
    at.lines(&["verify", "--key", "K.pub", "l.jsonl"], "");
    at.lines(&["keygen", "other"], "");
    assert_eq!(kind(&["--key", "other.pub", "l.jsonl"]), "unsigned");
    assert_eq!(kind(&["--key", "K.pub", "l2.jsonl"]), "unsigned");
    at.ledger("l3.jsonl", 200);
    assert_eq!(kind(&["--checkpoint", "l.checkpoint", "l3.jsonl"]), "fork");
    let checkpoint = std::fs::read_to_string(at.path("l.checkpoint")).unwrap();
    std::fs::write(at.path("l.checkpoint"), checkpoint.replace("\n100\n", "\n99\n")).unwrap();
    assert_eq!(kind(&["--key", "K.pub", "l.jsonl"]), "signature");
    // The same number of lines, but others from line 51 on: known by the root.
    std::fs::write(at.path("l.checkpoint"), &checkpoint).unwrap();
    std::fs::write(at.path("l2.jsonl"), &half).unwrap();
    std::fs::write(at.path("in"), "x\n".repeat(80)).unwrap();
    at.lines(&["append", "-f", "l2.jsonl", "--sync", "none"], &"x\n".repeat(80));
    assert_eq!(kind(&["--checkpoint", "l.checkpoint", "--key", "K.pub", "l2.jsonl"]), "fork");
}

#[test]
fn nothing_is_signed_or_appended_after_a_rollback_until_it_is_accepted() {
    let at = signed(30);
    let text = std::fs::read_to_string(at.path("l.jsonl")).unwrap();
    let half: String = text.split_inclusive('\n').take(10).collect();
    std::fs::write(at.path("l.jsonl"), half).unwrap();
    assert_eq!(at.closing(&["append", "-f", "l.jsonl", "m"], "", 1)["error"]["code"], "E_INTEGRITY");
    at.closing(&["checkpoint", "-f", "l.jsonl", "--key", "K"], "", 1);
    let preview = at.closing(&["repair", "--rollback", "--dry-run", "l.jsonl"], "", 0);
    let token = preview["data"]["confirm_token"].as_str().unwrap().to_owned();
    at.closing(&["repair", "--rollback", "l.jsonl"], "", 5);
    at.lines(&["repair", "--rollback", "--confirm", &token, "l.jsonl"], "");
    assert_eq!(at.stored("l.jsonl")[10]["event"], "ledger.rolled_back");
    at.lines(&["append", "-f", "l.jsonl", "m"], "");
    at.lines(&["verify", "l.jsonl"], "");
}

#[test]
fn a_checkpoint_goes_on_from_the_one_before_it() {
    let at = signed(10);
    at.lines(&["append", "-f", "l.jsonl", "m"], "");
    let second = at.closing(&["checkpoint", "-f", "l.jsonl", "--key", "K"], "", 0);
    assert_eq!(second["data"]["size"], 12);
    assert_eq!(at.stored("l.jsonl").last().unwrap()["event"], "ledger.checkpoint");
    at.lines(&["keygen", "other"], "");
    at.closing(&["checkpoint", "-f", "l.jsonl", "--key", "other"], "", 1);
}

#[test]
fn a_witness_signs_what_goes_on_and_nothing_else() {
    let at = signed(10);
    at.lines(&["keygen", "W", "--name", "witness.example"], "");
    let request = |old: &str| {
        let done = at
            .cp_log(&["checkpoint", "-f", "l.jsonl", "--witness-request", "--old", old, "--format", "raw"])
            .assert()
            .success();
        String::from_utf8(done.get_output().stdout.clone()).unwrap()
    };
    let witness = ["witness", "--key", "W", "--signer", "K.pub", "--state", "seen"];
    let first = at.closing(&witness, &request("0"), 0);
    std::fs::write(at.path("sig"), first["data"]["signature"].as_str().unwrap().to_owned() + "\n").unwrap();
    at.lines(&["checkpoint", "-f", "l.jsonl", "--add-signature", "sig", "--witness", "W.pub"], "");
    let note = std::fs::read_to_string(at.path("l.checkpoint")).unwrap();
    assert!(note.contains("\n— example.com/log ") && note.contains("\n— witness.example "));
    // The signer's own signature still holds, and so does a proof with both.
    at.lines(&["verify", "--key", "K.pub", "l.jsonl"], "");

    at.lines(&["append", "-f", "l.jsonl", "m"], "");
    at.lines(&["checkpoint", "-f", "l.jsonl", "--key", "K"], "");
    let conflict = at.closing(&witness, &request("0"), 6);
    assert_eq!(conflict["error"]["details"]["size"], 10);
    let forged = request("10").replacen("old 10\n", "old 10\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", 1);
    at.closing(&witness, &forged, 1);
    assert_eq!(at.closing(&witness, &request("10"), 0)["data"]["size"], json!(12));
    at.closing(&witness, "nonsense", 2);
}

#[test]
fn growth_is_proved_too() {
    let at = signed(33);
    let answer = at.closing(&["prove", "--consistency", "20", "-f", "l.jsonl"], "", 0);
    assert!(answer["data"]["proof"].as_str().unwrap().starts_with("old 20\n"));
    at.closing(&["prove", "--consistency", "99", "-f", "l.jsonl"], "", 2);
}

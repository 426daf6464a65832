//! `cp-log audit` over forged sessions of cp-shell: its conversation, its turns, their evidence and its commands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_testkit::Place;

use crate::forgeries::{Forgery, Recorded, forgeries, is_listed, listed, renumbered};

const LINES: &str = "hello there\n!echo hi\n!false\n!rm -r x\n:help\nmy password is Tr0ub4dor&33xy\nwhat is it?\n:help\n\
                     /compact\nand now?\n!echo again\n:quit\n";

/// The events whose members are forged. The entries of commands are forged in runs.
const EVENTS: [&str; 6] = ["agent_turn", "turn_evidence", "session_question", "message", "session_turn", "session_end"];

const FILES: [&str; 3] = ["session.jsonl", "ledger/exec.jsonl", "ledger/evidence.jsonl"];

/// The directory of a session that held these lines and was continued.
fn session(place: &Place, lines: &str) -> PathBuf {
    let shell = |arguments: &[&str]| {
        place.program("cp-shell").args(arguments).env("CP_BACKEND", "stub").stdin(lines).run().success()
    };
    shell(&["--interactive"]);
    shell(&["--interactive", "-c"]);
    // The last one that was continued.
    let id = place.home.read("state/shell_session");
    let found = place.program("find").arg(&place.home).args(["-name", id.trim(), "-type", "d"]).run().success();
    PathBuf::from(found.stdout.trim())
}

fn recorded() -> (Recorded, PathBuf) {
    let place = Place::of("cp-log");
    place.policy("[exec]\nallowed_commands = [\"echo\", \"false\"]\n");
    let other = session(&place, "hello there\n!echo hi\n:quit\n");
    let directory = session(&place, LINES);
    assert_ne!(other, directory);
    let ledgers = FILES.map(|file| directory.join(file));
    let subject = directory.display().to_string();
    (Recorded::of(place, subject, &ledgers), other)
}

#[test]
fn honest_session_has_no_false_claim() {
    let (recorded, other) = recorded();
    for subject in [&recorded.subject, &other.display().to_string()] {
        let ran = recorded.place.run(&["audit", subject]).success();
        let records = ran.records();
        assert_eq!(records[records.len() - 1]["data"]["broken"], 0, "{ran:?}");
        let of_claim = |claim: &str| records.iter().filter(|record| record["data"]["claim"] == claim).count();
        for claim in ["turn", "evidence", "conversation", "result_hash"] {
            assert!(of_claim(claim) > 3, "{claim}: {ran:?}");
        }
    }
    // One ledger of a session is audited without the others.
    for (path, _) in &recorded.ledgers {
        recorded.place.run(&["audit", &path.display().to_string()]).success();
    }
}

#[test]
fn removed_or_exchanged_ledger_of_session_is_found() {
    let (recorded, other) = recorded();
    for (file, (path, _)) in FILES.iter().zip(&recorded.ledgers) {
        let good = std::fs::read(path).unwrap();
        std::fs::copy(other.join(file), path).unwrap();
        assert!(recorded.is_found(), "{file} of another session");
        std::fs::remove_file(path).unwrap();
        assert!(recorded.is_found(), "{file} removed");
        std::fs::write(path, good).unwrap();
        assert!(!recorded.is_found(), "{file} restored");
    }
}

#[test]
fn removed_command_of_session_is_found() {
    let (recorded, _) = recorded();
    let lines = &recorded.ledgers[1].1;
    let intents = lines.iter().filter(|line| line.body["event"] == "exec.intent").count();
    assert!(intents > 6);
    for removed in 0..intents {
        // All lines from an intent to the next turn.
        let mut intent = None::<usize>;
        let kept = lines.iter().filter(|line| {
            match line.body["event"].as_str().unwrap() {
                "exec.intent" => intent = Some(intent.map_or(0, |intent| intent + 1)),
                "agent_turn" => return true,
                _ => {}
            }
            intent != Some(removed)
        });
        recorded.write(&renumbered(1, String::new(), String::new(), kept.cloned().collect()));
        assert!(recorded.is_found(), "command {removed}");
    }
}

#[test]
fn forgery_of_any_member_of_session_is_as_the_manual_says() {
    let (recorded, _) = recorded();
    assert!(!recorded.is_found(), "the session itself holds");
    let listed = listed();
    let is_of_session = |member: &str| EVENTS.iter().any(|event| member.starts_with(&format!("{event}.")));
    // A text of which a secret was taken out cannot be compared.
    let is_redacted = |forgery: &Forgery| {
        let line: usize = forgery.name.rsplit(' ').next().unwrap().parse().unwrap();
        let body = recorded.ledgers[forgery.ledger].1[line].body.to_string();
        body.contains("[REDACTED") || body.contains("_hmac")
    };
    let all = forgeries(&recorded).into_iter();
    let all: Vec<_> = all.filter(|forgery| is_of_session(&forgery.member) && !is_redacted(forgery)).collect();
    let step = cp_testkit::times((all.len() / 100).max(1), 1);
    let (mut shares, mut missed) = (BTreeMap::<String, (u64, u64)>::new(), Vec::new());
    for forgery in all.iter().step_by(step) {
        recorded.write(forgery);
        let is_found = recorded.is_found();
        let is_judged = !is_listed(&listed, &forgery.member);
        let share = shares.entry(forgery.member.clone()).or_default();
        *share = (share.0 + u64::from(is_found), share.1 + 1);
        if !is_found && is_judged {
            missed.push(forgery.name.clone());
        }
    }
    println!("{shares:#?}");
    let judged: u64 = shares.iter().filter(|(name, _)| !is_listed(&listed, name)).map(|(_, (_, count))| count).sum();
    println!("{} of {judged} missed: {missed:#?}", missed.len());
    assert!(judged > 50, "{judged}");
    assert!(missed.len() as u64 * 20 <= judged, "{} of {judged} missed: {missed:#?}", missed.len());
}

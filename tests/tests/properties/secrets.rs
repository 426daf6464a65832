//! Secrets in every text that a verb takes: they come back only where to keep the text is what the verb is for.

use std::collections::BTreeSet;

use cp_testkit::{is_long, is_sampled};

use super::canary;
use super::rows::{SHARED, World, verbs};

/// Where a text may be found again: in what is printed, or in files.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Where {
    Printed,
    Stored,
}

use Where::{Printed, Stored};

/// The texts that come back as they were given, because that is what the verb is for. `*` is every verb.
const KEPT: [(&str, &str, Where); 36] = [
    // The place of a file that the caller named, in the answer about it.
    ("cp-log append", "--file", Printed),
    ("cp-log create", "FILE", Printed),
    ("cp-log bundle", "--output", Printed),
    ("cp-log page", "--output", Printed),
    ("cp-log keygen", "FILE", Printed),
    ("*", "--home", Printed),
    ("cp-exec check", "--cwd", Printed),
    ("cp-llm doctor", "--backend", Printed),
    // The name of a ledger or a key, which is public. A receipt has the path of its ledger, which also names that of a
    // run.
    ("*", "--ledger", Printed),
    ("*", "--ledger", Stored),
    ("*", "--run", Printed),
    ("*", "--run", Stored),
    ("cp-log create", "--ledger-name", Printed),
    ("cp-log create", "--ledger-name", Stored),
    ("cp-log keygen", "--signer", Printed),
    ("cp-log keygen", "--signer", Stored),
    // Words of the caller's own order of things, in which own secrets are not looked for.
    ("cp-log append", "--event", Stored),
    ("cp-log tee", "--event", Stored),
    ("cp-log tee", "--agent", Stored),
    ("cp-log tee", "--role", Stored),
    // Which of a set was not found.
    ("cp-session delete", "--ids", Printed),
    // The prompt, which is the answer; the prompt that was answered, and by which model.
    ("cp-compose", "--system", Printed),
    ("cp-compose", "TEXT", Printed),
    ("cp-llm", "TEXT", Printed),
    ("cp-llm", "--model", Printed),
    ("cp-toolloop", "TEXT", Printed),
    ("cp-toolloop", "--model", Printed),
    // The grant that is to be confirmed, and the command that is judged.
    ("cp-exec allow", "VALUE", Printed),
    ("cp-exec check", "COMMAND", Printed),
    // What the message of a row hands on once it is fetched, in a file for its owner only.
    ("cp-llm batch submit", "TEXT", Stored),
    ("cp-llm batch submit", "--system", Stored),
    ("cp-llm batch submit", "--model", Stored),
    // What a run needs to go on, in a file for its owner only.
    ("cp-toolloop", "--backend", Stored),
    ("cp-toolloop", "--stub-script", Stored),
    ("cp-toolloop", "--record", Stored),
    ("cp-toolloop", "--budget-file", Stored),
];

#[test]
fn a_secret_in_any_text_is_neither_printed_nor_stored() {
    let world = World::new("022");
    let (canary, password) = (canary(), "correct-horse-battery-9");
    let both = format!("{canary}.{password}");
    let (mut seen, mut faults, mut used) = (0, Vec::new(), BTreeSet::new());
    for (at, verb) in verbs().iter().enumerate() {
        for param in verb.params().iter().filter(|param| param["type"] == "string") {
            let name = param["name"].as_str().unwrap();
            if SHARED.contains(&name) && (at + 2) % 10 != 0 {
                continue;
            }
            seen += 1;
            if !is_sampled(seen, 1, 3) {
                continue;
            }
            let line = verb.with(param, &format!("'{both}'"));
            let ran = world.script(&verb.row, &line).env("MY_PASSWORD", password).run();
            let search = format!(
                "rm -rf '{both}'* fresh* plane*; grep -rlsF -e '{canary}' -e '{password}' . \"$CP_HOME\" | while read -r f; do echo \"$f\"; rm \"$f\"; done"
            );
            let files = world.place.sh(&search).stdout;
            let printed = [&ran.stdout, &ran.stderr].map(|text| text.contains(&canary) || text.contains(password));
            for (is_found, place) in [(printed[0] || printed[1], Printed), (!files.is_empty(), Stored)] {
                let allowed = KEPT.iter().find(|(of, option, kept)| {
                    (*of == "*" || *of == verb.row.verb) && *option == name && *kept == place
                });
                match allowed {
                    Some(row) if is_found => drop(used.insert(row)),
                    None if is_found => faults.push(format!("{place:?} {line}: {} {files}{ran:?}", ran.status)),
                    _ => {}
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(used.len() > 4, "{used:?}");
    // Of the options that all verbs share only a sample is tried.
    let unused: Vec<_> = KEPT.iter().filter(|row| !used.contains(row) && !SHARED.contains(&row.1)).collect();
    assert!(!is_long() || unused.is_empty(), "these do not come back: {unused:?}");
}

//! Damage of one line of a ledger: every verb that reads it names the line, or fails.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use serde_json::Value;

use crate::ledgers::Ledgers;

const LINES: usize = 6;

/// The verbs, and the arguments after the ledger.
const VERBS: [(&[&str], &[&str]); 6] = [
    (&["query"], &[]),
    (&["query", "--reverse"], &[]),
    (&["stats"], &[]),
    (&["follow"], &["--last", "9", "--limit", "5"]),
    (&["verify"], &[]),
    (&["audit"], &[]),
];

/// A change of a line that is not the line that was written.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Changed,
    Cut,
    Blank,
    NotUtf8,
}

impl Damage {
    fn apply(self, line: &[u8], place: usize) -> Vec<u8> {
        let place = place % line.len();
        let mut damaged = line.to_vec();
        match self {
            Self::Changed => damaged[place] = if line[place] == b'7' { b'8' } else { b'7' },
            Self::Cut => damaged.truncate(place),
            Self::Blank => damaged.clear(),
            Self::NotUtf8 => damaged[place] = 0xff,
        }
        damaged
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_of_any_line_is_reported_by_every_verb(places in prop::collection::vec(any::<usize>(), LINES * 4)) {
        let place = Ledgers::new();
        place.ledger("good.jsonl", LINES);
        let good = place.work.bytes("good.jsonl");
        let lines: Vec<&[u8]> = good.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let kinds = [Damage::Changed, Damage::Cut, Damage::Blank, Damage::NotUtf8];
        let cases = (0..LINES).flat_map(|at| kinds.map(|kind| (at, kind))).zip(places);
        for ((at, kind), offset) in cases {
            let mut damaged: Vec<Vec<u8>> = lines.iter().map(|line| line.to_vec()).collect();
            damaged[at] = kind.apply(lines[at], offset);
            place.work.write("l.jsonl", [damaged.join(&b'\n'), b"\n".to_vec()].concat());
            for (verb, options) in VERBS {
                let outcome = place.run(&[verb, &["l.jsonl"], options].concat());
                let fault = format!("{verb:?} {kind:?} at {offset} of line {}: {outcome:?}", at + 1);
                prop_assert!(outcome.status != 0, "{}", fault);
                let records = cp_testkit::records_of(outcome.stdout.as_bytes());
                let closing = &records[records.len() - 1];
                let is_plain = closing["ok"] == true && closing["data"]["failed"] == 0;
                prop_assert!(!is_plain, "{}", fault);
                let counts_lines = !verb.contains(&"--reverse") && verb != ["follow"];
                let place = if counts_lines { format!("line {}", at + 1) } else { "byte ".to_owned() };
                prop_assert!(outcome.stdout.contains(&place) && outcome.stdout.contains("l.jsonl"), "{}", fault);
            }
        }
        // Positive control: the ledger that was written.
        for (verb, options) in VERBS {
            prop_assert_eq!(place.run(&[verb, &["good.jsonl"], options].concat()).status, 0, "{:?}", verb);
        }
    }
}

#[test]
fn intact_lines_of_damaged_ledger_are_read() {
    let place = Ledgers::with(LINES);
    place.replace("l.jsonl", "line 2", "line 9");
    for verb in ["stats", "query"] {
        let ran = place.run(&[verb, "l.jsonl"]).code(1);
        let records = ran.records();
        let failed = records.iter().find(|record| record["ok"] == false).unwrap();
        assert_eq!(
            (&failed["error"]["code"], &failed["error"]["details"]["file"]),
            (&"E_INTEGRITY".into(), &"l.jsonl".into())
        );
        let stats = records.iter().filter_map(|record| record["data"]["entries"].as_u64()).max();
        assert_eq!(stats.unwrap_or(ran.of("entry").len() as u64), 5, "{ran:?}");
        assert_eq!(ran.closing()["error"]["code"], "E_PARTIAL");
    }
}

#[test]
fn what_cannot_be_read_is_a_failed_item_and_hides_nothing() {
    let place = Ledgers::new();
    for directory in ["d", "d/closed", "d/listed"] {
        std::fs::create_dir(place.path(directory)).unwrap();
    }
    let denied = [("d/closed", 0o000), ("d/denied.jsonl", 0o000), ("d/listed", 0o444)];
    for name in ["d/good.jsonl", "d/denied.jsonl", "d/closed/l.jsonl", "d/listed/l.jsonl"] {
        place.ledger(name, LINES);
    }
    let allow = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    // Root without its capabilities has the rights that the modes give.
    let is_root = rustix::process::geteuid().is_root();
    let run = |words: &[&str]| {
        let program = place.subject().args(words);
        let limited = ["--bounding-set=-all", "--inh-caps=-all"];
        if is_root { program.under("setpriv", limited).run() } else { program.run() }
    };
    assert_eq!(run(&["stats", "d"]).success().closing()["data"]["files"], 4, "the control");
    for (name, mode) in denied {
        allow(name, mode);
    }
    for verb in ["query", "stats", "verify"] {
        let ran = run(&[verb, "d"]).code(if verb == "verify" { 4 } else { 1 });
        let records = ran.records();
        let failed: Vec<_> = records.iter().filter(|one| one["type"] == "error").map(|one| &one["error"]).collect();
        let files: Vec<_> = failed.iter().map(|error| error["details"]["file"].as_str().unwrap()).collect();
        assert!(files.len() == 3 && denied.iter().zip(&files).all(|((of, _), file)| file.starts_with(of)), "{ran:?}");
        assert!(failed.iter().all(|error| error["code"] == "E_FORBIDDEN"), "{ran:?}");
        let good = records.iter().find(|one| one["type"] == "item" || one["type"] == "entry").unwrap();
        let lines = [&good["data"]["lines"], &good["data"]["entries"]].into_iter().find_map(Value::as_u64);
        assert_eq!(lines.unwrap_or(ran.of("entry").len() as u64), LINES as u64, "{ran:?}");
    }
    for verb in ["audit", "bundle"] {
        assert_eq!(run(&[verb, "d"]).code(4).closing()["error"]["code"], "E_FORBIDDEN");
    }
    for (name, _) in denied {
        allow(name, 0o700);
    }
}

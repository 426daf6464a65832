//! `cp-log tee`, as a shell user meets it.

use crate::ledgers::Ledgers;

const MESSAGE: &str = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"role":"user","content":"hi"}}"#;
const SUMMARY: &str =
    r#"{"ok":true,"schema_version":"1.0","type":"summary","data":{"total":1},"meta":{"duration_ms":1}}"#;
const FAILURE: &str = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_NOT_FOUND","message":"gone","details":{},"retryable":false}}"#;

#[test]
fn every_byte_passes_and_is_recorded() {
    let closing = FAILURE.replace(r#""retryable":false}}"#, r#""retryable":false},"meta":{"duration_ms":1}}"#);
    for (input, exit, recorded) in [
        (format!("{MESSAGE}\n{FAILURE}\n{SUMMARY}\n"), 0, &[("message", "hi"), ("error", "gone")][..]),
        (closing + "\n", 3, &[("error", "gone")]),
        ("a\nb\n".to_owned(), 0, &[("log", "a"), ("log", "b")]),
    ] {
        let place = Ledgers::new();
        assert_eq!(place.feed(&["tee", "l.jsonl"], input.clone()).code(exit).stdout, input);
        let stored = place.stored("l.jsonl");
        let text = |line: &serde_json::Value, name: &str| line[name].as_str().map(str::to_owned);
        let found =
            stored[1..].iter().map(|line| (text(line, "event"), text(line, "content").or(text(line, "message"))));
        let expected = recorded.iter().map(|(event, said)| (Some((*event).to_owned()), Some((*said).to_owned())));
        assert!(found.eq(expected), "{stored:?}");
    }
}

#[test]
fn tee_passes_any_bytes_and_records_each_line_of_a_text() {
    // Pieces in which lines, blanks, line ends, marks and bytes that are not text alternate.
    let pieces: [&[u8]; 9] = [b"a", b"\n", b"\r\n", b" ", b"\t", b"\xEF\xBB\xBF", b"\xFF", b"b\0c", b"\r"];
    let mut state = 1_u64;
    let mut any = |count: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pieces[usize::try_from(state >> 33).unwrap() % pieces.len()]
        };
        (0..count).flat_map(|_| next().to_vec()).collect()
    };
    let samples = [b"a\n\nb\n\n\nc\n".to_vec(), b"\n\n".to_vec(), b" ".to_vec(), b"\xEF\xBB\xBFa".to_vec()];
    let generated = (1..40).chain([200_000]).map(&mut any).collect::<Vec<_>>();
    for input in samples.into_iter().chain(generated) {
        let place = Ledgers::new();
        place.work.write("in", &input);
        place.sh("cp-log tee l.jsonl < in > out").success();
        let lines = input.split_inclusive(|byte| *byte == b'\n').count();
        let shown = String::from_utf8_lossy(&input[..input.len().min(99)]);
        assert!(place.work.bytes("out") == input, "{shown:?}");
        assert_eq!(place.stored("l.jsonl").len(), lines + 1, "{shown:?}");
    }
}

#[test]
fn the_ledger_is_kept_when_the_reader_has_gone() {
    let place = Ledgers::new();
    let input = (0..5000).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    place.work.write("in", &input);
    place.sh("cp-log tee l.jsonl < in | head -1 > out").success();
    assert_eq!(place.work.read("out"), "line 0\n");
    assert_eq!(place.stored("l.jsonl").len(), 5001);
}

#[test]
fn a_line_is_recorded_before_it_is_seen() {
    let place = Ledgers::new();
    let mut tee = place.subject().args(["tee", "l.jsonl"]).start();
    for turn in 1..=3 {
        let line = format!("line {turn}");
        tee.write(format!("{line}\n"));
        assert_eq!(tee.line(), line);
        assert_eq!(place.stored("l.jsonl").last().unwrap()["message"], line);
    }
    tee.finish().success();
}

#[test]
fn tee_records_no_blank_line_among_records_and_ends_as_its_closing_line_says() {
    let place = Ledgers::new();
    let closing = FAILURE.replace(r#""retryable":false}}"#, r#""retryable":false},"meta":{"duration_ms":1}}"#);
    let input = format!("{MESSAGE}\r\n \n\n{closing}\n\n");
    assert_eq!(place.feed(&["tee", "l.jsonl"], &input).code(3).stdout, input);
    assert_eq!(place.stored("l.jsonl").len(), 3);
    // The failure is a line of its own, also after a line without its end.
    let ran = place.feed(&["tee", "l.jsonl", "--closed"], MESSAGE).code(1);
    assert_eq!(ran.stdout.lines().next(), Some(MESSAGE), "{ran:?}");
    assert_eq!(ran.error()["details"]["passed"], 1, "{ran:?}");
}

#[test]
fn tee_passes_no_line_that_a_full_disk_refused() {
    let place = Ledgers::new();
    place.work.write("in", "a line of some length\n".repeat(5000));
    // Room for a part of them: what is over a limit of the file's size is as on a disk that is full.
    let done = place.sh("(ulimit -f 2048; cp-log tee l.jsonl --event said < in > out); echo $?");
    assert_eq!(done.stdout, "1\n", "{done:?}");
    let out = place.work.read("out");
    let (closing, lines): (Vec<&str>, Vec<&str>) = out.lines().partition(|line| line.starts_with('{'));
    let closing: serde_json::Value = serde_json::from_str(closing[0]).unwrap();
    assert_eq!(closing["error"]["code"], "E_IO");
    assert_eq!(closing["error"]["details"]["passed"], lines.len());
    let said: Vec<_> = place.stored("l.jsonl").into_iter().filter(|line| line["event"] == "said").collect();
    let said: Vec<&str> = said.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert!(!lines.is_empty() && lines.len() < 5000, "{}", lines.len());
    assert!(lines == said, "{} passed, {} recorded", lines.len(), said.len());
    place.lines(&["verify", "--complete", "l.jsonl"], "");
}

//! Tests of the lines on standard output and of the exit status.

use super::*;
use crate::wire::Reply;
use crate::wire::Result;
use crate::wire::record::Kind;
use crate::wire::record::Record;

#[derive(Serialize)]
struct Word {
    word: &'static str,
}

impl Reply for Word {
    fn text(&self) -> String {
        self.word.to_owned()
    }
}

fn output() -> Output {
    Output::new("cp-test", Format::Json, true, Instant::now())
}

fn closed(mut out: Output, result: Result<()>) -> (Vec<String>, u8) {
    let status = out.close(result);
    let text = String::from_utf8(out.buffer).unwrap();
    let lines = text
        .lines()
        .map(|l| l.split(",\"meta\":").next().unwrap().to_owned() + if l.contains("meta") { " META" } else { "" });
    (lines.collect(), status)
}

#[test]
fn single_record_is_closed_and_two_end_with_summary_that_has_meta() {
    let mut out = output();
    out.record(Kind::Item, &Word { word: "a" }).unwrap();
    let only = r#"{"ok":true,"schema_version":"1.0","type":"item","data":{"word":"a"} META"#;
    assert_eq!(closed(out, Ok(())), (vec![only.to_owned()], 0));
    let mut out = output();
    for word in ["a", "b"] {
        out.record(Kind::Item, &Word { word }).unwrap();
    }
    let (lines, _) = closed(out, Ok(()));
    assert_eq!(lines.len(), 3);
    assert_eq!(lines.iter().filter(|l| l.ends_with("META")).count(), 1);
    assert!(lines[2].contains("summary") && lines[2].ends_with("META"));
}

#[test]
fn stream_with_all_items_failed_exits_with_first_code() {
    let mut out = output();
    out.streaming().unwrap();
    out.item_failed(Error::not_found("no a")).unwrap();
    out.item_failed(Error::validation("bad b")).unwrap();
    let (lines, status) = closed(out, Ok(()));
    assert!(lines[2].contains(r#""type":"summary","error":{"code":"E_NOT_FOUND""#), "{}", lines[2]);
    assert!(lines[2].contains(r#""total":2,"succeeded":0,"failed":2"#));
    assert_eq!(status, 3);
}

#[test]
fn every_failure_is_a_record_and_few_are_reported() {
    let mut out = output();
    out.streaming().unwrap();
    for _ in 0..FAILURES_SHOWN + 3 {
        out.item_failed(Error::not_found("no a")).unwrap();
    }
    assert_eq!(closed(out, Ok(())).0.len(), 9);
}

#[test]
fn stream_with_some_items_failed_fails_unless_the_caller_tolerates_it() {
    for (succeeded, failed, tolerant) in
        (0..3).flat_map(|ok| (0..3).flat_map(move |bad| [false, true].map(|tolerant| (ok, bad, tolerant))))
    {
        let mut out = output();
        out.tolerates_failures = tolerant;
        out.streaming().unwrap();
        (0..succeeded).for_each(|_| out.item_succeeded());
        (0..failed).for_each(|_| out.item_failed(Error::not_found("no a")).unwrap());
        let (lines, status) = closed(out, Ok(()));
        let expected = match (failed, succeeded) {
            (0, _) => (0, "data"),
            _ if tolerant => (0, "data"),
            (_, 0) => (3, "E_NOT_FOUND"),
            _ => (1, "E_PARTIAL"),
        };
        assert_eq!(status, expected.0, "{succeeded} {failed} {tolerant}");
        assert!(lines.last().unwrap().contains(expected.1), "{lines:?}");
    }
}

#[test]
fn single_upstream_failure_passes_and_sets_exit() {
    let failure = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_NOT_FOUND","message":"no","details":{},"retryable":false}"#;
    let mut out = output();
    out.filtering();
    out.pass_failure(&Record::parse(format!("{failure},\"meta\":{{}}}}").as_bytes()).unwrap()).unwrap();
    assert_eq!(closed(out, Ok(())), (vec![format!("{failure} META")], 3));
}

#[test]
fn text_escapes_controls_and_raw_keeps_bytes() {
    for (format, expected) in [(Format::Text, "a^[[2J\n"), (Format::Raw, "a\x1b[2J\n")] {
        let mut out = Output::new("cp-test", format, true, Instant::now());
        out.record(Kind::Item, &Word { word: "a\x1b[2J" }).unwrap();
        out.piece("a\x1b[2J\n").unwrap();
        assert_eq!(String::from_utf8(out.buffer).unwrap(), expected.repeat(2));
    }
}

#[test]
fn index_is_added_to_data() {
    let mut out = output();
    out.streaming().unwrap();
    out.place = Place { index: Some(4), line: Some(5) };
    out.record(Kind::Item, &Word { word: "a" }).unwrap();
    let (lines, _) = closed(out, Ok(()));
    assert!(lines[0].contains(r#"{"word":"a","index":4}"#));
}

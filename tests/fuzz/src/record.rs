//! Any line as a record: read or refused, and what is passed on is a record again.
#![no_main]

use cp_common::wire::record::Record;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    if line.contains(&b'\n') {
        return;
    }
    let _ = Record::looks_like_one(line);
    if let Ok(record) = Record::parse(line) {
        let opened = record.opened();
        let opened = Record::parse(&opened).expect("an opened record is a record");
        assert!(!opened.closed);
        assert_eq!(opened.ok, record.ok);
    }
});

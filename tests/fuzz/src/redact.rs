//! Any text with its secrets taken out: still a text of JSON, and nothing left to take out.
#![no_main]

use cp_common::json;
use cp_redact::Redactor;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let redactor = Redactor::knowing([]);
    let mut quoted = Vec::new();
    json::string(text, &mut quoted);
    redactor.redact(&mut quoted, 0);
    assert!(json::is_normal(&quoted));
    let once = quoted.clone();
    redactor.redact(&mut quoted, 0);
    assert_eq!(quoted, once);
});

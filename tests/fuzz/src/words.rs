//! Any text as a command string: words, or a refusal that names a byte of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(refusal) = cp_common::words::split(text) {
        assert!(refusal.offset <= text.len());
        assert!(!refusal.reason.is_empty());
    }
});

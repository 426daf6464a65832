//! Any text as a command line: steps, twice the same, or a refusal that names a byte of it.
#![no_main]
#![allow(dead_code, unused_imports)]

use std::collections::BTreeMap;

// A program's own part, which no library has.
#[path = "../../../bins/cp-exec/src/lowering/mod.rs"]
mod lowering;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let variables = BTreeMap::new();
    let environment = lowering::Environment { home: "/home/ann", directory: "/work", variables: &variables };
    let lowered = lowering::lower(text, &environment);
    assert_eq!(lowered, lowering::lower(text, &environment));
    match lowered {
        Ok(lowered) => assert_eq!(lowering::check(&lowered.steps), Ok(())),
        Err(refusal) => assert!(text.is_char_boundary(refusal.offset) && !refusal.reason.is_empty()),
    }
});

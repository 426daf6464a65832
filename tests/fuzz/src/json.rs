//! Any bytes as JSON: text that is accepted has one spelling, and the value that serde_json parses.
#![no_main]

use cp_common::json;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut normal = Vec::new();
    let replaced = json::normalize(input, &mut normal);
    assert_eq!(replaced.is_ok(), json::check(input).is_ok());
    let Ok(replaced) = replaced else {
        assert!(normal.is_empty());
        return;
    };
    assert!(json::is_normal(&normal));
    let mut again = Vec::new();
    assert!(json::normalize(&normal, &mut again).is_ok());
    assert_eq!(normal, again);
    // A lone surrogate is the one thing that is replaced, and the one that serde_json refuses.
    if replaced == 0
        && let Ok(theirs) = serde_json::from_slice::<serde_json::Value>(input)
    {
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&normal).ok(), Some(theirs));
    }
});

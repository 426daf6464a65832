//! Strict JSON in one pass: check it, or write it in the one spelling that is hashed and searched. Also the tokenizer
//! of command strings ([`words`]): the two strict readers that everything else relies on.
//!
//! The normal form is compact, has one spelling for every string, keeps the text of numbers and the order of members,
//! and never holds the same member name twice in one object. It builds no tree: bytes in, bytes out.

mod scan;
mod spelling;
pub mod words;

pub use self::scan::{Fault, normalize};
pub use self::spelling::{string, unquote};

/// How deep objects and arrays may nest.
pub const MAX_DEPTH: usize = 64;

/// True if `input` is one strict JSON value, in any spelling.
pub fn check(input: &[u8]) -> Result<(), Fault> {
    normalize(input, &mut Vec::with_capacity(input.len())).map(|_| ())
}

/// True if `input` is one strict JSON value in normal form.
pub fn is_normal(input: &[u8]) -> bool {
    let mut normal = Vec::with_capacity(input.len());
    normalize(input, &mut normal).is_ok() && normal == input
}

#[cfg(test)]
mod tests {
    use super::spelling::plain_run;
    use super::*;
    use crate::scan::{END, FOLLOW};
    use proptest::prelude::*;

    fn normal(input: &str) -> String {
        let mut out = Vec::new();
        normalize(input.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn fault(input: &[u8]) -> (usize, &'static str) {
        let mut out = b"kept".to_vec();
        let fault = normalize(input, &mut out).unwrap_err();
        assert_eq!(out, b"kept", "a fault leaves the output alone");
        assert_eq!(check(input), Err(fault));
        (fault.offset, fault.reason)
    }

    #[test]
    fn space_goes_and_order_and_numbers_stay() {
        assert_eq!(normal(" { \"b\" : [ 1 , 1e2,1.50 ,-0 ] ,\t\"a\":null}\r\n"), r#"{"b":[1,1e2,1.50,-0],"a":null}"#);
        let long = "123456789012345678901234567890";
        assert_eq!(normal(long), long);
        assert_eq!(normal("[]"), "[]");
        assert_eq!(normal("{ }"), "{}");
    }

    #[test]
    fn every_spelling_of_a_string_becomes_one() {
        assert_eq!(normal(r#""\u00e9\/\u0041\u0022\u005c\u000a\u001F""#), "\"é/A\\\"\\\\\\n\\u001f\"");
        assert_eq!(normal(r#""\ud83d\ude00""#), "\"😀\"");
        assert_eq!(normal(r#""\b\f\n\r\t\"\\""#), r#""\b\f\n\r\t\"\\""#);
        assert_eq!(normal("\"\x7f\""), "\"\x7f\"");
    }

    #[test]
    fn lone_surrogates_are_replaced_and_counted() {
        let mut out = Vec::new();
        let done = normalize(br#"["\ud800","\udc00x","\ud800\u0041","\ud83d\ude00"]"#, &mut out).unwrap();
        assert_eq!(done, 3);
        assert_eq!(out, "[\"\u{fffd}\",\"\u{fffd}x\",\"\u{fffd}A\",\"😀\"]".as_bytes());
    }

    #[test]
    fn faults_name_the_place_and_the_reason() {
        for (input, offset, reason) in [
            ("", 0, END),
            ("  ", 2, END),
            ("{\"a\":1", 6, END),
            ("[1 2]", 3, FOLLOW),
            ("1 1", 2, FOLLOW),
            ("{a:1}", 1, "expected a member name in quotes"),
            ("{\"a\" 1}", 5, "expected a colon after the member name"),
            ("[1,]", 3, "expected a value"),
            ("{\"a\":1,}", 7, "expected a member name in quotes"),
            ("01", 2, "not a JSON number"),
            ("-x", 1, "not a JSON number"),
            ("1.x", 2, "not a JSON number"),
            ("\"a\nb\"", 2, "control character in a string"),
            ("\"ab", 0, END),
            (r#""\x""#, 1, "unknown escape"),
            (r#""\u12g4""#, 1, "unknown escape"),
            ("tru", 0, "expected a value"),
            ("\u{feff}1", 0, "expected a value"),
            ("{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", 18, "duplicate member name"),
            (r#"{"a":1,"\u0061":2}"#, 7, "duplicate member name"),
        ] {
            assert_eq!(fault(input.as_bytes()), (offset, reason), "{input}");
        }
        assert_eq!(fault(b"[\"a\xff\"]"), (3, "not UTF-8"));
    }

    #[test]
    fn depth_has_a_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(normal(&nested(64)), nested(64));
        assert_eq!(fault(nested(65).as_bytes()), (64, "nested too deep"));
    }

    #[test]
    fn big_objects_find_their_duplicates_too() {
        let members = |names: &[usize]| {
            let members: Vec<_> = names.iter().map(|name| format!("\"name{name}\":{name}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let names: Vec<_> = (0..1000).collect();
        assert_eq!(normal(&members(&names)), members(&names));
        for again in [0, 23, 24, 25, 999] {
            let mut names = names.clone();
            names.push(again);
            assert_eq!(fault(members(&names).as_bytes()).1, "duplicate member name", "{again}");
        }
        // Names of a closed object do not count for its siblings.
        assert_eq!(normal(r#"[{"a":1},{"a":{"a":1}}]"#), r#"[{"a":1},{"a":{"a":1}}]"#);
    }

    #[test]
    fn only_the_normal_form_is_normal() {
        for good in ["{}", r#"{"a":[1,true,"x\n\u0001é"],"b":null}"#, "1e5", "\"\x7f\""] {
            assert!(is_normal(good.as_bytes()), "{good}");
        }
        for bad in
            [" 1", "1\n", r#""\/""#, r#""\u0041""#, r#""\u000a""#, r#""\u001F""#, r#"{"a": 1}"#, r#""\ud83d\ude00""#]
        {
            assert!(!is_normal(bad.as_bytes()), "{bad}");
            assert_eq!(check(bad.as_bytes()), Ok(()), "{bad}");
        }
    }

    #[test]
    fn stops_are_found_at_every_place_of_a_run() {
        for length in 0..150 {
            for stop in [b'"', b'\\', 0x1f, 0x00] {
                let mut bytes = vec![b'x'; length];
                bytes.push(stop);
                bytes.extend_from_slice(&[b' ', 0x80, 0xff, b'!', b'#', b'[', b']']);
                assert_eq!(plain_run(&bytes), length);
            }
            assert_eq!(plain_run(&vec![0xa2; length]), length);
        }
    }

    /// Any JSON value, as `serde_json` builds it.
    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".{0,80}".prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::btree_map(".{0,12}", inner, 0..40)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_value_is_kept_whatever_the_spelling(value in values()) {
            for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                let once = normal(&text);
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&once).unwrap(), &value);
                prop_assert!(is_normal(once.as_bytes()));
                prop_assert_eq!(normal(&once), once);
            }
        }

        #[test]
        fn accepted_json_is_that_of_other_parsers(text in r#"[\[\]{}":,\\ua01e.\- \n"]{0,24}"#) {
            let mut out = Vec::new();
            if normalize(text.as_bytes(), &mut out).is_ok() {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok(), "{}", text);
                prop_assert!(is_normal(&out));
            }
            prop_assert_eq!(is_normal(text.as_bytes()), out == text.as_bytes() && !out.is_empty());
        }

        #[test]
        fn normalize_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = normalize(&bytes, &mut Vec::new());
            let _ = check(&bytes);
        }

        #[test]
        fn a_quoted_string_reads_back(text in any::<String>()) {
            let mut out = Vec::new();
            string(&text, &mut out);
            prop_assert!(is_normal(&out));
            prop_assert_eq!(unquote(&out), Some(text));
        }
    }
}

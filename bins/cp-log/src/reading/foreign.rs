//! Lines of JSON of other programs. Each is read as the entry that it would become:
//! the members that entries have, in their order, and all others as data.

use cp_common::{Error, Result, clock, json};
use cp_ledger::format::line::{TS_LEN, decimal, inside, is_time, member, members};

/// The members between `ts` and `data` that an entry can have.
const MEMBERS: [&str; 8] = ["event", "agent", "session", "run", "turn", "role", "content", "message"];
/// The members in which other programs write the time.
const TIMES: [&str; 3] = ["ts", "timestamp", "time"];

/// Writes the entry that a line of JSON is; `seq` is its place in the file.
pub(crate) fn entry_of(line: &[u8], seq: u64, out: &mut Vec<u8>) -> Result<()> {
    let mut text = Vec::with_capacity(line.len());
    json::normalize(line, &mut text)
        .map_err(|fault| Error::validation(format!("not valid JSON: {fault}")).with("offset", fault.offset))?;
    let object = inside(&text).ok_or_else(|| Error::validation("not a JSON object"))?;
    let member = |name: &str| member(object, name);
    out.clear();
    out.extend_from_slice(b"{\"seq\":");
    decimal(seq, out);
    let time = TIMES.iter().find_map(|name| {
        let text = json::unquote(member(name)?)?;
        clock::instant_of(&text).map(|time| (*name, time))
    });
    if let Some((_, time)) = &time {
        put("ts", b"", out);
        json::string(time, out);
    }
    let mut taken: Vec<&str> = time.iter().map(|(name, _)| *name).filter(|name| *name == "ts").collect();
    for name in MEMBERS {
        if let Some(value) = member(name).filter(|value| fits(name, value)) {
            put(name, value, out);
            taken.push(name);
        }
    }
    let own = member("data").and_then(inside).unwrap_or_default();
    taken.extend(member("data").and_then(inside).map(|_| "data"));
    let is_rest = |name: &[u8]| {
        !taken.iter().any(|taken| taken.as_bytes() == name) && !members(own).any(|(known, _)| known == name)
    };
    let mut data = own.to_vec();
    for (name, value) in members(object).filter(|(name, _)| is_rest(name)) {
        if !data.is_empty() {
            data.push(b',');
        }
        data.push(b'"');
        data.extend_from_slice(name);
        data.extend_from_slice(b"\":");
        data.extend_from_slice(value);
    }
    if !data.is_empty() {
        put("data", b"{", out);
        out.extend_from_slice(&data);
        out.push(b'}');
    }
    out.push(b'}');
    Ok(())
}

fn put(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

/// True if a value is of the kind that an entry has there.
fn fits(name: &str, value: &[u8]) -> bool {
    match name {
        "turn" => value.iter().all(u8::is_ascii_digit),
        "content" => true,
        "message" => value.starts_with(b"\"") || value.starts_with(b"{"),
        _ => value.starts_with(b"\""),
    }
}

/// The time of an entry that [`entry_of`] wrote; empty if its line has none.
pub(crate) fn time_of(entry: &[u8]) -> &str {
    let time = inside(entry).and_then(|object| member(object, "ts"));
    let text = time.and_then(|value| value.get(1..=TS_LEN)).filter(|text| is_time(text));
    text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> String {
        let mut out = Vec::new();
        entry_of(line.as_bytes(), 7, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn foreign_line_becomes_an_entry() {
        assert_eq!(
            entry(r#"{"ts": "2026-11-21T03:00:00Z", "agent": "a", "event": "e", "message": "m"}"#),
            r#"{"seq":7,"ts":"2026-11-21T03:00:00.000000Z","event":"e","agent":"a","message":"m"}"#
        );
        assert_eq!(
            entry(r#"{"seq":1e400,"time":"2026-11-21T03:00:00+01:00","event":3,"data":{"a":1,"x":2},"x":9,"b":[]}"#),
            r#"{"seq":7,"ts":"2026-11-21T02:00:00.000000Z","data":{"a":1,"x":2,"seq":1e400,"time":"2026-11-21T03:00:00+01:00","event":3,"b":[]}}"#
        );
        assert_eq!(entry(r#"{"ts":"noon","data":1}"#), r#"{"seq":7,"data":{"ts":"noon","data":1}}"#);
        assert_eq!(entry("{}"), r#"{"seq":7}"#);
        assert_eq!(time_of(entry(r#"{"ts":"2026-11-21T03:00:00Z"}"#).as_bytes()), "2026-11-21T03:00:00.000000Z");
        assert_eq!(time_of(entry("{}").as_bytes()), "");
    }

    #[test]
    fn entry_of_refuses_non_objects() {
        for line in ["", "[1]", "word", r#"{"a":1,"a":2}"#] {
            assert!(entry_of(line.as_bytes(), 0, &mut Vec::new()).is_err(), "{line}");
        }
    }
}

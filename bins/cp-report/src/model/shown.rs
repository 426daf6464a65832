//! A line as it is shown.

use std::borrow::Cow;

use serde::Serialize;

use super::content::{Part, ROWS, Row, parts_of};
use super::entry::{Entry, Json};

/// A line as it is shown.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// The event.
    pub(crate) event: String,
    /// The group that it is filtered by.
    pub(crate) group: &'static str,
    /// The event, in a few words.
    pub(crate) title: String,
    /// `refused`, `failed`, or nothing.
    pub(crate) tone: &'static str,
    /// Facts beside the title.
    pub(crate) facts: Vec<Fact>,
    /// Values below the title, in order.
    pub(crate) parts: Vec<Part>,
}

/// A name and its value.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fact {
    /// The name.
    pub(crate) name: String,
    /// The value, with its unit.
    pub(crate) value: String,
    /// The id of the line that it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<String>,
}

/// How a line is shown.
pub(crate) fn shown(entry: &Entry<'_>) -> Shown {
    let row = ROWS.iter().find(|row| row.event == entry.event).unwrap_or(&ROWS[0]);
    let tone = match (entry.is_refused(), entry.is_failed()) {
        (true, _) => "refused",
        (false, true) => "failed",
        (false, false) => "",
    };
    let event = entry.event.clone().into_owned();
    Shown {
        event,
        group: row.group,
        title: title(row, entry),
        tone,
        facts: facts(row.facts, entry),
        parts: parts(row, entry),
    }
}

fn title(row: &Row, entry: &Entry<'_>) -> String {
    let Some((before, rest)) = row.title.split_once('{') else { return row.title.to_owned() };
    let mut text = before.to_owned();
    for piece in rest.split('{') {
        let (name, after) = piece.split_once('}').unwrap_or((piece, ""));
        let own = match name {
            "event" => Some(entry.event.clone()),
            "role" => entry.role.clone(),
            "agent" => entry.agent.clone(),
            "turn" => entry.turn.map(|turn| Cow::Owned(turn.to_string())),
            // Counted from 1, as refusals and people do.
            "part" => entry.get(name).and_then(Json::whole).map(|part| Cow::Owned(part.saturating_add(1).to_string())),
            _ => entry.get(name).map(|value| Cow::Owned(value.pretty())),
        };
        text.push_str(&own.unwrap_or_default());
        text.push_str(after);
    }
    text.trim_end_matches([' ', ':']).to_owned()
}

fn facts(paths: &str, entry: &Entry<'_>) -> Vec<Fact> {
    let value = |path: &str| Some(Fact { name: name_of(path), value: with_unit(path, entry.get(path)?), line: None });
    paths.split_whitespace().filter_map(value).collect()
}

/// The last name of a path in words.
fn name_of(path: &str) -> String {
    let last = path.rsplit('.').next().unwrap_or(path);
    let name = last.trim_end_matches("_ms").trim_end_matches("_usd").replace('_', " ");
    match path.split_once('.') {
        Some(("stdout" | "stderr", _)) => path.split('.').next().unwrap_or(path).to_owned(),
        _ => name,
    }
}

/// A value as people read it.
fn with_unit(path: &str, value: Json<'_>) -> String {
    match value.number() {
        Some(number) if path.ends_with("_ms") => duration(number),
        Some(number) if path.ends_with("deadline") => duration(number * 1000.0),
        Some(number) if path.ends_with("usd") => money(number),
        Some(number) if path.ends_with("bytes") => format!("{number} bytes"),
        _ => value.pretty(),
    }
}

/// Milliseconds in the unit that fits.
pub(crate) fn duration(milliseconds: f64) -> String {
    match milliseconds / 1000.0 {
        seconds if seconds < 1.0 => format!("{milliseconds:.0} ms"),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// US dollars.
pub(crate) fn money(usd: f64) -> String {
    if usd < 1.0 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

fn parts(row: &Row, entry: &Entry<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (path, form) in row.parts {
        let value = match *path {
            "content" => entry.content,
            "message" => entry.message,
            "data" => Some(entry.data).filter(|data| !data.is("{}")),
            path => entry.get(path.trim_start_matches("data.")),
        };
        if let Some(value) = value {
            let label = name_of(path);
            let is_said = *path == "content" || *path == "message";
            parts_of(value, *form, if is_said { String::new() } else { label }, &mut parts);
        }
    }
    // In a run what comes after it says it again: the message what was answered, the calls their arguments.
    if entry.run.is_some() && !entry.is_failed() {
        let is_said_again =
            |part: &&mut Part| entry.event == "llm.response" || entry.event == "message" && part.form != "text";
        parts.iter_mut().filter(is_said_again).for_each(|part| part.folded = true);
    }
    parts
}

impl Shown {
    /// How bytes are shown that are no line of a ledger.
    pub(crate) fn of_nothing() -> Self {
        let title = "These bytes are not a line of a ledger".to_owned();
        Self { event: String::new(), group: "other", title, tone: "failed", facts: Vec::new(), parts: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Shown, shown};

    fn line(event: &str, data: &str) -> Shown {
        let raw = format!(
            r#"{{"seq":1,"ts":"2026-01-01T00:00:00.000000Z","event":"{event}","data":{data},"prev":"sha256:{0}","hash":"sha256:{0}"}}"#,
            "0".repeat(64)
        );
        shown(&Entry::read(&raw).unwrap())
    }

    fn of(data: &str) -> Vec<(char, String)> {
        line("tool_call", data).parts.into_iter().flat_map(|part| part.rows).collect()
    }

    #[test]
    fn events_are_shown_in_words() {
        let texts = |shown: &Shown| shown.parts.iter().map(|part| part.text.clone()).collect::<Vec<_>>();
        let asked = r#"{"host":"claude","tool":"Bash","decision":"rewrite","command":"ls | sort","input":null}"#;
        let asked = line("host.intent", asked);
        assert_eq!((&*asked.title, asked.group), ("claude asks about Bash: rewrite", "tool"));
        assert_eq!(texts(&asked), ["ls | sort"]);
        assert_eq!(texts(&line("exec.intent", r#"{"line":"ls | sort"}"#)), ["ls | sort"]);
        let refused = r#"{"rule":"restricted","asked":{"name":"shell","input":{"command":"rm -rf /"}}}"#;
        assert_eq!(texts(&line("exec.refused", refused)), ["shell", "command: rm -rf /"]);
        assert_eq!(texts(&line("exec.refused", r#"{"asked":["rm","a b"]}"#)), ["rm 'a b'"]);
        let part = line("exec.part", r#"{"part":1,"argv":["sort","-u"],"return_code":2}"#);
        assert_eq!((&*part.title, part.tone), ("Part 2 ends: exit 2", "failed"));
        assert_eq!(texts(&part), ["sort -u"]);
        let step = |decision: &str| {
            let data = format!(
                r#"{{"argv_as_asked":["rm","a b"],"exe":{{"path":"/bin/rm"}},"decision":"{decision}","rule":"restricted"}}"#
            );
            line("exec.step", &data)
        };
        let denied = step("deny");
        assert_eq!((&*denied.title, denied.tone), ("Starts /bin/rm: deny", "refused"));
        assert_eq!((texts(&denied), &*denied.facts[0].value), (vec!["rm 'a b'".to_owned()], "restricted"));
        assert_eq!(step("allow").tone, "");
        let connection = |decision: &str| {
            let data =
                format!(r#"{{"name":"pypi.org","decision":"{decision}","rule":"pypi.org","port":443,"bytes_in":7}}"#);
            line("exec.connection", &data)
        };
        let (allowed, denied) = (connection("allow"), connection("deny"));
        assert_eq!((&*allowed.title, allowed.tone), ("Connection to pypi.org: allow", ""));
        assert_eq!((&*denied.title, denied.tone), ("Connection to pypi.org: deny", "refused"));
    }

    #[test]
    fn edit_is_shown_as_a_difference() {
        let edit =
            r#"{"name":"filesystem","input":{"operation":"edit_file","path":"a","old":"1\n2\n3","new":"1\ntwo\n3"}}"#;
        let row = |sign: char, text: &str| (sign, text.to_owned());
        assert_eq!(of(edit), [row(' ', "1"), row('-', "2"), row('+', "two"), row(' ', "3")]);
        let patch = r#"{"name":"filesystem","input":{"patch":"@@ -1 +1 @@\n-a\n+b\n c"}}"#;
        assert_eq!(of(patch), [row('@', "@ -1 +1 @@"), row('-', "a"), row('+', "b"), row(' ', "c")]);
        assert_eq!(of(r#"{"input":{"old":"","new":""}}"#), []);
    }
}

//! An entry as a caller gives it, before it has a place in the ledger.

use std::collections::BTreeSet;

use cp_common::{Error, Result, json};
use serde::Serialize;

use crate::format::line::{decimal, inside, member, members};

/// An entry to append. Members that are not set are left out of the line.
#[derive(Debug, Default)]
pub struct Entry {
    event: String,
    agent: Option<String>,
    session: Option<String>,
    run: Option<String>,
    turn: Option<u64>,
    role: Option<String>,
    /// JSON in normal form.
    content: Option<Vec<u8>>,
    message: Option<String>,
    /// The members of the object in normal form, without its braces.
    data: Vec<u8>,
    /// Characters that could not be kept.
    replaced: u64,
    /// The bytes a text came as, if it was not UTF-8.
    original: Option<Vec<u8>>,
    /// The first error while the entry was built; it is reported when the entry is appended.
    fault: Option<Error>,
}

impl Entry {
    /// An entry with this event.
    pub fn new(event: impl Into<String>) -> Self {
        Self { event: event.into(), ..Self::default() }
    }

    /// Sets the event.
    #[must_use]
    pub fn event(mut self, event: impl Into<String>) -> Self {
        self.event = event.into();
        self
    }

    /// Sets the agent.
    #[must_use]
    pub fn agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Sets the session.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Sets the run.
    #[must_use]
    pub fn run(mut self, run: impl Into<String>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Sets the turn in the session or run.
    #[must_use]
    pub fn turn(mut self, turn: u64) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Sets the role.
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = Some(role.into());
        self
    }

    /// Sets the content: any JSON value, usually a string or a list of blocks.
    #[must_use]
    pub fn content(mut self, content: &(impl Serialize + ?Sized)) -> Self {
        self.content = self.normal(content).or(self.content);
        self
    }

    /// Sets the text for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds the members of something that serializes as an object.
    #[must_use]
    pub fn data(mut self, data: &(impl Serialize + ?Sized)) -> Self {
        let text = self.normal(data);
        match text.as_deref().map(inside) {
            Some(Some(text)) => self.add(text),
            Some(None) => self.fault = Some(Error::validation("data must be a JSON object")),
            None => {}
        }
        self
    }

    /// Adds one member to the data.
    #[must_use]
    pub fn with(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        if let Some(value) = self.normal(value) {
            let mut text = Vec::with_capacity(name.len() + value.len() + 3);
            json::string(name, &mut text);
            text.push(b':');
            text.extend_from_slice(&value);
            self.add(&text);
        }
        self
    }

    /// Takes over an error: its message, and the rest as data.
    #[must_use]
    pub fn error(mut self, error: &(impl Serialize + ?Sized)) -> Self {
        let text = self.normal(error).unwrap_or_default();
        self.lift_named(inside(&text).unwrap_or_default(), &["message"]);
        self
    }

    /// Adds the members of an object that came as JSON text: strict, in any spelling.
    pub fn data_json(mut self, object: &[u8]) -> Result<Self> {
        let text = self.normalized(object)?;
        let text = inside(&text).ok_or_else(|| Error::validation("data must be a JSON object"))?;
        self.add(text);
        Ok(self)
    }

    /// Sets the message from bytes that should be UTF-8. Bytes that are not become U+FFFD, are counted, and the
    /// original is kept as a blob.
    pub fn set_message_bytes(&mut self, bytes: &[u8]) {
        self.replaced = 0;
        self.original = None;
        let message = self.message.get_or_insert_default();
        message.clear();
        if let Ok(text) = std::str::from_utf8(bytes) {
            message.push_str(text);
            return;
        }
        for chunk in bytes.utf8_chunks() {
            message.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                message.push(char::REPLACEMENT_CHARACTER);
                self.replaced += 1;
            }
        }
        self.original = Some(bytes.to_vec());
    }

    /// Takes over the members of an object, given as its text between the braces in normal form: those an entry has are
    /// lifted when they have the right type, the rest is data. So is what only a stored line may have: `seq`, `ts`,
    /// `prev`, `hash`; where the object's own data has one of these, it stays together, as `data.data`.
    pub fn lift(&mut self, object: &[u8]) {
        let apart = data_is_apart(object);
        let mut rest = Vec::new();
        for (name, value) in members(object) {
            let text = || json::unquote(value);
            match name {
                _ if !is_lifted(name, value) => push_member(&mut rest, name, value),
                b"event" => self.event = text().unwrap_or_default(),
                b"agent" => self.agent = text(),
                b"session" => self.session = text(),
                b"run" => self.run = text(),
                b"role" => self.role = text(),
                b"message" => self.message = text(),
                b"turn" => self.turn = parsed(value),
                b"content" => self.content = Some(value.to_vec()),
                b"data" if !apart => {
                    if let Some(inner) = inside(value).filter(|inner| !inner.is_empty()) {
                        rest.push(b',');
                        rest.extend_from_slice(inner);
                    }
                }
                _ => push_member(&mut rest, name, value),
            }
        }
        self.add(&rest);
    }

    /// Like [`Entry::lift`], but only these names are lifted.
    pub fn lift_named(&mut self, object: &[u8], names: &[&str]) {
        let (mut lifted, mut rest) = (Vec::new(), Vec::new());
        for (name, value) in members(object) {
            let into = if names.iter().any(|known| known.as_bytes() == name) { &mut lifted } else { &mut rest };
            push_member(into, name, value);
        }
        self.lift(&lifted);
        self.add(&rest);
    }

    /// Sets the content to JSON in normal form.
    pub fn set_content(&mut self, content: Vec<u8>) {
        self.content = Some(content);
    }

    /// JSON that came as text, in normal form. Characters that are replaced are counted.
    pub fn normalized(&mut self, text: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(text.len());
        let replaced = json::normalize(text, &mut out)
            .map_err(|fault| Error::validation(format!("not valid JSON: {fault}")).with("offset", fault.offset))?;
        self.replaced += u64::from(replaced);
        Ok(out)
    }

    /// The normal form of something serializable. A failure is kept.
    fn normal(&mut self, value: &(impl Serialize + ?Sized)) -> Option<Vec<u8>> {
        let text = serde_json::to_vec(value);
        let text = text.map_err(|e| Error::validation(format!("entry cannot be written as JSON: {e}")));
        text.and_then(|text| self.normalized(&text)).map_err(|fault| self.fault = Some(fault)).ok()
    }

    /// Adds members in normal form to the data. The same name twice is a fault. All members are added in one call,
    /// because each call visits the earlier ones.
    fn add(&mut self, text: &[u8]) {
        let mut names: BTreeSet<&[u8]> = members(&self.data).map(|(name, _)| name).collect();
        if let Some((name, _)) = members(text).find(|(name, _)| !names.insert(name)) {
            let name = String::from_utf8_lossy(name);
            self.fault = Some(Error::validation(format!("data has the member \"{name}\" twice")));
            return;
        }
        let text = text.strip_prefix(b",").unwrap_or(text);
        if !self.data.is_empty() && !text.is_empty() {
            self.data.push(b',');
        }
        self.data.extend_from_slice(text);
    }

    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    pub(crate) fn original(&self) -> Option<&[u8]> {
        self.original.as_deref()
    }

    /// Fails if a member that was set cannot be written to a line.
    pub fn check(&self) -> Result<()> {
        self.fault.as_ref().map_or(Ok(()), |fault| Err(Error::new(fault.code(), fault.message())))
    }

    /// Appends the members of the line between `ts` and `prev`, each with its comma before it.
    pub fn compose(&self, out: &mut Vec<u8>) {
        let text = |name: &str, value: Option<&str>, out: &mut Vec<u8>| {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                json::string(value, out);
            }
        };
        text(",\"event\":", Some(&self.event).filter(|event| !event.is_empty()).map(String::as_str), out);
        text(",\"agent\":", self.agent.as_deref(), out);
        text(",\"session\":", self.session.as_deref(), out);
        text(",\"run\":", self.run.as_deref(), out);
        if let Some(turn) = self.turn {
            out.extend_from_slice(b",\"turn\":");
            decimal(turn, out);
        }
        text(",\"role\":", self.role.as_deref(), out);
        if let Some(content) = &self.content {
            out.extend_from_slice(b",\"content\":");
            out.extend_from_slice(content);
        }
        text(",\"message\":", self.message.as_deref(), out);
        if !self.data.is_empty() {
            out.extend_from_slice(b",\"data\":{");
            out.extend_from_slice(&self.data);
            out.push(b'}');
        }
    }
}

/// True if a member of an object becomes one of the entry's own.
fn is_lifted(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"event" | b"agent" | b"session" | b"run" | b"role" | b"message" => value.starts_with(b"\""),
        b"turn" => parsed(value).is_some(),
        b"data" => value.starts_with(b"{"),
        b"content" => true,
        _ => false,
    }
}

/// True if the data of an object has a name that something beside it has too.
fn data_is_apart(object: &[u8]) -> bool {
    let beside = members(object).filter(|(name, value)| !is_lifted(name, value));
    let beside: BTreeSet<&[u8]> = beside.map(|(name, _)| name).collect();
    let data = member(object, "data").and_then(inside).filter(|_| !beside.is_empty());
    members(data.unwrap_or_default()).any(|(name, _)| beside.contains(name))
}

fn push_member(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

fn parsed(number: &[u8]) -> Option<u64> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(entry: &Entry) -> String {
        let mut out = Vec::new();
        entry.compose(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn members_have_one_order_whatever_the_order_of_calls() {
        let entry = Entry::new("turn").data(&json!({"b":1,"a":2})).message("m").content("c").role("user").turn(3);
        let entry = entry.run("R").session("S").agent("A").with("z", &[1, 2]);
        assert_eq!(
            body(&entry),
            r#","event":"turn","agent":"A","session":"S","run":"R","turn":3,"role":"user","content":"c","message":"m","data":{"b":1,"a":2,"z":[1,2]}"#
        );
        assert_eq!(body(&Entry::new("e")), r#","event":"e""#);
    }

    #[test]
    fn data_must_be_an_object_without_doubles() {
        assert!(Entry::new("e").data(&[1]).check().is_err());
        assert!(Entry::new("e").with("a", &1).with("a", &2).check().is_err());
        assert!(Entry::new("e").data_json(b"{\"a\":1,\"a\":2}").is_err());
        assert_eq!(body(&Entry::new("e").data_json(b" {\"a\" : 1e3 } ").unwrap()), r#","event":"e","data":{"a":1e3}"#);
    }

    #[test]
    fn a_row_is_lifted_by_name_and_type() {
        let mut entry = Entry::new("default");
        entry.lift(br#""event":"x","role":7,"content":[1],"seq":4,"message":"hi","turn":2,"data":{"k":true}"#);
        assert_eq!(
            body(&entry),
            r#","event":"x","turn":2,"content":[1],"message":"hi","data":{"role":7,"seq":4,"k":true}"#
        );
    }

    #[test]
    fn lift_keeps_many_members_in_order() {
        let data: Vec<String> = (0..40_000).map(|number| format!("\"k{number}\":{number}")).collect();
        let data = data.join(",");
        let mut entry = Entry::new("e");
        entry.lift(format!("\"other\":1,\"data\":{{{data}}}").as_bytes());
        assert!(entry.check().is_ok());
        assert!(body(&entry) == format!(",\"event\":\"e\",\"data\":{{\"other\":1,{data}}}"));
        entry.lift(br#""k39999":1"#);
        assert!(entry.check().is_err());
    }

    #[test]
    fn lift_keeps_conflicting_data_nested() {
        let mut entry = Entry::new("default");
        entry.lift(br#""seq":9,"turn":"x","data":{"seq":4,"turn":1}"#);
        assert_eq!(body(&entry), r#","event":"default","data":{"seq":9,"turn":"x","data":{"seq":4,"turn":1}}"#);
        assert!(entry.check().is_ok());
    }

    #[test]
    fn bad_bytes_are_replaced_counted_and_kept() {
        let mut entry = Entry::new("e");
        entry.set_message_bytes(b"a\xffb\xc3");
        assert_eq!(body(&entry), ",\"event\":\"e\",\"message\":\"a\u{fffd}b\u{fffd}\"");
        assert_eq!((entry.replaced(), entry.original()), (2, Some(&b"a\xffb\xc3"[..])));
        entry.set_message_bytes(b"fine");
        assert_eq!((entry.replaced(), entry.original()), (0, None));
    }
}

//! A line of a ledger as its parts. Nothing is believed of it: what has another type than expected is left out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use chrono::DateTime;
use cp_ledger::format::line::{Line, inside, member, members};
use cp_ledger::usage::UsageTotals;
use serde_json::value::RawValue;

/// A JSON value as it is spelt.
#[derive(Clone, Copy)]
pub(crate) struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// The member at a path of names with dots between them.
    pub(crate) fn at(self, path: &str) -> Option<Self> {
        path.split('.').try_fold(self, |value, name| member(inside(value.0)?, name).map(Self))
    }

    /// The text, if it is one.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        let quoted = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        if quoted.contains(&b'\\') {
            return serde_json::from_slice(self.0).ok().map(Cow::Owned);
        }
        std::str::from_utf8(quoted).ok().map(Cow::Borrowed)
    }

    pub(crate) fn number(self) -> Option<f64> {
        std::str::from_utf8(self.0).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    pub(crate) fn whole(self) -> Option<u64> {
        std::str::from_utf8(self.0).ok()?.parse().ok()
    }

    pub(crate) fn usage(self) -> Option<UsageTotals> {
        UsageTotals::parse(self.0)
    }

    pub(crate) fn is(self, spelt: &str) -> bool {
        self.0 == spelt.as_bytes()
    }

    /// The elements, if it is a list.
    pub(crate) fn items(self) -> Option<Vec<Self>> {
        let items: Vec<&'a RawValue> = serde_json::from_slice(self.0).ok()?;
        Some(items.into_iter().map(|item| Self(item.get().as_bytes())).collect())
    }

    /// The members, if it is an object.
    pub(crate) fn members(self) -> Option<impl Iterator<Item = (Cow<'a, str>, Self)>> {
        let name = |name: &'a [u8]| String::from_utf8_lossy(name);
        Some(members(inside(self.0)?).map(move |(found, value)| (name(found), Self(value))))
    }

    /// The spelling, on more than one line where it has parts.
    pub(crate) fn pretty(self) -> String {
        let spelt = || String::from_utf8_lossy(self.0).into_owned();
        if !matches!(self.0.first(), Some(b'{' | b'[')) {
            return self.text().map_or_else(spelt, Cow::into_owned);
        }
        let value = serde_json::from_slice::<serde_json::Value>(self.0).ok();
        value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(spelt)
    }
}

/// The parts of a line.
pub(crate) struct Entry<'a> {
    pub(crate) seq: u64,
    pub(crate) ts: &'a str,
    pub(crate) event: Cow<'a, str>,
    pub(crate) run: Option<Cow<'a, str>>,
    pub(crate) turn: Option<u64>,
    pub(crate) role: Option<Cow<'a, str>>,
    pub(crate) agent: Option<Cow<'a, str>>,
    pub(crate) session: Option<Cow<'a, str>>,
    pub(crate) content: Option<Json<'a>>,
    pub(crate) message: Option<Json<'a>>,
    pub(crate) data: Json<'a>,
}

impl<'a> Entry<'a> {
    /// Reads a line. One that has not the shape of a line has no parts.
    pub(crate) fn read(raw: &'a str) -> Option<Self> {
        let line = Line::parse(raw.as_bytes())?;
        let mut entry = Self {
            seq: line.seq(),
            ts: line.ts(),
            event: Cow::Borrowed("entry"),
            run: None,
            turn: None,
            role: None,
            agent: None,
            session: None,
            content: None,
            message: None,
            data: Json(b"{}"),
        };
        for (name, value) in line.members() {
            let value = Json(value);
            match name {
                b"event" => entry.event = value.text().unwrap_or_default(),
                b"run" => entry.run = value.text(),
                b"turn" => entry.turn = value.whole(),
                b"role" => entry.role = value.text(),
                b"agent" => entry.agent = value.text(),
                b"session" => entry.session = value.text(),
                b"content" => entry.content = Some(value),
                b"message" => entry.message = Some(value),
                b"data" => entry.data = value,
                _ => {}
            }
        }
        Some(entry)
    }

    /// A member of the data, if it is there and not null.
    pub(crate) fn get(&self, path: &str) -> Option<Json<'a>> {
        self.data.at(path).filter(|value| !value.is("null"))
    }

    pub(crate) fn text(&self, path: &str) -> Option<Cow<'a, str>> {
        self.get(path)?.text()
    }

    pub(crate) fn number(&self, path: &str) -> Option<f64> {
        self.get(path)?.number()
    }

    /// The time in milliseconds since 1970.
    pub(crate) fn time(&self) -> i64 {
        DateTime::parse_from_rfc3339(self.ts).map_or(0, |time| time.timestamp_millis())
    }

    /// True if it was not allowed.
    pub(crate) fn is_refused(&self) -> bool {
        let is_denied = || self.text("decision").is_some_and(|decision| decision == "deny");
        match &*self.event {
            "approval.denied" => true,
            // Without a rule it is a mistake, such as a file that does not exist.
            "exec.refused" => self.get("rule").is_some(),
            "exec.step" | "exec.connection" => is_denied(),
            _ => false,
        }
    }

    /// True if it says that something went wrong.
    pub(crate) fn is_failed(&self) -> bool {
        let is_not_zero = |path: &str| self.number(path).is_some_and(|number| number != 0.0);
        match &*self.event {
            "exec.result" | "exec.part" => {
                is_not_zero("return_code") || self.get("signal").is_some() || self.get("ended").is_some()
            }
            "tool_result" => self.get("is_error").is_some_and(|is_error| is_error.is("true")),
            "run_end" => self.text("status").is_some_and(|status| status != "completed"),
            "error" | "run_paused" => true,
            "exec.refused" => self.get("rule").is_none(),
            "llm.response" => self.get("code").is_some(),
            "command" => is_not_zero("exit"),
            _ => false,
        }
    }
}

/// The most open requests that are kept.
const MOST: usize = 10_000;

/// The requests on a ledger that were not answered yet.
#[derive(Default)]
pub(crate) struct Pairs {
    waiting: HashMap<u64, Vec<u64>>,
    count: usize,
    hasher: RandomState,
}

impl Pairs {
    /// The line that this one is about, if it ends what that one began.
    pub(crate) fn see(&mut self, entry: &Entry<'_>) -> Option<u64> {
        let text = |path: &str| entry.get(path).map(Json::pretty).unwrap_or_default();
        let (begins, kind, name) = match &*entry.event {
            "llm.request" | "llm.response" => {
                let begins = entry.event == "llm.request";
                (begins, 0, [text("request_hash"), text("attempt"), text("batch")].join(" "))
            }
            "tool_call" | "tool_result" => (entry.event == "tool_call", 1, text("id")),
            "exec.intent" => (true, 2, entry.seq.to_string()),
            "exec.result" => (false, 2, text("intent")),
            "approval.asked" => (true, 3, text("id")),
            "approval.granted" | "approval.denied" => (false, 3, text("id")),
            _ => return None,
        };
        let key = self.hasher.hash_one((kind, name, entry.run.as_deref()));
        if begins {
            if self.count < MOST {
                self.count += 1;
                self.waiting.entry(key).or_default().push(entry.seq);
            }
            return None;
        }
        let waiting = self.waiting.get_mut(&key)?;
        let first = waiting.remove(0);
        self.count -= 1;
        if waiting.is_empty() {
            self.waiting.remove(&key);
        }
        Some(first)
    }
}

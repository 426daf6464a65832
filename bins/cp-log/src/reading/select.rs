//! The filters on lines. Lines that a search of bytes can exclude are skipped before they are parsed.

use std::path::PathBuf;

use cp_common::{Context, Error, Result, clock, json};
use cp_ledger::read::{Lines, Raw};
use memchr::memmem::Finder;
use regex_bites::bytes::Regex;
use serde::Serialize;

use crate::reading::files::run_id;
use crate::reading::reader::View;

/// Filters on the lines of a ledger
#[derive(Clone, Debug, Default, Serialize, clap::Args)]
pub(crate) struct Filters {
    /// Only this event (repeatable)
    #[arg(long, value_name = "E")]
    event: Vec<String>,
    /// Only this agent
    #[arg(long, value_name = "A")]
    agent: Option<String>,
    /// Not before this time: RFC 3339, a date, today, yesterday, or a span ago,
    /// such as 30m, 2h, 7d, 1w
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only lines whose bytes match this regular expression; a plain word is found however JSON spells it
    #[arg(long, value_name = "REGEX")]
    grep: Option<String>,
}

/// Prepared filters.
pub(crate) struct Select {
    events: Vec<Vec<u8>>,
    /// Members and the JSON that their values must be.
    equal: Vec<(&'static str, Vec<u8>)>,
    since: Option<String>,
    until: Option<String>,
    pattern: Option<Pattern>,
    /// Bytes that every matching line holds.
    needle: Option<Finder<'static>>,
}

enum Pattern {
    Plain(Box<Finder<'static>>),
    Regex(Regex),
}

impl Select {
    /// The filters of a verb that reads files. `--session` filters lines only where operands chose the files: else it
    /// chose those.
    pub(crate) fn over(filters: &Filters, files: &[PathBuf], context: &Context) -> Result<Self> {
        Self::of(filters, context.options.session.as_deref().filter(|_| !files.is_empty()), context)
    }

    /// The filters of a verb, with the run that `--run` names by its id or its name.
    pub(crate) fn of(filters: &Filters, session: Option<&str>, context: &Context) -> Result<Self> {
        let run = context.options.run.as_deref().map(|run| run_id(run, context)).transpose()?;
        let mut equal = Vec::new();
        for (name, value) in [("agent", filters.agent.as_deref()), ("session", session), ("run", run.as_deref())] {
            equal.extend(value.map(|value| (name, quoted(value))));
        }
        let events: Vec<Vec<u8>> = filters.event.iter().map(|event| quoted(event)).collect();
        let pattern = filters.grep.as_deref().map(Pattern::new).transpose()?;
        let mut needles: Vec<Vec<u8>> =
            equal.iter().map(|(name, value)| [b",\"", name.as_bytes(), b"\":", value].concat()).collect();
        if let [event] = &events[..] {
            needles.push([b",\"event\":", &event[..]].concat());
        }
        if let Some(Pattern::Plain(plain)) = &pattern {
            needles.push(plain.needle().to_vec());
        }
        // The longest is the rarest, as a rule.
        let needle = needles.into_iter().max_by_key(Vec::len).map(|needle| Finder::new(&needle).into_owned());
        let time = |text: &Option<String>| text.as_deref().map(clock::time_of).transpose();
        Ok(Self { events, equal, since: time(&filters.since)?, until: time(&filters.until)?, pattern, needle })
    }

    /// The next line of a file that may match; lines that cannot are skipped before they are parsed.
    pub(crate) fn next<'a>(&self, lines: &'a mut Lines) -> Result<Option<Raw<'a>>> {
        match &self.needle {
            Some(needle) => lines.next_with(needle),
            None => lines.next(),
        }
    }

    /// True if an entry matches.
    pub(crate) fn matches(&self, line: &View<'_>) -> bool {
        let ts = line.ts;
        self.since.as_deref().is_none_or(|since| ts >= since)
            && self.until.as_deref().is_none_or(|until| ts < until)
            && (self.events.is_empty()
                || line.member("event").is_some_and(|event| self.events.iter().any(|one| one == event)))
            && self.equal.iter().all(|(name, value)| line.member(name) == Some(value))
            && match &self.pattern {
                None => true,
                Some(Pattern::Plain(plain)) => plain.find(line.written).is_some(),
                Some(Pattern::Regex(regex)) => regex.is_match(line.written),
            }
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self> {
        if regex_bites::escape(text) == text {
            let spelt = quoted(text);
            return Ok(Self::Plain(Box::new(Finder::new(&spelt[1..spelt.len() - 1]).into_owned())));
        }
        let regex = Regex::new(text).map_err(|e| {
            let reason = e.to_string();
            Error::usage(format!("--grep: {}", reason.lines().last().unwrap_or("not a regular expression").trim()))
        })?;
        Ok(Self::Regex(regex))
    }
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::string(text, &mut out);
    out
}

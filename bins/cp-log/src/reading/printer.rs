//! Printing lines: as records, as chosen members, as text, or through a jq program.

use cp_common::output::{Format, printable};
use cp_common::{Context, Error, Result, json};
use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Native, Vars, unwrap_valr};
use jaq_json::write::{Pp, write};
use jaq_json::{Val, read};

use crate::reading::{Target, View, summary};

/// Prints lines up to a limit.
pub(crate) struct Printer {
    jq: Option<Program>,
    jq_failures: u64,
    limit: u64,
    count: u64,
    has_more: bool,
    /// The members that are appended to the entries of a file.
    mark: Option<(Target, Vec<u8>)>,
    /// The record being written; kept to reuse its memory.
    line: Vec<u8>,
}

impl Printer {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        Self { jq: None, jq_failures: 0, limit, count: 0, has_more: false, mark: None, line: Vec::new() }
    }

    /// Prints the values of a jq program instead of records.
    pub(crate) fn through(mut self, program: Option<&str>) -> Result<Self> {
        self.jq = program.map(|text| Program::new(text, "--jq")).transpose()?;
        Ok(self)
    }
}

impl Printer {
    /// True if there are lines beyond the limit.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// True if bare values are printed, and no records.
    pub(crate) fn is_bare(&self) -> bool {
        self.jq.is_some()
    }

    /// True if the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// Prints an entry and where it was found; false when the limit was reached before.
    pub(crate) fn print(&mut self, target: &Target, view: &View<'_>, context: &mut Context) -> Result<bool> {
        if self.is_full() {
            self.has_more = true;
            return Ok(false);
        }
        self.count += 1;
        self.line.clear();
        let format = context.out.format();
        if self.mark.as_ref().is_none_or(|(of, _)| of != target) {
            self.mark = Some((target.clone(), target.mark()));
        }
        let mark = self.mark.as_ref().map_or(&b"}"[..], |(_, mark)| mark);
        // The mark ends with the brace of the entry.
        let open = &view.entry[..view.entry.len() - 1];
        if let Some(program) = &self.jq {
            if let Err(e) = program.run(&[open, mark].concat(), format != Format::Json, &mut self.line) {
                self.jq_failures += 1;
                context.warn(&format!("{}: seq {}: {e}", target.path.display(), view.seq));
            }
            match format {
                Format::Text => context.out.piece(&String::from_utf8_lossy(&self.line))?,
                Format::Json | Format::Raw => context.out.raw(&self.line)?,
            }
            return Ok(true);
        }
        let untrusted = untrusted_of(view);
        let marked = || [open, &mark[..mark.len() - 1], &untrusted, b"}"].concat();
        if format == Format::Json {
            self.line.extend_from_slice(b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"entry\",\"data\":");
        }
        match (context.out.fields(), format) {
            (Some(fields), Format::Text) => {
                let chosen = fields.project(&marked());
                self.line.extend_from_slice(printable(&String::from_utf8_lossy(&chosen)).as_bytes());
            }
            (Some(fields), Format::Json | Format::Raw) => self.line.extend(fields.project(&marked())),
            (None, Format::Json) => {
                self.line.extend_from_slice(open);
                self.line.extend_from_slice(&mark[..mark.len() - 1]);
                self.line.extend_from_slice(&untrusted);
                self.line.push(b'}');
            }
            (None, Format::Text) => self.line.extend_from_slice(printable(&text_of(view)).as_bytes()),
            (None, Format::Raw) => self.line.extend_from_slice(view.written),
        }
        if format == Format::Json {
            self.line.push(b'}');
        }
        context.out.item_succeeded();
        context.out.pass(&self.line)?;
        Ok(true)
    }

    /// Completes the closing line; bare values have none.
    pub(crate) fn finish(&self, next_cursor: Option<String>, context: &mut Context) -> Result<()> {
        if self.jq.is_none() {
            self.close(next_cursor, context);
            return Ok(());
        }
        if self.jq_failures > 0 {
            return Err(Error::validation(format!("--jq failed on {} lines", self.jq_failures)));
        }
        context.out.ended_with(0);
        Ok(())
    }

    /// Completes the closing line: how many entries there were, and where the next page begins.
    pub(crate) fn close(&self, next_cursor: Option<String>, context: &mut Context) {
        context.out.extra("count", self.count);
        context.out.extra("next_cursor", next_cursor);
        context.out.extra("has_more", self.has_more);
        context.out.extra("truncated", self.has_more);
    }
}

/// The pointers to untrusted values, as the last member of an entry; empty if there are none.
fn untrusted_of(view: &View<'_>) -> Vec<u8> {
    let mut list = Vec::new();
    for name in ["content", "message", "data"].iter().filter(|name| view.member(name).is_some()) {
        list.extend_from_slice(if list.is_empty() { b",\"_untrusted\":[\"/" } else { b",\"/" });
        list.extend_from_slice(name.as_bytes());
        list.push(b'"');
    }
    if !list.is_empty() {
        list.push(b']');
    }
    list
}

/// A line as text.
fn text_of(line: &View<'_>) -> String {
    let text = |name: &str| {
        line.member(name).map(|value| json::unquote(value).unwrap_or_else(|| String::from_utf8_lossy(value).into()))
    };
    let mut text_of_line = format!("{} {:>6} {}", line.ts, line.seq, text("event").unwrap_or_else(|| "-".to_owned()));
    let data = line.member("data").and_then(|data| serde_json::from_slice(data).ok());
    let summary = data.and_then(|data| summary::of(&text("event").unwrap_or_default(), &data));
    let agent = text("agent").filter(|agent| agent != "default");
    let role = text("role").map(|role| role + ":");
    for part in [agent, summary, role, text("content"), text("message")].into_iter().flatten() {
        text_of_line.push(' ');
        text_of_line.push_str(&part);
    }
    text_of_line
}

type Data = JustLut<Val>;

/// A program that is ready to run.
pub(crate) struct Program {
    filter: jaq_core::compile::Filter<Native<Data>>,
    print: Pp,
}

impl Program {
    /// Compiles the program of an option. A mistake in it is a usage error that says where.
    pub(crate) fn new(text: &str, option: &str) -> Result<Self> {
        let wrong = |what: String| {
            Error::usage(format!("{option}: {what}"))
                .hint("quote the program for the shell; the language is described in jq(1)")
        };
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let arena = Arena::default();
        let modules = Loader::new(definitions).load(&arena, File { code: text, path: () });
        let modules = modules
            .map_err(|errors| wrong(errors.first().map_or_else(String::new, |(_, error)| description(error))))?;
        let functions = jaq_core::funs::<Data>().chain(jaq_std::funs()).chain(jaq_json::funs());
        let filter = Compiler::default().with_funs(functions).compile(modules).map_err(|errors| {
            let first = errors.first().and_then(|(_, undefined)| undefined.first());
            wrong(first.map_or_else(String::new, |(name, kind)| format!("undefined {} `{name}`", kind.as_str())))
        })?;
        Ok(Self { filter, print: Pp::default() })
    }

    /// Appends the values that the program makes of a line, one a line. Strings are without quotes if `raw`.
    pub(crate) fn run(&self, line: &[u8], raw: bool, out: &mut Vec<u8>) -> Result<()> {
        self.each(line, |value| {
            match &value {
                Val::TStr(text) if raw => out.extend_from_slice(text),
                value => write(&mut *out, &self.print, 0, value).map_err(|e| Error::io("writing a value", e))?,
            }
            out.push(b'\n');
            Ok(true)
        })
    }

    /// Calls `each` with the values of a line, until it returns false.
    fn each(&self, line: &[u8], mut each: impl FnMut(Val) -> Result<bool>) -> Result<()> {
        let input = read::parse_single(line).map_err(|e| Error::validation(format!("not JSON: {e}")))?;
        let context = Ctx::<Data>::new(&self.filter.lut, Vars::new([]));
        for value in self.filter.id.run((context, input)).map(unwrap_valr) {
            if !each(value.map_err(|e| Error::validation(format!("--jq: {e}")))?)? {
                break;
            }
        }
        Ok(())
    }
}

fn description(error: &load::Error<&str>) -> String {
    match error {
        load::Error::Io(errors) => errors.first().map_or_else(String::new, |(path, e)| format!("{path}: {e}")),
        load::Error::Lex(errors) => errors
            .first()
            .map_or_else(String::new, |(expected, rest)| format!("expected {} at `{rest}`", expected.as_str())),
        load::Error::Parse(errors) => errors
            .first()
            .map_or_else(String::new, |(expected, rest)| format!("expected {} at `{rest}`", expected.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, line: &str) -> String {
        let mut out = Vec::new();
        Program::new(program, "--jq").unwrap().run(line.as_bytes(), false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn jq_prints_one_value_per_line_and_keeps_numbers() {
        assert_eq!(run(".a, .b", r#"{"a":"x","b":{"c":[1]}}"#), "\"x\"\n{\"c\":[1]}\n");
        assert_eq!(run(".n", r#"{"n":123456789012345678901234567890}"#), "123456789012345678901234567890\n");
        assert_eq!(run("select(.seq%2==0).m", r#"{"seq":1,"m":2}"#), "");
        assert_eq!(run(r#".m|test("^a+$")"#, r#"{"m":"aaa"}"#), "true\n");
    }

    #[test]
    fn invalid_jq_program_is_a_usage_error() {
        for bad in [".a |", "nothing(.)", "(", "$x", "\"", "{", ".[", "if"] {
            assert_eq!(Program::new(bad, "--jq").err().map(|e| e.code()), Some(cp_common::Code::Usage), "{bad}");
        }
        let program = Program::new(".a.b", "--jq").unwrap();
        assert!(program.run(b"{\"a\":1}", false, &mut Vec::new()).is_err());
    }
}
